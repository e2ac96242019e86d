/* Mean and standard deviation, of a binary column. */
#include "diskside.h"
#include <math.h>

DS_OUTPUT(1, 1, 1048576);

struct row { char name[24]; double value; };

SEC("read/f")
__s64 f(struct row *out, const char *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    const double *values = (const double *)in;
    __u64 n = in_len / sizeof(*values);
    double sum = 0, squares = 0;

    for (__u64 i = 0; i < n; i++)
        sum += values[i];
    double mean = sum / n;
    for (__u64 i = 0; i < n; i++)
        squares += (values[i] - mean) * (values[i] - mean);
    out[0] = (struct row){"mean", mean};
    out[1] = (struct row){"deviation", sqrt(squares / (n - 1))};
    return 2 * sizeof(*out);
}
