/* SPDX-License-Identifier: Apache-2.0 */
/* Looks a key up in tables of RocksDB: see sst.h for what it takes and gives. The format: the header files and comments
 * below table/ of RocksDB's source. */
#include "sst.h"

#define FOOTER_LEN 53
#define TRAILER_LEN 5
#define MAGIC 0x88e241b785f4cff7ull
#define EXTENDED_MAGIC 0x007a003eu /* in the place of the handles, since version 6 */

/* ds_next.cookie: what is read */
enum part { FOOTER, METAINDEX, PROPERTIES, INDEX, PARTITION, RANGES, DICTIONARY, DATA };

enum checksum_kind { CRC32C = 1, XXH3 = 4 };

/* First byte behind a block. */
enum compression_kind { NONE = 0, SNAPPY = 1, LZ4 = 4, LZ4HC = 5, ZSTD = 7 };

/* Low byte of the eight behind a user key; above it is the sequence number. */
enum record_kind {
    DELETION = 0,
    VALUE = 1,
    MERGE = 2,
    SINGLE_DELETION = 7,
    RANGE_DELETION = 0xf,
    BLOB_INDEX = 0x11,
    WIDE_COLUMNS = 0x16,
};

/* Behind the request in scratch. */
struct search {
    __u64 handle_offset, handle_len; /* of an index's entry */
    __u64 covered; /* the file being searched deletes the key in a range: one more than the sequence number of that */
    __u8 *dict;    /* the dictionary of the file being searched, in the heap */
    __u32 key_len;
    __u32 left; /* sst_facts: files that are not done */
    __u8 key[SST_KEY_MAX + 8];
};

/* A block as it was before it was compressed. */
struct view {
    const __u8 *bytes;
    __u32 len;
    __u8 *made; /* where it was decompressed to, if it was */
};

/* The entries of a block, and where they begin again with a whole key. */
struct block {
    const __u8 *bytes;
    __u32 end, restarts;
};

/* An entry's lengths, and where its key's own bytes begin. */
struct entry {
    __u32 shared, own, value_len, key_at;
};

/* How keys of a block are stored, and what is sought. */
struct order {
    const __u8 *key;
    __u32 key_len;
    int is_internal; /* the block's keys have sequence numbers */
    __u64 after;     /* entries of the same key with a number above this one come before it */
};

DS_INLINE __u32 load32(const __u8 *at)
{
    return at[0] | at[1] << 8 | at[2] << 16 | (__u32)at[3] << 24;
}

DS_INLINE __u64 load64(const __u8 *at)
{
    return load32(at) | (__u64)load32(at + 4) << 32;
}

/* A varint that begins at *at and ends before end; *at is moved behind it, or behind end if there is none. */
DS_INLINE __u64 varint(const __u8 *bytes, __u32 *at, __u32 end)
{
    __u64 value = 0;
    for (__u32 shift = 0, i = *at; shift < 64 && i < end; shift += 7, i++) {
        value |= (__u64)(bytes[i] & 0x7f) << shift;
        if (bytes[i] < 0x80) {
            *at = i + 1;
            return value;
        }
    }
    *at = end + 1;
    return 0;
}

DS_INLINE __s64 signed_varint(const __u8 *bytes, __u32 *at, __u32 end)
{
    __u64 value = varint(bytes, at, end);
    return (__s64)(value >> 1 ^ -(value & 1));
}

DS_INLINE int is_text(const __u8 *bytes, __u32 len, const char *text, __u32 text_len)
{
    return len == text_len && ds_memcmp(bytes, text, len) == 0;
}
#define IS_TEXT(bytes, len, text) is_text(bytes, len, text, sizeof(text) - 1)

DS_INLINE struct search *search_of(const struct ds_traverse *t)
{
    const struct sst_get *get = t->scratch;
    return (struct search *)((__u8 *)&get->file[get->nfiles] + get->key_len);
}

/* ---- Blocks --------------------------------------------------------------------------------- */

