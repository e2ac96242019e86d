/* Two functions, so that one must be named. */
#include "diskside.h"

DS_SPLIT_BYTES;
DS_CONCATENATE;
DS_OUTPUT(0, 1, 64);

static __s64 give(__u8 *out, __u8 byte)
{
    out[0] = byte;
    return 1;
}

SEC("read/one")
__s64 one(__u8 *out, const __u8 *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    return give(out, 1);
}

SEC("read/two")
__s64 two(__u8 *out, const __u8 *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    return give(out, 2);
}
