/* Calls what nobody knows. */
#include "diskside.h"

extern __u64 ds_finf(void);

SEC("read/stranger")
__s64 stranger(__u8 *out, const __u8 *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    return ds_finf();
}
