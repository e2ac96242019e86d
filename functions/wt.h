/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of WiredTiger's row-store tables, and what the functions over them take and give.
 *
 * A file is blocks, a tree of them: pages of keys and addresses of further pages, at the bottom pages of keys and values, and blocks
 * with one long value each. Another host may write the file meanwhile, so a block counts only if it is the one that its
 * parent names: its checksum is right, and is the one in the address. Undecided cases are WT_UNSUPPORTED with the reason,
 * never an answer.
 */
#ifndef WT_H
#define WT_H

#include "diskside.h"

#define WT_KEY_MAX 1024              /* bytes of a key, the caller's or one on the way to it */
#define WT_BLOCK_LEN_MAX (512u << 10) /* as it is stored and decompressed */
#define WT_LEVELS_MAX 32
#define WT_AHEAD_MAX 15 /* one step can ask for the leaf and so many behind it */

/* wt_answer.outcome */
enum wt_outcome {
    WT_ABSENT, /* the newest committed version in the file is a deletion, or there is none */
    WT_FOUND,
    WT_UNSUPPORTED,
};

/* Why it is not known, or why a path ends before its leaf. */
enum wt_reason {
    WT_NO_REASON,
    WT_MALFORMED,   /* lengths or offsets that cannot be */
    WT_CHECKSUM,    /* the bytes are not those that were written */
    WT_REUSED,      /* another block than the one that the parent names */
    WT_PARTIAL,     /* the checksum does not cover the whole block */
    WT_PAGE_KIND,   /* a page of a column store, or another block than is expected */
    WT_ENCRYPTED,
    WT_COMPRESSION, /* compressed by something else than Snappy and zstd */
    WT_DELETED,     /* a page that was removed by a range truncate */
    WT_OVERFLOW,    /* a key that has a block of its own, or a removed value */
    WT_PREPARED,    /* the newest version is prepared, and not committed */
    WT_CELL_KIND,   /* a cell that is not known here */
    WT_LONG_KEY,    /* longer than WT_KEY_MAX */
    WT_LONG_BLOCK,  /* longer than WT_BLOCK_LEN_MAX */
    WT_NO_ROOM,     /* the caller has no room for the value, or the next block: needed says how much */
    WT_DEEP,        /* more than WT_LEVELS_MAX levels */
    WT_LOOKASIDE,   /* a page of WiredTiger 3 or 4 whose newest versions are elsewhere */
};

/* wt_path and wt_get: looks for a key, from a block of the tree on. Behind it is the key, as it is stored. */
struct wt_find {
    __u64 offset;
    __u32 len;
    __u32 allocation; /* the file's allocation_size, the unit of its addresses */
    __u32 key_len;    /* 0 in wt_path: the first leaf */
    __u32 ahead;      /* wt_path: leaves behind the one that are wanted too, as far as they have the same parent */
};

/* The result of wt_get, and the value. */
struct wt_answer {
    __u32 outcome, reason;
    __u32 value_len, needed;
    __u8 value[];
};

/* wt_next: takes addresses, up to WT_BLOCKS_MAX of them. */
#define WT_BLOCKS_MAX 256

struct wt_address {
    __u64 offset;
    __u32 len, checksum;
};

struct wt_list {
    __u32 count, rsvd;
    struct wt_address block[];
};

/* The result of wt_path and wt_next: blocks, each with its head. They are sound, and in order. */
struct wt_blocks {
    __u32 count, reason;
    __u32 needed, rsvd;
};

struct wt_block {
    __u64 offset;
    __u32 len, rsvd;
    __u8 bytes[];
};

/* ---- Blocks --------------------------------------------------------------------------------- */

#define WT_HEADER_LEN 40 /* of the page and of the block */
#define WT_COVERED_LEN 64 /* that a partial checksum covers, and that are never compressed */
#define WT_WHOLE 1u /* flag of a block: the checksum covers all of it */

enum wt_page_kind { WT_PAGE_OVERFLOW = 5, WT_PAGE_ROW_INNER = 6, WT_PAGE_ROW_LEAF = 7 };

/* Flags of a page. */
#define WT_PAGE_COMPRESSED 1u
#define WT_PAGE_ENCRYPTED 8u
#define WT_PAGE_WITH_LOOKASIDE 0x10u
#define WT_PAGE_WITH_TRUNCATES 0x20u

