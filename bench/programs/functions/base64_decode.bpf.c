/* Base64 to bytes, by a table. */
#include "diskside.h"

static const char ALPHABET[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

SEC("read/base64_decode")
__s64 base64_decode(__u8 *out, const __u8 *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    __u8 value[256];
    for (int i = 0; i < 256; i++)
        value[i] = 255;
    for (int i = 0; i < 64; i++)
        value[(__u8)ALPHABET[i]] = i;

    __u64 n = 0;
    for (__u64 i = 0; i + 4 <= in_len; i += 4) {
        __u32 bits = value[in[i]] << 18 | value[in[i + 1]] << 12 | value[in[i + 2]] << 6 | value[in[i + 3]];
        out[n++] = bits >> 16;
        out[n++] = bits >> 8;
        out[n++] = bits;
    }
    return n;
}
