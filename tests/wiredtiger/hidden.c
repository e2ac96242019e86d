/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that hides its WiredTiger.
 *
 *   hidden LIBWIREDTIGER EXTENSION URL     opens a database with a WiredTiger whose symbols nobody else sees
 *   hidden EXTENSION                       loads the extension into a WiredTiger that cannot be asked for its version
 */
#include <dlfcn.h>
#include <stdio.h>

static void close_nothing(void)
{
}

static void *load(const char *library)
{
    void *loaded = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!loaded)
        fprintf(stderr, "%s\n", dlerror());
    return loaded;
}

int main(int count, char **word)
{
    void *library = count > 1 ? load(word[1]) : NULL;
    if (!library)
        return 100;
    if (count == 2) {
        int (*entry)(void *, void *);
        /* As a connection of a version that has other structures: only its first function is one. */
        void *connection[] = {(void *)close_nothing, NULL};
        *(void **)&entry = dlsym(library, "diskside_wiredtiger");
        return entry(connection, NULL);
    }
    int (*open)(const char *, void *, const char *, void **);
    char config[2048];
    void *connection;
    *(void **)&open = dlsym(library, "wiredtiger_open");
    snprintf(config, sizeof(config), "create,extensions=[%s={entry=diskside_wiredtiger,early_load=true,"
                                     "config={url=\"%s\",make_directory=true}}]", word[2], word[3]);
    return open("db", NULL, config, &connection);
}
