/* SPDX-License-Identifier: Apache-2.0 */
/*
 * WiredTiger, step by step: each line of the standard input is one step, its words parted by tabs, and each is answered by one line:
 * the result of the step, what it counted, and the library's error, parted by tabs. tests/wiredtiger/lab.py (Steps) drives it.
 */
#include <diskside_wiredtiger.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static WT_CONNECTION *connection;
static WT_SESSION *session;

static int backwards(WT_COLLATOR *collator, WT_SESSION *of, const WT_ITEM *a, const WT_ITEM *b, int *compared)
{
    size_t len = a->size < b->size ? a->size : b->size;
    int order = memcmp(a->data, b->data, len);
    *compared = order > 0 ? -1 : order < 0 ? 1 : 0;
    return 0;
}

static WT_COLLATOR collator = {.compare = backwards};

static int say(int error, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("%d\t", error);
    vprintf(format, arguments);
    printf("\t%s\n", error ? ds_wt_error() : "");
    fflush(stdout);
    va_end(arguments);
    return error;
}

static int open_database(const char *config, const char *extension)
{
    char whole[4096];
    snprintf(whole, sizeof(whole), "create,%s,extensions=[libdiskside_wiredtiger.so={entry=diskside_wiredtiger,early_load=true,"
                                   "config={%s}}]", config, extension);
    int error = wiredtiger_open("db", NULL, whole, &connection);
    if (!error)
        error = connection->add_collator(connection, "backwards", &collator, NULL);
    return error ? error : connection->open_session(connection, NULL, NULL, &session);
}

static void make(char *key, char *value, int number, int version)
{
    sprintf(key, "key%08d", number);
    sprintf(value, "value %d of %d, which is text in the English language", version, number);
}

/* Each key in a transaction of its own, which ends with this configuration. */
static int put(const char *uri, int from, int to, int version, const char *commit, int *done)
{
    WT_CURSOR *cursor;
    char key[32], value[128];
    int first = session->open_cursor(session, uri, NULL, NULL, &cursor);
    if (first)
        return first;
    for (int number = from; number < to; number++) {
        make(key, value, number, version);
        int error = session->begin_transaction(session, "isolation=snapshot");
        if (!error) {
            cursor->set_key(cursor, key);
            cursor->set_value(cursor, value);
            error = cursor->insert(cursor);
            if (!error)
                error = session->commit_transaction(session, *commit ? commit : NULL);
            else
                session->rollback_transaction(session, NULL);
        }
        if (error && !first)
            first = error;
        *done += !error;
    }
    cursor->close(cursor);
    return first;
}

struct found {
    int right, absent, wrong;
};

static int get(const char *uri, int from, int to, int version, bool hinted, struct found *found)
{
    WT_CURSOR *cursor;
    char key[32], value[128];
    int first = session->open_cursor(session, uri, NULL, NULL, &cursor);
    if (first)
        return first;
    for (int number = from; number < to; number++) {
        const char *got = NULL;
        make(key, value, number, version);
        cursor->set_key(cursor, key);
        int error = hinted ? ds_wt_search(cursor) : cursor->search(cursor);
        if (!error)
            error = cursor->get_value(cursor, &got);
        if (error == WT_NOTFOUND)
            found->absent++;
        else if (error)
            first = first ? first : error;
        else if (strcmp(got, value) == 0)
            found->right++;
        else
            found->wrong++;
        cursor->reset(cursor);
    }
    cursor->close(cursor);
    return first;
}

static int cut(const char *uri, int from, int to)
{
    WT_CURSOR *start, *stop;
    char first[32], last[32], value[128];
    int error = session->open_cursor(session, uri, NULL, NULL, &start);
    if (error)
        return error;
    error = session->open_cursor(session, uri, NULL, NULL, &stop);
    if (!error) {
        make(first, value, from, 0);
        start->set_key(start, first);
        make(last, value, to, 0);
        stop->set_key(stop, last);
        error = ds_wt_truncate(session, NULL, start, stop, NULL);
        stop->close(stop);
    }
    start->close(start);
    return error;
}

static pthread_barrier_t barrier;

static void *flush(void *result)
{
    WT_SESSION *own;
    int *error = result;
    *error = connection->open_session(connection, NULL, NULL, &own);
    pthread_barrier_wait(&barrier);
    if (!*error)
        *error = own->log_flush(own, "sync=on");
    pthread_barrier_wait(&barrier);
    return NULL;
}

/* Two threads sync the log at a time. */
static void flush_twice(int errors[2])
{
    pthread_t threads[2];
    pthread_barrier_init(&barrier, NULL, 2);
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, flush, &errors[i]);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&barrier);
}

static void step(char **word)
{
#define IS(name) (strcmp(word[0], name) == 0)
    if (IS("open")) {
        say(open_database(word[1], word[2]), "");
    } else if (IS("create")) {
        say(session->create(session, word[1], word[2]), "");
    } else if (IS("drop")) {
        say(session->drop(session, word[1], NULL), "");
    } else if (IS("put")) {
        int done = 0, error = put(word[1], atoi(word[2]), atoi(word[3]), atoi(word[4]), word[5], &done);
        say(error, "%d", done);
    } else if (IS("get") || IS("look")) {
        struct found found = {0};
        int error = get(word[1], atoi(word[2]), atoi(word[3]), atoi(word[4]), IS("look"), &found);
        say(error, "%d\t%d\t%d", found.right, found.absent, found.wrong);
    } else if (IS("flush")) {
        say(session->log_flush(session, word[1]), "");
    } else if (IS("flush-twice")) {
        int errors[2];
        flush_twice(errors);
        say(0, "%d\t%d", errors[0], errors[1]);
    } else if (IS("checkpoint")) {
        say(session->checkpoint(session, NULL), "");
    } else if (IS("policy")) {
        say(ds_wt_policy(session, word[1], atoi(word[2]), 0), "");
    } else if (IS("truncate")) {
        say(cut(word[1], atoi(word[2]), atoi(word[3])), "");
    } else if (IS("timestamp")) {
        say(connection->set_timestamp(connection, word[1]), "");
    } else if (IS("stats")) {
        struct ds_wt_stats stats;
        ds_wt_stats(&stats);
        uint64_t fallbacks = 0;
        for (int i = 0; i < DS_WT_FALLBACKS; i++)
            fallbacks += stats.fallbacks[i];
        say(0, "%lu\t%lu\t%lu\t%lu", (unsigned long)stats.reads, (unsigned long)stats.trips, (unsigned long)stats.pushed,
            (unsigned long)fallbacks);
    } else if (IS("close")) {
        say(connection->close(connection, NULL), "");
    } else {
        say(EINVAL, "unknown step %s", word[0]);
    }
}

int main(void)
{
    static char line[8192];
    while (fgets(line, sizeof(line), stdin)) {
        char *rest = line, *word[8] = {0};
        line[strcspn(line, "\n")] = 0;
        for (int i = 0; i < 8; i++)
            word[i] = rest ? strsep(&rest, "\t") : "";
        step(word);
    }
    /* The database is left as it is, as by a process that was killed. */
    _Exit(0);
}
