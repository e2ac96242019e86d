/* SPDX-License-Identifier: Apache-2.0 */
/*
 * float_stats, float_histogram, float_topk, float_bottomk, float_aggregate: as stats64, histogram, topk, bottomk and aggregate, for
 * columns of floating-point numbers. NaN is counted apart, or left out.
 */
#include "column.h"
#include "diskside/tables.h"
#include "diskside/topk.h"
#include "floats.h"

#define K_MAX 1024

DS_SPLIT_RECORDS(8);
DS_OUTPUT(1, 1, 16 * (FLOAT_BINS_MAX + 2));

enum float_type { f64, f32 };

#define FLOAT_TYPE DS_ARG_DEFAULT("f64") DS_ARG_DOC("f64 or f32")

DS_INLINE ds_f64 float_load(const char *at, int type)
{
    return type == f64 ? *(const ds_f64 *)at : ds_f64_from_f32(*(const ds_f32 *)at);
}

/* Runs `body` for each `value` of the column, in a loop of its own for each type. */
#define FLOAT_EACH(in, in_len, args, call, body)                                           \
    do {                                                                                   \
        __u64 float_own = (args)->type == f64 ? 8 : 4;                                     \
        __u64 float_row = (args)->row_len == 0 ? float_own : (args)->row_len;              \
        const char *float_at = (in) + (args)->offset;                                      \
        __u64 row = (call)->in_offset / float_row;                                         \
        if ((args)->offset + float_own > float_row)                                        \
            return DS_FAIL(DS_EINVAL, COLUMN_NOT_IN_ROW);                                  \
        if ((call)->in_offset % float_row != 0)                                            \
            return DS_FAIL(DS_EINVAL, NOT_AT_A_ROW);                                       \
        if ((args)->type == f64) {                                                         \
            for (__u64 left = (in_len) / float_row; left > 0; left--, row++, float_at += float_row) { \
                ds_f64 value = float_load(float_at, f64);                                  \
                body;                                                                      \
            }                                                                              \
        } else {                                                                           \
            for (__u64 left = (in_len) / float_row; left > 0; left--, row++, float_at += float_row) { \
                ds_f64 value = float_load(float_at, f32);                                  \
                body;                                                                      \
            }                                                                              \
        }                                                                                  \
        (void)row;                                                                         \
    } while (0)

DS_INLINE int is_nan(ds_f64 value)
{
    return (value & ~(1ull << 63)) > FLOAT_INFINITY;
}

struct float_column_args {
    __u32 row_len COLUMN_ROW_LEN;
    __u32 offset COLUMN_OFFSET;
    enum float_type type FLOAT_TYPE;
};

SEC("read/float_stats")
__s64 read_stats(struct float_stats *out, const char *in, __u64 in_len, const struct float_column_args *args,
                 const struct ds_call *call)
{
    float_stats_begin(out);
    FLOAT_EACH(in, in_len, args, call, {
        if (is_nan(value))
            out->not_numbers++;
        else
            float_stats_add(out, value);
    });
    float_stats_end(out);
    return sizeof(*out);
}

SEC("combine/float_stats")
__s64 combine_stats(struct float_stats *acc, __u64 acc_len, __u64 acc_cap, const struct float_stats *part, __u64 part_len)
{
    return float_stats_fold(acc, acc_len, part);
}

struct float_histogram_args {
    __u32 row_len COLUMN_ROW_LEN;
    __u32 offset COLUMN_OFFSET;
    enum float_type type FLOAT_TYPE;
    __u32 bins DS_ARG_DEFAULT("100") DS_ARG_MIN("1") DS_ARG_MAX("65536") DS_ARG_DOC("number of ranges");
    ds_f64 lo DS_ARG_F64 DS_ARG_DEFAULT("0") DS_ARG_DOC("start of the first range");
    ds_f64 width DS_ARG_F64 DS_ARG_DEFAULT("1") DS_ARG_DOC("of a range");
};

SEC("read/float_histogram")
__s64 read_histogram(struct float_bin *out, const char *in, __u64 in_len, const struct float_histogram_args *args,
                     const struct ds_call *call)
{
    ds_f64 lo = args->lo, width = args->width;
    __u64 bins = args->bins;
    __s64 len = float_bins_begin(out, call->out_cap, lo, width, bins);

    if (len < 0)
        return DS_FAIL(-len, FLOAT_BINS_WRONG);
    FLOAT_EACH(in, in_len, args, call, out[float_bin_of(value, lo, width, bins)].count++);
    return len;
}

SEC("combine.unordered/float_histogram")
__s64 combine_histogram(struct float_bin *acc, __u64 acc_len, __u64 acc_cap, const struct float_bin *part, __u64 part_len)
{
    return float_bins_fold(acc, acc_len, part, part_len);
}

struct float_topk_args {
    __u32 row_len COLUMN_ROW_LEN;
    __u32 offset COLUMN_OFFSET;
    enum float_type type FLOAT_TYPE;
    __u32 k DS_ARG_DEFAULT("10") DS_ARG_MIN("1") DS_ARG_MAX("1024") DS_ARG_DOC("how many");
};

struct float_topk_row {
    __u64 index; /* of the row in the source; ~0 where there were fewer rows */
    ds_f64 value DS_ARG_F64;
};

