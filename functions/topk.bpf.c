/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topk and bottomk: the k greatest or least elements of a column, with their places; of equal ones,
 * the first. The result has k rows; where there were fewer, the last ones have index ~0.
 */
#include "column.h"

#define NONE (~0ull)

DS_SPLIT_RECORDS(8); /* elements of every type */
DS_OUTPUT(0, 1, 16 * 1024);

struct topk_args {
    __u32 row_len COLUMN_ROW_LEN;
    __u32 offset COLUMN_OFFSET;
    enum column_type type COLUMN_TYPE("i64");
    __u32 k DS_ARG_DEFAULT("10") DS_ARG_MIN("1") DS_ARG_MAX("1024") DS_ARG_DOC("how many");
};

struct topk_result {
    __u64 index; /* of the row in the source */
    __s64 value;
};

/* Whether a comes before b. An unused row comes last. */
DS_INLINE int before(const struct topk_result *a, __u64 index, __s64 value, int least)
{
    if (a->index == NONE)
        return 0;
    if (a->value != value)
        return least ? a->value < value : a->value > value;
    return a->index < index;
}

DS_INLINE void insert(struct topk_result *list, __u64 k, __u64 index, __s64 value, int least)
{
    struct topk_result *at = list + k - 1;

    if (before(at, index, value, least))
        return;
    for (; at > list && !before(at - 1, index, value, least); at--)
        *at = *(at - 1);
    at->index = index;
    at->value = value;
}

DS_INLINE __s64 choose(struct topk_result *out, const char *in, __u64 in_len,
                       const struct topk_args *args, const struct ds_call *call, int least)
{
    __u64 own = column_width(args->type), k = args->k;
    __u64 row_len = args->row_len == 0 ? own : args->row_len, index;

    if (args->offset + own > row_len)
        return DS_FAIL(DS_EINVAL, COLUMN_NOT_IN_ROW);
    if (call->in_offset % row_len != 0)
        return DS_FAIL(DS_EINVAL, NOT_AT_A_ROW);
    if (k == 0)
        return DS_FAIL(DS_EINVAL, "k is 0, so there is nothing to look for");
    for (__u64 i = 0; i < k; i++)
        out[i] = (struct topk_result){NONE, 0};
    in += args->offset;
    index = call->in_offset / row_len;
    for (__u64 rows = in_len / row_len; rows > 0; rows--, index++, in += row_len)
        insert(out, k, index, column_load(in, args->type), least);
    return k * sizeof(*out);
}

DS_INLINE __s64 combine(struct topk_result *acc, __u64 acc_len, const struct topk_result *part,
                        __u64 part_len, int least)
{
    __u64 k = part_len / sizeof(*part);

    if (acc_len == 0) {
        ds_memcpy(acc, part, part_len);
        return part_len;
    }
    if (acc_len != part_len)
        return DS_FAIL(DS_EINVAL, UNLIKE_PARTS);
    for (__u64 i = 0; i < k && part[i].index != NONE; i++)
        insert(acc, k, part[i].index, part[i].value, least);
    return acc_len;
}

SEC("read/topk")
__s64 topk(struct topk_result *out, const char *in, __u64 in_len, const struct topk_args *args,
           const struct ds_call *call)
{
    return choose(out, in, in_len, args, call, 0);
}

SEC("read/bottomk")
__s64 bottomk(struct topk_result *out, const char *in, __u64 in_len, const struct topk_args *args,
              const struct ds_call *call)
{
    return choose(out, in, in_len, args, call, 1);
}

SEC("combine.unordered/topk")
__s64 topk_combine(struct topk_result *acc, __u64 acc_len, __u64 acc_cap,
                   const struct topk_result *part, __u64 part_len)
{
    return combine(acc, acc_len, part, part_len, 0);
}

SEC("combine.unordered/bottomk")
__s64 bottomk_combine(struct topk_result *acc, __u64 acc_len, __u64 acc_cap,
                      const struct topk_result *part, __u64 part_len)
{
    return combine(acc, acc_len, part, part_len, 1);
}
