/* SPDX-License-Identifier: Apache-2.0 */
/* Looks a key up in a WiredTiger file: the newest committed version that the file has. See wt.h for what it takes and gives. */
#include "wt.h"

DS_INLINE __s64 answer(struct ds_traverse *t, __u32 outcome, __u32 reason)
{
    struct wt_answer *answer = t->scratch;
    answer->outcome = outcome;
    answer->reason = reason;
    if (outcome != WT_FOUND)
        answer->value_len = 0;
    if (reason != WT_NO_ROOM)
        answer->needed = 0;
    t->result_len = sizeof(*answer) + answer->value_len;
    t->nnext = 0;
    return 1;
}

/* Copies the value to the result, if there is room for it. */
DS_INLINE __u32 give(struct ds_traverse *t, const __u8 *bytes, __u64 len)
{
    struct wt_answer *answer = t->scratch;
    if (len > t->scratch_cap - sizeof(struct wt_search) - sizeof(*answer)) {
        answer->needed = (__u32)len;
        return WT_NO_ROOM;
    }
    ds_memcpy(answer->value, bytes, len);
    answer->value_len = (__u32)len;
    return 0;
}

/* The key in its leaf. *outcome is set if it is decided, else the block of the value was asked for. */
DS_INLINE __u32 look(struct ds_traverse *t, const struct wt_page *page, __u32 *outcome)
{
    int is_found;
    struct wt_cell value;
    struct wt_address address;
    __u32 reason = wt_find_value(t, page, &value, &is_found);
    if (reason)
        return reason;
    *outcome = WT_ABSENT;
    if (!is_found)
        return 0;
    if (value.times & WT_CELL_PREPARED && value.kind)
        return WT_PREPARED;
    if (value.kind && value.times & WT_CELL_STOPS)
        return 0;
    *outcome = WT_FOUND;
    if (!value.kind)
        return give(t, NULL, 0);
    reason = wt_resolve(page, &value);
    if (reason)
        return reason;
    if (value.kind == WT_VALUE)
        return give(t, page->bytes + value.at, value.len);
    if (value.kind != WT_VALUE_OVERFLOW)
        return WT_OVERFLOW;
    reason = wt_read_address(page, &value, wt_search_of(t)->allocation, &address);
    *outcome = WT_UNSUPPORTED;
    if (!reason)
        wt_ask(t, address.offset, address.len, address.checksum, 0, WT_IS_VALUE);
    return reason;
}

SEC("traverse/wt_get")
__s64 wt_get(struct ds_traverse *t)
{
    if (!t->data_len) {
        struct wt_find *find = t->scratch;
        find->ahead = 0;
        return wt_begin(t, sizeof(struct wt_answer));
    }
    const __u8 *bytes = t->data;
    struct wt_page page = {};
    __u32 outcome = WT_UNSUPPORTED, is_value = t->cookie & WT_IS_VALUE;
    __u32 sum = t->cookie & WT_IS_FIRST ? 0 : wt_search_of(t)->sums[0];
    __u32 reason = wt_check(bytes, (__u32)t->data_len, sum);
    if (!reason && !(bytes[36] & WT_WHOLE))
        reason = WT_PARTIAL;
    if (!reason)
        reason = wt_open_page(bytes, (__u32)t->data_len, &page);
    if (!reason && page.flags & WT_PAGE_WITH_LOOKASIDE)
        reason = WT_LOOKASIDE;
    if (!reason && is_value) {
        outcome = WT_FOUND;
        if (page.kind != WT_PAGE_OVERFLOW)
            reason = WT_PAGE_KIND;
        else if (page.entries > page.end - WT_HEADER_LEN)
            reason = WT_MALFORMED;
        else
            reason = give(t, page.bytes + WT_HEADER_LEN, page.entries);
    } else if (!reason && page.kind == WT_PAGE_ROW_INNER) {
        reason = wt_descend(t, &page);
    } else if (!reason) {
        reason = page.kind == WT_PAGE_ROW_LEAF ? look(t, &page, &outcome) : WT_PAGE_KIND;
    }
    ds_free(page.made);
    if (reason)
        return answer(t, WT_UNSUPPORTED, reason);
    return t->nnext ? 0 : answer(t, outcome, 0);
}
