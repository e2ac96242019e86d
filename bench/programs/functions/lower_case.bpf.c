/* ASCII text in lower case. */
#include "diskside.h"

SEC("read/lower_case")
__s64 lower_case(char *out, const char *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    for (__u64 i = 0; i < in_len; i++)
        out[i] = in[i] >= 'A' && in[i] <= 'Z' ? in[i] + 32 : in[i];
    return in_len;
}
