/* SPDX-License-Identifier: Apache-2.0 */
/*
 * csv_topk and csv_bottomk: the lines with the k greatest or least numbers in a column of text, by their places; of equal ones, the
 * first. csv_distinct: how many different values a column has (an estimate, with a standard error of 0.8 %).
 */
#include "csv.h"
#include "diskside/sketch.h"
#include "diskside/topk.h"

#define K_MAX 1024

DS_SPLIT_LINES;
DS_OUTPUT(0, 1, 64 * K_MAX);

struct csv_topk_args {
    char column[64] CSV_COLUMN;
    __u32 k DS_ARG_DEFAULT("10") DS_ARG_MIN("1") DS_ARG_MAX("1024") DS_ARG_DOC("how many");
    char delimiter CSV_DELIMITER;
    char columns[] CSV_COLUMNS;
};

struct csv_topk_row {
    ds_f64 value DS_ARG_F64;
    __u64 offset; /* of the line in the source; ~0 where there were fewer lines */
    char line[48]; /* its beginning */
};

DS_TOP_K(greatest, struct csv_topk_row, ds_f64_lt(b->value, a->value) || (!ds_f64_lt(a->value, b->value) && a->offset < b->offset));
DS_TOP_K(least, struct csv_topk_row, ds_f64_lt(a->value, b->value) || (!ds_f64_lt(b->value, a->value) && a->offset < b->offset));

#define CHOOSE(list)                                                                       \
    struct csv_lines lines = CSV_LINES(in, in_len, args, struct csv_topk_args, call);      \
    struct ds_text field;                                                                  \
    __u64 count = 0, k = args->k;                                                          \
    if (k == 0 || k > K_MAX)                                                               \
        return DS_FAIL(DS_EINVAL, "k has to be 1 to 1024");                                \
    if (lines.column < 0)                                                                  \
        return DS_FAIL(DS_EINVAL, CSV_NO_COLUMN);                                          \
    while (csv_next(&lines, &field)) {                                                     \
        struct csv_topk_row row = {0};                                                     \
        if (!ds_parse_f64(ds_trimmed(field), &row.value))                                  \
            continue;                                                                      \
        row.offset = call->in_offset + (__u64)(lines.line.at - in);                        \
        if (count == k && !list##_sort_before(&row, &out[0]))                              \
            continue;                                                                      \
        for (__u64 i = 0; i < sizeof(row.line) && i < lines.line.len; i++)                 \
            row.line[i] = lines.line.at[i];                                                \
        list##_add(out, &count, k, &row);                                                  \
    }                                                                                      \
    if (csv_found_none(&lines, call))                                                      \
        return DS_FAIL(DS_EINVAL, CSV_NO_FIELD);                                           \
    list##_sort(out, count);                                                               \
    for (; count < k; count++)                                                             \
        out[count].offset = DS_UNKNOWN;                                                    \
    return k * sizeof(*out)

/* Rows that are lines: those before the first that is none. */
DS_INLINE __u64 used(const struct csv_topk_row *rows, __u64 k)
{
    __u64 count = 0;

    while (count < k && rows[count].offset != DS_UNKNOWN)
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
        return DS_FAIL(DS_EINVAL, "results of different lengths cannot be folded");        \
    more = used(part, k);                                                                  \
    count = list##_merge(acc, used(acc, k) * sizeof(*acc), part, more * sizeof(*part), k) / sizeof(*acc); \
    for (; count < k; count++)                                                             \
        acc[count].offset = DS_UNKNOWN;                                                    \
    return part_len

SEC("read/csv_topk")
__s64 csv_topk(struct csv_topk_row *out, const char *in, __u64 in_len, const struct csv_topk_args *args,
               const struct ds_call *call)
{
    CHOOSE(greatest);
}

SEC("read/csv_bottomk")
__s64 csv_bottomk(struct csv_topk_row *out, const char *in, __u64 in_len, const struct csv_topk_args *args,
                  const struct ds_call *call)
{
    CHOOSE(least);
}

SEC("combine/csv_topk")
__s64 csv_topk_combine(struct csv_topk_row *acc, __u64 acc_len, __u64 acc_cap, const struct csv_topk_row *part,
                       __u64 part_len)
{
    FOLD(greatest);
}

SEC("combine/csv_bottomk")
__s64 csv_bottomk_combine(struct csv_topk_row *acc, __u64 acc_len, __u64 acc_cap, const struct csv_topk_row *part,
                          __u64 part_len)
{
    FOLD(least);
}

struct csv_distinct_args {
    char column[64] CSV_COLUMN;
    char delimiter CSV_DELIMITER;
    char columns[] CSV_COLUMNS;
};

struct csv_distinct_result {
    __u64 rows;
    ds_f64 distinct DS_ARG_F64;
    struct ds_distinct sketch DS_RESULT_HIDDEN;
};

SEC("read/csv_distinct")
__s64 csv_distinct(struct csv_distinct_result *out, const char *in, __u64 in_len, const struct csv_distinct_args *args,
                   const struct ds_call *call)
{
    struct csv_lines lines = CSV_LINES(in, in_len, args, struct csv_distinct_args, call);
    struct ds_text field;

    if (lines.column < 0)
        return DS_FAIL(DS_EINVAL, CSV_NO_COLUMN);
    while (csv_next(&lines, &field)) {
        out->rows++;
        ds_distinct_add(&out->sketch, ds_hash64(field.at, field.len, 0));
    }
    if (csv_found_none(&lines, call))
        return DS_FAIL(DS_EINVAL, CSV_NO_FIELD);
    out->distinct = ds_distinct_count(&out->sketch);
    return sizeof(*out);
}

SEC("combine.unordered/csv_distinct")
__s64 csv_distinct_combine(struct csv_distinct_result *acc, __u64 acc_len, __u64 acc_cap,
                           const struct csv_distinct_result *part, __u64 part_len)
{
    if (acc_len == 0) {
        ds_memcpy(acc, part, part_len);
        return part_len;
    }
    acc->rows += part->rows;
    ds_distinct_merge(&acc->sketch, &part->sketch);
    acc->distinct = ds_distinct_count(&acc->sketch);
    return sizeof(*acc);
}