/* The bytes of a page as they were before they were compressed. */
struct wt_page {
    const __u8 *bytes;
    __u32 end;     /* of its cells */
    __u32 entries; /* cells; of an overflow block the bytes of the value */
    __u8 kind, flags, version;
    __u8 *made; /* where it was decompressed to, if it was */
};

DS_INLINE __u32 wt_load32(const __u8 *at)
{
    return at[0] | at[1] << 8 | at[2] << 16 | (__u32)at[3] << 24;
}

DS_INLINE __u64 wt_load64(const __u8 *at)
{
    return wt_load32(at) | (__u64)wt_load32(at + 4) << 32;
}

/* Whether a block is what was written there; with a checksum that is not 0, as its address says. */
DS_INLINE __u32 wt_check(const __u8 *bytes, __u32 len, __u32 checksum)
{
    const __u8 zeroes[4] = {};
    if (len < WT_COVERED_LEN || wt_load32(bytes + 28) != len)
        return WT_REUSED;
    __u32 covered = bytes[36] & WT_WHOLE ? len : WT_COVERED_LEN, stored = wt_load32(bytes + 32);
    __u32 sum = ds_crc32c(ds_crc32c(0, bytes, 32), zeroes, 4);
    if (ds_crc32c(sum, bytes + 36, covered - 36) != stored)
        return WT_CHECKSUM;
    return checksum && checksum != stored ? WT_REUSED : 0;
}

/* A page is compressed from byte 64 on, where 8 bytes of length are. Nothing in it says by what. */
DS_INLINE __u32 wt_decompress(const __u8 *bytes, __u32 len, __u32 whole_len, struct wt_page *page)
{
    struct ds_compression how = {.codec = DS_SNAPPY};
    __u64 from_len = wt_load64(bytes + WT_COVERED_LEN);
    const __u8 *from = bytes + WT_COVERED_LEN + 8;
    if (whole_len < WT_COVERED_LEN || whole_len > WT_BLOCK_LEN_MAX)
        return WT_LONG_BLOCK;
    if (from_len < 4 || from_len > len - WT_COVERED_LEN - 8)
        return WT_COMPRESSION;
    if (wt_load32(from) == 0xfd2fb528u)
        how.codec = DS_ZSTD;
    __u32 made_len = whole_len - WT_COVERED_LEN;
    page->made = ds_alloc(whole_len);
    if (!page->made)
        return WT_LONG_BLOCK;
    ds_memcpy(page->made, bytes, WT_COVERED_LEN);
    if (ds_decompress(page->made + WT_COVERED_LEN, made_len, from, from_len, &how) != (__s64)made_len)
        return WT_COMPRESSION;
    page->bytes = page->made;
    return 0;
}

/* The page in a sound block. `page->made` is freed by the caller, whatever this returns. */
DS_INLINE __u32 wt_open_page(const __u8 *bytes, __u32 len, struct wt_page *page)
{
    __u32 whole_len = wt_load32(bytes + 16);
    page->bytes = bytes;
    page->entries = wt_load32(bytes + 20);
    page->kind = bytes[24];
    page->flags = bytes[25];
    page->version = bytes[27];
    page->made = NULL;
    if (page->kind != WT_PAGE_OVERFLOW && page->kind != WT_PAGE_ROW_INNER && page->kind != WT_PAGE_ROW_LEAF)
        return WT_PAGE_KIND;
    if (page->flags & WT_PAGE_ENCRYPTED)
        return WT_ENCRYPTED;
    if (whole_len < WT_HEADER_LEN)
        return WT_MALFORMED;
    page->end = whole_len;
    if (page->flags & WT_PAGE_COMPRESSED)
        return len < WT_COVERED_LEN + 12 ? WT_MALFORMED : wt_decompress(bytes, len, whole_len, page);
    return whole_len > len ? WT_MALFORMED : 0;
}

/* ---- Cells ---------------------------------------------------------------------------------- */

/* A packed number that begins at *at and ends before end; *at is moved behind it, or behind end if there is none. */
DS_INLINE __u64 wt_number(const __u8 *bytes, __u32 *at, __u32 end)
{
    __u32 i = *at;
    *at = end + 1;
    if (i >= end)
        return 0;
    __u8 first = bytes[i++];
    if (first >= 0x80 && first < 0xc0) {
        *at = i;
        return first & 0x3f;
    }
    if (first >= 0xc0 && first < 0xe0) {
        if (i >= end)
            return 0;
        *at = i + 1;
        return ((first & 0x1f) << 8 | bytes[i]) + 64;
    }
    __u32 len = first & 0xf;
    if (first < 0xe0 || first >= 0xf0 || len > 8 || len > end - i)
        return 0;
    __u64 value = 0;
    for (__u32 k = 0; k < len; k++)
        value = value << 8 | bytes[i + k];
    *at = i + len;
    return value + 8192 + 64;
}