/* Decompresses a block. Not more is made of it than SST_BLOCK_LEN_MAX, whatever it says. */
DS_INLINE __u32 decompress(const struct ds_traverse *t, const struct sst_file *file, __u8 kind, struct view *view)
{
    struct ds_compression how = {.codec = DS_SNAPPY};
    const __u8 *bytes = view->bytes;
    __u32 at = 0;
    __u64 len = varint(bytes, &at, view->len);
    if (at > view->len)
        return SST_MALFORMED;
    if (kind == SNAPPY) /* the length is a part of it */
        at = 0;
    else if (kind == LZ4 || kind == LZ4HC)
        how.codec = DS_LZ4;
    else if (kind == ZSTD)
        how.codec = DS_ZSTD;
    else
        return SST_COMPRESSION;
    if (len > SST_BLOCK_LEN_MAX)
        return SST_LONG_BLOCK;
    if (t->cookie == DATA && how.codec != DS_SNAPPY && file->dict_len) {
        how.dict = search_of(t)->dict;
        how.dict_len = file->dict_len;
    }
    view->made = ds_alloc(len);
    if (!view->made)
        return len ? SST_LONG_BLOCK : SST_MALFORMED;
    if (ds_decompress(view->made, len, bytes + at, view->len - at, &how) != (__s64)len)
        return SST_MALFORMED;
    view->bytes = view->made;
    view->len = (__u32)len;
    return 0;
}

/* The block that was read, if it is sound. */
DS_INLINE __u32 view_block(const struct ds_traverse *t, const struct sst_file *file, struct view *view)
{
    const __u8 *bytes = t->data;
    __u32 len = (__u32)t->data_len - TRAILER_LEN, sum;
    __u8 compression = bytes[len];
    if (file->checksum == CRC32C) {
        sum = ds_crc32c(0, bytes, len + 1);
        sum = (sum >> 15 | sum << 17) + 0xa282ead8u;
    } else {
        sum = (__u32)ds_hash64(bytes, len, 0) ^ compression * 0x6b9083d9u;
    }
    if (file->context)
        sum += file->context ^ ((__u32)t->offset + (__u32)(t->offset >> 32));
    if (sum != load32(bytes + len + 1))
        return SST_CHECKSUM;
    view->bytes = bytes;
    view->len = len;
    return compression == NONE ? 0 : decompress(t, file, compression, view);
}

/* The entries of a block. */
DS_INLINE __u32 open_block(const struct view *view, struct block *block)
{
    __u32 end = view->len;
    block->bytes = view->bytes;
    if (end < 8)
        return SST_MALFORMED;
    end -= 4;
    __u32 restarts = load32(block->bytes + end);
    /* Above their number: 31 a hash index follows; 29 keys are spread evenly; 30 and 28 something else. */
    if (restarts & (1u << 30 | 1u << 28))
        return SST_APART;
    if (restarts & 1u << 31) {
        __u32 buckets = block->bytes[end - 2] | block->bytes[end - 1] << 8;
        if (buckets + 2 > end)
            return SST_MALFORMED;
        end -= buckets + 2;
    }
    restarts &= (1u << 28) - 1;
    if (!restarts || restarts > end / 4)
        return SST_MALFORMED;
    block->end = end - 4 * restarts;
    block->restarts = restarts;
    return 0;
}

DS_INLINE __u32 restart(const struct block *block, __u32 i)
{
    return load32(block->bytes + block->end + 4 * i);
}

/* Reads the head of the entry at `at`; with places by difference it does not tell how long a value is. */
DS_INLINE int read_entry(const struct block *block, __u32 at, int has_value_len, struct entry *entry)
{
    const __u8 *bytes = block->bytes;
    __u32 end = block->end;
    __u64 shared = varint(bytes, &at, end), own = varint(bytes, &at, end), value_len = 0;
    if (has_value_len)
        value_len = varint(bytes, &at, end);
    if (at > end || own > end - at || value_len > end - at - own)
        return 0;
    entry->shared = (__u32)shared;
    entry->own = (__u32)own;
    entry->value_len = (__u32)value_len;
    entry->key_at = at;
    return shared <= SST_BLOCK_LEN_MAX;
}

DS_INLINE __s64 compare(const __u8 *a, __u32 a_len, const __u8 *b, __u32 b_len)
{
    __s64 compared = ds_memcmp(a, b, a_len < b_len ? a_len : b_len);
    return compared ? compared : (__s64)a_len - b_len;
}

/* Whether a key of a block comes before what is sought. */
DS_INLINE int is_before(const struct order *order, const __u8 *key, __u32 key_len)
{
    __u32 len = order->is_internal ? key_len - 8 : key_len;
    __s64 compared = compare(key, len, order->key, order->key_len);
    if (compared)
        return compared < 0;
    return order->is_internal && load64(key + len) > order->after;
}

