/* SPDX-License-Identifier: Apache-2.0 */
/*
 * histogram: how many elements of a column lie in each of `bins` ranges of `width` values from `lo`
 * on. Each row of the result is a range: where it starts (it reaches to the next) and its count. The
 * first row counts what lies below lo, the last what lies above the bins.
 */
#include "column.h"

#define BINS_MAX 65536
DS_SPLIT_RECORDS(8); /* elements of every type */
DS_OUTPUT(0, 1, 16 * (BINS_MAX + 2));

struct histogram_args {
    __u32 row_len COLUMN_ROW_LEN;
    __u32 offset COLUMN_OFFSET;
    enum column_type type COLUMN_TYPE("u8");
    __u32 bins DS_ARG_DEFAULT("256") DS_ARG_MIN("1") DS_ARG_MAX("65536") DS_ARG_DOC("number of ranges");
    __s64 lo DS_ARG_DEFAULT("0") DS_ARG_DOC("start of the first range");
    __u64 width DS_ARG_DEFAULT("1") DS_ARG_MIN("1") DS_ARG_DOC("values in a range");
};

struct histogram_result {
    __s64 from;
    __u64 count;
};

SEC("read/histogram")
__s64 histogram(struct histogram_result *out, const char *in, __u64 in_len,
                const struct histogram_args *args, const struct ds_call *call)
{
    __u64 own = column_width(args->type), bins = args->bins, width = args->width;
    __u64 row_len = args->row_len == 0 ? own : args->row_len;
    __s64 lo = args->lo;

    if (args->offset + own > row_len)
        return DS_FAIL(DS_EINVAL, COLUMN_NOT_IN_ROW);
    if (call->in_offset % row_len != 0)
        return DS_FAIL(DS_EINVAL, NOT_AT_A_ROW);
    if (width == 0 || bins == 0 || bins > BINS_MAX)
        return DS_FAIL(DS_EINVAL, "width has to be 1 or more, and bins 1 to 65536");
    if ((bins + 2) * sizeof(*out) > call->out_cap)
        return DS_FAIL(DS_ENOSPC, "the output has no room for so many bins");
    out[0] = (struct histogram_result){-0x7fffffffffffffffll - 1, 0};
    for (__u64 i = 0; i <= bins; i++)
        out[i + 1] = (struct histogram_result){lo + i * width, 0};
    COLUMN_EACH(in, in_len / row_len, row_len, args->offset, args->type, {
        __u64 distance = (__u64)value - (__u64)lo;
        __u64 bin = width == 1 ? distance : distance / width;
        bin = value < lo ? 0 : bin < bins ? bin + 1 : bins + 1;
        out[bin].count++;
    });
    return (bins + 2) * sizeof(*out);
}

SEC("combine.unordered/histogram")
__s64 histogram_combine(struct histogram_result *acc, __u64 acc_len, __u64 acc_cap,
                        const struct histogram_result *part, __u64 part_len)
{
    if (acc_len == 0) {
        ds_memcpy(acc, part, part_len);
        return part_len;
    }
    if (acc_len != part_len)
        return DS_FAIL(DS_EINVAL, UNLIKE_PARTS);
    for (__u64 i = 0; i < part_len / sizeof(*part); i++)
        acc[i].count += part[i].count;
    return acc_len;
}
