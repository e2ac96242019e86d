/* The programs that the tests execute over memory ranges. */
#include "diskside.h"

/* Counts to the second parameter, then writes the first parameter to the start of each memory range.
 * Returns the first 64-bit word of the data, plus the number of ranges times 1000. */
SEC("exec/mark")
__s64 mark(struct ds_exec *x)
{
    volatile __u64 spent = 0;
    for (__u64 i = 0; i < x->cparam2; i++)
        spent += i;
    for (__u32 i = 1; i < x->nranges; i++)
        *(__u64 *)x->range[i].addr = x->cparam1;
    return (x->data_len >= 8 ? *(__u64 *)x->data : 0) + 1000 * (x->nranges - 1);
}
