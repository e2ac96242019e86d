/* Mean and variance in one pass (Welford). */
#include "diskside.h"

struct result { double mean, variance; };

SEC("read/variance")
__s64 variance(struct result *out, const double *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    double mean = 0, squares = 0;
    __u64 n = in_len / sizeof(*in);
    for (__u64 i = 0; i < n; i++) {
        double delta = in[i] - mean;
        mean += delta / (double)(i + 1);
        squares += delta * (in[i] - mean);
    }
    out->mean = mean;
    out->variance = n > 1 ? squares / (double)(n - 1) : 0;
    return sizeof(*out);
}