/* High half of a cell's first byte. */
enum wt_cell_kind {
    WT_ADDR_DEL = 0x00,
    WT_ADDR_INNER = 0x10,
    WT_ADDR_LEAF = 0x20,
    WT_ADDR_LEAF_NO = 0x30, /* without overflow items */
    WT_KEY = 0x50,
    WT_KEY_OVERFLOW = 0x60,
    WT_KEY_PREFIX = 0x70,
    WT_VALUE = 0x80,
    WT_VALUE_COPY = 0x90,
    WT_VALUE_OVERFLOW = 0xa0,
    WT_VALUE_OVERFLOW_RM = 0xb0,
    WT_KEY_OVERFLOW_RM = 0xc0,
};

/* Second byte of a cell. */
#define WT_CELL_PREPARED 1u
#define WT_CELL_TIMES 0x7eu
#define WT_CELL_STOPS 0x50u

struct wt_cell {
    __u32 kind;
    __u32 prefix;  /* bytes that a key shares with the one before */
    __u32 at, len; /* its data */
    __u32 next;    /* the cell behind it */
    __u32 times;   /* its second byte */
    __u32 copy_of; /* of WT_VALUE_COPY */
};

DS_INLINE int wt_is_key(__u32 kind)
{
    return kind == WT_KEY || kind == WT_KEY_PREFIX || kind == WT_KEY_OVERFLOW || kind == WT_KEY_OVERFLOW_RM;
}

DS_INLINE int wt_is_address(__u32 kind)
{
    return kind <= WT_ADDR_LEAF_NO;
}

/* The cell at `at`. */
DS_INLINE __u32 wt_read_cell(const struct wt_page *page, __u32 at, struct wt_cell *cell)
{
    const __u8 *bytes = page->bytes;
    __u32 end = page->end, start = at;
    if (at >= end)
        return WT_MALFORMED;
    __u8 first = bytes[at++];
    cell->prefix = cell->times = cell->copy_of = 0;
    if (first & 3) { /* its length is in the rest of the byte */
        cell->kind = (first & 3) == 3 ? WT_VALUE : (first & 3) == 2 ? WT_KEY_PREFIX : WT_KEY;
        if ((first & 3) == 2) {
            if (at >= end)
                return WT_MALFORMED;
            cell->prefix = bytes[at++];
        }
        cell->at = at;
        cell->len = first >> 2;
        cell->next = at + cell->len;
        return cell->next > end ? WT_MALFORMED : 0;
    }
    __u32 kind = first & 0xf0;
    cell->kind = kind;
    /* A count of repetitions is for columns; a value with times has room for it in rows, too. */
    if ((first & 4 && (kind != WT_VALUE || !(first & 8))) || kind == 0x40 || kind > WT_KEY_OVERFLOW_RM)
        return WT_CELL_KIND;
    if (kind == WT_KEY_PREFIX) {
        if (at >= end)
            return WT_MALFORMED;
        cell->prefix = bytes[at++];
    }
    if (first & 8) {
        if (wt_is_key(kind) || page->version != 1)
            return WT_CELL_KIND;
        if (at >= end)
            return WT_MALFORMED;
        cell->times = bytes[at++];
        for (__u32 bit = 2; bit < 0x80; bit <<= 1)
            if (cell->times & bit)
                wt_number(bytes, &at, end);
    }
    if (kind == WT_ADDR_DEL && page->flags & WT_PAGE_WITH_TRUNCATES)
        for (int i = 0; i < 3; i++)
            wt_number(bytes, &at, end);
    if (first & 4 && wt_number(bytes, &at, end) > 1)
        return WT_CELL_KIND;
    __u64 number = wt_number(bytes, &at, end);
    if (at > end)
        return WT_MALFORMED;
    if (kind == WT_VALUE_COPY) {
        if (number > start - WT_HEADER_LEN)
            return WT_MALFORMED;
        cell->copy_of = start - (__u32)number;
        cell->at = cell->next = at;
        cell->len = 0;
        return 0;
    }
    if (kind == WT_KEY || kind == WT_KEY_PREFIX || (kind == WT_VALUE && !(first & 8)))
        number += 64;
    if (number > end - at)
        return WT_MALFORMED;
    cell->at = at;
    cell->len = (__u32)number;
    cell->next = at + cell->len;
    return 0;
}

