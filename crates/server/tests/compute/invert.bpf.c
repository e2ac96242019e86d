/* As many bytes as it is given, each with all its bits turned. At the first chunk that begins with the byte that its argument
 * says it reads behind its input. */
#include "diskside.h"

DS_SPLIT_BYTES;
DS_CONCATENATE;
DS_OUTPUT(1, 1, 0);

SEC("read/invert")
__s64 invert(__u8 *out, const __u8 *in, __u64 in_len, const __u64 *bad, const struct ds_call *call)
{
    if (in_len > 0 && in[0] == *bad)
        return in[in_len + 4096];
    for (__u64 i = 0; i < in_len; i++)
        out[i] = ~in[i];
    return in_len;
}
