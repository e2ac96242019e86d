/* SPDX-License-Identifier: Apache-2.0 */
/*
 * filter_u32, filter_i32, filter_u64, filter_i64, filter_f32, filter_f64: which elements satisfy a
 * comparison. The input is a plain column, or rows of row_len bytes with the element at `offset`.
 *
 * The result is, as `form` says,
 *   bitmap     bit i % 8 of byte i / 8 for element i
 *   positions  the index in the source of each match, as __u64
 *   rows       the rows (elements) that match
 */
#include "diskside.h"

DS_PIECE_RECORDS(8); /* whole bytes of a bitmap */
DS_CONCATENATE;
DS_OUTPUT(2, 1, 64);

enum filter_op { eq, ne, lt, le, gt, ge, between };
enum filter_form { bitmap, positions, rows };

#define FILTER_ARGS(name, type, tag)                                                        \
    struct name {                                                                           \
        enum filter_op op DS_ARG_DEFAULT("eq") DS_ARG_DOC("eq, ne, lt, le, gt, ge or between"); \
        enum filter_form form DS_ARG_DEFAULT("bitmap") DS_ARG_DOC("bitmap, positions or rows"); \
        type lo tag DS_ARG_DOC("the value to compare with, or the lower end");              \
        type hi tag DS_ARG_DEFAULT("0") DS_ARG_DOC("the upper end of between");             \
        __u32 row_len DS_ARG_RECORD_LEN DS_ARG_DEFAULT("0")                                 \
            DS_ARG_DOC("bytes in a row; 0: a plain column");                                \
        __u32 offset DS_ARG_DEFAULT("0") DS_ARG_DOC("of the element in its row");           \
    }

FILTER_ARGS(filter_u32_args, __u32, );
FILTER_ARGS(filter_i32_args, __s32, );
FILTER_ARGS(filter_u64_args, __u64, );
FILTER_ARGS(filter_i64_args, __s64, );
FILTER_ARGS(filter_f32_args, ds_f32, DS_ARG_F32);
FILTER_ARGS(filter_f64_args, ds_f64, DS_ARG_F64);

/* Rows that are looked at together. */
#define BLOCK 4096

struct scratch {
    __u32 hits[BLOCK];
    __u64 column[BLOCK];
};

/* Copies one element of each row to an array without holes. */
DS_INLINE void gather4(__u32 *to, const char *from, __u64 row_len, __u64 n)
{
    for (__u32 *end = to + n; to < end; to++, from += row_len)
        *to = *(const __u32 *)from;
}

DS_INLINE void gather8(__u64 *to, const char *from, __u64 row_len, __u64 n)
{
    for (__u64 *end = to + n; to < end; to++, from += row_len)
        *to = *(const __u64 *)from;
}

#define FILTER(section, name, type, args_type, gather, helper)                              \
    DS_INLINE __s64 name##_block(char *out, __u64 room, const char *in, __u64 n,            \
                                 __u64 row_len, __u64 first, const struct args_type *args,  \
                                 struct ds_filter *spec, struct scratch *scratch)           \
    {                                                                                       \
        const type *column = (const type *)(in + args->offset);                             \
        __u64 width = args->form == rows ? row_len : sizeof(__u64);                         \
        __s64 hits;                                                                         \
                                                                                            \
        if (row_len != sizeof(type)) {                                                      \
            gather((void *)scratch->column, in + args->offset, row_len, n);                 \
            column = (const type *)scratch->column;                                         \
        }                                                                                   \
        if (args->form == bitmap) {                                                         \
            hits = helper(out, room, column, n, spec);                                      \
            return hits < 0 ? hits : (__s64)(n + 7) / 8;                                    \
        }                                                                                   \
        hits = helper(scratch->hits, sizeof(scratch->hits), column, n, spec);               \
        if ((__u64)hits * width > room)                                                     \
            return DS_FAIL(DS_ENOSPC, "what matches does not fit in the output: ask for shorter pieces (--chunk)"); \
        for (__s64 i = 0; i < hits; i++, out += width) {                                    \
            __u64 row = scratch->hits[i];                                                   \
            if (args->form == positions)                                                    \
                *(__u64 *)out = first + row;                                                \
            else                                                                            \
                ds_memcpy(out, in + row * row_len, row_len);                                \
        }                                                                                   \
        return hits * width;                                                                \
    }                                                                                       \
                                                                                            \
    SEC(section)                                                                            \
    __s64 name(char *out, const type *column, __u64 in_len, const struct args_type *args,   \
               const struct ds_call *call)                                                  \
    {                                                                                       \
        __u64 row_len = args->row_len == 0 ? sizeof(type) : args->row_len;                  \
        __u64 n = in_len / row_len, first = call->in_offset / row_len, len = 0;             \
        struct ds_filter spec = {args->op, args->form == bitmap ? DS_BITMAP : DS_POSITIONS, \
                                 (__u64)args->lo, (__u64)args->hi};                         \
        const char *in = (const char *)column;                                              \
        struct scratch *scratch;                                                            \
                                                                                            \
        if (args->offset + sizeof(type) > row_len)                                          \
            return DS_FAIL(DS_EINVAL, "the element does not lie within a row: check row_len and offset"); \
        if (call->in_offset % row_len != 0)                                                 \
            return DS_FAIL(DS_EINVAL,                                                       \
                           "the input does not begin with a row: --offset has to be a multiple of row_len"); \
        if (args->form == bitmap && n % 8 != 0 && !(call->flags & DS_LAST))                 \
            return DS_FAIL(DS_EINVAL, "bitmaps need pieces of a multiple of 8 rows: leave --split to the function"); \
        scratch = ds_alloc(sizeof(*scratch));                                               \
        if (scratch == NULL)                                                                \
            return DS_FAIL(DS_ENOMEM, "there is no memory for its columns: give it more (--heap)"); \
        while (n > 0) {                                                                     \
            __u64 now = n < BLOCK ? n : BLOCK;                                              \
            __s64 added = name##_block(out + len, call->out_cap - len, in, now, row_len,    \
                                       first, args, &spec, scratch);                        \
            if (added < 0) {                                                                \
                ds_free(scratch);                                                           \
                return added;                                                               \
            }                                                                               \
            len += added;                                                                   \
            n -= now;                                                                       \
            first += now;                                                                   \
            in += now * row_len;                                                            \
        }                                                                                   \
        ds_free(scratch);                                                                   \
        return len;                                                                         \
    }

FILTER("read/filter_u32", filter_u32, __u32, filter_u32_args, gather4, ds_filter_u32)
FILTER("read/filter_i32", filter_i32, __s32, filter_i32_args, gather4, ds_filter_i32)
FILTER("read/filter_u64", filter_u64, __u64, filter_u64_args, gather8, ds_filter_u64)
FILTER("read/filter_i64", filter_i64, __s64, filter_i64_args, gather8, ds_filter_i64)
FILTER("read/filter_f32", filter_f32, ds_f32, filter_f32_args, gather4, ds_filter_f32)
FILTER("read/filter_f64", filter_f64, ds_f64, filter_f64_args, gather8, ds_filter_f64)
