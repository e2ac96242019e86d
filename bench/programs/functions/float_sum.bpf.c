/* Sum of squares, and how many values are above a half, of doubles. */
#include "diskside.h"

struct result { double sum; __u64 above; };

SEC("read/float_sum")
__s64 float_sum(struct result *out, const double *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    double sum = 0;
    __u64 above = 0;
    for (__u64 i = 0; i < in_len / sizeof(*in); i++) {
        sum += in[i] * in[i];
        if (in[i] > 0.5)
            above++;
    }
    out->sum = sum;
    out->above = above;
    return sizeof(*out);
}
