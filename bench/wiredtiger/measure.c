/* SPDX-License-Identifier: Apache-2.0 */
/* One measurement of bench/wiredtiger/run, which says what it is.
 *
 *   measure fill DIRECTORY KEYS PAGES
 *   measure opened|steady|scan|cached URL KEYS HOW CACHE COUNT SEED LEAVES */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "diskside_wiredtiger.h"

#define TABLE "table:t"
#define KEY_LEN 16
#define VALUE_LEN 40
#define SCAN_LEN 100

static WT_CONNECTION *connection;
static WT_SESSION *session;
static WT_CURSOR *cursor;
static uint64_t keys, seed;
static unsigned leaves;
static const char *how;

static void check(int error, const char *what)
{
    if (error) {
        fprintf(stderr, "measure: %s: %s; diskside: %s\n", what, wiredtiger_strerror(error), ds_wt_error());
        exit(1);
    }
}

static double now_us(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

static uint64_t dice(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed >> 11;
}

static void key_of(uint64_t number, char *key)
{
    snprintf(key, KEY_LEN + 1, "user%012u", (unsigned)number);
}

static void value_of(uint64_t number, char *value)
{
    for (int i = 0; i < VALUE_LEN; i++)
        value[i] = (char)('a' + (number >> i % 7 * 3) % 26);
}

static void open_database(const char *home, const char *url, const char *cache)
{
    char config[1024], loaded[512] = "";
    if (url)
        snprintf(loaded, sizeof(loaded),
                 ",extensions=[libdiskside_wiredtiger.so={entry=diskside_wiredtiger,early_load=true,config={url=\"%s\",push_old=true}}]",
                 url);
    snprintf(config, sizeof(config), "create,cache_size=%s%s", cache, loaded);
    check(wiredtiger_open(home, NULL, config, &connection), "wiredtiger_open");
    check(connection->open_session(connection, NULL, NULL, &session), "open_session");
}

static void close_database(void)
{
    check(connection->close(connection, NULL), "close");
}

static void fill(const char *directory, const char *pages)
{
    char config[256], key[KEY_LEN + 1], value[VALUE_LEN];
    open_database(directory, NULL, "100MB");
    snprintf(config, sizeof(config), "key_format=u,value_format=u%s%s", *pages ? "," : "", pages);
    check(session->create(session, TABLE, config), "create");
    check(session->open_cursor(session, TABLE, NULL, "bulk", &cursor), "bulk");
    for (uint64_t number = 0; number < keys; number++) {
        key_of(number, key);
        value_of(number, value);
        WT_ITEM k = {.data = key, .size = KEY_LEN}, v = {.data = value, .size = VALUE_LEN};
        cursor->set_key(cursor, &k);
        cursor->set_value(cursor, &v);
        check(cursor->insert(cursor), "insert");
    }
    check(cursor->close(cursor), "close");
    close_database();
}

static void open_table(const char *url, const char *cache)
{
    open_database("db", url, cache);
    int policy = strcmp(how, "push") == 0 ? DS_WT_PUSH : strcmp(how, "plain") == 0 ? DS_WT_OFF : DS_WT_PATH;
    check(ds_wt_policy(session, TABLE, policy, 1), "ds_wt_policy");
    check(session->open_cursor(session, TABLE, NULL, NULL, &cursor), "open_cursor");
}

static void search(uint64_t number)
{
    char key[KEY_LEN + 1], value[VALUE_LEN];
    key_of(number, key);
    WT_ITEM k = {.data = key, .size = KEY_LEN}, found;
    cursor->set_key(cursor, &k);
    if (strcmp(how, "path") == 0)
        check(ds_wt_hint(session, TABLE, key, KEY_LEN), "ds_wt_hint");
    check(strcmp(how, "push") == 0 ? ds_wt_search(cursor) : cursor->search(cursor), "search");
    check(cursor->get_value(cursor, &found), "get_value");
    value_of(number, value);
    if (found.size != VALUE_LEN || memcmp(found.data, value, VALUE_LEN))
        check(EINVAL, "a wrong value");
}

static void scan(uint64_t number)
{
    char key[KEY_LEN + 1];
    key_of(number, key);
    WT_ITEM k = {.data = key, .size = KEY_LEN}, found;
    cursor->set_key(cursor, &k);
    if (strcmp(how, "plain"))
        check(ds_wt_hint_scan(session, TABLE, key, KEY_LEN, leaves), "ds_wt_hint_scan");
    check(cursor->search(cursor), "search");
    for (int i = 1; i < SCAN_LEN; i++) {
        check(cursor->next(cursor), "next");
        check(cursor->get_value(cursor, &found), "get_value");
    }
    ds_wt_hint_end(session);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int count, char **argument)
{
    if (count == 5 && strcmp(argument[1], "fill") == 0) {
        keys = strtoull(argument[3], NULL, 10);
        fill(argument[2], argument[4]);
        return 0;
    }
    if (count != 9)
        return fprintf(stderr, "measure: see bench/wiredtiger/run\n"), 2;
    const char *task = argument[1], *url = argument[2], *cache = argument[5];
    keys = strtoull(argument[3], NULL, 10);
    how = argument[4];
    size_t rounds = strtoull(argument[6], NULL, 10);
    leaves = (unsigned)strtoul(argument[8], NULL, 10);
    seed = strtoull(argument[7], NULL, 10) * 0x9e3779b97f4a7c15ull + 1;
    double *times = calloc(rounds, sizeof(*times)), total = 0;
    struct ds_wt_stats before, after;
    uint64_t trips = 0, bytes = 0, fallbacks = 0;
    int is_opened = strcmp(task, "opened") == 0, is_scan = strcmp(task, "scan") == 0, is_cached = strcmp(task, "cached") == 0;
    if (!is_opened) {
        open_table(url, cache);
        /* The cache is as it stays. */
        for (size_t i = 0; i < (is_cached ? 2 * keys : rounds); i++)
            is_scan ? scan(dice() % (keys - SCAN_LEN)) : search(is_cached ? i % keys : dice() % keys);
    }
    for (size_t i = 0; i < rounds; i++) {
        if (is_opened)
            open_table(url, cache);
        uint64_t number = dice() % (keys - SCAN_LEN);
        ds_wt_stats(&before);
        double began = now_us();
        if (is_cached) /* several, as the clock takes as long as one */
            for (int k = 0; k < 100; k++)
                search((number + 7919 * k) % keys);
        else
            is_scan ? scan(number) : search(number);
        times[i] = (now_us() - began) / (is_cached ? 100 : 1);
        ds_wt_stats(&after);
        total += times[i];
        trips += after.trips - before.trips;
        bytes += after.bytes - before.bytes;
        for (int k = 0; k < DS_WT_FALLBACKS; k++)
            fallbacks += after.fallbacks[k] - before.fallbacks[k];
        if (is_opened)
            close_database();
    }
    if (!is_opened)
        close_database();
    qsort(times, rounds, sizeof(*times), compare);
    printf("{\"trips\":%.3f,\"bytes\":%.1f,\"mean_us\":%.3f,\"p50_us\":%.3f,\"fallbacks\":%llu}\n", (double)trips / rounds,
           (double)bytes / rounds, total / rounds, times[rounds / 2], (unsigned long long)fallbacks);
    return 0;
}
