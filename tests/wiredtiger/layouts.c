/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a table in each of several layouts, and says what WiredTiger itself finds in it.
 *
 *   layouts DIRECTORY KEYS LOOKUPS [SNAPPY_EXTENSION|builtin]
 *
 * Lines: `table NAME ALLOCATION ROOT`, ROOT being the address cookie of the last checkpoint, and `KEY VALUE` in hexadecimal digits,
 * VALUE being - for a key that is not there. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wiredtiger.h>

#define VALUE_MAX 60000

static void check(int error, const char *what)
{
    if (error) {
        fprintf(stderr, "layouts: %s: %s\n", what, wiredtiger_strerror(error));
        exit(1);
    }
}

struct layout {
    const char *name, *config;
    int allocation;
    enum { PLAIN, REPEATED, LONG, SNAPPY, TIMED } values;
};

static const struct layout LAYOUTS[] = {
    {"small", "allocation_size=512,internal_page_max=512,leaf_page_max=512,internal_key_max=128,leaf_key_max=128", 512, PLAIN},
    {"prefix", "allocation_size=512,internal_page_max=512,leaf_page_max=1024,internal_key_max=128,leaf_key_max=128,prefix_compression=true", 512, PLAIN},
    {"four", "internal_page_max=4KB,leaf_page_max=4KB", 4096, PLAIN},
    {"default", "internal_page_max=4KB,leaf_page_max=32KB", 4096, PLAIN},
    {"large", "internal_page_max=32KB,leaf_page_max=32KB,prefix_compression=true", 4096, PLAIN},
    {"dictionary", "allocation_size=512,internal_page_max=512,leaf_page_max=4KB,internal_key_max=128,dictionary=100", 512, REPEATED},
    {"overflow", "allocation_size=512,internal_page_max=512,leaf_page_max=2KB,internal_key_max=128,leaf_value_max=256", 512, LONG},
    {"snappy", "internal_page_max=4KB,leaf_page_max=32KB,block_compressor=snappy,checksum=on", 4096, SNAPPY},
    {"times", "internal_page_max=4KB,leaf_page_max=4KB", 4096, TIMED},
};

static uint64_t mixed(uint64_t x)
{
    x = (x ^ x >> 31) * 0x7fb5d329728ea185ull;
    x = (x ^ x >> 27) * 0x81dadef4bc2dd44dull;
    return x ^ x >> 33;
}

static size_t key_of(uint64_t number, char *key)
{
    return (size_t)sprintf(key, "key%08llu%s", (unsigned long long)number, number % 13 ? "" : "-and-a-longer-end-of-the-key-than-others-"
                                                                                                "have-so-that-its-length-is-stored-apart");
}

static size_t longest = 12000;

/* Empty ones, short ones, those that need more than a byte of length, and of one layout those that have a block of their own. */
static size_t value_of(const struct layout *layout, uint64_t number, uint64_t version, char *value)
{
    uint64_t seed = mixed(layout->values == REPEATED ? number % 7 : number * 3 + version);
    size_t len = number % 11 == 0 ? 0 : 3 + seed % 120;
    if (layout->values == LONG && number % 5 == 0)
        len = 300 + seed % (number % 50 ? 2000 : longest - 400);
    for (size_t i = 0; i < len; i++)
        value[i] = (char)('a' + (layout->values == SNAPPY ? i / 9 % 5 : mixed(seed + i) % 26));
    return len;
}

static void print_hex(const void *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        printf("%02x", ((const unsigned char *)bytes)[i]);
}