/* The address in a cell. */
DS_INLINE __u32 wt_read_address(const struct wt_page *page, const struct wt_cell *cell, __u32 allocation,
                                struct wt_address *address)
{
    __u32 at = cell->at, end = cell->at + cell->len;
    __u64 offset = wt_number(page->bytes, &at, end), len = wt_number(page->bytes, &at, end);
    __u64 checksum = wt_number(page->bytes, &at, end);
    if (at != end) /* or it is in another object */
        return at > end ? WT_MALFORMED : WT_CELL_KIND;
    if (len == 0 || offset >= 1ull << 40 || checksum >> 32)
        return WT_MALFORMED;
    if (len > WT_BLOCK_LEN_MAX / allocation)
        return WT_LONG_BLOCK;
    address->offset = (offset + 1) * allocation;
    address->len = (__u32)len * allocation;
    address->checksum = (__u32)checksum;
    return 0;
}

DS_INLINE __s64 wt_compare(const __u8 *a, __u32 a_len, const __u8 *b, __u32 b_len)
{
    __s64 compared = ds_memcmp(a, b, a_len < b_len ? a_len : b_len);
    return compared ? compared : (__s64)a_len - b_len;
}

/* ---- Searches ------------------------------------------------------------------------------- */

/* A search keeps this at the end of scratch: in front of it the result grows. */
struct wt_search {
    __u32 key_len, allocation, ahead, used;
    __u32 levels, pending; /* pending: reads that are under way */
    __u32 own_len;         /* own: the key of the leaf that was put together last */
    __u32 sums[WT_AHEAD_MAX + 1]; /* checksums of the reads that are under way, by cookie */
    __u8 key[WT_KEY_MAX], own[WT_KEY_MAX];
};

/* ds_next.cookie: the index in `sums`, and */
#define WT_IS_FIRST (1u << 16)    /* the block that the caller named: its checksum is not known */
#define WT_IS_VALUE (1u << 17)    /* the block of a long value */
#define WT_IS_AHEAD (1u << 18)    /* a leaf behind the one that is wanted */

DS_INLINE struct wt_search *wt_search_of(const struct ds_traverse *t)
{
    return (struct wt_search *)((__u8 *)t->scratch + t->scratch_cap - sizeof(struct wt_search));
}

DS_INLINE void wt_ask(struct ds_traverse *t, __u64 offset, __u32 len, __u32 checksum, __u32 index, __u32 is)
{
    struct ds_next *next = &t->next[t->nnext++];
    wt_search_of(t)->sums[index] = checksum;
    next->offset = offset;
    next->len = len;
    next->file = 0;
    next->cookie = index | is;
}

/* Takes the request apart, and asks for its block. */
DS_INLINE __s64 wt_begin(struct ds_traverse *t, __u32 head_len)
{
    struct wt_find find = *(struct wt_find *)t->scratch;
    if (t->scratch_cap < sizeof(find) + sizeof(struct wt_search) + head_len ||
        find.key_len > t->scratch_cap - sizeof(find) - sizeof(struct wt_search))
        return DS_FAIL(DS_EINVAL, "too little scratch for the request");
    if (find.key_len > WT_KEY_MAX)
        return DS_FAIL(DS_EINVAL, "a key has at most 1024 bytes");
    if (find.allocation < 512 || find.allocation & (find.allocation - 1) || find.allocation > WT_BLOCK_LEN_MAX)
        return DS_FAIL(DS_EINVAL, "an allocation size is a power of two from 512 on");
    if (find.len < 512 || find.len > WT_BLOCK_LEN_MAX)
        return DS_FAIL(DS_EINVAL, "a block has 512 bytes to 512 KiB");
    struct wt_search *search = wt_search_of(t);
    search->key_len = find.key_len;
    search->allocation = find.allocation;
    search->ahead = find.ahead < WT_AHEAD_MAX ? find.ahead : WT_AHEAD_MAX;
    search->levels = search->own_len = 0;
    search->pending = 1;
    search->used = head_len;
    ds_memcpy(search->key, (__u8 *)t->scratch + sizeof(find), find.key_len);
    ds_memset(t->scratch, 0, sizeof(find) + find.key_len);
    wt_ask(t, find.offset, find.len, 0, 0, WT_IS_FIRST);
    return 0;
}

