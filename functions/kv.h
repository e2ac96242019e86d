/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file of a BPF-KV store, and what the functions over it take and give.
 *
 * A B+-tree of nodes of 512 bytes with 31 keys each; behind it the log of values, 64 bytes each. In a
 * node the keys ascend; unused places have the key 2^64 - 1 and the pointer 0. The child that holds a
 * key is the last one whose key is not greater.
 *
 * Each function starts without data and reads its first node itself, from where the caller says: a
 * caller that keeps the upper levels in memory starts further down.
 */
#ifndef KV_H
#define KV_H

#include "diskside.h"

#define KV_FAN_OUT 31
#define KV_NODE_LEN 512
#define KV_VALUE_LEN 64
#define KV_MARK (1ull << 63) /* in every pointer that is used */
#define KV_LEAF 1            /* kv_node.type; 0 is an inner node */

struct kv_node {
    __u64 next; /* offset of the next node of the level, 0 for the last; in older files 31 */
    __u64 type;
    __u64 key[KV_FAN_OUT];
    __u64 pointer[KV_FAN_OUT]; /* of an inner node: its children; of a leaf: values */
};

struct kv_value {
    __u64 word[KV_VALUE_LEN / 8];
};

/* ds_next.cookie: this read is of values; the other bits are the function's own */
#define KV_IS_VALUE (1u << 31)

/* kv_get: gives the value, or nothing when the key is not there. kv_locate gives the offset of the value. */
struct kv_get {
    __u64 key;
    __u64 start; /* offset of the node to start at */
};

/* kv_multi_get: takes keys, gives values in the same order. */
#define KV_MULTI_MAX 64

struct kv_multi_get {
    __u64 count;
    __u64 found; /* out: bit i is set when key i is there; else its value is zeroes */
    struct kv_get key[];
};

/* kv_range, kv_sum: the pairs of first <= key <= last in order of keys, or the sum of their values. */
struct kv_range {
    __u64 first;
    __u64 start;    /* offset of the node to start at */
    __u64 last;
    __u64 limit;    /* most pairs */
    __u64 leaf_end; /* older files: the offset at which the leaves end; else 0 */
};

struct kv_pair {
    __u64 key;
    struct kv_value value;
};

/* The head of the result, in front of kv_range's pairs. */
struct kv_range_result {
    __u64 count;
    __u64 more;   /* 1: there was no room for all, or more than limit */
    __u64 resume; /* then: the first key that is missing */
    __u64 sum;
};

DS_INLINE void kv_copy(struct kv_value *to, const struct kv_value *from)
{
#pragma unroll
    for (int i = 0; i < KV_VALUE_LEN / 8; i++)
        to->word[i] = from->word[i];
}

/* How many of a node's keys are not greater: five steps of a binary search. */
DS_INLINE __u64 kv_rank(const struct kv_node *node, __u64 key)
{
    const __u64 *at = node->key;
    __u64 rank = 0;
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
        if (at[rank + step - 1] <= key)
            rank += step;
    return rank;
}

/* Asks for a read of file 0. The caller sees to it that there is room. */
DS_INLINE void kv_ask(struct ds_traverse *t, __u64 pointer, __u64 len, __u32 cookie)
{
    struct ds_next *next = &t->next[t->nnext];
    next->offset = pointer & ~KV_MARK;
    next->len = len;
    next->file = 0;
    next->cookie = cookie;
    t->nnext++;
}

/* The answer for `key` of the node that was read: a pointer with its mark, 0 when it is not there, or an error. */
DS_INLINE __s64 kv_find(const struct ds_traverse *t, __u64 key, __u64 *pointer, int *is_leaf)
{
    const struct kv_node *node = t->data;
    if (t->data_len != KV_NODE_LEN || node->type > KV_LEAF)
        return -DS_EBADMSG;
    __u64 rank = kv_rank(node, key);
    *is_leaf = node->type == KV_LEAF;
    *pointer = 0;
    if (rank && (!*is_leaf || node->key[rank - 1] == key)) {
        *pointer = node->pointer[rank - 1];
        if (*pointer && !(*pointer & KV_MARK))
            return -DS_EBADMSG;
    }
    return 0;
}

#endif
