/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The helpers for native code, as far as a function needs them to be timed or debugged outside the
 * sandbox: memory, search and floating point. Included by diskside.h; do not include it yourself.
 */
#ifndef DISKSIDE_NATIVE_H
#define DISKSIDE_NATIVE_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

DS_INLINE void *ds_alloc_aligned(__u64 align, __u64 len)
{
    __u64 unit = align < 64 ? 64 : align;
    __u64 rounded = (len + unit - 1) / unit * unit;
    void *p = rounded < len || len == 0 ? NULL : aligned_alloc(unit, rounded);
    return p == NULL ? NULL : memset(p, 0, rounded);
}
DS_INLINE void *ds_alloc(__u64 len) { return ds_alloc_aligned(64, len); }
DS_INLINE void ds_free(void *p) { free(p); }
DS_INLINE void *ds_memcpy(void *to, const void *from, __u64 len) { return memmove(to, from, len); }
DS_INLINE void *ds_memmove(void *to, const void *from, __u64 len) { return memmove(to, from, len); }
DS_INLINE void *ds_memset(void *to, int value, __u64 len) { return memset(to, value, len); }
DS_INLINE __s64 ds_memcmp(const void *a, const void *b, __u64 len)
{
    int order = memcmp(a, b, len);
    return order < 0 ? -1 : order > 0;
}
/* Where an access of len bytes starts; a len greater than boundary traps. */
DS_INLINE __u64 ds_native_offset_within(__u64 offset, __u64 len, __u64 boundary)
{
    if (len > boundary)
        __builtin_trap();
    return offset > boundary - len ? boundary - len : offset;
}
DS_INLINE __s64 ds_lambda_mem_read(void *to, const void *from, __u64 offset, __u64 len, __u64 boundary)
{
    memmove(to, (const __u8 *)from + ds_native_offset_within(offset, len, boundary), len);
    return (__s64)len;
}
DS_INLINE __s64 ds_lambda_mem_write(void *to, const void *from, __u64 offset, __u64 len, __u64 boundary)
{
    memmove((__u8 *)to + ds_native_offset_within(offset, len, boundary), from, len);
    return (__s64)len;
}
DS_INLINE __s64 ds_fail(__s64 error, const char *why, __u64 len)
{
    (void)why;
    (void)len;
    return -error;
}
DS_INLINE __s64 ds_find(const void *hay, __u64 hay_len, const void *needle, __u64 needle_len)
{
    const __u8 *h = (const __u8 *)hay, *n = (const __u8 *)needle;
    if (needle_len == 0)
        return 0;
    for (__u64 i = 0; i + needle_len <= hay_len; i++) {
        const __u8 *at = (const __u8 *)memchr(h + i, n[0], hay_len - needle_len + 1 - i);
        if (at == NULL)
            return -1;
        i = (__u64)(at - h);
        if (memcmp(at, n, needle_len) == 0)
            return (__s64)i;
    }
    return -1;
}

DS_INLINE double ds_double(ds_f64 bits)
{
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}
DS_INLINE float ds_float(ds_f32 bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}
DS_INLINE ds_f64 ds_bits64(double value)
{
    ds_f64 bits;
    memcpy(&bits, &value, sizeof(bits));
    return value != value ? 0x7ff8000000000000ull : bits;
}
DS_INLINE ds_f32 ds_bits32(float value)
{
    ds_f32 bits;
    memcpy(&bits, &value, sizeof(bits));
    return value != value ? 0x7fc00000u : bits;
}

/* Floating point for both widths: the type of bits, its native type and the functions between. */
#define DS_NATIVE_FLOAT(T, F, value, bits, suffix)                                              \
    DS_INLINE T T##_add(T a, T b) { return bits(value(a) + value(b)); }                         \
    DS_INLINE T T##_sub(T a, T b) { return bits(value(a) - value(b)); }                         \
    DS_INLINE T T##_mul(T a, T b) { return bits(value(a) * value(b)); }                         \
    DS_INLINE T T##_div(T a, T b) { return bits(value(a) / value(b)); }                         \
    DS_INLINE T T##_sqrt(T a) { return bits(__builtin_sqrt##suffix(value(a))); }                \
    DS_INLINE T T##_neg(T a) { return bits(-value(a)); }                                        \
    DS_INLINE T T##_abs(T a) { return bits(__builtin_fabs##suffix(value(a))); }                 \
    DS_INLINE T T##_floor(T a) { return bits(__builtin_floor##suffix(value(a))); }              \
    DS_INLINE T T##_ceil(T a) { return bits(__builtin_ceil##suffix(value(a))); }                \
    DS_INLINE T T##_trunc(T a) { return bits(__builtin_trunc##suffix(value(a))); }              \
    DS_INLINE T T##_round(T a) { return bits(__builtin_rint##suffix(value(a))); }               \
    DS_INLINE __u64 T##_eq(T a, T b) { return value(a) == value(b); }                           \
    DS_INLINE __u64 T##_lt(T a, T b) { return value(a) < value(b); }                            \
    DS_INLINE __u64 T##_le(T a, T b) { return value(a) <= value(b); }                           \
    DS_INLINE T T##_min(T a, T b)                                                               \
    {                                                                                           \
        F x = value(a), y = value(b);                                                           \
        if (x != x || y != y)                                                                   \
            return bits(x + y);                                                                 \
        return x < y || (x == y && __builtin_signbit(x)) ? a : b;                               \
    }                                                                                           \
    DS_INLINE T T##_max(T a, T b)                                                               \
    {                                                                                           \
        F x = value(a), y = value(b);                                                           \
        if (x != x || y != y)                                                                   \
            return bits(x + y);                                                                 \
        return x > y || (x == y && !__builtin_signbit(x)) ? a : b;                              \
    }                                                                                           \
    DS_INLINE T T##_from_i64(__s64 a) { return bits((F)a); }                                    \
    DS_INLINE T T##_from_u64(__u64 a) { return bits((F)a); }                                    \
    DS_INLINE __s64 T##_to_i64(T a)                                                             \
    {                                                                                           \
        F x = value(a);                                                                         \
        if (x >= (F)9223372036854775808.0)                                                      \
            return 0x7fffffffffffffffll;                                                        \
        return x >= (F)-9223372036854775808.0 ? (__s64)x : x != x ? 0 : -0x7fffffffffffffffll - 1; \
    }                                                                                           \
    DS_INLINE __u64 T##_to_u64(T a)                                                             \
    {                                                                                           \
        F x = value(a);                                                                         \
        if (x >= (F)18446744073709551616.0)                                                     \
            return ~0ull;                                                                       \
        return x > 0 ? (__u64)x : 0;                                                            \
    }

DS_NATIVE_FLOAT(ds_f64, double, ds_double, ds_bits64, )
DS_NATIVE_FLOAT(ds_f32, float, ds_float, ds_bits32, f)

DS_INLINE ds_f64 ds_f64_from_f32(ds_f32 a) { return ds_bits64((double)ds_float(a)); }
DS_INLINE ds_f32 ds_f32_from_f64(ds_f64 a) { return ds_bits32((float)ds_double(a)); }

#endif
