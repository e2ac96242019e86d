/* The library's collections over lines of numbers and text; compiled for the sandbox and natively, it gives one output. */
#include "diskside.h"
#include "diskside/bits.h"
#include "diskside/sketch.h"
#include "diskside/tables.h"
#include "diskside/text.h"
#include "diskside/topk.h"

DS_OUTPUT(0, 1, 4194304);

struct tally {
    __s32 number;
    __u32 lines;
    __u64 last;
};

DS_TABLE(tallies, struct tally, number);
DS_TOP_K(greatest, struct tally, a->number > b->number || (a->number == b->number && a->last < b->last));

struct state {
    struct ds_distinct distinct;
    struct ds_quantiles quantiles;
    __u64 bits[DS_BIT_WORDS(1000)];
    __s64 decimals; /* hundredths */
    __u64 ends, shouts, known;
};

DS_INLINE char *put(char *at, __u64 value)
{
    *(__u64 *)at = value;
    return at + 8;
}

DS_INLINE char *put_rows(char *at, const struct tally *rows, __s64 len)
{
    at = put(at, len);
    for (__u64 i = 0; i < (__u64)len / 16; i++)
        ((struct tally *)at)[i] = rows[i];
    return at + len;
}

SEC("read/collections")
__s64 collections(char *out, const char *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    struct ds_text rest = ds_text(in, in_len), line;
    struct tallies table = {0};
    struct state *state = ds_alloc(sizeof(*state));
    struct tally *top = ds_alloc(7 * sizeof(*top));
    __u64 count = 0, at = 0;
    char *to = out;

    if (!state || !top)
        return -DS_ENOMEM;
    for (; ds_next_line(&rest, &line); at++) {
        __s64 number, decimal;
        ds_f64 real;
        if (ds_parse_i64(line, &number)) {
            struct tally *row = tallies_at(&table, number), one = {number, 1, at};
            if (!row)
                return table.error;
            row->lines++;
            row->last = at;
            greatest_add(top, &count, 7, &one);
            if (number >= 0 && number < 1000)
                ds_bit_set(state->bits, number);
            ds_distinct_add(&state->distinct, ds_mixed(ds_mixed(number)));
        }
        if (ds_parse_f64(line, &real))
            ds_quantiles_add(&state->quantiles, real);
        if (ds_parse_decimal(line, 2, &decimal))
            state->decimals += decimal;
        state->ends += ds_ends_with(line, ds_literal("ing"));
        state->shouts += ds_equal_ignoring_case(line, ds_literal("Error[1]"));
    }
    for (__u64 i = 0; i < 1000; i++)
        state->known += tallies_find(&table, (__s32)i) != NULL;
    to = put(to, state->decimals);
    to = put(to, state->ends);
    to = put(to, state->shouts);
    to = put(to, state->known);
    to = put(to, ds_bit_count(state->bits, 1000));
    to = put(to, ds_bit_count(state->bits, 77));
    for (__u64 i = 0; (i = ds_bit_next(state->bits, 1000, i)) < 1000; i++)
        to = put(to, i);
    to = put(to, DS_UNKNOWN);
    to = put(to, ds_distinct_count(&state->distinct));
    to = put(to, state->quantiles.count);
    for (__u64 i = 0; i <= 10; i++)
        to = put(to, ds_quantiles_at(&state->quantiles, i, 10));
    greatest_sort(top, count);
    to = put_rows(to, top, count * sizeof(*top));
    ds_free(top);
    ds_free(state);
    __s64 written = tallies_write(&table, (struct tally *)(to + 8), call->out_cap - (to + 8 - out));
    if (written < 0)
        return written;
    return put(to, written) + written - out;
}

struct folded {
    __u64 top_len, table_len;
    struct tally top[7], table[64];
};

static void add(struct tally *to, const struct tally *from)
{
    to->lines += from->lines;
    if (from->last > to->last)
        to->last = from->last;
}

/* Folds pieces of the input: of each number, its lines, and the greatest. */
SEC("read/folds")
__s64 folds(struct folded *out, const char *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    struct ds_text rest = ds_text(in, in_len), line;
    struct tallies table = {0};
    __u64 count = 0, at = call->in_offset;

    for (; ds_next_line(&rest, &line); at += line.len + 1) {
        __s64 number;
        if (!ds_parse_i64(line, &number))
            continue;
        struct tally *row = tallies_at(&table, number), one = {number, 1, at};
        if (!row)
            return table.error;
        add(row, &one);
        greatest_add(out->top, &count, 7, &one);
    }
    greatest_sort(out->top, count);
    out->top_len = count * sizeof(struct tally);
    out->table_len = tallies_write(&table, out->table, sizeof(out->table));
    return (__s64)out->table_len < 0 ? (__s64)out->table_len : (__s64)sizeof(*out);
}

SEC("combine/folds")
__s64 fold(struct folded *acc, __u64 acc_len, __u64 acc_cap, const struct folded *part, __u64 part_len)
{
    __s64 len;

    acc->top_len = greatest_merge(acc->top, acc->top_len, part->top, part->top_len, 7);
    len = tallies_merge(acc->table, acc->table_len, sizeof(acc->table), part->table, part->table_len, add);
    if (len < 0)
        return len;
    acc->table_len = len;
    return sizeof(*acc);
}
