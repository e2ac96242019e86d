/* SPDX-License-Identifier: Apache-2.0 */
/*
 * <diskside/sketch.h>: how many different values, and which value is greater than a given part of all, in memory of a fixed size.
 * Sketches of pieces fold into the same sketch as one of the whole, whatever the pieces and their order.
 *
 *     struct ds_distinct users;                        16 KiB, zeroes at first
 *     ds_distinct_add(&users, ds_hash64(field.at, field.len, 0));
 *     ds_distinct_merge(&users, &more);
 *     ds_distinct_count(&users)                        as ds_f64, with a standard error of 0.8 %
 *
 *     struct ds_quantiles times;                       98 KiB, zeroes at first
 *     ds_quantiles_add(&times, value);                 a ds_f64; NaN is left out
 *     ds_quantiles_merge(&times, &more);
 *     ds_quantiles_at(&times, 99, 100)                 the 99th percentile: within 0.8 % of an element of that rank
 *
 * Values nearer to 0 than 2^-32 count as 0, those beyond 2^64 as the greatest.
 */
#ifndef DISKSIDE_SKETCH_H
#define DISKSIDE_SKETCH_H

#include "../diskside.h"

/* ---- Different values: HyperLogLog (Flajolet et al., 2007), with the estimator of Ertl ("New cardinality estimation algorithms
 * for HyperLogLog sketches", 2017, algorithm 6), which needs no table of corrections. */

#define DS_DISTINCT_BITS 14
#define DS_DISTINCT_REGISTERS (1 << DS_DISTINCT_BITS)

struct ds_distinct {
    __u8 registers[DS_DISTINCT_REGISTERS];
};

/* A good hash of a value, such as that of ds_hash64. */
DS_INLINE void ds_distinct_add(struct ds_distinct *set, __u64 hash)
{
    __u64 at = hash >> (64 - DS_DISTINCT_BITS), rest = hash << DS_DISTINCT_BITS;
    __u8 rank = 1;

    while (rank <= 64 - DS_DISTINCT_BITS && !(rest >> 63)) {
        rank++;
        rest <<= 1;
    }
    if (rank > set->registers[at])
        set->registers[at] = rank;
}

DS_INLINE void ds_distinct_merge(struct ds_distinct *to, const struct ds_distinct *from)
{
    for (__u64 i = 0; i < DS_DISTINCT_REGISTERS; i++)
        if (from->registers[i] > to->registers[i])
            to->registers[i] = from->registers[i];
}

#define DS_SKETCH_ONE 0x3ff0000000000000ull  /* 1 */
#define DS_SKETCH_HALF 0x3fe0000000000000ull /* 0.5 */

DS_INLINE ds_f64 ds_distinct_sigma(ds_f64 x)
{
    ds_f64 y = DS_SKETCH_ONE, z = x, before;

    do {
        x = ds_f64_mul(x, x);
        before = z;
        z = ds_f64_add(z, ds_f64_mul(x, y));
        y = ds_f64_add(y, y);
    } while (z != before);
    return z;
}

DS_INLINE ds_f64 ds_distinct_tau(ds_f64 x)
{
    ds_f64 y = DS_SKETCH_ONE, z = ds_f64_sub(DS_SKETCH_ONE, x), before, gap;

    if (x == 0 || x == DS_SKETCH_ONE)
        return 0;
    do {
        x = ds_f64_sqrt(x);
        before = z;
        y = ds_f64_mul(y, DS_SKETCH_HALF);
        gap = ds_f64_sub(DS_SKETCH_ONE, x);
        z = ds_f64_sub(z, ds_f64_mul(ds_f64_mul(gap, gap), y));
    } while (z != before);
    return ds_f64_div(z, ds_f64_from_u64(3));
}

