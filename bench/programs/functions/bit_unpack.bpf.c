/* Numbers of 11 bits, packed, to 32 bits each. */
#include "diskside.h"
DS_OUTPUT(3, 1, 64);

SEC("read/bit_unpack")
__s64 bit_unpack(__u32 *out, const __u8 *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    __u64 bits = 0, n = 0;
    __u32 have = 0;
    for (__u64 i = 0; i < in_len; i++) {
        bits |= (__u64)in[i] << have;
        have += 8;
        if (have >= 11) {
            out[n++] = bits & 2047;
            bits >>= 11;
            have -= 11;
        }
    }
    return n * sizeof(*out);
}
