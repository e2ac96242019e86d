/* SPDX-License-Identifier: Apache-2.0 */
/* Reads or sums a range of keys of a BPF-KV store: see kv.h for what they take and give. */
#include "kv.h"

/* At the end of scratch, where no pair reaches. */
struct range_state {
    __u64 from, last; /* keys that are still wanted */
    __u64 limit;      /* pairs that are wanted and find room */
    __u64 leaf_end;
    __u64 count;      /* pairs asked for */
    __u64 left;       /* reads outstanding */
    __u64 more;
    __u64 sum;
};

/* The decimal number that a value ends with; 0 when it ends otherwise. */
DS_INLINE __u64 number(const struct kv_value *value)
{
    const char *text = (const char *)value;
    __s64 at = KV_VALUE_LEN - 1;
    while (at >= 0 && !text[at])
        at--;
    __u64 sum = 0, unit = 1;
    while (at >= 0 && text[at] >= '0' && text[at] <= '9') {
        sum += unit * (__u64)(text[at] - '0');
        unit *= 10;
        at--;
    }
    return sum;
}

/* Takes the wanted keys of a leaf: asks for their values, run by run, and for the leaf behind. */
DS_INLINE __s64 take_leaf(struct ds_traverse *t, struct range_state *state, struct kv_pair *pairs)
{
    const struct kv_node *node = t->data;
    __u64 run = 0, run_len = 0; /* pointer and bytes of values that lie side by side */
    __u64 slot = state->count;
    __u64 again = 0; /* this leaf holds more than fits one step */
    __u64 here = t->offset;
    for (__u64 i = 0; i < KV_FAN_OUT; i++) {
        __u64 key = node->key[i], pointer = node->pointer[i];
        if (key < state->from)
            continue;
        if (!pointer)
            break;
        if (!(pointer & KV_MARK))
            return -DS_EBADMSG;
        if (key > state->last || state->count == state->limit) {
            state->more = key <= state->last;
            state->from = key;
            if (run_len)
                kv_ask(t, run, run_len, KV_IS_VALUE | (__u32)slot);
            return 0;
        }
        if (run_len && pointer != run + run_len) {
            kv_ask(t, run, run_len, KV_IS_VALUE | (__u32)slot);
            run_len = 0;
        }
        if (!run_len) {
            if (t->nnext == DS_NEXT_MAX - 1) {
                again = 1;
                break;
            }
            run = pointer;
            slot = state->count;
        }
        if (pairs)
            pairs[state->count].key = key;
        state->count++;
        state->from = key + 1;
        run_len += KV_VALUE_LEN;
    }
    if (run_len)
        kv_ask(t, run, run_len, KV_IS_VALUE | (__u32)slot);
    if (!again) {
        __u64 next = node->next;
        if (state->leaf_end)
            next = here + KV_NODE_LEN < state->leaf_end ? here + KV_NODE_LEN : 0;
        here = next;
    }
    if (here && state->from <= state->last)
        kv_ask(t, here, KV_NODE_LEN, 0);
    return 0;
}

DS_INLINE __s64 take_node(struct ds_traverse *t, struct range_state *state, struct kv_pair *pairs)
{
    const struct kv_node *node = t->data;
    if (t->data_len != KV_NODE_LEN || node->type > KV_LEAF)
        return -DS_EBADMSG;
    if (node->type == KV_LEAF)
        return take_leaf(t, state, pairs);
    __u64 rank = kv_rank(node, state->from);
    __u64 pointer = node->pointer[rank ? rank - 1 : 0];
    if (!(pointer & KV_MARK))
        return -DS_EBADMSG;
    kv_ask(t, pointer, KV_NODE_LEN, 0);
    return 0;
}

DS_INLINE void take_values(const struct ds_traverse *t, struct range_state *state, struct kv_pair *pairs)
{
    const struct kv_value *value = t->data;
    __u64 n = t->data_len / KV_VALUE_LEN;
    if (pairs) {
        struct kv_pair *pair = &pairs[t->cookie & ~KV_IS_VALUE];
        for (__u64 i = 0; i < n; i++)
            kv_copy(&pair[i].value, &value[i]);
    } else {
        for (__u64 i = 0; i < n; i++)
            state->sum += number(&value[i]);
    }
}

DS_INLINE void start(struct ds_traverse *t, struct range_state *state, int with_pairs)
{
    struct kv_range range = *(struct kv_range *)t->scratch;
    __u64 room = (t->scratch_cap - sizeof(struct kv_range_result) - sizeof(*state)) / sizeof(struct kv_pair);
    state->from = range.first;
    state->last = range.last;
    state->limit = with_pairs && room < range.limit ? room : range.limit;
    state->leaf_end = range.leaf_end;
    kv_ask(t, range.start, KV_NODE_LEN, 0);
}

DS_INLINE __s64 step(struct ds_traverse *t, int with_pairs)
{
    struct kv_range_result *result = t->scratch;
    if (t->scratch_cap < sizeof(struct kv_range_result) + sizeof(struct kv_pair) + sizeof(struct range_state))
        return -DS_ENOSPC;
    struct range_state *state = (struct range_state *)((char *)t->scratch + t->scratch_cap) - 1;
    struct kv_pair *pairs = with_pairs ? (struct kv_pair *)(result + 1) : NULL;
    if (!t->data_len) {
        start(t, state, with_pairs);
    } else {
        state->left--;
        if (t->cookie & KV_IS_VALUE) {
            take_values(t, state, pairs);
        } else {
            __s64 error = take_node(t, state, pairs);
            if (error)
                return error;
        }
    }
    state->left += t->nnext;
    if (state->left)
        return 0;
    result->count = state->count;
    result->more = state->more;
    result->resume = state->more ? state->from : 0;
    result->sum = state->sum;
    t->result_len = sizeof(*result) + (with_pairs ? state->count * sizeof(struct kv_pair) : 0);
    return 1;
}

SEC("traverse/kv_range")
__s64 kv_range(struct ds_traverse *t)
{
    return step(t, 1);
}

SEC("traverse/kv_sum")
__s64 kv_sum(struct ds_traverse *t)
{
    return step(t, 0);
}
