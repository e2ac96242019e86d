/* Wraps a handle of RocksDB's C interface. */
#include <diskside/rocksdb.h>
#include <rocksdb/c.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(int is_right, const char *what)
{
    if (!is_right) {
        fprintf(stderr, "wrong: %s\n", what);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    check(argc == 4, "a directory, a URL and how");
    const char *url = argv[2];
    char *error = NULL;
    rocksdb_options_t *options = rocksdb_options_create();
    rocksdb_options_set_create_if_missing(options, 1);
    rocksdb_t *db = rocksdb_open(options, argv[1], &error);
    check(!error, error);
    rocksdb_writeoptions_t *writing = rocksdb_writeoptions_create();
    rocksdb_put(db, writing, "key", 3, "value", 5, &error);
    rocksdb_flushoptions_t *flushing = rocksdb_flushoptions_create();
    rocksdb_flush(db, flushing, &error);
    check(!error, error);

    check(!ds_rocksdb_wrap(db, NULL, "diskside://nobody:x/", 0, 0, &error) && error, "a URL that is none");
    free(error);
    error = NULL;
    ds_rocksdb *reads = ds_rocksdb_wrap(db, NULL, url, 1 << 20, DS_ROCKSDB_ALWAYS, &error);
    check(!error, error);
    for (int i = 0; i < 100; i++) {
        size_t len = 0;
        char *value = ds_rocksdb_get(reads, NULL, "key", 3, &len, &error);
        check(!error && len == 5 && !memcmp(value, "value", 5), "the value");
        free(value);
        check(!ds_rocksdb_get(reads, NULL, "kez", 3, &len, &error) && !error, "no value");
        const char *keys[] = {"key", ""};
        size_t key_lens[] = {3, 0}, lens[2];
        char *values[2];
        check(!ds_rocksdb_multi_get(reads, NULL, NULL, 0, 2, keys, key_lens, values, lens, &error), "several");
        check(values[0] && lens[0] == 5 && !values[1], "several keys");
        free(values[0]);
    }
    ds_rocksdb_unwrap(reads);
    rocksdb_close(db);
    puts("well");
}