DS_INLINE ds_f64 ds_distinct_count(const struct ds_distinct *set)
{
    __u16 counts[66 - DS_DISTINCT_BITS] = {0};
    ds_f64 m = ds_f64_from_u64(DS_DISTINCT_REGISTERS), z;

    for (__u64 i = 0; i < DS_DISTINCT_REGISTERS; i++) {
        __u8 rank = set->registers[i];
        if (rank < 66 - DS_DISTINCT_BITS)
            counts[rank]++;
    }
    if (counts[0] == DS_DISTINCT_REGISTERS)
        return 0;
    z = ds_f64_from_u64(DS_DISTINCT_REGISTERS - counts[65 - DS_DISTINCT_BITS]);
    z = ds_f64_mul(m, ds_distinct_tau(ds_f64_div(z, m)));
    for (int k = 64 - DS_DISTINCT_BITS; k > 0; k--)
        z = ds_f64_mul(ds_f64_add(z, ds_f64_from_u64(counts[k])), DS_SKETCH_HALF);
    z = ds_f64_add(z, ds_f64_mul(m, ds_distinct_sigma(ds_f64_div(ds_f64_from_u64(counts[0]), m))));
    /* m * m / (2 ln 2 * z) */
    return ds_f64_div(ds_f64_mul(ds_f64_mul(m, m), 0x3fe71547652b82feull), z);
}

/* ---- Quantiles: counts of values that agree in sign, exponent and six bits behind it. */

#define DS_QUANTILES_SIDE 6144 /* from 2^-32 to 2^64, 64 in each power of two */

struct ds_quantiles {
    __u64 count;
    ds_f64 least, greatest;
    __u64 counts[2 * DS_QUANTILES_SIDE + 1]; /* from the least to the greatest; 0 is in the middle */
};

/* Bits of 2^-32, without those that are not looked at. */
#define DS_QUANTILES_FIRST ((1023ull - 32) << 6)

DS_INLINE void ds_quantiles_add(struct ds_quantiles *all, ds_f64 value)
{
    __u64 magnitude = value & ~(1ull << 63), at = magnitude >> 46;

    if (magnitude > 0x7ff0000000000000ull)
        return;
    at = at < DS_QUANTILES_FIRST ? 0 : at - DS_QUANTILES_FIRST + 1;
    at = at > DS_QUANTILES_SIDE ? DS_QUANTILES_SIDE : at;
    all->counts[value >> 63 ? DS_QUANTILES_SIDE - at : DS_QUANTILES_SIDE + at]++;
    if (all->count++ == 0) {
        all->least = all->greatest = value;
    } else {
        all->least = ds_f64_min(all->least, value);
        all->greatest = ds_f64_max(all->greatest, value);
    }
}

DS_INLINE void ds_quantiles_merge(struct ds_quantiles *to, const struct ds_quantiles *from)
{
    if (from->count == 0)
        return;
    to->least = to->count ? ds_f64_min(to->least, from->least) : from->least;
    to->greatest = to->count ? ds_f64_max(to->greatest, from->greatest) : from->greatest;
    to->count += from->count;
    for (__u64 i = 0; i < 2 * DS_QUANTILES_SIDE + 1; i++)
        to->counts[i] += from->counts[i];
}

/* Near the element that `part` of `whole` elements are less than; 0 of no elements. */
DS_INLINE ds_f64 ds_quantiles_at(const struct ds_quantiles *all, __u64 part, __u64 whole)
{
    __u64 rank, before = 0, at;
    ds_f64 value;

    if (all->count == 0 || part >= whole)
        return all->greatest;
    /* (count - 1) * part / whole, without a product that is too long */
    rank = (all->count - 1) / whole * part + (all->count - 1) % whole * part / whole;
    if (rank == 0)
        return all->least;
    for (at = 0; at < 2 * DS_QUANTILES_SIDE; at++) {
        before += all->counts[at];
        if (before > rank)
            break;
    }
    if (at == DS_QUANTILES_SIDE)
        value = 0;
    else if (at > DS_QUANTILES_SIDE)
        value = (at - DS_QUANTILES_SIDE - 1 + DS_QUANTILES_FIRST) << 46 | 1ull << 45;
    else
        value = (DS_QUANTILES_SIDE - at - 1 + DS_QUANTILES_FIRST) << 46 | 1ull << 45 | 1ull << 63;
    value = ds_f64_lt(value, all->least) ? all->least : value;
    return ds_f64_lt(all->greatest, value) ? all->greatest : value;
}

#endif
