#include "isp_agent.h"

struct window_args {
    __u64 len;                         /* of the result */
    __u32 what DS_ARG_DEFAULT("0");    /* 0: leave the mask as it is; else see below */
    __u32 first DS_ARG_DEFAULT("0");
    __u64 count DS_ARG_DEFAULT("0");
};

/* Fills its result with bytes that differ from block to block, and changes the mask. */
SEC("kernel/window")
__s64 window(struct ds_kernel *k, const struct window_args *args, __u8 *result)
{
    if (args->len > k->result_cap)
        return -DS_ENOSPC;
    for (__u64 i = 0; i < args->len; i++)
        result[i] = 1 + i / DS_RESULT_BLOCK_LEN * 7 + i % 3;
    switch (args->what) {
    case 1: /* only these */
        ds_memset(k->mask, 0, k->mask_len);
        if (ds_mark_blocks(k, args->first, args->count))
            return -DS_ERANGE;
        break;
    case 2: /* not these */
        if (mask_ik(k, args->first, args->count))
            return -DS_ERANGE;
        break;
    case 3: /* these, too */
        if (unmask_ik(k, args->first, args->count))
            return -DS_ERANGE;
        break;
    case 4: /* a bit that is not checked */
        k->mask[args->first / 8] |= 1 << args->first % 8;
        break;
    }
    return args->len;
}
