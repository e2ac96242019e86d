/* Sorts each block of 64 numbers by insertion. */
#include "diskside.h"

SEC("read/sort_blocks")
__s64 sort_blocks(__u32 *out, const __u32 *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    __u64 blocks = in_len / 256;
    for (__u64 b = 0; b < blocks; b++) {
        __u32 *block = out + b * 64;
        for (int i = 0; i < 64; i++) {
            __u32 value = in[b * 64 + i];
            int k = i;
            for (; k > 0 && block[k - 1] > value; k--)
                block[k] = block[k - 1];
            block[k] = value;
        }
    }
    return blocks * 256;
}
