/* Where a key belongs in a B-tree's node of 256 sorted keys: eight steps of a binary search. */
#include "diskside.h"

struct node_search_args {
    __u64 key;
};

SEC("read/node_search")
__s64 node_search(void *out, const __u64 *keys, __u64 in_len, const struct node_search_args *args,
                  const struct ds_call *call)
{
    __u64 key = args->key;
    __u64 low = 0, high = in_len / sizeof(*keys);
    while (low < high) {
        __u64 middle = (low + high) / 2;
        if (keys[middle] <= key)
            low = middle + 1;
        else
            high = middle;
    }
    return (__s64)low;
}
