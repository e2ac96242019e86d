/* SPDX-License-Identifier: Apache-2.0 */
/*
 * <diskside/sort.h>: sorting in place, in a time that no input makes long (heap sort). Equal elements may change places.
 *
 *     DS_SORT(by_price, struct row, a->price < b->price)
 *     by_price(rows, count);
 */
#ifndef DISKSIDE_SORT_H
#define DISKSIDE_SORT_H

#include "../diskside.h"

/* A function that a macro makes; not all of them are used. */
#define DS_MADE DS_INLINE __attribute__((unused))

/* Keeps a copy of a row apart from the copy in another branch: a compiler that makes one of both copies from a pointer into either
 * list, and each access is then checked at run time. */
#define DS_APART __asm__ volatile("" ::: "memory")

/* Defines `name(rows, count)`; the expression says whether `*a` comes before `*b`. */
#define DS_SORT(name, type, before)                                                        \
    DS_MADE int name##_before(const type *a, const type *b) { return before; }           \
    DS_MADE void name##_sift(type *rows, __u64 at, __u64 n)                              \
    {                                                                                      \
        type moved = rows[at];                                                             \
        for (;;) {                                                                         \
            __u64 child = 2 * at + 1;                                                      \
            if (child >= n)                                                                \
                break;                                                                     \
            if (child + 1 < n && name##_before(&rows[child], &rows[child + 1]))            \
                child++;                                                                   \
            if (!name##_before(&moved, &rows[child]))                                      \
                break;                                                                     \
            rows[at] = rows[child];                                                        \
            at = child;                                                                    \
        }                                                                                  \
        rows[at] = moved;                                                                  \
    }                                                                                      \
    DS_MADE void name(type *rows, __u64 n)                                               \
    {                                                                                      \
        for (__u64 at = n / 2; at > 0; at--)                                               \
            name##_sift(rows, at - 1, n);                                                  \
        for (__u64 left = n; left > 1; left--) {                                           \
            type last = rows[left - 1];                                                    \
            rows[left - 1] = rows[0];                                                      \
            rows[0] = last;                                                                \
            name##_sift(rows, 0, left - 1);                                                \
        }                                                                                  \
    }                                                                                      \
    _Static_assert(1, "")

#endif
