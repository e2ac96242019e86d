/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts in C and in Rust call of each other (glue.c, ffi.rs). */
#ifndef DISKSIDE_WIREDTIGER_GLUE_H
#define DISKSIDE_WIREDTIGER_GLUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Flags of dsw_open_file. */
#define DSW_CREATE 1u
#define DSW_EXCLUSIVE 2u
#define DSW_READONLY 4u
#define DSW_DURABLE 8u
#define DSW_DATA 16u
#define DSW_DIRECTORY 32u

struct dsw_config {
    const void *connection;
    const char *url, *home;
    size_t url_len;
    unsigned timeout_s;
    bool takeover, make_directory, push;
    bool unlogged, late; /* mistakes, which the stress test has to find (feature `controls`) */
};

struct dsw_names {
    char **name; /* each of malloc, like the list */
    uint32_t count;
};

/* In Rust. All return 0 or an errno. */
int dsw_open(const struct dsw_config *config, void **space);
void dsw_close(void *space);
const char *dsw_error(void);
int dsw_list(void *space, const char *directory, const char *prefix, bool single, struct dsw_names *names);
int dsw_exists(void *space, const char *name, bool *exists);
int dsw_size(void *space, const char *name, int64_t *size);
int dsw_remove(void *space, const char *name, bool durable);
int dsw_rename(void *space, const char *from, const char *to, bool durable);
int dsw_open_file(void *space, const char *name, unsigned flags, void **file);
void dsw_close_file(void *file);
int dsw_lock(void *file, bool lock);
/* 1: refused, because the thread's search was answered at the server. */
int dsw_read(void *file, uint64_t offset, size_t len, void *to);
int dsw_write(void *file, uint64_t offset, size_t len, const void *from);
int dsw_file_size(void *file, int64_t *size);
int dsw_truncate_file(void *file, uint64_t len);
int dsw_sync(void *file);
int dsw_hint(void *session, const void *connection, const char *uri, const void *key, size_t key_len, unsigned ahead, bool may_push);
/* The end of the hint. 1: the search was answered: *value is its value, or NULL. 2: not, though it was refused. */
int dsw_hint_end(const void **value, size_t *value_len);
int dsw_policy(void *session, const void *connection, const char *uri, int policy, unsigned sample_percent);
/* Keys of this file are not looked up any more. */
int dsw_truncated(const void *connection, const char *file);
/* Sets the words of ds_wt_error. */
void dsw_refuse(const char *uri, const char *why);

/* Room for the name of a file. */
#define DSW_NAME_LEN 1024

/* In C; pointers to WiredTiger's structures have no type in Rust. */
int dswc_init(void *connection, void *config);
int dswc_search(void *cursor);
int dswc_truncate(void *session, const char *uri, void *start, void *stop, const char *config);
/* The file of a table; EINVAL if it has several, or with `pushed` if a server would read it wrong. */
int dswc_file_of(void *session, const char *uri, bool pushed, char *name);
const void *dswc_connection(void *session);

#endif
