/* SPDX-License-Identifier: Apache-2.0 */
/* The elements of an n-dimensional array, or of a chunk of one that reaches beyond the array's end. */
#ifndef ARRAY_H
#define ARRAY_H

#include "diskside.h"

#define DIMENSIONS_MAX 8

enum element_type { u8, i8, u16, i16, u32, i32, u64, i64, f32, f64 };

/* Arguments that both share. */
#define ARRAY_TYPE DS_ARG_DOC("u8, i8, u16, i16, u32, i32, u64, i64, f32 or f64")
#define ARRAY_BIG DS_ARG_DEFAULT("0") DS_ARG_MAX("1") DS_ARG_DOC("1: elements are big-endian")
#define ARRAY_SHAPE DS_ARG_DEFAULT("") DS_ARG_DOC("of the chunk, slowest dimension first; none: as it comes")
#define ARRAY_HELD DS_ARG_DEFAULT("") DS_ARG_DOC("elements of each dimension that count; none: all")

DS_INLINE __u64 width_of(int type)
{
    return type <= i8 ? 1 : type <= i16 ? 2 : type <= i32 || type == f32 ? 4 : 8;
}

/* Elements that count lie in runs, one behind another in memory. */
struct runs {
    __u64 run, count;               /* elements of a run; runs */
    __u64 held[DIMENSIONS_MAX];     /* of the dimensions outside of a run */
    __u64 step[DIMENSIONS_MAX];     /* bytes from one to the next */
    __u64 at[DIMENSIONS_MAX];       /* where the next run is */
    __u64 dimensions;
};

/* 0, or an error when the input is not a chunk of this shape. */
DS_INLINE __s64 runs_of(struct runs *runs, const __u64 *shape, const __u64 *held, __u64 width, __u64 in_len)
{
    __u64 n = 0, size = width;

    if (in_len % width != 0)
        return DS_FAIL(DS_EINVAL, "the input is not a whole number of elements: check their type");
    runs->count = 1;
    while (n < DIMENSIONS_MAX && shape[n] != 0)
        n++;
    if (n == 0) {
        runs->run = in_len / width;
        return 0;
    }
    runs->run = 1;
    runs->dimensions = 0;
    for (__u64 i = n; i > 0; i--) {
        __u64 of = shape[i - 1], there = held[0] ? held[i - 1] : of;
        if (there == 0 || there > of || of > in_len / size)
            return DS_FAIL(DS_EINVAL, "the input is no chunk of this shape: check shape, held and the type");
        if (runs->run * width == size) {
            /* All within is held: this dimension belongs to the run. */
            runs->run *= there;
        } else {
            runs->held[runs->dimensions] = there;
            runs->step[runs->dimensions] = size;
            runs->at[runs->dimensions++] = 0;
            runs->count *= there;
        }
        size *= of;
    }
    return size == in_len ? 0 : -DS_EINVAL;
}

/* The offset of the next run in bytes, which then is the one behind it. */
DS_INLINE __u64 next_run(struct runs *runs)
{
    __u64 offset = 0, i;

    for (i = 0; i < runs->dimensions; i++)
        offset += runs->at[i] * runs->step[i];
    for (i = 0; i < runs->dimensions; i++) {
        if (++runs->at[i] < runs->held[i])
            break;
        runs->at[i] = 0;
    }
    return offset;
}

DS_INLINE __u64 swapped(__u64 bits, __u64 width)
{
    return __builtin_bswap64(bits) >> (64 - 8 * width);
}

/* An element's bits, in the lowest bytes. */
DS_INLINE __u64 bits_at(const char *at, __u64 width, int is_big)
{
    __u64 bits = width == 1 ? *(const __u8 *)at
               : width == 2 ? *(const __u16 *)at
               : width == 4 ? *(const __u32 *)at
                            : *(const __u64 *)at;
    return is_big ? swapped(bits, width) : bits;
}

DS_INLINE ds_f64 float_of(__u64 bits, int type)
{
    switch (type) {
    case f64:
        return bits;
    case f32:
        return ds_f64_from_f32((ds_f32)bits);
    case u64:
        return ds_f64_from_u64(bits);
    case i8:
        return ds_f64_from_i64((__s8)bits);
    case i16:
        return ds_f64_from_i64((__s16)bits);
    case i32:
        return ds_f64_from_i64((__s32)bits);
    default:
        return ds_f64_from_i64((__s64)bits);
    }
}

#endif
