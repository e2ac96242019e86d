/* SPDX-License-Identifier: Apache-2.0 */
/*
 * array_histogram: how many of an array's elements lie in each bin, as numpy.histogram has it. The input is one chunk,
 * decompressed, so the function is called once.
 */
#include "array.h"

#define BINS_MAX 65536

DS_OUTPUT(0, 1, 8 * BINS_MAX);

struct array_histogram_args {
    enum element_type type ARRAY_TYPE;
    __u32 big_endian ARRAY_BIG;
    __u64 shape[DIMENSIONS_MAX] ARRAY_SHAPE;
    __u64 held[DIMENSIONS_MAX] ARRAY_HELD;
    ds_f64 edges[] DS_ARG_F64 DS_ARG_DOC("ascending; a bin holds its first edge, the last one both");
};

struct array_histogram_result {
    __u64 count;
};

/* The last edge that is not above the value; there is one. */
DS_INLINE __u64 bin_of(const ds_f64 *edges, __u64 bins, ds_f64 value)
{
    __u64 low = 0, high = bins;

    while (high - low > 1) {
        __u64 middle = (low + high) / 2;
        if (ds_f64_le(edges[middle], value))
            low = middle;
        else
            high = middle;
    }
    return low;
}

SEC("read/array_histogram")
__s64 array_histogram(struct array_histogram_result *out, const char *in, __u64 in_len,
                      const struct array_histogram_args *args, const struct ds_call *call)
{
    __u64 edges = (call->args_len - sizeof(*args)) / sizeof(ds_f64), width = width_of(args->type);
    struct runs runs = {0};
    __s64 error = runs_of(&runs, args->shape, args->held, width, in_len);
    ds_f64 lo, hi;

    if (error)
        return error;
    if (edges < 2 || edges > BINS_MAX)
        return DS_FAIL(DS_EINVAL, "edges are the ends of each bin: from 2 to 65536");
    lo = args->edges[0];
    hi = args->edges[edges - 1];
    for (__u64 i = 0; i < runs.count; i++) {
        const char *at = in + next_run(&runs);
        for (__u64 j = 0; j < runs.run; j++) {
            ds_f64 value = float_of(bits_at(at + j * width, width, args->big_endian), args->type);
            /* A NaN is in none. */
            if (ds_f64_le(lo, value) & ds_f64_le(value, hi))
                out[bin_of(args->edges, edges - 1, value)].count++;
        }
    }
    return (edges - 1) * sizeof(*out);
}

SEC("combine.unordered/array_histogram")
__s64 array_histogram_combine(struct array_histogram_result *acc, __u64 acc_len, __u64 acc_cap,
                              const struct array_histogram_result *part, __u64 part_len)
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
