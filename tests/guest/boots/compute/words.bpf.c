/* Adds up the 64-bit words of range 1, and CPARAM1, into the first word of range 2. Returns the number of words. */
#include "diskside.h"

SEC("exec/words")
__s64 words(struct ds_exec *x)
{
    if (x->nranges != 3 || x->range[2].len < 8)
        return -DS_EINVAL;
    const __u64 *in = x->range[1].addr;
    __u64 count = x->range[1].len / 8, sum = x->cparam1;
    for (__u64 i = 0; i < count; i++)
        sum += in[i];
    *(__u64 *)x->range[2].addr = sum;
    return count;
}
