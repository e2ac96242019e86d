/* Joins rows with a small table: builds a hash table of the arguments on the heap, and sums what matches. */
#include "diskside.h"
DS_OUTPUT(0, 1, 64);

struct dimension { __u32 key, rate; };
struct dimensions { __u32 count, keys[1000], rates[1000]; };
struct sale { __u32 key, amount; };
struct result { __u64 matched, revenue; };

#define SLOTS 4096

SEC("read/hash_join")
__s64 hash_join(struct result *out, const struct sale *in, __u64 in_len, const struct dimensions *small,
                const struct ds_call *call)
{
    struct dimension *table = ds_alloc(SLOTS * sizeof(*table));
    if (!table)
        return -DS_ENOMEM;
    for (__u32 i = 0; i < small->count; i++) {
        __u32 slot = small->keys[i] * 2654435761u >> 20;
        while (table[slot].key)
            slot = (slot + 1) % SLOTS;
        table[slot].key = small->keys[i];
        table[slot].rate = small->rates[i];
    }
    for (__u64 i = 0; i < in_len / sizeof(*in); i++) {
        __u32 slot = in[i].key * 2654435761u >> 20;
        while (table[slot].key && table[slot].key != in[i].key)
            slot = (slot + 1) % SLOTS;
        if (table[slot].key) {
            out->matched++;
            out->revenue += (__u64)in[i].amount * table[slot].rate;
        }
    }
    ds_free(table);
    return sizeof(*out);
}
