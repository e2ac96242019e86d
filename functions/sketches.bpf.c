/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantiles: which values of a column are greater than a part of all (within 0.8 %). distinct: how many different values it has (an
 * estimate, with a standard error of 0.8 %).
 */
#define COLUMN_MORE_TYPES , f32, f64
#include "column.h"
#include "floats.h"

DS_SPLIT_RECORDS(8);
DS_OUTPUT(0, 1, sizeof(struct float_quantiles));

struct sketch_args {
    __u32 row_len COLUMN_ROW_LEN;
    __u32 offset COLUMN_OFFSET;
    enum column_type type DS_ARG_DEFAULT("f64") DS_ARG_DOC("u8, i8, u16, i16, u32, i32, i64, f32 or f64");
};

DS_INLINE __u64 width_of(int type)
{
    return type == f32 ? 4 : column_width(type);
}

/* The bits of an element, widened. */
DS_INLINE __u64 bits_of(const char *at, int type)
{
    return type == f32 ? *(const __u32 *)at : (__u64)column_load(at, type);
}

#define SKETCH_EACH(in, in_len, args, call, body)                                          \
    do {                                                                                   \
        int type = (args)->type;                                                           \
        __u64 own = width_of(type), row_len = (args)->row_len == 0 ? own : (args)->row_len; \
        const char *at = (in) + (args)->offset;                                            \
        if ((args)->offset + own > row_len)                                                \
            return DS_FAIL(DS_EINVAL, COLUMN_NOT_IN_ROW);                                  \
        if ((call)->in_offset % row_len != 0)                                              \
            return DS_FAIL(DS_EINVAL, NOT_AT_A_ROW);                                       \
        for (__u64 left = (in_len) / row_len; left > 0; left--, at += row_len) {           \
            __u64 bits = bits_of(at, type);                                                \
            body;                                                                          \
        }                                                                                  \
    } while (0)

SEC("read/quantiles")
__s64 quantiles(struct float_quantiles *out, const char *in, __u64 in_len, const struct sketch_args *args,
                const struct ds_call *call)
{
    SKETCH_EACH(in, in_len, args, call, {
        ds_f64 value = type == f64 ? bits : type == f32 ? ds_f64_from_f32(bits) : ds_f64_from_i64(bits);
        ds_quantiles_add(&out->sketch, value);
    });
    float_quantiles_end(out);
    return sizeof(*out);
}

SEC("combine.unordered/quantiles")
__s64 quantiles_combine(struct float_quantiles *acc, __u64 acc_len, __u64 acc_cap, const struct float_quantiles *part,
                        __u64 part_len)
{
    return float_quantiles_fold(acc, part);
}

struct distinct_result {
    __u64 rows;
    ds_f64 distinct DS_ARG_F64;
    struct ds_distinct sketch DS_RESULT_HIDDEN;
};

SEC("read/distinct")
__s64 distinct(struct distinct_result *out, const char *in, __u64 in_len, const struct sketch_args *args,
               const struct ds_call *call)
{
    SKETCH_EACH(in, in_len, args, call, {
        out->rows++;
        ds_distinct_add(&out->sketch, ds_hash64(&bits, sizeof(bits), 0));
    });
    out->distinct = ds_distinct_count(&out->sketch);
    return sizeof(*out);
}

SEC("combine.unordered/distinct")
__s64 distinct_combine(struct distinct_result *acc, __u64 acc_len, __u64 acc_cap, const struct distinct_result *part,
                       __u64 part_len)
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