static void write_table(WT_SESSION *session, const struct layout *layout, const char *uri, uint64_t keys)
{
    static char value[VALUE_MAX];
    char key[256], config[256];
    WT_CURSOR *cursor;
    snprintf(config, sizeof(config), "key_format=u,value_format=u,%s", layout->config);
    check(session->create(session, uri, config), layout->name);
    check(session->open_cursor(session, uri, NULL, NULL, &cursor), uri);
    for (int version = 0; version < 2; version++) {
        char time[64];
        snprintf(time, sizeof(time), "commit_timestamp=%x", version + 10);
        if (layout->values == TIMED)
            check(session->begin_transaction(session, "isolation=snapshot"), "begin");
        for (uint64_t number = 0; number < keys; number += version ? 3 : 1) {
            WT_ITEM k = {.data = key, .size = key_of(number, key)}, v = {.data = value};
            cursor->set_key(cursor, &k);
            if (version && number % 2) {
                check(cursor->remove(cursor), "remove");
                continue;
            }
            v.size = value_of(layout, number, (uint64_t)version, value);
            cursor->set_value(cursor, &v);
            check(cursor->insert(cursor), "insert");
        }
        if (layout->values == TIMED)
            check(session->commit_transaction(session, time), "commit");
        check(session->checkpoint(session, NULL), "checkpoint");
    }
    check(cursor->close(cursor), "close");
}

static void say_root(WT_SESSION *session, const struct layout *layout)
{
    char file[64];
    const char *config;
    WT_CURSOR *metadata;
    snprintf(file, sizeof(file), "file:%s.wt", layout->name);
    check(session->open_cursor(session, "metadata:", NULL, NULL, &metadata), "metadata");
    metadata->set_key(metadata, file);
    check(metadata->search(metadata), file);
    check(metadata->get_value(metadata, &config), file);
    const char *addr = NULL;
    for (const char *at = config; (at = strstr(at, "(addr=\"")); at++)
        addr = at + 7;
    printf("table %s %d %.*s\n", layout->name, layout->allocation, (int)strcspn(addr, "\""), addr);
    check(metadata->close(metadata), "close");
}

static void look(WT_SESSION *session, const char *uri, uint64_t keys, uint64_t lookups)
{
    WT_CURSOR *cursor;
    char key[256];
    check(session->open_cursor(session, uri, NULL, NULL, &cursor), uri);
    for (uint64_t i = 0; i < lookups; i++) {
        uint64_t number = lookups >= keys + 20 ? i : mixed(i) % (keys + 20);
        WT_ITEM k = {.data = key, .size = key_of(number, key)}, v;
        if (i % 9 == 8)
            key[--k.size] ^= 1; /* a key between two, or before or behind all */
        if (i % 301 == 300)
            k.size = i % 602 == 300 ? 1 : 2;
        cursor->set_key(cursor, &k);
        int error = cursor->search(cursor);
        print_hex(k.data, k.size);
        if (error == WT_NOTFOUND) {
            printf(" -\n");
            continue;
        }
        check(error, "search");
        check(cursor->get_value(cursor, &v), "value");
        printf(" ");
        print_hex(v.data, v.size);
        printf("\n");
    }
    check(cursor->close(cursor), "close");
}

int main(int count, char **argument)
{
    WT_CONNECTION *connection;
    WT_SESSION *session;
    char config[1024];
    if (count < 4)
        return fprintf(stderr, "layouts DIRECTORY KEYS LOOKUPS [SNAPPY_EXTENSION]\n"), 2;
    uint64_t keys = strtoull(argument[2], NULL, 10), lookups = strtoull(argument[3], NULL, 10);
    if (keys >= 1000)
        longest = VALUE_MAX;
    bool is_loaded = count > 4 && strcmp(argument[4], "builtin") != 0;
    snprintf(config, sizeof(config), "create,cache_size=50MB%s%s%s", is_loaded ? ",extensions=[" : "", is_loaded ? argument[4] : "",
             is_loaded ? "]" : "");
    check(wiredtiger_open(argument[1], NULL, config, &connection), "open");
    check(connection->open_session(connection, NULL, NULL, &session), "session");
    for (size_t i = 0; i < sizeof(LAYOUTS) / sizeof(LAYOUTS[0]); i++) {
        const struct layout *layout = &LAYOUTS[i];
        char uri[64];
        snprintf(uri, sizeof(uri), "table:%s", layout->name);
        if (layout->values == SNAPPY && count < 5)
            continue;
        write_table(session, layout, uri, keys);
        say_root(session, layout);
        look(session, uri, keys, lookups);
    }
    check(connection->close(connection, NULL), "close");
    return 0;
}
