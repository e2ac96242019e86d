/* SPDX-License-Identifier: Apache-2.0 */
/*
 * <diskside/text.h>: lines, fields, numbers and characters of text.
 *
 *     struct ds_text rest = ds_text(in, in_len), line, field;
 *     while (ds_next_line(&rest, &line))
 *         for (int column = 0; ds_next_field(&line, ',', &field); column++)
 *             if (column == 2 && ds_parse_u64(field, &value))
 *                 sum += value;
 *
 * A text is a part of memory: nothing is copied, and there is no zero byte at its end.
 */
#ifndef DISKSIDE_TEXT_H
#define DISKSIDE_TEXT_H

#include "../diskside.h"

struct ds_text {
    const char *at;
    __u64 len;
};

DS_INLINE struct ds_text ds_text(const void *at, __u64 len)
{
    return (struct ds_text){(const char *)at, len};
}

/* The text of a literal: ds_literal("price"). */
#define ds_literal(text) ds_text(text, sizeof(text) - 1)

/* A member that holds text, up to its first zero byte, if it has one. */
DS_INLINE struct ds_text ds_member(const char *at, __u64 cap)
{
    __u64 len = 0;

    while (len < cap && at[len] != 0)
        len++;
    return ds_text(at, len);
}

/* The next line, without its end ("\n" or "\r\n"); 0 when there is none left. */
DS_INLINE int ds_next_line(struct ds_text *rest, struct ds_text *line)
{
    const char *p = rest->at;
    __u64 n = rest->len, len = 0;

    if (n == 0)
        return 0;
    while (len < n && p[len] != '\n')
        len++;
    rest->at = p + len + (len < n);
    rest->len = n - len - (len < n);
    if (len > 0 && p[len - 1] == '\r')
        len--;
    *line = ds_text(p, len);
    return 1;
}

/*
 * The next field of a line; 0 when there is none left. A field that begins with a quote ends at the next quote that is not
 * doubled: the quotes around it are left out, delimiters in it are text, and doubled ones stay doubled. A line that ends
 * with a delimiter has an empty last field; an empty line has one empty field.
 */
DS_INLINE int ds_next_field(struct ds_text *line, char delimiter, struct ds_text *field)
{
    const char *p = line->at;
    __u64 n = line->len, i = 0;

    if (p == NULL)
        return 0;
    if (n > 0 && p[0] == '"') {
        for (i = 1; i < n; i++) {
            if (p[i] != '"')
                continue;
            if (i + 1 < n && p[i + 1] == '"')
                i++;
            else
                break;
        }
        *field = ds_text(p + 1, i < n ? i - 1 : n - 1);
        while (i < n && p[i] != delimiter)
            i++;
    } else {
        while (i < n && p[i] != delimiter)
            i++;
        *field = ds_text(p, i);
    }
    /* Behind the last field there is no line any more. */
    *line = i < n ? ds_text(p + i + 1, n - i - 1) : ds_text(NULL, 0);
    return 1;
}

/* Without blanks and tabs at both ends. */
DS_INLINE struct ds_text ds_trimmed(struct ds_text text)
{
    while (text.len > 0 && (text.at[0] == ' ' || text.at[0] == '\t')) {
        text.at++;
        text.len--;
    }
    while (text.len > 0 && (text.at[text.len - 1] == ' ' || text.at[text.len - 1] == '\t'))
        text.len--;
    return text;
}

/* Below 0, 0 or above 0, by bytes; a text is greater than its beginning. */
DS_INLINE int ds_compare(struct ds_text a, struct ds_text b)
{
    __u64 n = a.len < b.len ? a.len : b.len;

    for (__u64 i = 0; i < n; i++)
        if (a.at[i] != b.at[i])
            return (__u8)a.at[i] < (__u8)b.at[i] ? -1 : 1;
    return a.len < b.len ? -1 : a.len > b.len;
}

DS_INLINE int ds_equal(struct ds_text a, struct ds_text b)
{
    return a.len == b.len && ds_compare(a, b) == 0;
}

