/* Reads what is not there. */
#include "diskside.h"

SEC("exec/trap")
__s64 trap(struct ds_exec *x)
{
    return *((__u8 *)x->range[1].addr + x->range[1].len);
}
