/* A histogram of doubles between 0 and 1, in 100 bins. */
#include "diskside.h"
DS_OUTPUT(0, 1, 816);

SEC("read/float_histogram")
__s64 float_histogram(__u64 *out, const double *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    for (__u64 i = 0; i < in_len / sizeof(*in); i++) {
        if (in[i] < 0)
            out[100]++;
        else if (in[i] >= 1)
            out[101]++;
        else
            out[(int)(in[i] * 100)]++;
    }
    return 102 * sizeof(*out);
}
