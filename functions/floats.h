/* SPDX-License-Identifier: Apache-2.0 */
/* Statistics of floating-point numbers, for functions over columns and over text. */
#ifndef FLOATS_H
#define FLOATS_H

#include "diskside.h"
#include "diskside/sketch.h"

#define FLOAT_INFINITY 0x7ff0000000000000ull

struct float_stats {
    __u64 count;
    ds_f64 sum DS_ARG_F64, min DS_ARG_F64, max DS_ARG_F64, mean DS_ARG_F64;
    __u64 not_numbers; /* NaN, or text that is none; in none of the others */
};

DS_INLINE void float_stats_begin(struct float_stats *all)
{
    all->min = FLOAT_INFINITY;
    all->max = ds_f64_neg(FLOAT_INFINITY);
}

DS_INLINE void float_stats_add(struct float_stats *all, ds_f64 value)
{
    all->count++;
    all->sum = ds_f64_add(all->sum, value);
    all->min = ds_f64_min(all->min, value);
    all->max = ds_f64_max(all->max, value);
}

DS_INLINE void float_stats_end(struct float_stats *all)
{
    all->mean = all->count ? ds_f64_div(all->sum, ds_f64_from_u64(all->count)) : 0;
}

DS_INLINE __s64 float_stats_fold(struct float_stats *acc, __u64 acc_len, const struct float_stats *part)
{
    if (acc_len == 0) {
        *acc = *part;
        return sizeof(*acc);
    }
    acc->count += part->count;
    acc->sum = ds_f64_add(acc->sum, part->sum);
    acc->min = ds_f64_min(acc->min, part->min);
    acc->max = ds_f64_max(acc->max, part->max);
    acc->not_numbers += part->not_numbers;
    float_stats_end(acc);
    return sizeof(*acc);
}

/* ---- Histograms: as many ranges, and one before and one behind them. */

#define FLOAT_BINS_MAX 65536
#define FLOAT_BINS_WRONG "width has to be a number above 0, lo a number, and bins 1 to 65536"

struct float_bin {
    ds_f64 from DS_ARG_F64;
    __u64 count;
};

/* The length of the result, or an error. */
DS_INLINE __s64 float_bins_begin(struct float_bin *out, __u64 out_cap, ds_f64 lo, ds_f64 width, __u64 bins)
{
    if (!ds_f64_lt(0, width) || !ds_f64_lt(width, FLOAT_INFINITY) || !ds_f64_lt(ds_f64_abs(lo), FLOAT_INFINITY) ||
        bins == 0 || bins > FLOAT_BINS_MAX || (bins + 2) * sizeof(*out) > out_cap)
        return -DS_EINVAL;
    out[0].from = ds_f64_neg(FLOAT_INFINITY);
    for (__u64 i = 0; i <= bins; i++)
        out[i + 1].from = ds_f64_add(lo, ds_f64_mul(ds_f64_from_u64(i), width));
    return (bins + 2) * sizeof(*out);
}

/* The row of a number; NaN goes to the last, behind all numbers. */
DS_INLINE __u64 float_bin_of(ds_f64 value, ds_f64 lo, ds_f64 width, __u64 bins)
{
    ds_f64 at = ds_f64_div(ds_f64_sub(value, lo), width);

    if (ds_f64_lt(value, lo))
        return 0;
    return ds_f64_lt(at, ds_f64_from_u64(bins)) ? 1 + ds_f64_to_u64(at) : bins + 1;
}

DS_INLINE __s64 float_bins_fold(struct float_bin *acc, __u64 acc_len, const struct float_bin *part, __u64 part_len)
{
    if (acc_len == 0) {
        ds_memcpy(acc, part, part_len);
        return part_len;
    }
    if (acc_len != part_len)
        return DS_FAIL(DS_EINVAL, "results of different lengths cannot be folded");
    for (__u64 i = 0; i < part_len / sizeof(*part); i++)
        acc[i].count += part[i].count;
    return acc_len;
}

/* ---- Quantiles. */

struct float_quantiles {
    __u64 count;
    ds_f64 min DS_ARG_F64, p01 DS_ARG_F64, p10 DS_ARG_F64, p25 DS_ARG_F64, p50 DS_ARG_F64;
    ds_f64 p75 DS_ARG_F64, p90 DS_ARG_F64, p99 DS_ARG_F64, p999 DS_ARG_F64, max DS_ARG_F64;
    struct ds_quantiles sketch DS_RESULT_HIDDEN;
};

DS_INLINE void float_quantiles_end(struct float_quantiles *all)
{
    static const __u16 parts[9] = {0, 10, 100, 250, 500, 750, 900, 990, 999};
    ds_f64 *to = &all->min;

    all->count = all->sketch.count;
    for (int i = 0; i < 9; i++)
        to[i] = ds_quantiles_at(&all->sketch, parts[i], 1000);
    all->max = all->sketch.greatest;
}

DS_INLINE __s64 float_quantiles_fold(struct float_quantiles *acc, const struct float_quantiles *part)
{
    ds_quantiles_merge(&acc->sketch, &part->sketch);
    float_quantiles_end(acc);
    return sizeof(*acc);
}

#endif
