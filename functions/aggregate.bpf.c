/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aggregate: groups rows by one column and gives count, sum, least and greatest of another, one row
 * for each key, in order of the keys.
 */
#include "column.h"

struct aggregate_args {
    __u32 row_len DS_ARG_RECORD_LEN DS_ARG_MIN("1") DS_ARG_DOC("bytes in a row");
    __u32 key_offset DS_ARG_DEFAULT("0") DS_ARG_DOC("of the key in its row");
    enum column_type key_type COLUMN_TYPE("i64");
    __u32 value_offset DS_ARG_DEFAULT("0") DS_ARG_DOC("of the value in its row");
    enum column_type value_type COLUMN_TYPE("i64");
};

struct aggregate_result {
    __s64 key;
    __u64 count;
    __s64 sum; /* modulo 2^64 */
    __s64 min, max;
};

DS_OUTPUT(1, 1, 65536);

/* An open hash table; an entry whose count is 0 is free. */
struct table {
    struct aggregate_result *entries;
    __u64 mask, used;
};

#define FIRST_CAPACITY 1024

DS_INLINE struct aggregate_result *lookup(struct table *table, __s64 key)
{
    __u64 at = ((__u64)key * 0x9e3779b97f4a7c15ull) >> 20;

    for (;; at++) {
        struct aggregate_result *entry = &table->entries[at & table->mask];
        if (entry->count == 0 || entry->key == key)
            return entry;
    }
}

#define NO_ROOM "the keys of a piece do not fit in memory: give it more (--heap), or ask for shorter pieces (--chunk)"

/* Doubles the table. */
DS_INLINE int grow(struct table *table)
{
    struct aggregate_result *old = table->entries;
    struct aggregate_result *end = old + table->mask + 1;

    table->mask = table->mask * 2 + 1;
    table->entries = ds_alloc((table->mask + 1) * sizeof(*old));
    if (table->entries == NULL) {
        ds_free(old);
        return 0;
    }
    for (struct aggregate_result *entry = old; entry < end; entry++)
        if (entry->count != 0)
            *lookup(table, entry->key) = *entry;
    ds_free(old);
    return 1;
}

/* Heap sort by key: in place, and no input makes it slow. */
DS_INLINE void sift(struct aggregate_result *rows, __u64 at, __u64 n)
{
    struct aggregate_result moved = rows[at];

    for (;;) {
        __u64 child = 2 * at + 1;
        if (child >= n)
            break;
        if (child + 1 < n && rows[child + 1].key > rows[child].key)
            child++;
        if (rows[child].key <= moved.key)
            break;
        rows[at] = rows[child];
        at = child;
    }
    rows[at] = moved;
}

DS_INLINE void sort(struct aggregate_result *rows, __u64 n)
{
    for (__u64 at = n / 2; at > 0; at--)
        sift(rows, at - 1, n);
    for (__u64 left = n; left > 1; left--) {
        struct aggregate_result last = rows[left - 1];
        rows[left - 1] = rows[0];
        rows[0] = last;
        sift(rows, 0, left - 1);
    }
}

SEC("read/aggregate")
__s64 aggregate(struct aggregate_result *out, const char *in, __u64 in_len,
                const struct aggregate_args *args, const struct ds_call *call)
{
    __u64 row_len = args->row_len, n = 0;
    int key_type = args->key_type, value_type = args->value_type;
    const char *keys = in + args->key_offset, *values = in + args->value_offset;
    struct table table = {NULL, FIRST_CAPACITY - 1, 0};

    if (row_len == 0 || args->key_offset + column_width(key_type) > row_len ||
        args->value_offset + column_width(value_type) > row_len)
        return DS_FAIL(DS_EINVAL, "the key or the value does not lie within a row: check row_len, the offsets and the types");
    if (call->in_offset % row_len != 0)
        return DS_FAIL(DS_EINVAL, NOT_AT_A_ROW);
    table.entries = ds_alloc(FIRST_CAPACITY * sizeof(*table.entries));
    if (table.entries == NULL)
        return DS_FAIL(DS_ENOMEM, NO_ROOM);
    for (__u64 rows = in_len / row_len; rows > 0; rows--, keys += row_len, values += row_len) {
        __s64 key = column_load(keys, key_type), value = column_load(values, value_type);
        struct aggregate_result *entry = lookup(&table, key);

        if (entry->count == 0) {
            if (table.used * 2 > table.mask) {
                if (!grow(&table))
                    return DS_FAIL(DS_ENOMEM, NO_ROOM);
                entry = lookup(&table, key);
            }
            table.used++;
            *entry = (struct aggregate_result){key, 1, value, value, value};
            continue;
        }
        entry->count++;
        entry->sum += value;
        if (value < entry->min)
            entry->min = value;
        if (value > entry->max)
            entry->max = value;
    }
    if (table.used * sizeof(*out) > call->out_cap) {
        ds_free(table.entries);
        return DS_FAIL(DS_ENOSPC, "the keys of a piece do not fit in its output: ask for shorter pieces (--chunk)");
    }
    for (__u64 at = 0; at <= table.mask; at++)
        if (table.entries[at].count != 0)
            out[n++] = table.entries[at];
    ds_free(table.entries);
    sort(out, n);
    return n * sizeof(*out);
}

/* Merges two sorted lists in place, from their ends. */
SEC("combine.unordered/aggregate")
__s64 aggregate_combine(struct aggregate_result *acc, __u64 acc_len, __u64 acc_cap,
                        const struct aggregate_result *part, __u64 part_len)
{
    __s64 a = acc_len / sizeof(*acc), p = part_len / sizeof(*part), n = a + p;

    for (__s64 i = 0, j = 0; i < a && j < p;) {
        if (acc[i].key == part[j].key)
            n--, i++, j++;
        else if (acc[i].key < part[j].key)
            i++;
        else
            j++;
    }
    if (n * sizeof(*acc) > acc_cap)
        return DS_FAIL(DS_ENOSPC, "the keys of all pieces do not fit in one result: aggregate a part of the input (--offset, "
                                  "--length) at a time");
    for (__s64 to = n; p > 0; to--) {
        if (a > 0 && acc[a - 1].key > part[p - 1].key) {
            acc[to - 1] = acc[--a];
        } else if (a > 0 && acc[a - 1].key == part[p - 1].key) {
            struct aggregate_result both = acc[--a];
            const struct aggregate_result *more = &part[--p];
            both.count += more->count;
            both.sum += more->sum;
            if (more->min < both.min)
                both.min = more->min;
            if (more->max > both.max)
                both.max = more->max;
            acc[to - 1] = both;
        } else {
            acc[to - 1] = part[--p];
        }
    }
    return n * sizeof(*acc);
}
