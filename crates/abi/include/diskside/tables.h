/* SPDX-License-Identifier: Apache-2.0 */
/*
 * <diskside/tables.h>: rows by a number, in a hash table in the heap that grows: groups, and joins with a small table.
 *
 *     struct shop { __u32 id; __u32 pad; __u64 sales, cents; };
 *     DS_TABLE(shops, struct shop, id)
 *
 *     struct shops table = {0};
 *     struct shop *shop = shops_at(&table, id);        a new one has its number, and zeroes
 *     if (!shop) return table.error;                   -DS_ENOMEM: a full heap
 *     struct shop *known = shops_find(&table, id);     NULL if there is none: the other side of a join
 *     ...
 *     return shops_write(&table, out, call->out_cap);  the rows, in order of their numbers
 *
 * In a `combine`, shops_merge(acc, acc_len, acc_cap, part, part_len, add) folds such outputs, with `add(to, from)` for rows of
 * one number. The member is an integer of any width. Rows may move when one is added.
 * The message of a failure says what is full, and what to do.
 */
#ifndef DISKSIDE_TABLES_H
#define DISKSIDE_TABLES_H

#include "sort.h"

/* Spreads what is near, so that runs of numbers do not lie in one run of slots. */
DS_INLINE __u64 ds_mixed(__u64 x)
{
    x ^= x >> 32;
    x *= 0x9e3779b97f4a7c15ull;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9ull;
    return x ^ x >> 32;
}

#define DS_TABLE(name, type, number)                                                       \
    DS_SORT(name##_sort, type, a->number < b->number);                                     \
    struct name {                                                                          \
        type *rows; /* a free one is not used */                                           \
        __u8 *used;                                                                        \
        __u64 capacity, count;                                                             \
        __s64 error;                                                                       \
    };                                                                                     \
    DS_MADE __u64 name##_slot(const struct name *t, __typeof__(((type *)0)->number) wanted) \
    {                                                                                      \
        __u64 at = ds_mixed((__u64)wanted);                                                \
        for (;; at++) {                                                                    \
            at &= t->capacity - 1;                                                         \
            if (!t->used[at] || t->rows[at].number == wanted)                              \
                return at;                                                                 \
        }                                                                                  \
    }                                                                                      \
    DS_MADE int name##_grow(struct name *t)                                                \
    {                                                                                      \
        struct name old = *t;                                                              \
        t->capacity = old.capacity ? 2 * old.capacity : 1024;                              \
        t->rows = ds_alloc(t->capacity * sizeof(type));                                    \
        t->used = ds_alloc(t->capacity);                                                   \
        if (!t->rows || !t->used) {                                                        \
            t->error = DS_FAIL(DS_ENOMEM, "the heap has no room for more rows of `" #name "`: give it " \
                                          "more (--heap), or ask for shorter pieces (--chunk)"); \
            return 0;                                                                      \
        }                                                                                  \
        for (__u64 i = 0; i < old.capacity; i++) {                                         \
            if (!old.used[i])                                                              \
                continue;                                                                  \
            __u64 at = name##_slot(t, old.rows[i].number);                                 \
            t->rows[at] = old.rows[i];                                                     \
            t->used[at] = 1;                                                               \
        }                                                                                  \
        ds_free(old.rows);                                                                 \
        ds_free(old.used);                                                                 \
        return 1;                                                                          \
    }                                                                                      \
    DS_MADE type *name##_find(const struct name *t, __typeof__(((type *)0)->number) wanted) \
    {                                                                                      \
        if (t->count == 0)                                                                 \
            return NULL;                                                                   \
        __u64 at = name##_slot(t, wanted);                                                 \
        return t->used[at] ? &t->rows[at] : NULL;                                          \
    }                                                                                      \
    DS_MADE type *name##_at(struct name *t, __typeof__(((type *)0)->number) wanted)        \
    {                                                                                      \
        if (2 * t->count >= t->capacity && !name##_grow(t))                                \
            return NULL;                                                                   \
        __u64 at = name##_slot(t, wanted);                                                 \
        if (!t->used[at]) {                                                                \
            t->used[at] = 1;                                                               \
            t->count++;                                                                    \
            t->rows[at].number = wanted;                                                   \
        }                                                                                  \
        return &t->rows[at];                                                               \
    }                                                                                      \
    DS_MADE void name##_free(struct name *t)                                               \
    {                                                                                      \
        ds_free(t->rows);                                                                  \
        ds_free(t->used);                                                                  \
        *t = (struct name){0};                                                             \
    }                                                                                      \
    DS_MADE __s64 name##_write(struct name *t, type *out, __u64 out_cap)                   \
    {                                                                                      \
        __u64 n = 0;                                                                       \
        if (t->count * sizeof(type) > out_cap)                                             \
            return DS_FAIL(DS_ENOSPC, "the rows of `" #name "` do not fit in their output: give it " \
                                      "more (DS_OUTPUT), or ask for shorter pieces (--chunk)"); \
        for (__u64 i = 0; i < t->capacity; i++)                                            \
            if (t->used[i])                                                                \
                out[n++] = t->rows[i];                                                     \
        name##_free(t);                                                                    \
        name##_sort(out, n);                                                               \
        return n * sizeof(type);                                                           \
    }                                                                                      \
    /* Merges two sorted lists in place, from their ends. */                               \
    DS_MADE __s64 name##_merge(type *acc, __u64 acc_len, __u64 acc_cap, const type *part, __u64 part_len, \
                               void (*add)(type *to, const type *from))                    \
    {                                                                                      \
        __s64 a = acc_len / sizeof(type), p = part_len / sizeof(type), n = a + p;          \
        for (__s64 i = 0, j = 0; i < a && j < p;) {                                        \
            int before = acc[i].number < part[j].number, same = acc[i].number == part[j].number; \
            n -= same;                                                                     \
            i += before || same;                                                           \
            j += !before;                                                                  \
        }                                                                                  \
        if (n * sizeof(type) > acc_cap)                                                    \
            return DS_FAIL(DS_ENOSPC, "the rows of `" #name "` of all pieces do not fit in one result: " \
                                      "run it over less at a time (--offset, --length)");  \
        for (__s64 to = n; p > 0; to--) {                                                  \
            if (a > 0 && acc[a - 1].number > part[p - 1].number) {                         \
                acc[to - 1] = acc[--a];                                                    \
            } else if (a > 0 && acc[a - 1].number == part[p - 1].number) {                 \
                acc[to - 1] = acc[--a];                                                    \
                add(&acc[to - 1], &part[--p]);                                             \
            } else {                                                                       \
                acc[to - 1] = part[--p];                                                   \
                DS_APART;                                                                  \
            }                                                                              \
        }                                                                                  \
        return n * sizeof(type);                                                           \
    }                                                                                      \
    _Static_assert(1, "")

#endif