/* The last place to begin at whose key comes before what is sought, or the first one. */
DS_INLINE __u32 find_restart(const struct block *block, const struct order *order, int has_value_len, __u32 *at)
{
    __u32 low = 0, high = block->restarts - 1;
    while (low < high) {
        __u32 middle = (low + high + 1) / 2;
        struct entry entry;
        if (restart(block, middle) >= block->end ||
            !read_entry(block, restart(block, middle), has_value_len, &entry))
            return SST_MALFORMED;
        if (entry.shared || (order->is_internal && entry.own < 8))
            return SST_MALFORMED;
        if (is_before(order, block->bytes + entry.key_at, entry.own))
            low = middle;
        else
            high = middle - 1;
    }
    *at = restart(block, low);
    return *at > block->end ? SST_MALFORMED : 0;
}

/* Puts the key of an entry together from the one before it. */
DS_INLINE __u32 take_key(struct search *search, const struct block *block, const struct entry *entry, int is_internal)
{
    if (entry->shared > search->key_len)
        return SST_MALFORMED;
    if (entry->shared + entry->own > sizeof(search->key))
        return SST_LONG_KEY;
    ds_memcpy(search->key + entry->shared, block->bytes + entry->key_at, entry->own);
    search->key_len = entry->shared + entry->own;
    return is_internal && search->key_len < 8 ? SST_MALFORMED : 0;
}

/* ---- The next read --- ---------------------------------------------------------------------- */

DS_INLINE void ask(struct ds_traverse *t, __u32 file, __u64 offset, __u64 len, enum part part)
{
    struct ds_next *next = &t->next[t->nnext++];
    next->offset = offset;
    next->len = len;
    next->file = file;
    next->cookie = part;
}

/* Asks for a block, if it can be there. */
DS_INLINE __u32 ask_block(struct ds_traverse *t, __u32 index, __u64 offset, __u64 len, enum part part)
{
    const struct sst_get *get = t->scratch;
    __u64 room = get->file[index].len - FOOTER_LEN;
    if (len > SST_BLOCK_LEN_MAX - TRAILER_LEN)
        return SST_LONG_BLOCK;
    if (len < 8 || offset > room || len + TRAILER_LEN > room - offset)
        return SST_MALFORMED;
    ask(t, index, offset, len + TRAILER_LEN, part);
    return 0;
}

DS_INLINE __u32 ask_footer(struct ds_traverse *t, __u32 index)
{
    const struct sst_get *get = t->scratch;
    if (get->file[index].len < FOOTER_LEN)
        return SST_NOT_A_TABLE;
    ask(t, index, get->file[index].len - FOOTER_LEN, FOOTER_LEN, FOOTER);
    return 0;
}

/* ---- Kinds of files ------------------------------------------------------------------------- */

/* Notes a place of the index, if there is one. */
DS_INLINE __u32 note_index(struct sst_file *file, __u64 offset, __u64 len)
{
    if (len > SST_BLOCK_LEN_MAX - TRAILER_LEN)
        return SST_LONG_BLOCK;
    file->index_offset = offset;
    file->index_len = (__u32)len;
    return 0;
}

DS_INLINE __u32 read_footer(struct ds_traverse *t, struct sst_file *file)
{
    const __u8 *bytes = t->data;
    if (load64(bytes + 45) != MAGIC)
        return SST_NOT_A_TABLE;
    __u32 version = load32(bytes + 41), at = 1;
    if (version < 2 || version > 7)
        return SST_VERSION;
    file->checksum = bytes[0];
    if (file->checksum != CRC32C && file->checksum != XXH3)
        return SST_CHECKSUM_KIND;
    if (version >= 6) {
        if (load32(bytes + 1) != EXTENDED_MAGIC)
            return SST_NOT_A_TABLE;
        file->context = load32(bytes + 9);
        __u64 len = load32(bytes + 13);
        if (len + TRAILER_LEN > t->offset)
            return SST_MALFORMED;
        return ask_block(t, t->file, t->offset - TRAILER_LEN - len, len, METAINDEX);
    }
    __u64 offset = varint(bytes, &at, 41), len = varint(bytes, &at, 41);
    __u64 index_offset = varint(bytes, &at, 41), index_len = varint(bytes, &at, 41);
    if (at > 41)
        return SST_MALFORMED;
    __u32 reason = note_index(file, index_offset, index_len);
    return reason ? reason : ask_block(t, t->file, offset, len, METAINDEX);
}

