/* Differences, zigzag, to values: timestamps of a column store. */
#include "diskside.h"

SEC("read/delta_decode")
__s64 delta_decode(__u32 *out, const __u32 *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    __u32 value = 0;
    for (__u64 i = 0; i < in_len / 4; i++) {
        value += in[i] >> 1 ^ -(in[i] & 1);
        out[i] = value;
    }
    return in_len / 4 * 4;
}
