/* How many keys a Bloom filter of 32 Ki bits lets through: three probes each. */
#include "diskside.h"

struct filter { __u64 words[512]; };

SEC("read/bloom_probe")
__s64 bloom_probe(__u64 *out, const __u64 *in, __u64 in_len, const struct filter *filter, const struct ds_call *call)
{
    __u64 through = 0;
    for (__u64 i = 0; i < in_len / 8; i++) {
        __u64 hash = in[i] * 0x9e3779b97f4a7c15ull;
        int all = 1;
        for (int k = 0; k < 3; k++) {
            __u32 bit = hash >> (15 * k + 4) & 32767;
            if (!(filter->words[bit / 64] >> bit % 64 & 1)) {
                all = 0;
                break;
            }
        }
        through += all;
    }
    *out = through;
    return sizeof(*out);
}
