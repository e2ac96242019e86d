/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of a WiredTiger file: those on the way to a key, or those of a list. See wt.h for what they take and give. The format: the
 * comments in btmem.h, cell.h and block.h of WiredTiger's source. */
#include "wt.h"

/* Adds the block that was read to the result. */
DS_INLINE __u32 keep_block(struct ds_traverse *t, __u64 *used, __u64 room)
{
    struct wt_blocks *blocks = t->scratch;
    __u64 needed = sizeof(struct wt_block) + t->data_len;
    if (needed > room - *used) {
        blocks->needed = (__u32)needed;
        return WT_NO_ROOM;
    }
    struct wt_block *block = (struct wt_block *)((__u8 *)t->scratch + *used);
    block->offset = t->offset;
    block->len = (__u32)t->data_len;
    block->rsvd = 0;
    ds_memcpy(block->bytes, t->data, t->data_len);
    *used += needed;
    blocks->count++;
    return 0;
}

/* The step behind a page: the next page, the block of the value, or none. */
DS_INLINE __u32 follow(struct ds_traverse *t, struct wt_page *page)
{
    const __u8 *bytes = t->data;
    struct wt_search *search = wt_search_of(t);
    /* The engine decompresses a leaf itself. */
    if (bytes[24] == WT_PAGE_ROW_LEAF && bytes[25] & WT_PAGE_COMPRESSED)
        return 0;
    __u32 reason = wt_open_page(bytes, (__u32)t->data_len, page);
    if (reason)
        return reason;
    if (page->kind == WT_PAGE_ROW_INNER)
        return wt_descend(t, page);
    if (page->kind != WT_PAGE_ROW_LEAF || !search->key_len)
        return page->kind == WT_PAGE_ROW_LEAF ? 0 : WT_PAGE_KIND;
    int is_found;
    struct wt_cell value;
    struct wt_address address;
    reason = wt_find_value(t, page, &value, &is_found);
    if (!reason && is_found && value.kind)
        reason = wt_resolve(page, &value);
    if (reason || !is_found || value.kind != WT_VALUE_OVERFLOW)
        return reason;
    reason = wt_read_address(page, &value, search->allocation, &address);
    if (!reason)
        wt_ask(t, address.offset, address.len, address.checksum, 0, WT_IS_VALUE);
    return reason;
}

SEC("traverse/wt_path")
__s64 wt_path(struct ds_traverse *t)
{
    struct wt_blocks *blocks = t->scratch;
    if (!t->data_len)
        return wt_begin(t, sizeof(*blocks));
    struct wt_search *search = wt_search_of(t);
    __u32 index = t->cookie & 0xffff;
    __u32 sum = t->cookie & WT_IS_FIRST || index > WT_AHEAD_MAX ? 0 : search->sums[index];
    __u64 used = search->used;
    __u32 reason = wt_check(t->data, (__u32)t->data_len, sum);
    if (!reason)
        reason = keep_block(t, &used, t->scratch_cap - sizeof(*search));
    search->used = (__u32)used;
    struct wt_page page = {};
    if (!reason && !(t->cookie & (WT_IS_VALUE | WT_IS_AHEAD)))
        reason = follow(t, &page);
    ds_free(page.made);
    if (reason && !blocks->reason)
        blocks->reason = reason;
    t->result_len = search->used;
    if (reason)
        t->nnext = 0;
    search->pending += t->nnext - 1;
    return search->pending == 0;
}

/* wt_next: behind the result in scratch. */
struct list {
    __u32 count, started, finished, rsvd;
    __u64 used;
    struct wt_address block[WT_BLOCKS_MAX];
};

DS_INLINE void start_reads(struct ds_traverse *t, struct list *list, __u32 reads_max)
{
    while (list->started < list->count && t->nnext < reads_max) {
        __u32 i = list->started++;
        struct ds_next *next = &t->next[t->nnext++];
        next->offset = list->block[i].offset;
        next->len = list->block[i].len;
        next->file = 0;
        next->cookie = i;
    }
}

SEC("traverse/wt_next")
__s64 wt_next(struct ds_traverse *t)
{
    struct wt_blocks *blocks = t->scratch;
    struct list *list = (struct list *)((__u8 *)t->scratch + t->scratch_cap - sizeof(*list));
    if (!t->data_len) {
        struct wt_list *asked = t->scratch;
        __u64 asked_len = sizeof(*asked) + asked->count * (__u64)sizeof(asked->block[0]);
        if (asked->count > WT_BLOCKS_MAX || t->scratch_cap < asked_len + sizeof(*list) + sizeof(*blocks))
            return DS_FAIL(DS_EINVAL, "more than 256 blocks, or too little scratch for the request");
        ds_memcpy(list->block, asked->block, asked->count * sizeof(asked->block[0]));
        list->count = asked->count;
        ds_memset(t->scratch, 0, asked_len);
        list->used = t->result_len = sizeof(*blocks);
        for (__u32 i = 0; i < list->count; i++)
            if (list->block[i].len < 512 || list->block[i].len > WT_BLOCK_LEN_MAX)
                return DS_FAIL(DS_EINVAL, "a block has 512 bytes to 512 KiB");
        start_reads(t, list, DS_NEXT_MAX);
        return list->count == 0;
    }
    __u32 i = t->cookie & (WT_BLOCKS_MAX - 1);
    __u32 reason = blocks->reason;
    if (!reason)
        reason = wt_check(t->data, (__u32)t->data_len, list->block[i].checksum);
    if (!reason)
        reason = keep_block(t, &list->used, t->scratch_cap - sizeof(*list));
    blocks->reason = reason;
    list->finished++;
    if (reason)
        list->count = list->started;
    start_reads(t, list, 1);
    t->result_len = list->used;
    return list->finished >= list->count;
}
