/* SPDX-License-Identifier: Apache-2.0 */
/* stats64: count, sum, least and greatest of the input as signed 64-bit integers. */
#include "diskside.h"

DS_SPLIT_RECORDS(8);
DS_OUTPUT(0, 1, 64);

struct stats64_result {
    __u64 count;
    __s64 sum;      /* modulo 2^64 */
    __s64 min, max; /* of nothing: the greatest and the least value of the type */
};

SEC("read/stats64")
__s64 stats64(struct stats64_result *out, const __s64 *in, __u64 in_len, const void *args,
              const struct ds_call *call)
{
    __u64 count = in_len / sizeof(*in);
    __s64 sum = 0, min = 0x7fffffffffffffffll, max = -min - 1;

    for (const __s64 *p = in, *end = in + count; p < end; p++) {
        __s64 v = *p;
        sum += v;
        if (v < min)
            min = v;
        if (v > max)
            max = v;
    }
    *out = (struct stats64_result){count, sum, min, max};
    return sizeof(*out);
}

SEC("combine.unordered/stats64")
__s64 stats64_combine(struct stats64_result *acc, __u64 acc_len, __u64 acc_cap,
                      const struct stats64_result *part, __u64 part_len)
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