/* The page below which the key is: asks for it, and for leaves behind it. */
DS_INLINE __u32 wt_descend(struct ds_traverse *t, const struct wt_page *page)
{
    struct wt_search *search = wt_search_of(t);
    struct wt_cell cell, child = {};
    __u32 reason, at = WT_HEADER_LEN, is_past = 0, asked = 0;
    if (++search->levels > WT_LEVELS_MAX)
        return WT_DEEP;
    for (__u32 i = 0; i + 1 < page->entries; i += 2) {
        reason = wt_read_cell(page, at, &cell);
        if (reason)
            return reason;
        if (cell.kind == WT_KEY_OVERFLOW)
            return WT_OVERFLOW;
        if (cell.kind != WT_KEY)
            return WT_CELL_KIND;
        /* The first key is before all others, whatever it says. */
        if (i && !is_past && wt_compare(page->bytes + cell.at, cell.len, search->key, search->key_len) > 0)
            is_past = 1;
        if (is_past && !asked) {
            struct wt_address address;
            if (child.kind == WT_ADDR_DEL)
                return WT_DELETED;
            reason = wt_read_address(page, &child, search->allocation, &address);
            if (reason)
                return reason;
            wt_ask(t, address.offset, address.len, address.checksum, asked++, 0);
            if (child.kind == WT_ADDR_INNER || !search->ahead)
                return 0;
        }
        reason = wt_read_cell(page, cell.next, &child);
        if (reason)
            return reason;
        if (!wt_is_address(child.kind))
            return WT_CELL_KIND;
        at = child.next;
        if (asked) {
            struct wt_address address;
            if (asked > search->ahead || child.kind == WT_ADDR_DEL || child.kind == WT_ADDR_INNER ||
                wt_read_address(page, &child, search->allocation, &address))
                return 0;
            wt_ask(t, address.offset, address.len, address.checksum, asked, WT_IS_AHEAD);
            asked++;
        }
    }
    if (asked)
        return 0;
    struct wt_address address;
    if (!child.next)
        return WT_MALFORMED;
    if (child.kind == WT_ADDR_DEL)
        return WT_DELETED;
    reason = wt_read_address(page, &child, search->allocation, &address);
    if (!reason)
        wt_ask(t, address.offset, address.len, address.checksum, 0, 0);
    return reason;
}

/* The value cell of the key in a leaf. *is_found: the key is there; value->kind 0: its value is empty. */
DS_INLINE __u32 wt_find_value(struct ds_traverse *t, const struct wt_page *page, struct wt_cell *value, int *is_found)
{
    struct wt_search *search = wt_search_of(t);
    __u32 at = WT_HEADER_LEN;
    *is_found = 0;
    value->kind = 0;
    search->own_len = 0;
    for (__u32 i = 0; i < page->entries; i++) {
        struct wt_cell cell;
        __u32 reason = wt_read_cell(page, at, &cell);
        if (reason)
            return reason;
        at = cell.next;
        if (*is_found) {
            if (!wt_is_key(cell.kind))
                *value = cell;
            return 0;
        }
        if (!wt_is_key(cell.kind))
            continue;
        if (cell.kind != WT_KEY && cell.kind != WT_KEY_PREFIX)
            return WT_OVERFLOW;
        if (cell.prefix > search->own_len)
            return WT_MALFORMED;
        if (cell.prefix + cell.len > WT_KEY_MAX)
            return WT_LONG_KEY;
        ds_memcpy(search->own + cell.prefix, page->bytes + cell.at, cell.len);
        search->own_len = cell.prefix + cell.len;
        __s64 compared = wt_compare(search->own, search->own_len, search->key, search->key_len);
        if (compared > 0)
            return 0;
        *is_found = compared == 0;
    }
    return 0;
}

/* Where the value of a cell is, that of a copy too. The time of the value is that of its own cell. */
DS_INLINE __u32 wt_resolve(const struct wt_page *page, struct wt_cell *value)
{
    if (value->kind != WT_VALUE_COPY)
        return 0;
    struct wt_cell first;
    __u32 reason = wt_read_cell(page, value->copy_of, &first);
    if (reason)
        return reason;
    if (first.kind != WT_VALUE && first.kind != WT_VALUE_OVERFLOW)
        return WT_CELL_KIND;
    value->kind = first.kind;
    value->at = first.at;
    value->len = first.len;
    return 0;
}

#endif
