/* Count and sum for each key, in a hash table in the output. */
#include "diskside.h"
DS_OUTPUT(0, 1, 98304);

struct row { __u64 key, value; };
struct group { __u64 key, count, sum; };

#define SLOTS 4096

SEC("read/group_sum")
__s64 group_sum(struct group *out, const struct row *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    for (__u64 i = 0; i < in_len / sizeof(*in); i++) {
        __u64 key = in[i].key;
        __u64 slot = key * 0x9e3779b97f4a7c15ull >> 52;
        while (out[slot].count && out[slot].key != key)
            slot = (slot + 1) & (SLOTS - 1);
        out[slot].key = key;
        out[slot].count++;
        out[slot].sum += in[i].value;
    }
    return SLOTS * sizeof(*out);
}
