/* SPDX-License-Identifier: Apache-2.0 */
/* A writer, checkpoints, and readers that check what they read, over a database at a server.
 *
 *   stress url=URL [NAME=VALUE]...
 *
 *   how=plain|path|push      what readers do [path]
 *   layout=small|default     pages of 512 bytes, or of WiredTiger's default lengths [small]
 *   task=run|read|truncate|verify|fill
 *                            run: all together. read: readers alone, over what is there. truncate: keys in a range that was
 *                            truncated while an older snapshot is open. verify: verifies and counts. fill: writes the keys [run]
 *   wrapped=0|1              truncate: by ds_wt_truncate, as users have to [1]
 *   home=DIRECTORY          fill: a directory of this machine, without a server
 *   seconds, keys, hot, readers, cache, config
 *                            hot: only so many keys are written and read. config: of the extension
 *
 * A key's version is known within bounds: it is at least the one whose write had ended when the read began, and at most the one whose
 * write had begun when it ended. One in eight is a removal. Prints a line of JSON. Ends with 1 if anything was wrong, with 3 if
 * WiredTiger gave up. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "diskside_wiredtiger.h"

#define KEYS_MAX 1000000
#define TABLE "table:t"
#define SCAN_LEN 100

static const char *url, *home, *how = "path", *layout = "small", *task = "run", *cache = "2MB", *extra = "";
static unsigned seconds = 3, keys = 20000, hot, reader_count = 2, wrapped = 1;
static WT_CONNECTION *connection;
static atomic_uint begun[KEYS_MAX], ended[KEYS_MAX];
static atomic_bool stop;
static atomic_ulong reads, wrong, twice, scanned, written, checkpoints;

static void die(const char *what, int error)
{
    fprintf(stderr, "stress: %s: %s; diskside: %s\n", what, wiredtiger_strerror(error), ds_wt_error());
    _exit(3);
}

static void check(int error, const char *what)
{
    if (error)
        die(what, error);
}

static uint64_t dice(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state >> 11;
}

static void key_of(uint32_t number, unsigned char *key)
{
    for (int i = 0; i < 4; i++)
        key[i] = (unsigned char)(number >> (24 - 8 * i));
    memcpy(key + 4, "/a key's end", 12);
}
#define KEY_LEN 16

static bool is_removal(uint32_t version)
{
    return version % 8 == 7;
}

static size_t value_of(uint32_t number, uint32_t version, unsigned char *value)
{
    size_t len = 12 + (number * 7 + version) % 40;
    memcpy(value, &number, 4);
    memcpy(value + 4, &version, 4);
    for (size_t i = 8; i < len; i++)
        value[i] = (unsigned char)(number + version + i);
    return len;
}
#define VALUE_MAX 64

static void report_wrong(const char *what, uint32_t number, uint32_t low, int64_t found, uint32_t high)
{
    if (atomic_fetch_add(&wrong, 1) < 5)
        fprintf(stderr, "WRONG: %s: key %u is at %lld, and must be from %u to %u\n", what, number, (long long)found, low, high);
}

/* Whether a key may be so: `error` and the value are those of a search. */
static int64_t judge(const char *what, uint32_t number, uint32_t low, uint32_t high, int error, const WT_ITEM *item)
{
    if (error == WT_NOTFOUND) {
        for (uint32_t version = low; version <= high; version++)
            if (is_removal(version))
                return -1;
        report_wrong(what, number, low, -1, high);
        return -1;
    }
    unsigned char expected[VALUE_MAX];
    uint32_t version = 0;
    if (item->size >= 8)
        memcpy(&version, (const char *)item->data + 4, 4);
    size_t len = value_of(number, version, expected);
    if (len != item->size || memcmp(expected, item->data, len) || version < low || version > high || is_removal(version))
        report_wrong(what, number, low, version, high);
    return version;
}

static WT_SESSION *session_of(void)
{
    WT_SESSION *session;
    check(connection->open_session(connection, NULL, NULL, &session), "open_session");
    return session;
}

static WT_CURSOR *cursor_of(WT_SESSION *session)
{
    WT_CURSOR *cursor;
    check(session->open_cursor(session, TABLE, NULL, NULL, &cursor), "open_cursor");
    return cursor;
}

static void put(WT_CURSOR *cursor, uint32_t number, uint32_t version)
{
    unsigned char key[KEY_LEN], value[VALUE_MAX];
    key_of(number, key);
    WT_ITEM k = {.data = key, .size = KEY_LEN}, v = {.data = value, .size = value_of(number, version, value)};
    for (;;) {
        cursor->set_key(cursor, &k);
        cursor->set_value(cursor, &v);
        int error = is_removal(version) ? cursor->remove(cursor) : cursor->insert(cursor);
        if (error == WT_ROLLBACK)
            continue;
        if (error != WT_NOTFOUND)
            check(error, "write");
        break;
    }
    check(cursor->reset(cursor), "reset");
}

