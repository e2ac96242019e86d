/* SPDX-License-Identifier: Apache-2.0 */
/*
 * csv_aggregate: groups the lines of a table of text by one column and gives count, sum, least and greatest of another, one
 * row for each key, in order of the keys. Columns go by number, or by name: `columns` has the line of their names, or the input
 * begins with it.
 */
#include "csv.h"
#include "diskside/groups.h"

DS_SPLIT_LINES;
DS_OUTPUT(1, 1, 1048576);

struct csv_aggregate_args {
    char by[64] DS_ARG_COLUMN DS_ARG_DOC("column of the keys: its number from 1, or its name");
    char sum[64] DS_ARG_COLUMN DS_ARG_DEFAULT("") DS_ARG_DOC("column of the numbers; without one, lines are counted");
    char delimiter CSV_DELIMITER;
    char columns[] CSV_COLUMNS;
};

struct csv_group {
    char key[64];
    __u64 count;
    ds_f64 sum DS_ARG_F64, min DS_ARG_F64, max DS_ARG_F64;
    __u64 not_numbers; /* lines without a number there; they are counted, not summed */
};

DS_GROUPS(csv_groups, struct csv_group, key);

DS_INLINE void add_number(struct csv_group *group, ds_f64 value)
{
    if (group->count == group->not_numbers) {
        group->sum = group->min = group->max = value;
        return;
    }
    group->sum = ds_f64_add(group->sum, value);
    group->min = ds_f64_min(group->min, value);
    group->max = ds_f64_max(group->max, value);
}

SEC("read/csv_aggregate")
__s64 csv_aggregate(struct csv_group *out, const char *in, __u64 in_len, const struct csv_aggregate_args *args,
                    const struct ds_call *call)
{
    struct ds_text columns = ds_text(args->columns, call->args_len - __builtin_offsetof(struct csv_aggregate_args, columns));
    struct ds_text rest = ds_text(in, in_len), line, field;
    struct ds_text sum_name = ds_member(args->sum, sizeof(args->sum));
    char delimiter = args->delimiter;
    __s64 by = csv_column_of(ds_member(args->by, sizeof(args->by)), columns, delimiter);
    __s64 sum = csv_column_of(sum_name, columns, delimiter);
    __s64 last = by > sum ? by : sum;
    struct csv_groups groups = {0};
    int has_some = 0, lacks_some = 0; /* lines with the columns, lines without one */

    if (by < 0 || (sum < 0 && sum_name.len > 0))
        return DS_FAIL(DS_EINVAL, "`by` or `sum` is not one of " CSV_NAMES);
    csv_pass_names(&rest, columns, call);
    while (ds_next_line(&rest, &line)) {
        struct ds_text key = ds_text(NULL, 0);
        ds_f64 value = 0;
        int is_number = 0, is_blank = line.len == 0;
        __s64 column = 0;
        for (; column <= last && ds_next_field(&line, delimiter, &field); column++) {
            if (column == by)
                key = field;
            if (column == sum)
                is_number = ds_parse_f64(ds_trimmed(field), &value);
        }
        has_some |= column > last;
        lacks_some |= column <= last && !is_blank;
        if (key.at == NULL)
            continue; /* A line without that column. */
        struct csv_group *group = csv_groups_at(&groups, key);
        if (group == NULL)
            return groups.error;
        if (is_number)
            add_number(group, value);
        else
            group->not_numbers++;
        group->count++;
    }
    if ((call->flags & DS_FIRST) && lacks_some && !has_some)
        return DS_FAIL(DS_EINVAL, CSV_NO_FIELD);
    return csv_groups_write(&groups, out, call->out_cap);
}

DS_INLINE void csv_group_add(struct csv_group *to, const struct csv_group *from)
{
    int both = to->count > to->not_numbers && from->count > from->not_numbers;

    if (both) {
        to->sum = ds_f64_add(to->sum, from->sum);
        to->min = ds_f64_min(to->min, from->min);
        to->max = ds_f64_max(to->max, from->max);
    } else if (from->count > from->not_numbers) {
        to->sum = from->sum;
        to->min = from->min;
        to->max = from->max;
    }
    to->count += from->count;
    to->not_numbers += from->not_numbers;
}

SEC("combine/csv_aggregate")
__s64 csv_aggregate_combine(struct csv_group *acc, __u64 acc_len, __u64 acc_cap, const struct csv_group *part,
                            __u64 part_len)
{
    return csv_groups_merge(acc, acc_len, acc_cap, part, part_len, csv_group_add);
}
