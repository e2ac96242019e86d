/* Nothing at all: what is left is the call. */
#include "diskside.h"

SEC("read/empty")
__s64 empty(void *out, const void *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    return 0;
}