static void *writer(void *argument)
{
    WT_SESSION *session = session_of();
    WT_CURSOR *cursor = cursor_of(session);
    uint64_t state = 88172645463325252ull;
    (void)argument;
    while (!stop) {
        uint32_t number = (uint32_t)(dice(&state) % (hot ? hot : keys)), version = begun[number] + 1;
        begun[number] = version;
        put(cursor, number, version);
        ended[number] = version;
        written++;
    }
    check(session->close(session, NULL), "close");
    return NULL;
}

static void *checkpointer(void *argument)
{
    WT_SESSION *session = session_of();
    (void)argument;
    while (!stop) {
        check(session->checkpoint(session, NULL), "checkpoint");
        checkpoints++;
        usleep(hot ? 10000 : 100000);
    }
    check(session->close(session, NULL), "close");
    return NULL;
}

/* One search, as users make it. */
static int search(WT_SESSION *session, WT_CURSOR *cursor, uint32_t number, bool in_transaction, WT_ITEM *item)
{
    unsigned char key[KEY_LEN];
    key_of(number, key);
    WT_ITEM k = {.data = key, .size = KEY_LEN};
    cursor->set_key(cursor, &k);
    int error;
    if (strcmp(how, "plain") == 0) {
        error = cursor->search(cursor);
    } else if (strcmp(how, "push") == 0 && !in_transaction) {
        error = ds_wt_search(cursor);
    } else {
        check(ds_wt_hint(session, TABLE, key, KEY_LEN), "ds_wt_hint");
        error = cursor->search(cursor);
    }
    if (error && error != WT_NOTFOUND)
        check(error, "search");
    if (!error)
        check(cursor->get_value(cursor, item), "get_value");
    return error;
}

static void read_once(WT_SESSION *session, WT_CURSOR *cursor, uint32_t number)
{
    WT_ITEM item = {0};
    uint32_t low = ended[number];
    int error = search(session, cursor, number, false, &item);
    judge("search", number, low, begun[number], error, &item);
    reads++;
}

/* In a snapshot, a key stays as it is. */
static void read_twice(WT_SESSION *session, WT_CURSOR *cursor, uint64_t *state)
{
    uint32_t number = (uint32_t)(dice(state) % (hot ? hot : keys)), low = ended[number];
    WT_ITEM item = {0};
    check(session->begin_transaction(session, "isolation=snapshot"), "begin");
    int error = search(session, cursor, number, true, &item);
    int64_t first = judge("snapshot", number, low, begun[number], error, &item);
    for (int i = 0; i < 20; i++)
        search(session, cursor, (uint32_t)(dice(state) % keys), true, &item);
    error = search(session, cursor, number, true, &item);
    int64_t second = judge("snapshot", number, low, begun[number], error, &item);
    if (first != second)
        report_wrong("snapshot, the second time", number, (uint32_t)first, second, (uint32_t)first);
    check(cursor->reset(cursor), "reset");
    check(session->commit_transaction(session, NULL), "commit");
    twice++;
}

