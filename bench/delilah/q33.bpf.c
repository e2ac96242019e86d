/* SPDX-License-Identifier: Apache-2.0 */
/*
 * q33: query 3.3 of the Star Schema Benchmark over columns, in the four steps of Delilah's evaluation: read, filter, convert,
 * aggregate. Its files are columns of 32-bit integers: the customer's city, the supplier's city, the year, the revenue.
 *
 * The filter is one of four forms:
 *   list      positions of rows that match so far, shortened column by column
 *   mask      a bit for each row, a column's bits at a time, and-ed
 *   unrolled  the same, eight rows in each turn of a loop
 *   simd      the same, by the helpers, which compare many rows with one instruction
 */
#include "diskside.h"

#define ROWS 65536 /* of a partition: 256 KiB of each column */
#define COLUMNS 4
#define AHEAD 2 /* partitions that are read at a time */
#define YEARS 8

enum q33_form { list, mask, unrolled, simd };

struct q33_args {
    enum q33_form form DS_ARG_DEFAULT("simd") DS_ARG_DOC("list, mask, unrolled or simd");
    __u32 city1 DS_ARG_DOC("a city of both");
    __u32 city2 DS_ARG_DOC("the other one");
    __u32 year_lo DS_ARG_DEFAULT("1992") DS_ARG_DOC("the first year");
    __u32 year_hi DS_ARG_DEFAULT("1997") DS_ARG_DOC("the last year, less than 8 later");
};

struct q33_group {
    __u32 c_city, s_city, year, rsvd;
    __u64 revenue;
};

struct work {
    __u32 columns[AHEAD][COLUMNS][ROWS];
    __u64 bits[ROWS / 64], other[ROWS / 64];
    __u32 positions[ROWS + 8];
};

/* Positions of rows; the place behind the last one is written in each turn, so that no row costs a branch. */
DS_INLINE __u64 cities_list(__u32 *to, const __u32 *column, __u64 rows, __u32 a, __u32 b)
{
    __u64 n = 0;

    for (__u64 i = 0; i < rows; i++) {
        to[n] = i;
        n += (column[i] == a) | (column[i] == b);
    }
    return n;
}

DS_INLINE __u64 shorten_cities(__u32 *positions, __u64 n, const __u32 *column, __u32 a, __u32 b)
{
    __u64 kept = 0;

    for (__u64 i = 0; i < n; i++) {
        __u32 row = positions[i];
        positions[kept] = row;
        kept += (column[row] == a) | (column[row] == b);
    }
    return kept;
}

DS_INLINE __u64 shorten_years(__u32 *positions, __u64 n, const __u32 *column, __u32 lo, __u32 hi)
{
    __u64 kept = 0;

    for (__u64 i = 0; i < n; i++) {
        __u32 row = positions[i];
        positions[kept] = row;
        kept += column[row] - lo <= hi - lo;
    }
    return kept;
}

/* The bits of 64 rows, of which `left` are there. */
#define WORD(rows, left, expression)                                                     \
    ({                                                                                   \
        __u64 word = 0;                                                                  \
        for (__u64 i = 0; i < (left); i++)                                               \
            word |= (__u64)(expression((rows)[i])) << i;                                 \
        word;                                                                            \
    })
#define WORD_UNROLLED(rows, expression)                                                  \
    ({                                                                                   \
        __u64 word = 0;                                                                  \
        for (__u64 i = 0; i < 64; i += 8)                                                \
            word |= ((__u64)(expression((rows)[i])) | (__u64)(expression((rows)[i + 1])) << 1 |         \
                     (__u64)(expression((rows)[i + 2])) << 2 | (__u64)(expression((rows)[i + 3])) << 3 | \
                     (__u64)(expression((rows)[i + 4])) << 4 | (__u64)(expression((rows)[i + 5])) << 5 | \
                     (__u64)(expression((rows)[i + 6])) << 6 | (__u64)(expression((rows)[i + 7])) << 7)  \
                    << i;                                                                \
        word;                                                                            \
    })

DS_INLINE void and_bits(struct work *work, const __u32 *column, __u64 rows, const struct q33_args *args, int is_year, int is_first)
{
    __u32 a = args->city1, b = args->city2, lo = args->year_lo, span = args->year_hi - args->year_lo;

#define IS_CITY(value) (((value) == a) | ((value) == b))
#define IS_YEAR(value) ((value) - lo <= span)
    for (__u64 at = 0; at < rows; at += 64) {
        __u64 left = rows - at < 64 ? rows - at : 64, word;
        const __u32 *in = column + at;

        if (args->form == unrolled && left == 64)
            word = is_year ? WORD_UNROLLED(in, IS_YEAR) : WORD_UNROLLED(in, IS_CITY);
        else
            word = is_year ? WORD(in, left, IS_YEAR) : WORD(in, left, IS_CITY);
        work->bits[at / 64] = is_first ? word : work->bits[at / 64] & word;
    }
}

DS_INLINE __s64 compare(void *to, const __u32 *column, __u64 rows, __u32 op, __u32 lo, __u32 hi)
{
    struct ds_filter spec = {op, DS_BITMAP, lo, hi};

    return ds_filter_u32(to, ROWS / 8, column, rows, &spec);
}

