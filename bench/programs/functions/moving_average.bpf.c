/* The mean of the last sixteen values, for each. */
#include "diskside.h"

SEC("read/moving_average")
__s64 moving_average(double *out, const double *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    __u64 n = in_len / sizeof(*in);
    double sum = 0;
    for (__u64 i = 0; i < n; i++) {
        sum += in[i];
        if (i >= 16)
            sum -= in[i - 16];
        out[i] = sum / (i < 16 ? i + 1 : 16);
    }
    return n * sizeof(*out);
}