/* Keys in order, none twice, each with a version that it may have. */
static void scan(WT_SESSION *session, WT_CURSOR *cursor, uint32_t number)
{
    static _Thread_local uint32_t low[SCAN_LEN * 4];
    unsigned char key[KEY_LEN];
    uint32_t from = number, end = number + SCAN_LEN * 4 < keys ? number + SCAN_LEN * 4 : keys;
    for (uint32_t i = from; i < end; i++)
        low[i - from] = ended[i];
    key_of(number, key);
    WT_ITEM k = {.data = key, .size = KEY_LEN}, v;
    if (strcmp(how, "plain"))
        check(ds_wt_hint_scan(session, TABLE, key, KEY_LEN, 12), "ds_wt_hint_scan");
    cursor->set_key(cursor, &k);
    int exact, error = cursor->search_near(cursor, &exact);
    if (!error && exact < 0)
        error = cursor->next(cursor);
    for (int i = 0; i < SCAN_LEN && !error; i++) {
        check(cursor->get_key(cursor, &k), "get_key");
        check(cursor->get_value(cursor, &v), "get_value");
        const unsigned char *bytes = k.data;
        uint32_t found = (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
        if (found < number || found >= keys) {
            report_wrong("scan: order", found, number, found, keys);
            break;
        }
        if (found < end)
            judge("scan", found, low[found - from], begun[found], 0, &v);
        number = found + 1;
        scanned++;
        error = cursor->next(cursor);
    }
    if (error != WT_NOTFOUND)
        check(error, "scan");
    check(cursor->reset(cursor), "reset");
    ds_wt_hint_end(session);
}

static void *reader(void *argument)
{
    WT_SESSION *session = session_of();
    WT_CURSOR *cursor = cursor_of(session);
    uint64_t state = 0x9e3779b97f4a7c15ull * ((uintptr_t)argument + 1);
    while (!stop) {
        for (int i = 0; i < 50 && !stop; i++)
            read_once(session, cursor, (uint32_t)(dice(&state) % (hot ? hot : keys)));
        check(cursor->reset(cursor), "reset");
        if (!hot) {
            read_twice(session, cursor, &state);
            scan(session, cursor, (uint32_t)(dice(&state) % keys));
        }
    }
    check(session->close(session, NULL), "close");
    return NULL;
}

static void fill(void)
{
    const char *pages = strcmp(layout, "small") ? "" : ",allocation_size=512,internal_page_max=512,leaf_page_max=512";
    char config[256];
    WT_SESSION *session = session_of();
    snprintf(config, sizeof(config), "key_format=u,value_format=u%s", pages);
    check(session->create(session, TABLE, config), "create");
    WT_CURSOR *cursor;
    check(session->open_cursor(session, TABLE, NULL, "bulk", &cursor), "bulk");
    for (uint32_t number = 0; number < keys; number++) {
        unsigned char key[KEY_LEN], value[VALUE_MAX];
        key_of(number, key);
        WT_ITEM k = {.data = key, .size = KEY_LEN}, v = {.data = value, .size = value_of(number, 0, value)};
        cursor->set_key(cursor, &k);
        cursor->set_value(cursor, &v);
        check(cursor->insert(cursor), "insert");
    }
    check(cursor->close(cursor), "close");
    check(session->checkpoint(session, NULL), "checkpoint");
    check(session->close(session, NULL), "close");
}

static void run(bool is_written)
{
    pthread_t threads[34];
    unsigned count = 0;
    if (is_written) {
        pthread_create(&threads[count++], NULL, writer, NULL);
        pthread_create(&threads[count++], NULL, checkpointer, NULL);
    }
    for (uintptr_t i = 0; i < reader_count; i++)
        pthread_create(&threads[count++], NULL, reader, (void *)i);
    for (unsigned i = 0; i < 10 * seconds && !wrong; i++)
        usleep(100000);
    stop = true;
    for (unsigned i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
}

/* A range is truncated while a snapshot from before is open: nobody else sees its keys any more. */
static void truncate_under_snapshot(void)
{
    WT_SESSION *old = session_of(), *session = session_of(), *third = session_of();
    WT_CURSOR *at_old = cursor_of(old), *start = cursor_of(session), *end = cursor_of(session), *cursor = cursor_of(third);
    WT_ITEM item;
    unsigned char from[KEY_LEN], to[KEY_LEN];
    check(ds_wt_policy(session, TABLE, DS_WT_PUSH, 0), "ds_wt_policy");
    check(old->begin_transaction(old, "isolation=snapshot"), "begin");
    check(search(old, at_old, 1, true, &item), "search");
    key_of(keys / 4, from);
    key_of(3 * keys / 4, to);
    WT_ITEM first = {.data = from, .size = KEY_LEN}, last = {.data = to, .size = KEY_LEN};
    start->set_key(start, &first);
    end->set_key(end, &last);
    check(wrapped ? ds_wt_truncate(session, NULL, start, end, NULL) : session->truncate(session, NULL, start, end, NULL), "truncate");
    uint64_t state = 5;
    how = "push";
    for (int i = 0; i < 3000; i++) {
        uint32_t number = (uint32_t)(dice(&state) % keys);
        bool is_gone = number >= keys / 4 && number <= 3 * keys / 4;
        int error = search(third, cursor, number, false, &item);
        if ((error == WT_NOTFOUND) != is_gone)
            report_wrong("truncated", number, 0, error ? -1 : 0, 0);
        check(cursor->reset(cursor), "reset");
        reads++;
    }
    check(old->rollback_transaction(old, NULL), "rollback");
}

static void verify(void)
{
    WT_SESSION *session = session_of();
    check(session->verify(session, TABLE, NULL), "verify");
    WT_CURSOR *cursor = cursor_of(session);
    int error;
    while ((error = cursor->next(cursor)) == 0) {
        WT_ITEM key, value;
        unsigned char expected[VALUE_MAX];
        uint32_t number, version;
        check(cursor->get_key(cursor, &key), "get_key");
        check(cursor->get_value(cursor, &value), "get_value");
        memcpy(&number, value.data, 4);
        memcpy(&version, (const char *)value.data + 4, 4);
        if (value_of(number, version, expected) != value.size || memcmp(expected, value.data, value.size) || is_removal(version))
            report_wrong("verify", number, 0, version, 0);
        scanned++;
    }
    if (error != WT_NOTFOUND)
        check(error, "scan");
    check(session->close(session, NULL), "close");
}

static void print_report(void)
{
    struct ds_wt_stats s;
    ds_wt_stats(&s);
    printf("{\"reads\":%lu,\"twice\":%lu,\"scanned\":%lu,\"written\":%lu,\"checkpoints\":%lu,\"wrong\":%lu", reads, twice, scanned, written,
           checkpoints, wrong);
    printf(",\"asked\":%llu,\"served\":%llu,\"stale\":%llu,\"trips\":%llu,\"bytes\":%llu,\"paths\":%llu,\"pushed\":%llu,\"ahead\":%llu,"
           "\"reopened\":%llu,\"fallbacks\":{",
           (unsigned long long)s.reads, (unsigned long long)s.served, (unsigned long long)s.stale, (unsigned long long)s.trips,
           (unsigned long long)s.bytes, (unsigned long long)s.paths, (unsigned long long)s.pushed, (unsigned long long)s.ahead,
           (unsigned long long)s.reopened);
    const char *comma = "";
    for (unsigned i = 0; i < DS_WT_FALLBACKS; i++)
        if (s.fallbacks[i]) {
            printf("%s\"%s\":%llu", comma, ds_wt_fallback_name(i), (unsigned long long)s.fallbacks[i]);
            comma = ",";
        }
    printf("}}\n");
}

static bool take(const char *argument, const char *name, const char **value)
{
    size_t len = strlen(name);
    if (strncmp(argument, name, len) || argument[len] != '=')
        return false;
    *value = argument + len + 1;
    return true;
}

int main(int count, char **argument)
{
    for (int i = 1; i < count; i++) {
        const char *text;
        if (take(argument[i], "url", &url) || take(argument[i], "home", &home) || take(argument[i], "how", &how) || take(argument[i], "layout", &layout) ||
            take(argument[i], "task", &task) || take(argument[i], "cache", &cache) || take(argument[i], "config", &extra))
            continue;
        unsigned *number = take(argument[i], "seconds", &text)   ? &seconds
                           : take(argument[i], "keys", &text)    ? &keys
                           : take(argument[i], "hot", &text)     ? &hot
                           : take(argument[i], "readers", &text) ? &reader_count
                           : take(argument[i], "wrapped", &text) ? &wrapped
                                                                 : NULL;
        if (!number)
            return fprintf(stderr, "stress: unknown argument %s\n", argument[i]), 2;
        *number = (unsigned)strtoul(text, NULL, 10);
    }
    if (!url == !home || keys > KEYS_MAX || hot > keys || reader_count > 32)
        return fprintf(stderr, "stress: url=URL [NAME=VALUE]...\n"), 2;
    char config[2048];
    snprintf(config, sizeof(config),
             "create,cache_size=%s,statistics=(fast),extensions=[libdiskside_wiredtiger.so={entry=diskside_wiredtiger,early_load=true,"
             "config={url=\"%s\",push_old=true,%s}}]",
             cache, url, extra);
    check(home ? wiredtiger_open(home, NULL, "create,cache_size=50MB", &connection) : wiredtiger_open("db", NULL, config, &connection),
          "wiredtiger_open");
    printf("open\n");
    fflush(stdout);
    if (strcmp(task, "fill") == 0)
        fill();
    else if (strcmp(task, "truncate") == 0)
        truncate_under_snapshot();
    else if (strcmp(task, "verify") == 0)
        verify();
    if (strcmp(task, "run") == 0 || strcmp(task, "read") == 0) {
        WT_SESSION *session = session_of();
        int policy = strcmp(how, "push") == 0 ? DS_WT_PUSH : strcmp(how, "plain") == 0 ? DS_WT_OFF : DS_WT_PATH;
        check(ds_wt_policy(session, TABLE, policy, 1), "ds_wt_policy");
        run(strcmp(task, "run") == 0);
        if (strcmp(task, "run") == 0)
            check(session->checkpoint(session, NULL), "the last checkpoint");
        check(session->close(session, NULL), "close");
    }
    print_report();
    check(connection->close(connection, NULL), "close");
    return wrong ? 1 : 0;
}