DS_INLINE __u32 read_metaindex(struct ds_traverse *t, const struct view *view, struct sst_file *file)
{
    struct search *search = search_of(t);
    struct block block;
    __u32 reason = open_block(view, &block);
    if (reason)
        return reason;
    __u64 properties_offset = 0, properties_len = 0;
    search->key_len = 0;
    for (__u32 at = 0; at < block.end;) {
        struct entry entry;
        if (!read_entry(&block, at, 1, &entry))
            return SST_MALFORMED;
        reason = take_key(search, &block, &entry, 0);
        if (reason)
            return reason;
        __u32 place = entry.key_at + entry.own, end = place + entry.value_len;
        __u64 offset = varint(block.bytes, &place, end), len = varint(block.bytes, &place, end);
        if (IS_TEXT(search->key, search->key_len, "rocksdb.range_del")) {
            if (len > SST_BLOCK_LEN_MAX - TRAILER_LEN)
                return SST_RANGE_DELETIONS;
            file->ranges_offset = offset;
            file->ranges_len = (__u32)len;
        } else if (IS_TEXT(search->key, search->key_len, "rocksdb.compression_dict")) {
            if (len > SST_BLOCK_LEN_MAX - TRAILER_LEN)
                return SST_LONG_BLOCK;
            file->dict_offset = offset;
            file->dict_len = (__u32)len;
        } else if (IS_TEXT(search->key, search->key_len, "rocksdb.properties")) {
            properties_offset = offset;
            properties_len = len;
        } else if (IS_TEXT(search->key, search->key_len, "rocksdb.index")) {
            reason = note_index(file, offset, len);
            if (reason)
                return reason;
        }
        at = end;
    }
    if (!file->index_len || !properties_len)
        return SST_MALFORMED;
    return ask_block(t, t->file, properties_offset, properties_len, PROPERTIES);
}

DS_INLINE __u32 read_properties(struct ds_traverse *t, const struct view *view, struct sst_file *file)
{
    struct search *search = search_of(t);
    struct block block;
    __u32 reason = open_block(view, &block);
    if (reason)
        return reason;
    int is_ordered = 0;
    __u32 flags = 0;
    search->key_len = 0;
    for (__u32 at = 0; at < block.end;) {
        struct entry entry;
        if (!read_entry(&block, at, 1, &entry))
            return SST_MALFORMED;
        /* Users may have properties of their own, with long names. */
        reason = take_key(search, &block, &entry, 0);
        if (reason)
            return reason;
        const __u8 *key = search->key;
        __u32 key_len = search->key_len, value_at = entry.key_at + entry.own, number_at = value_at;
        at = value_at + entry.value_len;
        if (IS_TEXT(key, key_len, "rocksdb.comparator")) {
            is_ordered = IS_TEXT(block.bytes + value_at, entry.value_len, "leveldb.BytewiseComparator");
        } else if (IS_TEXT(key, key_len, "rocksdb.block.based.table.index.type")) {
            __u32 kind = entry.value_len == 4 ? load32(block.bytes + value_at) : ~0u;
            if (kind > 3)
                return SST_INDEX_KIND;
            if (kind == 2)
                flags |= SST_INDEX_OF_INDEXES;
            if (kind == 3)
                flags |= SST_INDEX_WITH_KEYS;
        } else if (IS_TEXT(key, key_len, "rocksdb.external_sst_file.version")) {
            flags |= SST_WITHOUT_SEQUENCE;
        } else if (IS_TEXT(key, key_len, "rocksdb.index.key.is.user.key")) {
            if (varint(block.bytes, &number_at, at))
                flags |= SST_INDEX_OF_USER_KEYS;
        } else if (IS_TEXT(key, key_len, "rocksdb.index.value.is.delta.encoded")) {
            if (varint(block.bytes, &number_at, at))
                flags |= SST_INDEX_OF_DELTAS;
        } else if (IS_TEXT(key, key_len, "rocksdb.num.range-deletions")) {
            __u64 ranges = varint(block.bytes, &number_at, at);
            if (ranges > SST_RANGES_MAX || (ranges && !file->ranges_len))
                return SST_RANGE_DELETIONS;
        }
        if (number_at > at)
            return SST_MALFORMED;
    }
    file->flags = flags | (file->flags & SST_KEY_IS_LAST);
    return is_ordered ? 0 : SST_COMPARATOR;
}

