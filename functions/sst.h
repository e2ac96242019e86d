/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables of RocksDB (block-based, format versions 2 to 7), and what the functions over them take and give.
 *
 * A table is blocks of sorted records, an index of them (of one or two levels), a block of properties, a metaindex that
 * says where those are, and a footer. Behind each block are five bytes: how it is compressed, and a checksum, which is
 * verified before anything in the block is believed. Undecided cases are SST_UNSUPPORTED with the reason, never
 * an answer.
 */
#ifndef SST_H
#define SST_H

#include "diskside.h"

#define SST_FILES_MAX 16
#define SST_KEY_MAX 1024             /* bytes of a user key, the caller's or one on the way to it */
#define SST_BLOCK_LEN_MAX (1u << 20) /* with what is behind it: one read */
#define SST_RANGES_MAX 1024          /* range deletions of a file */
#define SST_LATEST ((1ull << 56) - 1) /* sst_get.snapshot: every version is visible */

/* sst_answer.outcome */
enum sst_outcome {
    SST_ABSENT,    /* no file has a visible version of the key */
    SST_FOUND,     /* the newest visible version is this value */
    SST_TOMBSTONE, /* the newest visible version is a deletion */
    SST_UNSUPPORTED,
};

/* Why it is not known. */
enum sst_reason {
    SST_NO_REASON,
    SST_MALFORMED,       /* lengths or offsets that cannot be */
    SST_NOT_A_TABLE,     /* no block-based table of RocksDB ends where this file does */
    SST_VERSION,         /* a format version before 2 or after 7 */
    SST_CHECKSUM_KIND,   /* none, or one that is not known here */
    SST_CHECKSUM,        /* the bytes are not those that were written */
    SST_COMPRESSION,     /* a block that is compressed by something else than Snappy, LZ4 and zstd */
    SST_COMPARATOR,      /* keys that are not ordered by their bytes */
    SST_INDEX_KIND,      /* an index that is not known here */
    SST_RANGE_DELETIONS, /* the file has more than SST_RANGES_MAX */
    SST_INGESTED,        /* it was made outside, and has no sequence numbers for a snapshot to go by */
    SST_APART,           /* a block that keeps keys and values apart */
    SST_MERGE,           /* the newest visible version is an operand of a merge */
    SST_BLOB,            /* ... is in a blob file */
    SST_COLUMNS,         /* ... is an entity of columns */
    SST_RECORD_KIND,     /* ... is something else that is not known here */
    SST_LONG_KEY,        /* longer than SST_KEY_MAX */
    SST_LONG_BLOCK,      /* longer than SST_BLOCK_LEN_MAX, as it is stored or decompressed */
    SST_LONG_VALUE,      /* longer than the caller has room for; value_len says how long */
    SST_RANGE_EDGE,      /* a range deletion covers the key, which is the last one of its file: it may end before it */
};

/* sst_file.flags */
#define SST_INDEX_OF_USER_KEYS 1u /* the index has keys without sequence numbers */
#define SST_INDEX_OF_DELTAS 2u    /* its places are told by their difference */
#define SST_INDEX_OF_INDEXES 4u   /* it has two levels */
#define SST_INDEX_WITH_KEYS 8u    /* and the first key of each block */
#define SST_WITHOUT_SEQUENCE 16u  /* all records have sequence number 0 */
/* The caller says so of a file: by its metadata it ends with the key that is sought. A compaction that ends a file within a
   range deletion writes the whole of it there, and gives the file the first key of the next one as its last, with a
   sequence number that is before all others: the deletion ends there, but nothing in the file tells. */
#define SST_KEY_IS_LAST 32u

/* A file and what is known of it: nothing but its length, or what sst_facts said of it. */
struct sst_file {
    __u64 len;
    __u64 index_offset;
    __u32 index_len; /* 0: nothing is known, and the footer is read first */
    __u32 context;   /* that all checksums are changed by, since version 6 */
    __u8 checksum, flags;
    __u16 reason; /* enum sst_reason: it cannot be searched */
    __u32 dict_len; /* of the dictionary that data blocks are compressed with; 0: there is none */
    __u64 dict_offset;
    __u64 ranges_offset;
    __u32 ranges_len; /* of the block of range deletions; 0: there are none */
    __u32 rsvd;
};

/* sst_get: the newest version of a key that is not newer than the snapshot. The files are searched in this order, up to
   the first that has one. Behind the files is the key. */
struct sst_get {
    __u64 snapshot;
    __u32 nfiles, key_len;
    struct sst_file file[];
};

/* The result of sst_get. */
struct sst_answer {
    __u32 outcome, reason;
    __u32 file; /* the one that decided */
    __u32 value_len;
    __u64 sequence; /* of the version */
    __u8 value[];
};

/* sst_facts: takes struct sst_get without a key, gives its files with all that sst_get needs to know of them. */

#endif
