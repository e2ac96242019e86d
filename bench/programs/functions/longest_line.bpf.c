/* Length of the longest line. */
#include "diskside.h"

SEC("read/longest_line")
__s64 longest_line(__u64 *out, const char *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    __u64 len = 0, longest = 0;
    for (__u64 i = 0; i < in_len; i++) {
        len = in[i] == '\n' ? 0 : len + 1;
        if (len > longest)
            longest = len;
    }
    *out = longest;
    return sizeof(*out);
}