/* The footer, metaindex and properties: reads on, until is_known is set. */
DS_INLINE __u32 learn(struct ds_traverse *t, struct sst_file *file, int *is_known)
{
    *is_known = 0;
    if (t->cookie == FOOTER)
        return read_footer(t, file);
    struct view view = {};
    __u32 reason = view_block(t, file, &view);
    if (!reason && t->cookie == METAINDEX) {
        reason = read_metaindex(t, &view, file);
    } else if (!reason) {
        reason = read_properties(t, &view, file);
        *is_known = !reason;
    }
    ds_free(view.made);
    return reason;
}

SEC("traverse/sst_facts")
__s64 sst_facts(struct ds_traverse *t)
{
    struct sst_get *get = t->scratch;
    if (get->nfiles > SST_FILES_MAX || get->nfiles > t->nfiles)
        return DS_FAIL(DS_EINVAL, "more files than there are, or than 16");
    struct search *search = search_of(t);
    t->result_len = sizeof(*get) + get->nfiles * sizeof(struct sst_file);
    if (!t->data_len) {
        search->left = 0;
        for (__u32 i = 0; i < get->nfiles; i++) {
            get->file[i].reason = (__u16)ask_footer(t, i);
            search->left += !get->file[i].reason;
        }
        return !search->left;
    }
    struct sst_file *file = &get->file[t->file & (SST_FILES_MAX - 1)];
    int is_known;
    file->reason = (__u16)learn(t, file, &is_known);
    if (is_known || file->reason)
        search->left--;
    return !search->left;
}

/* ---- Looking up ----------------------------------------------------------------------------- */

/* Ends with an answer, which overwrites the request. */
DS_INLINE __s64 answer(struct ds_traverse *t, __u32 outcome, __u32 reason, __u32 file)
{
    struct sst_answer *answer = t->scratch;
    answer->outcome = outcome;
    answer->reason = reason;
    answer->file = file;
    answer->value_len = 0;
    answer->sequence = 0;
    t->result_len = sizeof(*answer);
    return 1;
}

/* Goes on with the files from this one on. */
DS_INLINE __s64 begin_file(struct ds_traverse *t, __u32 index)
{
    const struct sst_get *get = t->scratch;
    struct search *search = search_of(t);
    search->covered = 0;
    if (index >= get->nfiles)
        return answer(t, SST_ABSENT, 0, 0);
    const struct sst_file *file = &get->file[index];
    __u32 reason = file->reason;
    if (!reason && (file->flags & SST_WITHOUT_SEQUENCE) && get->snapshot != SST_LATEST)
        reason = SST_INGESTED;
    if (!reason && file->index_len && file->ranges_len)
        reason = ask_block(t, index, file->ranges_offset, file->ranges_len, RANGES);
    if (!reason)
        reason = file->index_len ? ask_block(t, index, file->index_offset, file->index_len, INDEX)
                                 : ask_footer(t, index);
    return reason ? answer(t, SST_UNSUPPORTED, reason, index) : 0;
}

/* Goes on behind a file that has no visible version. All versions in the files behind one that deletes the key are older. */
DS_INLINE __s64 leave_file(struct ds_traverse *t)
{
    __u64 covered = search_of(t)->covered;
    if (!covered)
        return begin_file(t, t->file + 1);
    answer(t, SST_TOMBSTONE, 0, t->file);
    ((struct sst_answer *)t->scratch)->sequence = covered - 1;
    return 1;
}

