/* Bytes to base64. */
#include "diskside.h"
DS_OUTPUT(4, 3, 64);

static const char ALPHABET[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

SEC("read/base64_encode")
__s64 base64_encode(char *out, const __u8 *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    __u64 n = 0;
    for (__u64 i = 0; i + 3 <= in_len; i += 3) {
        __u32 bits = in[i] << 16 | in[i + 1] << 8 | in[i + 2];
        out[n] = ALPHABET[bits >> 18];
        out[n + 1] = ALPHABET[bits >> 12 & 63];
        out[n + 2] = ALPHABET[bits >> 6 & 63];
        out[n + 3] = ALPHABET[bits & 63];
        n += 4;
    }
    return n;
}
