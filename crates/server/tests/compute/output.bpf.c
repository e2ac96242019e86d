/* Asks for more room than it needs. */
#include "diskside.h"

DS_SPLIT_BYTES;
DS_CONCATENATE;
DS_OUTPUT(NUMERATOR, 1, CONSTANT);

SEC("read/greedy")
__s64 greedy(__u8 *out, const __u8 *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    out[0] = 7;
    return 1;
}
