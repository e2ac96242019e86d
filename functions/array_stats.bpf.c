/* SPDX-License-Identifier: Apache-2.0 */
/*
 * array_stats: count, sum, least and greatest of an array's elements. The input is one chunk, decompressed, so the function
 * is called once.
 */
#include "array.h"

DS_OUTPUT(0, 1, 64);

struct array_stats_args {
    enum element_type type ARRAY_TYPE;
    __u32 big_endian ARRAY_BIG;
    __u64 shape[DIMENSIONS_MAX] ARRAY_SHAPE;
    __u64 held[DIMENSIONS_MAX] ARRAY_HELD;
};

/* Of whole numbers, those of u64 as their bits; of floating-point numbers, NaN where an element is. */
struct array_stats_result {
    __u64 count;
    __s64 sum; /* of whole numbers, modulo 2^64 */
    __s64 min, max;
    ds_f64 float_sum DS_ARG_F64; /* of all numbers, rounded */
    ds_f64 float_min DS_ARG_F64;
    ds_f64 float_max DS_ARG_F64;
    __u32 is_float, is_unsigned; /* which of these there are */
};

DS_INLINE void keep_floats(struct array_stats_result *to, ds_f64 sum, ds_f64 min, ds_f64 max)
{
    to->float_sum = ds_f64_add(to->float_sum, sum);
    to->float_min = ds_f64_min(to->float_min, min);
    to->float_max = ds_f64_max(to->float_max, max);
}

DS_INLINE void keep_integers(struct array_stats_result *to, __s64 sum, __s64 min, __s64 max)
{
    /* Unsigned numbers are compared as signed ones, of which the highest bit is flipped. */
    __u64 flip = to->is_unsigned ? 1ull << 63 : 0;

    to->sum += sum;
    if ((__s64)(min ^ flip) < (__s64)(to->min ^ flip))
        to->min = min;
    if ((__s64)(max ^ flip) > (__s64)(to->max ^ flip))
        to->max = max;
}

/* The sum of n whole numbers as a floating-point number, though it may be more than 64 bits hold. */
DS_INLINE void keep_rounded(struct array_stats_result *to, const char *at, __u64 n, int type, __s64 sum, __s64 min,
                            __s64 max)
{
    __u64 least = type != u64 && min < 0 ? -(__u64)min : 0, most = type == u64 || max > 0 ? max : 0;
    __u64 greatest = least > most ? least : most;

    if (n == 0)
        return;
    if (greatest <= 0x7fffffffffffffffull / n) {
        to->float_sum = ds_f64_add(to->float_sum, ds_f64_from_i64(sum));
        return;
    }
    for (__u64 i = 0; i < n; i++)
        to->float_sum = ds_f64_add(to->float_sum, float_of(bits_at(at + i * 8, 8, 0), type));
}

/* Those that no helper is for: of one and two bytes, and big-endian ones. */
#define EACH(width, is_big, convert)                                                       \
    for (__u64 i = 0; i < n; i++) {                                                        \
        __s64 value = convert bits_at(at + i * (width), width, is_big);                    \
        keep_integers(to, value, value, value);                                            \
    }                                                                                      \
    /* No run of these has a sum of more than 64 bits. */                                  \
    to->float_sum = ds_f64_add(to->float_sum, ds_f64_from_i64(to->sum - before));          \
    break

DS_INLINE void add_small(struct array_stats_result *to, const char *at, __u64 n, int type)
{
    __s64 before = to->sum;

    switch (type) {
    case u8:
        EACH(1, 0, (__u8));
    case i8:
        EACH(1, 0, (__s8));
    case u16:
        EACH(2, 0, (__u16));
    case i16:
        EACH(2, 0, (__s16));
    }
}

DS_INLINE void add_big(struct array_stats_result *to, const char *at, __u64 n, int type)
{
    __s64 before = to->sum;

    switch (type) {
    case u8:
        EACH(1, 0, (__u8));
    case i8:
        EACH(1, 0, (__s8));
    case u16:
        EACH(2, 1, (__u16));
    case i16:
        EACH(2, 1, (__s16));
    case u32:
        EACH(4, 1, (__u32));
    case i32:
        EACH(4, 1, (__s32));
    case u64:
    case i64:
        for (__u64 i = 0; i < n; i++) {
            __s64 value = bits_at(at + i * 8, 8, 1);
            keep_integers(to, value, value, value);
            to->float_sum = ds_f64_add(to->float_sum, float_of(value, type));
        }
        break;
    default: {
        __u64 width = width_of(type);
        for (__u64 i = 0; i < n; i++) {
            ds_f64 value = float_of(bits_at(at + i * width, width, 1), type);
            keep_floats(to, value, value, value);
        }
    }
    }
}

#define BY_HELPERS(name, of)                                                               \
    sum = ds_sum_##name((const of *)at, n);                                                \
    min = ds_min_##name((const of *)at, n);                                                \
    max = ds_max_##name((const of *)at, n);                                                \
    keep_integers(to, sum, min, max);                                                      \
    keep_rounded(to, at, n, type, sum, min, max);                                          \
    break

DS_INLINE void add_run(struct array_stats_result *to, const char *at, __u64 n, int type)
{
    __s64 sum, min, max;

    switch (type) {
    case u32:
        BY_HELPERS(u32, __u32);
    case i32:
        BY_HELPERS(i32, __s32);
    case u64:
        BY_HELPERS(u64, __u64);
    case i64:
        BY_HELPERS(i64, __s64);
    case f32:
        keep_floats(to, ds_sum_f32((const ds_f32 *)at, n), ds_f64_from_f32(ds_min_f32((const ds_f32 *)at, n)),
                    ds_f64_from_f32(ds_max_f32((const ds_f32 *)at, n)));
        break;
    case f64:
        keep_floats(to, ds_sum_f64((const ds_f64 *)at, n), ds_min_f64((const ds_f64 *)at, n),
                    ds_max_f64((const ds_f64 *)at, n));
        break;
    default:
        add_small(to, at, n, type);
    }
}

SEC("read/array_stats")
__s64 array_stats(struct array_stats_result *out, const char *in, __u64 in_len,
                  const struct array_stats_args *args, const struct ds_call *call)
{
    int type = args->type;
    struct runs runs = {0};
    struct array_stats_result found = {0};
    __s64 error = runs_of(&runs, args->shape, args->held, width_of(type), in_len);

    if (error)
        return error;
    found.is_float = type >= f32;
    found.is_unsigned = !found.is_float && type % 2 == 0;
    found.min = found.is_unsigned ? -1 : 0x7fffffffffffffffll;
    found.max = found.is_unsigned ? 0 : -0x7fffffffffffffffll - 1;
    found.float_min = 0x7ffull << 52;
    found.float_max = 0xfffull << 52;
    found.count = runs.run * runs.count;
    for (__u64 i = 0; i < runs.count; i++) {
        const char *at = in + next_run(&runs);
        if (args->big_endian)
            add_big(&found, at, runs.run, type);
        else
            add_run(&found, at, runs.run, type);
    }
    *out = found;
    return sizeof(*out);
}

SEC("combine/array_stats")
__s64 array_stats_combine(struct array_stats_result *acc, __u64 acc_len, __u64 acc_cap,
                          const struct array_stats_result *part, __u64 part_len)
{
    if (acc_len == 0) {
        *acc = *part;
        return sizeof(*acc);
    }
    acc->count += part->count;
    keep_integers(acc, part->sum, part->min, part->max);
    keep_floats(acc, part->float_sum, part->float_min, part->float_max);
    return sizeof(*acc);
}
