/* The sixteen greatest values with their places, kept sorted. */
#include "diskside.h"

struct entry { __u64 value, at; };

SEC("read/top_k")
__s64 top_k(struct entry *out, const __u64 *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    for (__u64 i = 0; i < in_len / 8; i++) {
        if (in[i] <= out[15].value)
            continue;
        int k = 15;
        while (k > 0 && out[k - 1].value < in[i]) {
            out[k] = out[k - 1];
            k--;
        }
        out[k].value = in[i];
        out[k].at = i;
    }
    return 16 * sizeof(*out);
}
