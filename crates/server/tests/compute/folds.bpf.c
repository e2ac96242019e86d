/* Its `combine` goes wrong as the first byte of a part says. */
#include "diskside.h"

SEC("read/folds")
__s64 folds(__u8 *out, const __u8 *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    out[0] = in[0];
    return 1;
}

SEC("combine/folds")
__s64 folds_combine(__u8 *acc, __u64 acc_len, __u64 acc_cap, const __u8 *part, __u64 part_len)
{
    volatile __u64 spent = 0;
    switch (part[0]) {
    case 1: /* reads behind the part */
        return part[part_len];
    case 2: /* writes behind what there is to be written */
        acc[acc_cap] = 1;
        return 1;
    case 3: /* never ends */
        for (;;)
            spent++;
    case 4: /* says that it wrote more than there is room for */
        return acc_cap + 1;
    case 5: /* fails by its own will */
        return -DS_EBADMSG;
    }
    acc[0] = acc_len ? acc[0] + 1 : 1;
    return 1;
}
