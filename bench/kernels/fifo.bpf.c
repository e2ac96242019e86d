/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The work of ndp_aggregate and ndp_filter as functions that are given their input: the host names what they read and where their
 * output goes, and the server brings it to them unit by unit (--split).
 */
#include "diskside.h"

DS_CONCATENATE;
DS_OUTPUT(1, 1, 64);

struct fifo_sum {
    __u64 offset, sum;
};

struct fifo_filter_args {
    __u64 unit DS_ARG_DOC("bytes of a unit");
    char pattern[64] DS_ARG_DOC("what a unit has to contain");
};

struct fifo_aggregate_args {
    __u64 unit DS_ARG_DOC("bytes of a unit");
};

SEC("read/fifo_aggregate")
__s64 fifo_aggregate(struct fifo_sum *out, const char *in, __u64 in_len, const struct fifo_aggregate_args *args,
                     const struct ds_call *call)
{
    __u64 n = 0;

    for (__u64 at = 0; at < in_len; at += args->unit, n++) {
        __u64 len = in_len - at < args->unit ? in_len - at : args->unit;

        out[n].offset = call->in_offset + at;
        out[n].sum = ds_sum_u64((const __u64 *)(in + at), len / 8);
    }
    return n * sizeof(*out);
}

SEC("read/fifo_filter")
__s64 fifo_filter(char *out, const char *in, __u64 in_len, const struct fifo_filter_args *args, const struct ds_call *call)
{
    __u64 pattern_len = 0, found = 0;

    while (pattern_len < sizeof(args->pattern) && args->pattern[pattern_len] != 0)
        pattern_len++;
    for (__u64 at = 0; at < in_len; at += args->unit) {
        __u64 len = in_len - at < args->unit ? in_len - at : args->unit;

        if (ds_find(in + at, len, args->pattern, pattern_len) < 0)
            continue;
        ds_memcpy(out + found, in + at, len);
        found += len;
    }
    return found;
}
