/* SPDX-License-Identifier: Apache-2.0 */
/*
 * <diskside/topk.h>: the k best of any number of rows.
 *
 *     DS_TOP_K(dearest, struct sale, a->cents > b->cents || (a->cents == b->cents && a->at < b->at))
 *
 *     __u64 count = 0;
 *     dearest_add(out, &count, 10, &sale);             for each row
 *     dearest_sort(out, count);                        best first; no rows are added after that
 *
 * In a `combine`, dearest_merge(acc, acc_len, part, part_len, k) folds such outputs. The expression says whether `*a` is better
 * than `*b`. Let it tell all rows apart, or of equal ones any may be kept.
 */
#ifndef DISKSIDE_TOPK_H
#define DISKSIDE_TOPK_H

#include "sort.h"

#define DS_TOP_K(name, type, better)                                                       \
    /* Sorts best first; while rows are added, the worst one is the top of a heap. */      \
    DS_SORT(name##_sort, type, better);                                                    \
    DS_MADE void name##_add(type *rows, __u64 *count, __u64 k, const type *row)            \
    {                                                                                      \
        __u64 n = *count;                                                                  \
        if (n >= k) {                                                                      \
            if (k > 0 && name##_sort_before(row, &rows[0])) {                              \
                rows[0] = *row;                                                            \
                name##_sort_sift(rows, 0, k);                                              \
            }                                                                              \
            return;                                                                        \
        }                                                                                  \
        while (n > 0 && name##_sort_before(&rows[(n - 1) / 2], row)) {                     \
            rows[n] = rows[(n - 1) / 2];                                                   \
            n = (n - 1) / 2;                                                               \
        }                                                                                  \
        rows[n] = *row;                                                                    \
        ++*count;                                                                          \
    }                                                                                      \
    /* Both are sorted. */                                                                 \
    DS_MADE __s64 name##_merge(type *acc, __u64 acc_len, const type *part, __u64 part_len, __u64 k) \
    {                                                                                      \
        __u64 count = acc_len / sizeof(type), n = part_len / sizeof(type);                 \
        /* Worst first is a heap. */                                                       \
        for (__u64 i = 0; i < count / 2; i++) {                                            \
            type other = acc[count - 1 - i];                                               \
            acc[count - 1 - i] = acc[i];                                                   \
            acc[i] = other;                                                                \
        }                                                                                  \
        for (__u64 i = 0; i < n; i++)                                                      \
            name##_add(acc, &count, k, &part[i]);                                          \
        name##_sort(acc, count);                                                           \
        return count * sizeof(type);                                                       \
    }                                                                                      \
    _Static_assert(1, "")

#endif