DS_INLINE int ds_starts_with(struct ds_text text, struct ds_text start)
{
    return text.len >= start.len && ds_equal(ds_text(text.at, start.len), start);
}

DS_INLINE int ds_ends_with(struct ds_text text, struct ds_text end)
{
    return text.len >= end.len && ds_equal(ds_text(text.at + (text.len - end.len), end.len), end);
}

/* As ds_equal, for which letters of ASCII in upper and lower case are the same. */
DS_INLINE int ds_equal_ignoring_case(struct ds_text a, struct ds_text b)
{
    if (a.len != b.len)
        return 0;
    for (__u64 i = 0; i < a.len; i++) {
        __u8 x = a.at[i], y = b.at[i];
        x |= (__u8)(x - 'A') < 26 ? 0x20 : 0;
        y |= (__u8)(y - 'A') < 26 ? 0x20 : 0;
        if (x != y)
            return 0;
    }
    return 1;
}

/* Where it first occurs, or -1. */
DS_INLINE __s64 ds_search(struct ds_text hay, struct ds_text needle)
{
    return ds_find(hay.at, hay.len, needle.at, needle.len);
}

/* 1, and the value, if the text is a number from 0 to 2^64 - 1 and nothing else. */
DS_INLINE int ds_parse_u64(struct ds_text text, __u64 *value)
{
    __u64 n = 0;

    if (text.len == 0)
        return 0;
    for (__u64 i = 0; i < text.len; i++) {
        __u32 digit = (__u32)text.at[i] - '0';
        if (digit > 9 || n > (~0ull - digit) / 10)
            return 0;
        n = n * 10 + digit;
    }
    *value = n;
    return 1;
}

/* As ds_parse_u64, with a sign, from -2^63 to 2^63 - 1. */
DS_INLINE int ds_parse_i64(struct ds_text text, __s64 *value)
{
    int sign = text.len > 0 && (text.at[0] == '-' || text.at[0] == '+');
    int negative = sign && text.at[0] == '-';
    __u64 n;

    if (!ds_parse_u64(ds_text(text.at + sign, text.len - sign), &n) || n > (1ull << 63) - !negative)
        return 0;
    *value = negative ? (__s64)(0 - n) : (__s64)n;
    return 1;
}

/*
 * 1, and the value times 10^places, if the text is a decimal number such as -12, 3.25 or .5 and nothing else: money, without a
 * rounding error. 0 if places beyond that are not 0, or is too large for 64 bits. At most 18 places.
 */
DS_INLINE int ds_parse_decimal(struct ds_text text, int places, __s64 *value)
{
    int sign = text.len > 0 && (text.at[0] == '-' || text.at[0] == '+'), point = 0, digits = 0;
    __u64 n = 0, most = (1ull << 63) - !(sign && text.at[0] == '-');

    for (__u64 i = sign; i < text.len; i++) {
        __u32 digit = (__u32)text.at[i] - '0';
        if (text.at[i] == '.' && !point) {
            point = 1;
            continue;
        }
        if (digit > 9 || (point && places == 0 && digit != 0))
            return 0;
        digits = 1;
        if (point && places == 0)
            continue;
        if (n > (most - digit) / 10)
            return 0;
        n = n * 10 + digit;
        places -= point;
    }
    for (; places > 0; places--, n *= 10)
        if (n > most / 10)
            return 0;
    if (!digits)
        return 0;
    *value = most >> 63 ? (__s64)(0 - n) : (__s64)n;
    return 1;
}

