/* How many keys of a column are in a sorted table of arguments: a binary search for each. */
#include "diskside.h"

struct table { __u32 keys[1024]; };

SEC("read/binary_search")
__s64 binary_search(__u64 *out, const __u32 *in, __u64 in_len, const struct table *table, const struct ds_call *call)
{
    __u64 found = 0;
    for (__u64 i = 0; i < in_len / 4; i++) {
        __u32 low = 0, high = 1024;
        while (low < high) {
            __u32 middle = (low + high) / 2;
            if (table->keys[middle] < in[i])
                low = middle + 1;
            else
                high = middle;
        }
        if (low < 1024 && table->keys[low] == in[i])
            found++;
    }
    *out = found;
    return sizeof(*out);
}
