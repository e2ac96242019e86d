/* SPDX-License-Identifier: Apache-2.0 */
/* stats32: count, sum, least and greatest of the input as signed 32-bit integers. */
#include "diskside.h"

DS_SPLIT_RECORDS(4);
DS_OUTPUT(0, 1, 64);

struct stats32_result {
    __u64 count;
    __s64 sum;
    __s32 min, max; /* of nothing: the greatest and the least value of the type */
};

SEC("read/stats32")
__s64 stats32(struct stats32_result *out, const __s32 *in, __u64 in_len, const void *args,
              const struct ds_call *call)
{
    __u64 count = in_len / sizeof(*in);
    __s64 sum = 0;
    __s32 min = 0x7fffffff, max = -min - 1;

    for (const __s32 *p = in, *end = in + count; p < end; p++) {
        __s32 v = *p;
        sum += v;
        if (v < min)
            min = v;
        if (v > max)
            max = v;
    }
    *out = (struct stats32_result){count, sum, min, max};
    return sizeof(*out);
}

SEC("combine.unordered/stats32")
__s64 stats32_combine(struct stats32_result *acc, __u64 acc_len, __u64 acc_cap,
                      const struct stats32_result *part, __u64 part_len)
{
    if (acc_len == 0) {
        *acc = *part;
        return sizeof(*acc);
    }
    acc->count += part->count;
    acc->sum += part->sum;
    if (part->min < acc->min)
        acc->min = part->min;
    if (part->max > acc->max)
        acc->max = part->max;
    return sizeof(*acc);
}