/* 10^0 to 10^22, which doubles hold exactly. */
static const ds_f64 ds_powers_of_ten[23] = {
    0x3ff0000000000000, 0x4024000000000000, 0x4059000000000000, 0x408f400000000000,
    0x40c3880000000000, 0x40f86a0000000000, 0x412e848000000000, 0x416312d000000000,
    0x4197d78400000000, 0x41cdcd6500000000, 0x4202a05f20000000, 0x42374876e8000000,
    0x426d1a94a2000000, 0x42a2309ce5400000, 0x42d6bcc41e900000, 0x430c6bf526340000,
    0x4341c37937e08000, 0x4376345785d8a000, 0x43abc16d674ec800, 0x43e158e460913d00,
    0x4415af1d78b58c40, 0x444b1ae4d6e2ef50, 0x4480f0cf064dd592,
};

/*
 * 1, and the value, if the text is a decimal number such as -12, 3.25, .5 or 6e-3, and nothing else. The nearest double
 * where the number has up to 15 digits and 22 places; beyond that it may be a few units of the last place off.
 */
DS_INLINE int ds_parse_f64(struct ds_text text, ds_f64 *value)
{
    __u64 i = 0, mantissa = 0, digits = 0;
    __s64 scale = 0;
    int negative = 0, point = 0;

    if (i < text.len && (text.at[i] == '-' || text.at[i] == '+'))
        negative = text.at[i++] == '-';
    for (; i < text.len; i++) {
        __u32 digit = (__u32)text.at[i] - '0';
        if (text.at[i] == '.' && !point) {
            point = 1;
            continue;
        }
        if (digit > 9)
            break;
        digits++;
        if (mantissa < 1000000000000000000ull) {
            mantissa = mantissa * 10 + digit;
            scale -= point;
        } else {
            scale += !point;
        }
    }
    if (digits == 0)
        return 0;
    if (i < text.len && (text.at[i] == 'e' || text.at[i] == 'E')) {
        __s64 exponent;
        if (!ds_parse_i64(ds_text(text.at + i + 1, text.len - i - 1), &exponent))
            return 0;
        /* Beyond that it is 0 or infinite, whatever the digits. */
        exponent = exponent > 100000 ? 100000 : exponent < -100000 ? -100000 : exponent;
        scale += exponent;
        i = text.len;
    }
    if (i < text.len)
        return 0;
    ds_f64 number = ds_f64_from_u64(mantissa);
    while (scale != 0 && number != 0 && number < 0x7ff0000000000000) {
        __s64 step = scale > 22 ? 22 : scale < -22 ? -22 : scale;
        number = step > 0 ? ds_f64_mul(number, ds_powers_of_ten[step]) : ds_f64_div(number, ds_powers_of_ten[-step]);
        scale -= step;
    }
    *value = negative ? number | 1ull << 63 : number;
    return 1;
}

/* As ds_parse_f64, for functions that compute with `double`. */
DS_INLINE int ds_parse_double(struct ds_text text, double *value)
{
    ds_f64 bits;

    if (!ds_parse_f64(text, &bits))
        return 0;
    __builtin_memcpy(value, &bits, sizeof(bits));
    return 1;
}

/* The next character of UTF-8; 0 when there is none left. An invalid byte is U+FFFD. */
DS_INLINE int ds_next_character(struct ds_text *rest, __u32 *character)
{
    const __u8 *p = (const __u8 *)rest->at;
    __u32 code, more = 0, least = 0;

    if (rest->len == 0)
        return 0;
    code = p[0];
    if (code >= 0xc2 && code < 0xe0)
        more = 1, least = 0x80, code &= 0x1f;
    else if (code >= 0xe0 && code < 0xf0)
        more = 2, least = 0x800, code &= 0x0f;
    else if (code >= 0xf0 && code < 0xf5)
        more = 3, least = 0x10000, code &= 0x07;
    else if (code >= 0x80)
        least = ~0u;
    for (__u32 k = 1; k <= more; k++) {
        if (k >= rest->len || (p[k] & 0xc0) != 0x80) {
            least = ~0u;
            break;
        }
        code = code << 6 | (p[k] & 0x3f);
    }
    if (code < least || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        code = 0xfffd, more = 0;
    *character = code;
    rest->at += 1 + more;
    rest->len -= 1 + more;
    return 1;
}

#endif
