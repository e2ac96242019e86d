/* How often each byte occurs. */
#include "diskside.h"
DS_OUTPUT(0, 1, 2048);

SEC("read/byte_histogram")
__s64 byte_histogram(__u64 *out, const __u8 *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    for (__u64 i = 0; i < in_len; i++)
        out[in[i]]++;
    return 2048;
}
