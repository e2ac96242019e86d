/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads of RocksDB at the storage server, for C; rocksdb.hpp is for C++. Link with -ldiskside_rocksdb -lrocksdb.
 *
 * Handles are those of RocksDB's own C interface (rocksdb/c.h): rocksdb_t, rocksdb_column_family_handle_t and
 * rocksdb_snapshot_t. Every call trusts its caller that they are valid, that arrays and buffers are as long as is said, and that strings
 * end with a NUL. Any number of threads call at a time. Values and errors are freed with free(); an error is NULL before a call.
 */
#ifndef DISKSIDE_ROCKSDB_H
#define DISKSIDE_ROCKSDB_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ds_rocksdb ds_rocksdb;

#define DS_ROCKSDB_ALWAYS 1u

/*
 * Reads of an open database (rocksdb_t *), whose directory is on a volume that is mounted here; url is NULL then, or the volume's. Or it
 * is in an export: then url is diskside://SERVER/EXPORT/DIRECTORY, and directory may be NULL. values_bytes: so many bytes of values of
 * the server are kept in memory; 0: none. NULL and an error if the server cannot be used.
 *
 * Reads go to the server where that is faster, as it is measured, or with DS_ROCKSDB_ALWAYS in any case.
 *
 * Not for databases with WRITE_PREPARED or WRITE_UNPREPARED transactions.
 */
ds_rocksdb *ds_rocksdb_wrap(void *db, const char *directory, const char *url, uint64_t values_bytes, uint32_t flags,
                            char **error);
/* Before the database is closed, when no call is under way. */
void ds_rocksdb_unwrap(ds_rocksdb *reads);

/* As rocksdb_get_cf: the value, or NULL. family NULL is the default one. */
char *ds_rocksdb_get(ds_rocksdb *reads, void *family, const char *key, size_t key_len, size_t *value_len, char **error);

/* Values of so many keys in one round trip: 0, or -1 and an error. values[i] is NULL where there is none. snapshot may be NULL. */
int ds_rocksdb_multi_get(ds_rocksdb *reads, void *family, const void *snapshot, uint64_t sequence, size_t count,
                         const char *const *keys, const size_t *key_lens, char **values, size_t *value_lens,
                         char **error);

/* For callers with options of their own: a read that ends with DS_ROCKSDB_LOCAL they make themselves, and tell of it. */
enum { DS_ROCKSDB_FOUND, DS_ROCKSDB_ABSENT, DS_ROCKSDB_LOCAL };

struct ds_rocksdb_read {
    char *value; /* if it is found */
    size_t value_len;
    uint64_t local, began_ns; /* of nobody else's interest */
};

/* One of those above, or -1 and an error. sequence is the snapshot's, if there is one. */
int ds_rocksdb_try_get(ds_rocksdb *reads, void *family, const void *snapshot, uint64_t sequence, const char *key,
                       size_t key_len, struct ds_rocksdb_read *read, char **error);
void ds_rocksdb_was_local(ds_rocksdb *reads, const struct ds_rocksdb_read *read, const char *key, size_t key_len,
                          size_t value_len);

struct ds_rocksdb_counters {
    uint64_t in_memory, at_server; /* who had the answer */
    uint64_t plain;                /* RocksDB made the read, which is faster */
    uint64_t sampled;              /* ... to keep its cache warm */
    uint64_t fallbacks;            /* ... since the server could not decide */
};
void ds_rocksdb_get_counters(ds_rocksdb *reads, struct ds_rocksdb_counters *counters);

#ifdef __cplusplus
}
#endif
#endif
