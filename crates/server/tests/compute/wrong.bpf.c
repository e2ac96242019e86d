/* An execution that goes wrong as its first parameter says. */
#include "diskside.h"

SEC("exec/wrong")
__s64 wrong(struct ds_exec *x)
{
    volatile __u64 spent = 0;
    switch (x->cparam1) {
    case 1: /* writes behind its first range */
        *((__u8 *)x->range[1].addr + x->range[1].len) = 1;
        return 0;
    case 2: /* reads behind its data */
        return *((__u8 *)x->data + x->data_len);
    case 3: /* fails by its own will */
        return -DS_EINVAL;
    case 4: /* never ends */
        for (;;)
            spent++;
    }
    *(__u8 *)x->range[1].addr = 7;
    return x->cparam1;
}