DS_TOP_K(greatest, struct float_topk_row,
         ds_f64_lt(b->value, a->value) || (!ds_f64_lt(a->value, b->value) && a->index < b->index));
DS_TOP_K(least, struct float_topk_row,
         ds_f64_lt(a->value, b->value) || (!ds_f64_lt(b->value, a->value) && a->index < b->index));

#define CHOOSE(list)                                                                       \
    __u64 count = 0, k = args->k;                                                          \
    if (k == 0 || k > K_MAX)                                                               \
        return DS_FAIL(DS_EINVAL, "k has to be 1 to 1024");                                \
    FLOAT_EACH(in, in_len, args, call, {                                                   \
        struct float_topk_row one = {.index = row};                                        \
        one.value = value;                                                                 \
        if (!is_nan(value))                                                                \
            list##_add(out, &count, k, &one);                                              \
    });                                                                                    \
    list##_sort(out, count);                                                               \
    for (; count < k; count++)                                                             \
        out[count].index = DS_UNKNOWN;                                                     \
    return k * sizeof(*out)

DS_INLINE __u64 used(const struct float_topk_row *rows, __u64 k)
{
    __u64 count = 0;

    while (count < k && rows[count].index != DS_UNKNOWN)
        count++;
    return count;
}

#define FOLD(list)                                                                         \
    __u64 k = part_len / sizeof(*part), more, count;                                       \
    if (acc_len == 0) {                                                                    \
        ds_memcpy(acc, part, part_len);                                                    \
        return part_len;                                                                   \
    }                                                                                      \
    if (acc_len != part_len)                                                               \
        return DS_FAIL(DS_EINVAL, UNLIKE_PARTS);                                           \
    more = used(part, k);                                                                  \
    count = list##_merge(acc, used(acc, k) * sizeof(*acc), part, more * sizeof(*part), k) / sizeof(*acc); \
    for (; count < k; count++)                                                             \
        acc[count].index = DS_UNKNOWN;                                                     \
    return part_len

SEC("read/float_topk")
__s64 read_topk(struct float_topk_row *out, const char *in, __u64 in_len, const struct float_topk_args *args,
                const struct ds_call *call)
{
    CHOOSE(greatest);
}

SEC("read/float_bottomk")
__s64 read_bottomk(struct float_topk_row *out, const char *in, __u64 in_len, const struct float_topk_args *args,
                   const struct ds_call *call)
{
    CHOOSE(least);
}

SEC("combine.unordered/float_topk")
__s64 combine_topk(struct float_topk_row *acc, __u64 acc_len, __u64 acc_cap, const struct float_topk_row *part,
                   __u64 part_len)
{
    FOLD(greatest);
}

SEC("combine.unordered/float_bottomk")
__s64 combine_bottomk(struct float_topk_row *acc, __u64 acc_len, __u64 acc_cap, const struct float_topk_row *part,
                      __u64 part_len)
{
    FOLD(least);
}

struct float_aggregate_args {
    __u32 row_len DS_ARG_RECORD_LEN DS_ARG_MIN("1") DS_ARG_DOC("bytes in a row");
    __u32 key_offset DS_ARG_DEFAULT("0") DS_ARG_DOC("of the key in its row");
    enum column_type key_type COLUMN_TYPE("i64");
    __u32 offset DS_ARG_DEFAULT("0") DS_ARG_DOC("of the value in its row");
    enum float_type type FLOAT_TYPE;
};

struct float_group {
    __s64 key;
    struct float_stats of;
};

DS_TABLE(float_groups, struct float_group, key);

SEC("read/float_aggregate")
__s64 read_aggregate(struct float_group *out, const char *in, __u64 in_len, const struct float_aggregate_args *args,
                     const struct ds_call *call)
{
    struct float_groups table = {0};
    const char *keys = in + args->key_offset;
    int key_type = args->key_type;
    __u64 row_len = args->row_len;
    __s64 len;

    if (args->key_offset + column_width(key_type) > row_len)
        return DS_FAIL(DS_EINVAL, COLUMN_NOT_IN_ROW);
    FLOAT_EACH(in, in_len, args, call, {
        struct float_group *group = float_groups_at(&table, column_load(keys, key_type));
        keys += row_len;
        if (group == NULL)
            return DS_FAIL(DS_ENOMEM, "the keys of a piece do not fit in memory: give it more (--heap), or ask for shorter "
                                      "pieces (--chunk)");
        if (group->of.count == 0 && group->of.not_numbers == 0)
            float_stats_begin(&group->of);
        if (is_nan(value))
            group->of.not_numbers++;
        else
            float_stats_add(&group->of, value);
    });
    len = float_groups_write(&table, out, call->out_cap);
    if (len < 0)
        return DS_FAIL(-len, "the keys of a piece do not fit in its output: ask for shorter pieces (--chunk)");
    for (__u64 i = 0; i < (__u64)len / sizeof(*out); i++)
        float_stats_end(&out[i].of);
    return len;
}

static void add_group(struct float_group *to, const struct float_group *from)
{
    float_stats_fold(&to->of, sizeof(to->of), &from->of);
}

SEC("combine/float_aggregate")
__s64 combine_aggregate(struct float_group *acc, __u64 acc_len, __u64 acc_cap, const struct float_group *part,
                        __u64 part_len)
{
    return float_groups_merge(acc, acc_len, acc_cap, part, part_len, add_group);
}
