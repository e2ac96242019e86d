/* Sum of numbers in the LEB128 form, seven bits a byte. */
#include "diskside.h"

struct result { __u64 numbers, sum; };

SEC("read/varint_sum")
__s64 varint_sum(struct result *out, const __u8 *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    __u64 at = 0;
    while (at < in_len) {
        __u64 value = 0;
        __u32 shift = 0;
        __u8 byte;
        do {
            byte = in[at++];
            value |= (__u64)(byte & 127) << (shift & 63);
            shift += 7;
        } while (byte & 128 && at < in_len);
        out->sum += value;
        out->numbers++;
    }
    return sizeof(*out);
}
