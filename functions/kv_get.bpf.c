/* SPDX-License-Identifier: Apache-2.0 */
/* Looks keys up in a BPF-KV store: see kv.h for what they take and give. */
#include "kv.h"

SEC("traverse/kv_get")
__s64 kv_get(struct ds_traverse *t)
{
    struct kv_get *get = t->scratch;
    if (t->cookie == KV_IS_VALUE) {
        kv_copy(t->scratch, t->data);
        t->result_len = KV_VALUE_LEN;
        return 1;
    }
    __u64 pointer = get->start;
    int is_leaf = 0;
    if (t->data_len) {
        __s64 error = kv_find(t, get->key, &pointer, &is_leaf);
        if (error)
            return error;
        if (!pointer)
            return 1; /* with no result */
    }
    struct ds_next *next = &t->next[0];
    next->offset = pointer & ~KV_MARK;
    next->len = is_leaf ? KV_VALUE_LEN : KV_NODE_LEN;
    next->file = 0;
    next->cookie = is_leaf ? KV_IS_VALUE : 0;
    t->nnext = 1;
    return 0;
}

SEC("traverse/kv_locate")
__s64 kv_locate(struct ds_traverse *t)
{
    struct kv_get *get = t->scratch;
    __u64 pointer = get->start;
    int is_leaf = 0;
    if (t->data_len) {
        __s64 error = kv_find(t, get->key, &pointer, &is_leaf);
        if (error)
            return error;
        if (!pointer)
            return 1; /* with no result */
    }
    if (is_leaf) {
        *(__u64 *)t->scratch = pointer & ~KV_MARK;
        t->result_len = sizeof(__u64);
        return 1;
    }
    kv_ask(t, pointer, KV_NODE_LEN, 0);
    return 0;
}

/* Behind the result in scratch: what is still to be done. */
struct multi_state {
    __u64 started, finished;
    struct kv_get key[];
};

/* Starts keys while there is room; each has one read outstanding at a time. */
DS_INLINE void start_keys(struct ds_traverse *t, struct multi_state *state, __u64 count, __u64 reads_max)
{
    while (state->started < count && t->nnext < reads_max) {
        __u64 i = state->started++;
        kv_ask(t, state->key[i].start, KV_NODE_LEN, (__u32)i);
    }
}

SEC("traverse/kv_multi_get")
__s64 kv_multi_get(struct ds_traverse *t)
{
    struct kv_multi_get *multi = t->scratch;
    struct kv_value *values = (struct kv_value *)multi->key;
    __u64 count = multi->count;
    if (count > KV_MULTI_MAX)
        return -DS_EINVAL;
    struct multi_state *state = (struct multi_state *)(values + count);
    t->result_len = sizeof(*multi) + count * KV_VALUE_LEN;
    if (!t->data_len) {
        ds_memmove(state->key, multi->key, count * sizeof(*state->key));
        ds_memset(values, 0, count * KV_VALUE_LEN + sizeof(*state));
        multi->found = 0;
        start_keys(t, state, count, DS_NEXT_MAX);
        return count == 0;
    }
    __u64 i = t->cookie & (KV_MULTI_MAX - 1);
    if (t->cookie & KV_IS_VALUE) {
        kv_copy(&values[i], t->data);
        multi->found |= 1ull << i;
    } else {
        __u64 pointer;
        int is_leaf;
        __s64 error = kv_find(t, state->key[i].key, &pointer, &is_leaf);
        if (error)
            return error;
        if (pointer) {
            kv_ask(t, pointer, is_leaf ? KV_VALUE_LEN : KV_NODE_LEN, is_leaf ? t->cookie | KV_IS_VALUE : t->cookie);
            return 0;
        }
    }
    state->finished++;
    start_keys(t, state, count, 1);
    return state->finished == count;
}
