/* Every function of the library over the lines of its input; compiled for the sandbox and natively, it gives one output. */
#include "diskside.h"
#include "diskside/groups.h"
#include "diskside/sort.h"
#include "diskside/text.h"

DS_OUTPUT(0, 1, 4194304);

struct out {
    char *at;
};

DS_INLINE void put(struct out *out, __u64 value)
{
    *(__u64 *)out->at = value;
    out->at += 8;
}

DS_INLINE void put_text(struct out *out, struct ds_text text)
{
    put(out, text.len);
    for (__u64 i = 0; i < text.len; i++)
        *out->at++ = text.at[i];
}

struct word {
    char text[8];
    __u64 count, last;
};

DS_GROUPS(words, struct word, text);
DS_SORT(numbers, __u64, *a > *b);

SEC("read/library")
__s64 library(char *output, const char *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    struct out out = {output};
    struct ds_text rest = ds_text(in, in_len), line, field;
    struct words table = {0};
    __u64 *lens = ds_alloc((in_len + 1) * 8), count = 0;

    if (!lens)
        return -DS_ENOMEM;
    while (ds_next_line(&rest, &line)) {
        struct ds_text characters = line, fields = line, before = ds_literal("a");
        __u32 character;
        __u64 number = 7, points = 0;
        __s64 integer = 7;
        ds_f64 real = 7;

        lens[count++] = line.len;
        put_text(&out, line);
        while (ds_next_character(&characters, &character))
            points = points * 31 + character;
        put(&out, points);
        while (ds_next_field(&fields, ',', &field)) {
            struct ds_text trimmed = ds_trimmed(field);
            put_text(&out, field);
            put_text(&out, trimmed);
            put(&out, ds_parse_u64(trimmed, &number));
            put(&out, number);
            put(&out, ds_parse_i64(trimmed, &integer));
            put(&out, integer);
            put(&out, ds_parse_f64(trimmed, &real));
            put(&out, real);
            put(&out, ds_compare(trimmed, before));
            put(&out, ds_equal(trimmed, before));
            put(&out, ds_starts_with(trimmed, ds_literal("ab")));
            put(&out, ds_search(field, ds_literal("b,")));
            before = trimmed;
            struct word *word = words_at(&table, trimmed);
            put(&out, word ? 0 : table.error);
            if (word) {
                word->count++;
                word->last = count;
            }
        }
    }
    numbers(lens, count);
    for (__u64 i = 0; i < count; i++)
        put(&out, lens[i]);
    ds_free(lens);
    __s64 written = words_write(&table, (struct word *)out.at, call->out_cap - (out.at - output));
    return written < 0 ? written : out.at - output + written;
}