/* Finds the newest of the range deletions that cover the key. */
DS_INLINE __u32 search_ranges(struct ds_traverse *t, const struct view *view, const struct sst_file *file,
                              const struct order *order)
{
    struct search *search = search_of(t);
    struct block block;
    __u32 reason = open_block(view, &block);
    search->key_len = 0;
    for (__u32 at = 0; !reason && at < block.end;) {
        struct entry entry;
        if (!read_entry(&block, at, 1, &entry))
            return SST_MALFORMED;
        reason = take_key(search, &block, &entry, 1);
        if (reason)
            return reason;
        __u32 from_len = search->key_len - 8, to_at = entry.key_at + entry.own;
        __u64 number = load64(search->key + from_len);
        at = to_at + entry.value_len;
        if ((number & 0xff) != RANGE_DELETION)
            return SST_RECORD_KIND;
        if (number > order->after || number >> 8 < search->covered)
            continue;
        if (compare(search->key, from_len, order->key, order->key_len) <= 0 &&
            compare(order->key, order->key_len, block.bytes + to_at, entry.value_len) < 0)
            search->covered = (number >> 8) + 1;
    }
    if (!reason && search->covered && (file->flags & SST_KEY_IS_LAST))
        return SST_RANGE_EDGE;
    return reason;
}

/* The value of an index's entry, which begins at *at: a place, and perhaps a key. */
DS_INLINE int read_handle(struct search *search, const struct block *block, __u32 *at, int is_difference, int has_key)
{
    if (is_difference) {
        search->handle_offset += search->handle_len + TRAILER_LEN;
        search->handle_len += (__u64)signed_varint(block->bytes, at, block->end);
    } else {
        search->handle_offset = varint(block->bytes, at, block->end);
        search->handle_len = varint(block->bytes, at, block->end);
    }
    if (has_key) {
        __u64 len = varint(block->bytes, at, block->end);
        if (*at > block->end || len > block->end - *at)
            return 0;
        *at += (__u32)len;
    }
    return *at <= block->end;
}

/* Finds the first entry of an index that does not come before what is sought; its place is in `search` then. */
DS_INLINE __u32 search_index(struct ds_traverse *t, const struct view *view, const struct sst_file *file,
                             const struct order *order, int *is_found)
{
    struct search *search = search_of(t);
    int has_value_len = !(file->flags & SST_INDEX_OF_DELTAS), has_key = file->flags & SST_INDEX_WITH_KEYS;
    struct block block;
    __u32 at, reason = open_block(view, &block);
    if (!reason)
        reason = find_restart(&block, order, has_value_len, &at);
    if (reason)
        return reason;
    search->key_len = 0;
    *is_found = 0;
    while (at < block.end) {
        struct entry entry;
        if (!read_entry(&block, at, has_value_len, &entry))
            return SST_MALFORMED;
        reason = take_key(search, &block, &entry, order->is_internal);
        if (reason)
            return reason;
        at = entry.key_at + entry.own;
        __u32 end = at + entry.value_len;
        if (!read_handle(search, &block, &at, !has_value_len && entry.shared, has_key))
            return SST_MALFORMED;
        if (has_value_len && at > end)
            return SST_MALFORMED;
        if (!is_before(order, search->key, search->key_len)) {
            *is_found = 1;
            return 0;
        }
        if (has_value_len)
            at = end;
    }
    return 0;
}

/* Gives the version that an entry is. */
DS_INLINE __s64 answer_entry(struct ds_traverse *t, const struct block *block, const struct entry *entry, __u64 number)
{
    struct sst_answer *found = t->scratch;
    __u32 kind = number & 0xff, reason = SST_RECORD_KIND;
    if ((number >> 8) + 1 < search_of(t)->covered)
        return leave_file(t);
    if (kind == DELETION || kind == SINGLE_DELETION) {
        answer(t, SST_TOMBSTONE, 0, t->file);
        found->sequence = number >> 8;
        return 1;
    }
    if (kind == VALUE)
        reason = entry->value_len > t->scratch_cap - sizeof(*found) ? SST_LONG_VALUE : 0;
    else if (kind == MERGE)
        reason = SST_MERGE;
    else if (kind == BLOB_INDEX)
        reason = SST_BLOB;
    else if (kind == WIDE_COLUMNS)
        reason = SST_COLUMNS;
    answer(t, reason ? SST_UNSUPPORTED : SST_FOUND, reason, t->file);
    found->value_len = entry->value_len;
    found->sequence = number >> 8;
    if (!reason) {
        ds_memcpy(found->value, block->bytes + entry->key_at + entry->own, entry->value_len);
        t->result_len += entry->value_len;
    }
    return 1;
}

