/* Counts in the named state how often it ran; with an argument other than 0 it counts for ever. */
#include "diskside.h"

DS_SPLIT_BYTES;
DS_CONCATENATE;
DS_OUTPUT(0, 1, 64);

SEC("read/state")
__s64 state(__u8 *out, const __u8 *in, __u64 in_len, const __u64 *for_ever, const struct ds_call *call)
{
    volatile __u64 *count = (volatile __u64 *)(11ull << 40);
    do
        count[0]++;
    while (*for_ever);
    *(__u64 *)out = count[0];
    return 8;
}
