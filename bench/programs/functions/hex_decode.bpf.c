/* Hexadecimal digits to bytes. */
#include "diskside.h"

static int digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

SEC("read/hex_decode")
__s64 hex_decode(__u8 *out, const char *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    __u64 n = 0;
    for (__u64 i = 0; i + 2 <= in_len; i += 2) {
        int high = digit(in[i]), low = digit(in[i + 1]);
        if (high < 0 || low < 0)
            return -DS_EINVAL;
        out[n++] = high << 4 | low;
    }
    return n;
}