/* Finds the first record that does not come before what is sought. */
DS_INLINE __s64 search_data(struct ds_traverse *t, const struct view *view, const struct order *order)
{
    struct search *search = search_of(t);
    struct block block;
    __u32 at, reason = open_block(view, &block);
    if (!reason)
        reason = find_restart(&block, order, 1, &at);
    search->key_len = 0;
    while (!reason && at < block.end) {
        struct entry entry;
        if (!read_entry(&block, at, 1, &entry)) {
            reason = SST_MALFORMED;
            break;
        }
        reason = take_key(search, &block, &entry, 1);
        if (!reason && !is_before(order, search->key, search->key_len)) {
            __u32 len = search->key_len - 8;
            if (len != order->key_len || ds_memcmp(search->key, order->key, len) != 0)
                break;
            return answer_entry(t, &block, &entry, load64(search->key + len));
        }
        at = entry.key_at + entry.own + entry.value_len;
    }
    /* The blocks behind this one begin above the key: the index sent us to the first that ends at or above it. */
    return reason ? answer(t, SST_UNSUPPORTED, reason, t->file) : leave_file(t);
}

/* Keeps a dictionary until the block comes that is compressed with it. */
DS_INLINE __u32 keep_dictionary(struct ds_traverse *t, const struct view *view, const struct sst_file *file)
{
    struct search *search = search_of(t);
    ds_free(search->dict);
    search->dict = ds_alloc(view->len);
    if (!search->dict || view->len != file->dict_len)
        return SST_LONG_BLOCK;
    ds_memcpy(search->dict, view->bytes, view->len);
    return 0;
}

/* Asks for what an index's entry says. */
DS_INLINE __u32 ask_found(struct ds_traverse *t, const struct sst_file *file)
{
    const struct search *search = search_of(t);
    __u32 reason = 0;
    if (t->cookie == INDEX && (file->flags & SST_INDEX_OF_INDEXES))
        return ask_block(t, t->file, search->handle_offset, search->handle_len, PARTITION);
    if (file->dict_len)
        reason = ask_block(t, t->file, file->dict_offset, file->dict_len, DICTIONARY);
    return reason ? reason : ask_block(t, t->file, search->handle_offset, search->handle_len, DATA);
}

SEC("traverse/sst_get")
__s64 sst_get(struct ds_traverse *t)
{
    struct sst_get *get = t->scratch;
    if (!t->data_len) {
        __u64 needed = sizeof(*get) + get->nfiles * (__u64)sizeof(struct sst_file) + get->key_len + sizeof(struct search);
        if (get->nfiles > SST_FILES_MAX || get->nfiles > t->nfiles || needed > t->scratch_cap)
            return DS_FAIL(DS_EINVAL, "more files than there are, or than 16, or too little scratch");
        return get->key_len > SST_KEY_MAX ? answer(t, SST_UNSUPPORTED, SST_LONG_KEY, 0) : begin_file(t, 0);
    }
    struct sst_file *file = &get->file[t->file & (SST_FILES_MAX - 1)];
    if (t->cookie < INDEX) {
        int is_known;
        __u32 reason = learn(t, file, &is_known);
        if (reason)
            return answer(t, SST_UNSUPPORTED, reason, t->file);
        return is_known ? begin_file(t, t->file) : 0;
    }
    struct order order = {
        .key = (__u8 *)&get->file[get->nfiles],
        .key_len = get->key_len,
        .is_internal = t->cookie == DATA || t->cookie == RANGES || !(file->flags & SST_INDEX_OF_USER_KEYS),
        .after = get->snapshot << 8 | 0xff,
    };
    struct view view = {};
    __u32 reason = view_block(t, file, &view);
    __s64 done = 0;
    if (!reason && t->cookie == DATA) {
        done = search_data(t, &view, &order);
    } else if (!reason && t->cookie == RANGES) {
        reason = search_ranges(t, &view, file, &order);
    } else if (!reason && t->cookie == DICTIONARY) {
        reason = keep_dictionary(t, &view, file);
    } else if (!reason) {
        int is_found = 0;
        reason = search_index(t, &view, file, &order, &is_found);
        if (!reason && is_found)
            reason = ask_found(t, file);
        else if (!reason && t->cookie == INDEX)
            done = leave_file(t);
        else if (!reason) /* the last key of a partition is the one by which it was found */
            reason = SST_MALFORMED;
    }
    ds_free(view.made);
    return reason ? answer(t, SST_UNSUPPORTED, reason, t->file) : done;
}
