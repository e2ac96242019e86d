/* SPDX-License-Identifier: Apache-2.0 */
/*
 * regex: the lines in which a regular expression matches, or does not. regex_count: how many there are.
 *
 * An expression is over bytes, and matches within a line, without its newline: ^ and $ are the line's ends. A last line
 * without a newline gets one, so that no other line joins it.
 */
#include "diskside.h"

DS_SPLIT_LINES;
DS_CONCATENATE;

struct regex_args {
    __u32 invert DS_ARG_DEFAULT("0") DS_ARG_MAX("1") DS_ARG_DOC("1: the lines in which it does not match");
    char pattern[] DS_ARG_REGEX
        DS_ARG_DOC("a regular expression, such as 'GET .* (404|5[0-9][0-9])$'; (?i) before it ignores case");
};

struct regex_count_result {
    __u64 rows; /* that are wanted */
};

static const char newline[1] = {'\n'};

DS_INLINE int is_wanted(const char *line, __u64 len, const struct regex_args *args, __u64 args_len)
{
    return (ds_regex_find(line, len, args->pattern, args_len - sizeof(*args)) >= 0) != args->invert;
}

/* Length of the line at p, without its newline. */
DS_INLINE __u64 line_len(const char *p, const char *end)
{
    __s64 n = ds_find(p, end - p, newline, 1);
    return n < 0 ? end - p : n;
}

SEC("read/regex")
__s64 regex(char *out, const char *in, __u64 in_len, const struct regex_args *args, const struct ds_call *call)
{
    const char *end = in + in_len;
    __u64 len = 0;

    for (const char *p = in; p < end;) {
        __u64 n = line_len(p, end), whole = p + n < end ? n + 1 : n;
        if (is_wanted(p, n, args, call->args_len)) {
            ds_memcpy(out + len, p, whole);
            len += whole;
        }
        p += whole;
    }
    if (len > 0 && out[len - 1] != '\n') {
        if (len == call->out_cap)
            return DS_FAIL(DS_ENOSPC, "there is no room for the end of the last line");
        out[len++] = '\n';
    }
    return len;
}

SEC("read/regex_count")
__s64 regex_count(struct regex_count_result *out, const char *in, __u64 in_len, const struct regex_args *args,
                  const struct ds_call *call)
{
    const char *end = in + in_len;
    __u64 rows = 0;

    for (const char *p = in; p < end;) {
        __u64 n = line_len(p, end);
        rows += is_wanted(p, n, args, call->args_len);
        p += n + 1;
    }
    out->rows = rows;
    return sizeof(*out);
}

SEC("combine.unordered/regex_count")
__s64 regex_count_combine(struct regex_count_result *acc, __u64 acc_len, __u64 acc_cap,
                          const struct regex_count_result *part, __u64 part_len)
{
    acc->rows = (acc_len == 0 ? 0 : acc->rows) + part->rows;
    return sizeof(*acc);
}
