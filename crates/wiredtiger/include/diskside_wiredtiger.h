/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libdiskside_wiredtiger: databases of WiredTiger in a directory that a server exports. docs/wiredtiger.md explains it.
 *
 * WiredTiger loads the library itself:
 *
 *   wiredtiger_open("db", NULL,
 *       "create,extensions=[libdiskside_wiredtiger.so={entry=diskside_wiredtiger,early_load=true,"
 *       "config={url=\"diskside://server/data/db\"}}]", &connection);
 *
 * All functions below are optional. They return 0 or an errno, and may be called from any thread; a hint is the thread's own.
 * ds_wt_error gives the reason.
 */
#ifndef DISKSIDE_WIREDTIGER_H
#define DISKSIDE_WIREDTIGER_H

#include <stddef.h>
#include <stdint.h>
#include <wiredtiger.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The entry point of the extension. */
int diskside_wiredtiger(WT_CONNECTION *connection, WT_CONFIG_ARG *config);

/*
 * The next reads of this thread look for this key of this table ("table:NAME" or "file:NAME.wt"), until the next hint or
 * ds_wt_hint_end. A key is as wiredtiger_struct_pack makes it, one of format u as it is. A hint is a guess: if it is wrong, reads
 * are slower, and never wrong. ENOENT: no such table of a database that this library has open.
 */
int ds_wt_hint(WT_SESSION *session, const char *uri, const void *key, size_t key_len);

/* The same; after the key the thread will read on, over about so many leaf pages. */
int ds_wt_hint_scan(WT_SESSION *session, const char *uri, const void *key, size_t key_len, unsigned leaves);

int ds_wt_hint_end(WT_SESSION *session);

/*
 * WT_CURSOR::search with a hint of the cursor's key. For tables with the policy DS_WT_PUSH the server may look the key up: then
 * the cursor has the value, valid until the next call in this thread, but no position (`next` begins at the first key). Only
 * outside of explicit transactions, and not for cursors on checkpoints: the value is the newest committed one.
 */
int ds_wt_search(WT_CURSOR *cursor);

/* What is done with reads of a table. */
#define DS_WT_OFF 0  /* each is a read at the server */
#define DS_WT_PATH 1 /* with a hint, all blocks on the way to the key are read together, as long as they are several (default) */
#define DS_WT_PUSH 2 /* ds_wt_search looks keys up at the server */

/*
 * `sample_percent` of the searches that DS_WT_PUSH could push are made by WiredTiger, which keeps their pages (1 is a good number).
 * The caller of DS_WT_PUSH promises that ranges of the table are never truncated, but by ds_wt_truncate. EINVAL, and ds_wt_error says
 * which: they were; the table has a collator, Huffman's code, encryption or several column groups; or it belongs to a
 * WiredTiger before 10, and the extension was loaded without `push_old=true`. It ends when the table is dropped.
 */
int ds_wt_policy(WT_SESSION *session, const char *uri, int policy, unsigned sample_percent);

/* WT_SESSION::truncate, after which keys of the table's files are not looked up at the server any more. */
int ds_wt_truncate(WT_SESSION *session, const char *uri, WT_CURSOR *start, WT_CURSOR *stop, const char *config);

/* Why a lookup or a path was not made at the server: indexes of ds_wt_stats.fallbacks. ds_wt_fallback_name gives their names. */
#define DS_WT_FALLBACKS 32

/* Counts of all databases of this process, since it began. */
struct ds_wt_stats {
    uint64_t reads;         /* by WiredTiger */
    uint64_t served;        /* from what was read before they asked */
    uint64_t stale;         /* not served so, because it had been written meanwhile */
    uint64_t trips;         /* of reads, paths, lookups and scans */
    uint64_t bytes;         /* that these brought */
    uint64_t paths;         /* trips with the way to a key */
    uint64_t pushed;        /* keys that were looked up at the server */
    uint64_t ahead;         /* trips with leaf pages of a scan */
    uint64_t writes, written_bytes, syncs;
    uint64_t reopened;      /* files, after their server was lost */
    uint64_t fallbacks[DS_WT_FALLBACKS];
};

int ds_wt_stats(struct ds_wt_stats *stats);
const char *ds_wt_fallback_name(unsigned index); /* NULL: there is no such reason */

/* The reason of this thread's last error; valid until the next one. */
const char *ds_wt_error(void);

#ifdef __cplusplus
}
#endif
#endif
