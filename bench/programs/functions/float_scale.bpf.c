/* Celsius to Fahrenheit, a column of floats. */
#include "diskside.h"

SEC("read/float_scale")
__s64 float_scale(float *out, const float *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    __u64 n = in_len / sizeof(*in);
    for (__u64 i = 0; i < n; i++)
        out[i] = in[i] * 1.8f + 32.0f;
    return n * sizeof(*out);
}
