/* SPDX-License-Identifier: Apache-2.0 */
/*
 * csv_stats: count, sum, least, greatest and mean of a column of numbers in text. csv_histogram: how many of them lie in each of
 * `bins` ranges of `width` from `lo` on. csv_quantiles: which of them are greater than a part of all (within 0.8 %).
 * Fields that are not numbers are counted apart, or left out.
 */
#include "csv.h"
#include "floats.h"

DS_SPLIT_LINES;
DS_OUTPUT(0, 1, 16 * (FLOAT_BINS_MAX + 2));

struct csv_column_args {
    char column[64] CSV_COLUMN;
    char delimiter CSV_DELIMITER;
    char columns[] CSV_COLUMNS;
};

SEC("read/csv_stats")
__s64 csv_stats(struct float_stats *out, const char *in, __u64 in_len, const struct csv_column_args *args,
                const struct ds_call *call)
{
    struct csv_lines lines = CSV_LINES(in, in_len, args, struct csv_column_args, call);
    struct ds_text field;

    if (lines.column < 0)
        return DS_FAIL(DS_EINVAL, CSV_NO_COLUMN);
    float_stats_begin(out);
    while (csv_next(&lines, &field)) {
        ds_f64 value;
        if (ds_parse_f64(ds_trimmed(field), &value))
            float_stats_add(out, value);
        else
            out->not_numbers++;
    }
    if (csv_found_none(&lines, call))
        return DS_FAIL(DS_EINVAL, CSV_NO_FIELD);
    float_stats_end(out);
    return sizeof(*out);
}

SEC("combine/csv_stats")
__s64 csv_stats_combine(struct float_stats *acc, __u64 acc_len, __u64 acc_cap, const struct float_stats *part,
                        __u64 part_len)
{
    return float_stats_fold(acc, acc_len, part);
}

struct csv_histogram_args {
    char column[64] CSV_COLUMN;
    ds_f64 lo DS_ARG_F64 DS_ARG_DEFAULT("0") DS_ARG_DOC("start of the first range");
    ds_f64 width DS_ARG_F64 DS_ARG_DEFAULT("1") DS_ARG_DOC("of a range");
    __u32 bins DS_ARG_DEFAULT("100") DS_ARG_MIN("1") DS_ARG_MAX("65536") DS_ARG_DOC("number of ranges");
    char delimiter CSV_DELIMITER;
    char columns[] CSV_COLUMNS;
};

SEC("read/csv_histogram")
__s64 csv_histogram(struct float_bin *out, const char *in, __u64 in_len, const struct csv_histogram_args *args,
                    const struct ds_call *call)
{
    struct csv_lines lines = CSV_LINES(in, in_len, args, struct csv_histogram_args, call);
    struct ds_text field;
    ds_f64 lo = args->lo, width = args->width;
    __u64 bins = args->bins;
    __s64 len = float_bins_begin(out, call->out_cap, lo, width, bins);

    if (len < 0)
        return DS_FAIL(-len, FLOAT_BINS_WRONG);
    if (lines.column < 0)
        return DS_FAIL(DS_EINVAL, CSV_NO_COLUMN);
    while (csv_next(&lines, &field)) {
        ds_f64 value;
        if (ds_parse_f64(ds_trimmed(field), &value))
            out[float_bin_of(value, lo, width, bins)].count++;
    }
    if (csv_found_none(&lines, call))
        return DS_FAIL(DS_EINVAL, CSV_NO_FIELD);
    return len;
}

SEC("combine.unordered/csv_histogram")
__s64 csv_histogram_combine(struct float_bin *acc, __u64 acc_len, __u64 acc_cap, const struct float_bin *part,
                            __u64 part_len)
{
    return float_bins_fold(acc, acc_len, part, part_len);
}

SEC("read/csv_quantiles")
__s64 csv_quantiles(struct float_quantiles *out, const char *in, __u64 in_len, const struct csv_column_args *args,
                    const struct ds_call *call)
{
    struct csv_lines lines = CSV_LINES(in, in_len, args, struct csv_column_args, call);
    struct ds_text field;

    if (lines.column < 0)
        return DS_FAIL(DS_EINVAL, CSV_NO_COLUMN);
    while (csv_next(&lines, &field)) {
        ds_f64 value;
        if (ds_parse_f64(ds_trimmed(field), &value))
            ds_quantiles_add(&out->sketch, value);
    }
    if (csv_found_none(&lines, call))
        return DS_FAIL(DS_EINVAL, CSV_NO_FIELD);
    float_quantiles_end(out);
    return sizeof(*out);
}

SEC("combine.unordered/csv_quantiles")
__s64 csv_quantiles_combine(struct float_quantiles *acc, __u64 acc_len, __u64 acc_cap,
                            const struct float_quantiles *part, __u64 part_len)
{
    return float_quantiles_fold(acc, part);
}
