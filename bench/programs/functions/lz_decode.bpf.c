/* A simple LZ77: a control byte, then so many literals, or a copy of what was written before. */
#include "diskside.h"
DS_OUTPUT(8, 1, 4096);

SEC("read/lz_decode")
__s64 lz_decode(__u8 *out, const __u8 *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    __u64 n = 0, i = 0;
    while (i < in_len) {
        __u8 control = in[i++];
        if (control < 128) {
            for (int k = 0; k <= control && i < in_len; k++)
                out[n++] = in[i++];
        } else {
            if (i + 2 > in_len)
                return -DS_EINVAL;
            __u64 distance = in[i] | in[i + 1] << 8;
            i += 2;
            if (distance == 0 || distance > n)
                return -DS_EINVAL;
            for (int k = 0; k < control - 124; k++, n++)
                out[n] = out[n - distance];
        }
    }
    return n;
}
