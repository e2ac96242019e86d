/* Size of the intersection of two sorted lists, which are the halves of the input: two pointers. */
#include "diskside.h"

SEC("read/intersect")
__s64 intersect(__u64 *out, const __u32 *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    __u64 n = in_len / 8, i = 0, j = 0, common = 0;
    const __u32 *a = in, *b = in + n;
    while (i < n && j < n) {
        if (a[i] < b[j]) {
            i++;
        } else if (a[i] > b[j]) {
            j++;
        } else {
            common++;
            i++;
            j++;
        }
    }
    *out = common;
    return sizeof(*out);
}
