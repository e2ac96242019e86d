/* Characters of UTF-8, and sequences that are none. */
#include "diskside.h"

struct result { __u64 characters, bad; };

SEC("read/utf8_count")
__s64 utf8_count(struct result *out, const __u8 *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    __u64 i = 0;
    while (i < in_len) {
        __u8 c = in[i];
        __u32 more = c < 0x80 ? 0 : c >= 0xc2 && c < 0xe0 ? 1 : c >= 0xe0 && c < 0xf0 ? 2 : c >= 0xf0 && c < 0xf5 ? 3 : 9;
        if (more == 9 || i + more >= in_len) {
            out->bad++;
            i++;
            continue;
        }
        __u32 k = 1;
        while (k <= more && (in[i + k] & 0xc0) == 0x80)
            k++;
        if (k <= more)
            out->bad++;
        else
            out->characters++;
        i += k;
    }
    return sizeof(*out);
}