DS_INLINE __s64 and_cities_simd(struct work *work, const __u32 *column, __u64 rows, const struct q33_args *args, int is_first)
{
    __u64 words = (rows + 63) / 64;
    __u64 *second = (__u64 *)work->positions;

    work->other[words - 1] = second[words - 1] = 0;
    if (compare(work->other, column, rows, DS_EQ, args->city1, 0) < 0 || compare(second, column, rows, DS_EQ, args->city2, 0) < 0)
        return -DS_EINVAL;
    for (__u64 i = 0; i < words; i++) {
        __u64 word = work->other[i] | second[i];
        work->bits[i] = is_first ? word : work->bits[i] & word;
    }
    return 0;
}

DS_INLINE __s64 and_years_simd(struct work *work, const __u32 *column, __u64 rows, const struct q33_args *args)
{
    if (compare(work->other, column, rows, DS_BETWEEN, args->year_lo, args->year_hi) < 0)
        return -DS_EINVAL;
    for (__u64 i = 0; i < (rows + 63) / 64; i++)
        work->bits[i] &= work->other[i];
    return 0;
}

/* Which rows of a partition match. */
DS_INLINE __s64 filter(struct work *work, __u32 (*columns)[ROWS], __u64 rows, const struct q33_args *args)
{
    if (args->form == list) {
        __u64 n = cities_list(work->positions, columns[0], rows, args->city1, args->city2);
        n = shorten_cities(work->positions, n, columns[1], args->city1, args->city2);
        return shorten_years(work->positions, n, columns[2], args->year_lo, args->year_hi);
    }
    if (args->form == simd) {
        __s64 failed = and_cities_simd(work, columns[0], rows, args, 1) | and_cities_simd(work, columns[1], rows, args, 0) |
                       and_years_simd(work, columns[2], rows, args);
        return failed < 0 ? -DS_EINVAL : 0;
    }
    and_bits(work, columns[0], rows, args, 0, 1);
    and_bits(work, columns[1], rows, args, 0, 0);
    and_bits(work, columns[2], rows, args, 1, 0);
    return 0;
}

/* The positions of a mask's bits. */
DS_INLINE __u64 convert(struct work *work, __u64 rows)
{
    __u64 n = 0;

    for (__u64 at = 0; at < (rows + 63) / 64; at++) {
        __u64 word = work->bits[at];

        while (word != 0) {
            work->positions[n++] = at * 64 + __builtin_ctzll(word);
            word &= word - 1;
        }
    }
    return n;
}

DS_INLINE __s64 begin(struct work *work, __u64 part, __u64 rows)
{
    for (__u64 column = 0; column < COLUMNS; column++) {
        __u64 first = part * ROWS, now = rows - first < ROWS ? rows - first : ROWS;
        __s64 begun = ds_submit_read(column, work->columns[part % AHEAD][column], now * 4, first * 4, part * COLUMNS + column);

        if (begun < 0)
            return begun;
    }
    return 0;
}

SEC("kernel/q33")
__s64 q33(struct ds_kernel *k, const struct q33_args *args, struct q33_group *result)
{
    __u64 sums[2 * 2 * YEARS] = {}, counts[2 * 2 * YEARS] = {};
    __u64 begun = 0, parts, rows, groups = 0;
    struct work *work = ds_alloc_aligned(4096, sizeof(*work));
    __s64 len;

    if (work == NULL)
        return DS_FAIL(DS_ENOMEM, "there is no memory for the columns");
    if (k->nfiles != COLUMNS || args->year_hi < args->year_lo || args->year_hi - args->year_lo >= YEARS)
        return DS_FAIL(DS_EINVAL, "it takes four columns, and fewer than 9 years");
    len = ds_file_len(0);
    for (__u32 column = 1; column < COLUMNS; column++)
        if (ds_file_len(column) != len || len < 0)
            return DS_FAIL(DS_EINVAL, "the columns are not equally long");
    rows = (__u64)len / 4;
    parts = (rows + ROWS - 1) / ROWS;
    for (__u64 part = 0; part < parts; part++) {
        __u64 now = rows - part * ROWS < ROWS ? rows - part * ROWS : ROWS;
        __u32(*columns)[ROWS] = work->columns[part % AHEAD];
        __s64 n;

        while (begun < parts && begun < part + AHEAD) {
            n = begin(work, begun++, rows);
            if (n < 0)
                return n;
        }
        for (__u64 column = 0; column < COLUMNS; column++) {
            n = ds_wait(part * COLUMNS + column);
            if (n != (__s64)now * 4)
                return n < 0 ? n : DS_FAIL(DS_EIO, "a column ended early");
        }
        n = filter(work, columns, now, args);
        if (n >= 0 && args->form != list)
            n = convert(work, now);
        if (n < 0)
            return n;
        for (__s64 i = 0; i < n; i++) {
            __u32 row = work->positions[i];
            __u32 group = (columns[0][row] == args->city2) * 2 + (columns[1][row] == args->city2);

            group = group * YEARS + ((columns[2][row] - args->year_lo) & (YEARS - 1));
            sums[group] += columns[3][row];
            counts[group]++;
        }
    }
    for (__u32 group = 0; group < 2 * 2 * YEARS; group++) {
        if (counts[group] == 0)
            continue;
        result[groups].c_city = group / YEARS & 2 ? args->city2 : args->city1;
        result[groups].s_city = group / YEARS & 1 ? args->city2 : args->city1;
        result[groups].year = args->year_lo + group % YEARS;
        result[groups].revenue = sums[group];
        groups++;
    }
    return (__s64)(groups * sizeof(*result));
}
