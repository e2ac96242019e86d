/* SPDX-License-Identifier: Apache-2.0 */
/*
 * <diskside/groups.h>: rows by a key of text, in a hash table in the heap that grows.
 *
 *     struct city { char name[32]; __u64 count, sum; };
 *     DS_GROUPS(cities, struct city, name)
 *
 *     struct cities table = {0};
 *     struct city *city = cities_at(&table, field);    a new one has its name, and zeroes
 *     if (!city) return table.error;                   -DS_E2BIG: a key that is too long; -DS_ENOMEM: a full heap
 *     city->count++;
 *     ...
 *     return cities_write(&table, out, call->out_cap); the rows, in order of their keys
 *
 * In a `combine`, cities_merge(acc, acc_len, acc_cap, part, part_len, add) folds such outputs, with `add(to, from)` for
 * rows of one key. A key ends at its first zero byte, and has at most as many bytes as the member; it is
 * hashed by XXH3. The message of a failure says what is full, and what to do.
 */
#ifndef DISKSIDE_GROUPS_H
#define DISKSIDE_GROUPS_H

#include "sort.h"
#include "text.h"

#define DS_GROUPS(name, type, key)                                                         \
    DS_MADE int name##_order(const type *a, const type *b)                               \
    {                                                                                      \
        return ds_compare(ds_member(a->key, sizeof(a->key)), ds_member(b->key, sizeof(b->key))); \
    }                                                                                      \
    DS_SORT(name##_sort, type, name##_order(a, b) < 0);                                    \
    struct name {                                                                          \
        type *rows; /* a free one has no key and is not used */                            \
        __u8 *used;                                                                        \
        __u64 capacity, count;                                                             \
        __s64 error;                                                                       \
    };                                                                                     \
    DS_MADE __u64 name##_slot(const struct name *t, struct ds_text text)                 \
    {                                                                                      \
        __u64 at = ds_hash64(text.at, text.len, 0);                                        \
        for (;; at++) {                                                                    \
            at &= t->capacity - 1;                                                         \
            if (!t->used[at] || ds_equal(ds_member(t->rows[at].key, sizeof(t->rows[at].key)), text)) \
                return at;                                                                 \
        }                                                                                  \
    }                                                                                      \
    DS_MADE int name##_grow(struct name *t)                                              \
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
            __u64 at = name##_slot(t, ds_member(old.rows[i].key, sizeof(old.rows[i].key))); \
            t->rows[at] = old.rows[i];                                                     \
            t->used[at] = 1;                                                               \
        }                                                                                  \
        ds_free(old.rows);                                                                 \
        ds_free(old.used);                                                                 \
        return 1;                                                                          \
    }                                                                                      \
    DS_MADE type *name##_at(struct name *t, struct ds_text text)                         \
    {                                                                                      \
        text = ds_member(text.at, text.len);                                               \
        if (text.len > sizeof(t->rows->key)) {                                             \
            t->error = DS_FAIL(DS_E2BIG, "a key is longer than the member `" #key "` of the rows of `" #name \
                                         "`: make it longer, or cut the key");             \
            return NULL;                                                                   \
        }                                                                                  \
        if (2 * t->count >= t->capacity && !name##_grow(t))                                \
            return NULL;                                                                   \
        __u64 at = name##_slot(t, text);                                                   \
        if (!t->used[at]) {                                                                \
            t->used[at] = 1;                                                               \
            t->count++;                                                                    \
            for (__u64 i = 0; i < text.len; i++)                                           \
                t->rows[at].key[i] = text.at[i];                                           \
        }                                                                                  \
        return &t->rows[at];                                                               \
    }                                                                                      \
    DS_MADE __s64 name##_write(struct name *t, type *out, __u64 out_cap)                 \
    {                                                                                      \
        __u64 n = 0;                                                                       \
        if (t->count * sizeof(type) > out_cap)                                             \
            return DS_FAIL(DS_ENOSPC, "the rows of `" #name "` do not fit in their output: give it " \
                                      "more (DS_OUTPUT), or ask for shorter pieces (--chunk)"); \
        for (__u64 i = 0; i < t->capacity; i++)                                            \
            if (t->used[i])                                                                \
                out[n++] = t->rows[i];                                                     \
        ds_free(t->rows);                                                                  \
        ds_free(t->used);                                                                  \
        name##_sort(out, n);                                                               \
        return n * sizeof(type);                                                           \
    }                                                                                      \
    /* Merges two sorted lists in place, from their ends. */                               \
    DS_MADE __s64 name##_merge(type *acc, __u64 acc_len, __u64 acc_cap, const type *part, __u64 part_len, \
                                 void (*add)(type *to, const type *from))                  \
    {                                                                                      \
        __s64 a = acc_len / sizeof(type), p = part_len / sizeof(type), n = a + p;          \
        for (__s64 i = 0, j = 0; i < a && j < p;) {                                        \
            int order = name##_order(&acc[i], &part[j]);                                   \
            n -= order == 0;                                                               \
            i += order <= 0;                                                               \
            j += order >= 0;                                                               \
        }                                                                                  \
        if (n * sizeof(type) > acc_cap)                                                    \
            return DS_FAIL(DS_ENOSPC, "the rows of `" #name "` of all pieces do not fit in one result: " \
                                      "run it over less at a time (--offset, --length)");  \
        for (__s64 to = n; p > 0; to--) {                                                  \
            int order = a > 0 ? name##_order(&acc[a - 1], &part[p - 1]) : -1;              \
            if (order >= 0)                                                                \
                acc[to - 1] = acc[--a];                                                    \
            else {                                                                         \
                acc[to - 1] = part[--p];                                                   \
                DS_APART;                                                                  \
            }                                                                              \
            if (order == 0)                                                                \
                add(&acc[to - 1], &part[--p]);                                             \
        }                                                                                  \
        return n * sizeof(type);                                                           \
    }                                                                                      \
    _Static_assert(1, "")

#endif
