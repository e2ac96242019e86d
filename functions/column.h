/* SPDX-License-Identifier: Apache-2.0 */
/* One integer column of a table of fixed-size rows, or a plain array. */
#ifndef COLUMN_H
#define COLUMN_H

#include "diskside.h"

#ifndef COLUMN_MORE_TYPES
#define COLUMN_MORE_TYPES
#endif
enum column_type { u8, i8, u16, i16, u32, i32, i64 COLUMN_MORE_TYPES };

DS_INLINE __u64 column_width(int type)
{
    return type <= i8 ? 1 : type <= i16 ? 2 : type <= i32 ? 4 : 8;
}

DS_INLINE __s64 column_load(const char *at, int type)
{
    switch (type) {
    case u8:
        return *(const __u8 *)at;
    case i8:
        return *(const __s8 *)at;
    case u16:
        return *(const __u16 *)at;
    case i16:
        return *(const __s16 *)at;
    case u32:
        return *(const __u32 *)at;
    case i32:
        return *(const __s32 *)at;
    default:
        return *(const __s64 *)at;
    }
}

/* Arguments that several functions share. */
#define COLUMN_ROW_LEN DS_ARG_RECORD_LEN DS_ARG_DEFAULT("0") DS_ARG_DOC("bytes in a row; 0: a plain column")
#define COLUMN_OFFSET DS_ARG_DEFAULT("0") DS_ARG_DOC("of the element in its row")
#define COLUMN_TYPE(type) DS_ARG_DEFAULT(type) DS_ARG_DOC("u8, i8, u16, i16, u32, i32 or i64")

/* Why a column cannot be read: rows are not cut, so what begins within one is the request. */
#define COLUMN_NOT_IN_ROW "the element does not lie within a row: check row_len, offset and type"
#define NOT_AT_A_ROW "the input does not begin with a row: --offset has to be a multiple of row_len"
#define UNLIKE_PARTS "results of different lengths cannot be folded"

/*
 * Runs `body` for each element `value` of the column. The type is looked at once, not for each row.
 */
#define COLUMN_EACH(in, rows, row_len, offset, type, body)                                 \
    do {                                                                                   \
        const char *column_at = (const char *)(in) + (offset);                             \
        const char *column_end = column_at + (rows) * (row_len);                           \
        switch (type) {                                                                    \
            COLUMN_CASE(u8, __u8, row_len, body)                                           \
            COLUMN_CASE(i8, __s8, row_len, body)                                           \
            COLUMN_CASE(u16, __u16, row_len, body)                                         \
            COLUMN_CASE(i16, __s16, row_len, body)                                         \
            COLUMN_CASE(u32, __u32, row_len, body)                                         \
            COLUMN_CASE(i32, __s32, row_len, body)                                         \
            COLUMN_CASE(i64, __s64, row_len, body)                                         \
        }                                                                                  \
    } while (0)

#define COLUMN_CASE(name, type, row_len, body)                                             \
    case name:                                                                             \
        for (; column_at < column_end; column_at += (row_len)) {                           \
            __s64 value = *(const type *)column_at;                                        \
            body;                                                                          \
        }                                                                                  \
        break;

#endif
