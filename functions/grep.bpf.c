/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grep: the rows that contain a pattern. grep_count: how many there are. grep_scalar: the same count
 * with a search byte by byte instead of a helper.
 *
 * A row is a line, or row_len bytes. A pattern does not reach over the end of a row. A last line without
 * a newline gets one, so that no other line joins it.
 */
#include "diskside.h"

DS_SPLIT_LINES;
DS_CONCATENATE;

struct grep_args {
    __u32 row_len DS_ARG_RECORD_LEN DS_ARG_DEFAULT("0") DS_ARG_DOC("bytes in a row; 0: rows are lines");
    char pattern[] DS_ARG_DOC("what to look for");
};

struct grep_count_result {
    __u64 rows; /* that contain the pattern */
};

static const char newline[1] = {'\n'};

/* End of the line that *at is in, its newline included. */
DS_INLINE const char *line_end(const char *at, const char *end)
{
    __s64 n = ds_find(at, end - at, newline, 1);
    return n < 0 ? end : at + n + 1;
}

/* A row with a match. */
struct row {
    const char *start, *end;
};

/*
 * The first row at or after `from` that contains the pattern; start is NULL when there is none.
 * `from` is the start of a row. Lines are the common case; the ends of fixed rows need care, because
 * a match may lie across two of them.
 */
DS_INLINE struct row next_row(const char *in, const char *from, const char *end,
                              const char *pattern, __u64 n, __u64 row_len)
{
    struct row row = {NULL, NULL};
    const char *at = from;

    while (at < end) {
        __s64 found = ds_find(at, end - at, pattern, n);
        if (found < 0)
            return row;
        at += found;
        if (row_len == 0) {
            row.end = line_end(at, end);
            for (row.start = at; row.start > from && row.start[-1] != '\n';)
                row.start--;
            return row;
        }
        row.start = in + (__u64)(at - in) / row_len * row_len;
        row.end = row.start + row_len < end ? row.start + row_len : end;
        if (at + n <= row.end)
            return row;
        row.start = NULL;
        at++;
    }
    return row;
}

/* A pattern with a newline is in no line, and fixed rows must not be cut by a chunk. */
DS_INLINE int is_wrong(const char *pattern, __u64 n, __u64 row_len, __u64 in_offset)
{
    return row_len == 0 ? ds_find(pattern, n, newline, 1) >= 0 : in_offset % row_len != 0;
}

#define WRONG "the pattern has a newline, which no line has, or --offset is not a multiple of row_len"

SEC("read/grep")
__s64 grep(char *out, const char *in, __u64 in_len, const struct grep_args *args,
           const struct ds_call *call)
{
    __u64 n = call->args_len - sizeof(*args), row_len = args->row_len, len = 0;
    const char *end = in + in_len;

    if (is_wrong(args->pattern, n, row_len, call->in_offset))
        return DS_FAIL(DS_EINVAL, WRONG);
    for (const char *p = in; p < end;) {
        struct row row = next_row(in, p, end, args->pattern, n, row_len);
        if (row.start == NULL)
            break;
        ds_memcpy(out + len, row.start, row.end - row.start);
        len += row.end - row.start;
        p = row.end;
    }
    if (row_len == 0 && len > 0 && out[len - 1] != '\n') {
        if (len == call->out_cap)
            return DS_FAIL(DS_ENOSPC, "there is no room for the end of the last line");
        out[len++] = '\n';
    }
    return len;
}

SEC("read/grep_count")
__s64 grep_count(struct grep_count_result *out, const char *in, __u64 in_len,
                 const struct grep_args *args, const struct ds_call *call)
{
    __u64 n = call->args_len - sizeof(*args), row_len = args->row_len, rows = 0;
    const char *end = in + in_len, *at = in;

    if (is_wrong(args->pattern, n, row_len, call->in_offset))
        return DS_FAIL(DS_EINVAL, WRONG);
    while (at < end) {
        __s64 found = ds_find(at, end - at, args->pattern, n);
        if (found < 0)
            break;
        at += found;
        if (row_len == 0) {
            rows++;
            at = line_end(at, end);
        } else {
            const char *row_end = in + ((__u64)(at - in) / row_len + 1) * row_len;
            if (row_end > end)
                row_end = end;
            if (at + n <= row_end) {
                rows++;
                at = row_end;
            } else {
                at++;
            }
        }
    }
    out->rows = rows;
    return sizeof(*out);
}

SEC("read/grep_scalar")
__s64 grep_scalar(struct grep_count_result *out, const char *in, __u64 in_len,
                  const struct grep_args *args, const struct ds_call *call)
{
    __u64 n = call->args_len - sizeof(*args), row_len = args->row_len, rows = 0;
    const char *pattern = args->pattern, *end = in + in_len;

    if (n == 0)
        return DS_FAIL(DS_EINVAL, "the pattern is empty, which every row has: use grep_count");
    if (is_wrong(pattern, n, row_len, call->in_offset))
        return DS_FAIL(DS_EINVAL, WRONG);
    if (in_len >= n) {
        char head = pattern[0], tail = pattern[n - 1];
        const char *last = end - n, *next = in; /* where the next row to look at starts */

        for (const char *p = in;; p++) {
            const char *row_end;
            __u64 i = 1;

            while (p <= last && *p != head)
                p++;
            if (p > last)
                break;
            if (p[n - 1] != tail || p < next)
                continue;
            while (i < n && p[i] == pattern[i])
                i++;
            if (i < n)
                continue;
            if (row_len != 0) {
                row_end = in + ((__u64)(p - in) / row_len + 1) * row_len;
                if (p + n > row_end)
                    continue;
            } else {
                for (row_end = p + n; row_end < end && *row_end != '\n';)
                    row_end++;
            }
            rows++;
            next = row_end;
        }
    }
    out->rows = rows;
    return sizeof(*out);
}

DS_INLINE __s64 combine(struct grep_count_result *acc, __u64 acc_len,
                        const struct grep_count_result *part)
{
    acc->rows = (acc_len == 0 ? 0 : acc->rows) + part->rows;
    return sizeof(*acc);
}

SEC("combine.unordered/grep_count")
__s64 grep_count_combine(struct grep_count_result *acc, __u64 acc_len, __u64 acc_cap,
                         const struct grep_count_result *part, __u64 part_len)
{
    return combine(acc, acc_len, part);
}

SEC("combine.unordered/grep_scalar")
__s64 grep_scalar_combine(struct grep_count_result *acc, __u64 acc_len, __u64 acc_cap,
                          const struct grep_count_result *part, __u64 part_len)
{
    return combine(acc, acc_len, part);
}
