/* SPDX-License-Identifier: Apache-2.0 */
/* The part that knows WiredTiger's structures, which differ from version to version: it is compiled with the header of the one that
 * loads it. It does no work of its own. */
#include "glue.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <wiredtiger.h>
#include <wiredtiger_ext.h>

/* A function of the program that loads the library, if it shows it. */
extern const char *wiredtiger_version(int *major, int *minor, int *patch) __attribute__((weak));

struct file_system {
    WT_FILE_SYSTEM of_wiredtiger; /* first: WiredTiger gives a pointer to it back */
    void *space;
    WT_EXTENSION_API *api;
};

struct file {
    WT_FILE_HANDLE of_wiredtiger;
    void *file;
    WT_EXTENSION_API *api;
};

static int say(WT_EXTENSION_API *api, WT_SESSION *session, int error)
{
    if (error)
        api->err_printf(api, session, "diskside: %s", dsw_error());
    return error;
}

#define SPACE(fs) (((struct file_system *)(fs))->space)
#define SAY(fs, session, error) say(((struct file_system *)(fs))->api, session, error)
#define FILE_OF(handle) (((struct file *)(handle))->file)

static int list(WT_FILE_SYSTEM *fs, WT_SESSION *session, const char *directory, const char *prefix, char ***names, uint32_t *count,
                bool single)
{
    struct dsw_names found = {0};
    int error = dsw_list(SPACE(fs), directory, prefix, single, &found);
    *names = found.name;
    *count = found.count;
    return SAY(fs, session, error);
}

static int list_all(WT_FILE_SYSTEM *fs, WT_SESSION *session, const char *directory, const char *prefix, char ***names,
                    uint32_t *count)
{
    return list(fs, session, directory, prefix, names, count, false);
}

static int list_single(WT_FILE_SYSTEM *fs, WT_SESSION *session, const char *directory, const char *prefix, char ***names,
                       uint32_t *count)
{
    return list(fs, session, directory, prefix, names, count, true);
}

static int list_free(WT_FILE_SYSTEM *fs, WT_SESSION *session, char **names, uint32_t count)
{
    for (uint32_t i = 0; names && i < count; i++)
        free(names[i]);
    free(names);
    return 0;
}

static int exists(WT_FILE_SYSTEM *fs, WT_SESSION *session, const char *name, bool *found)
{
    return SAY(fs, session, dsw_exists(SPACE(fs), name, found));
}

static int size(WT_FILE_SYSTEM *fs, WT_SESSION *session, const char *name, wt_off_t *len)
{
    int64_t found = 0;
    int error = dsw_size(SPACE(fs), name, &found);
    *len = found;
    return error == ENOENT ? error : SAY(fs, session, error);
}

static int remove_file(WT_FILE_SYSTEM *fs, WT_SESSION *session, const char *name, uint32_t flags)
{
    return SAY(fs, session, dsw_remove(SPACE(fs), name, flags & WT_FS_DURABLE));
}

static int rename_file(WT_FILE_SYSTEM *fs, WT_SESSION *session, const char *from, const char *to, uint32_t flags)
{
    return SAY(fs, session, dsw_rename(SPACE(fs), from, to, flags & WT_FS_DURABLE));
}

static int terminate(WT_FILE_SYSTEM *fs, WT_SESSION *session)
{
    dsw_close(SPACE(fs));
    free(fs);
    return 0;
}

static int file_close(WT_FILE_HANDLE *handle, WT_SESSION *session)
{
    dsw_close_file(FILE_OF(handle));
    free(handle->name);
    free(handle);
    return 0;
}

static int file_lock(WT_FILE_HANDLE *handle, WT_SESSION *session, bool lock)
{
    return say(((struct file *)handle)->api, session, dsw_lock(FILE_OF(handle), lock));
}

static int file_read(WT_FILE_HANDLE *handle, WT_SESSION *session, wt_off_t offset, size_t len, void *to)
{
    int error = dsw_read(FILE_OF(handle), (uint64_t)offset, len, to);
    /* This error is one that a search returns as it is, and that ends no transaction. */
    return error == 1 ? WT_PREPARE_CONFLICT : say(((struct file *)handle)->api, session, error);
}

static int file_size(WT_FILE_HANDLE *handle, WT_SESSION *session, wt_off_t *len)
{
    int64_t found = 0;
    int error = dsw_file_size(FILE_OF(handle), &found);
    *len = found;
    return error;
}

static int file_sync(WT_FILE_HANDLE *handle, WT_SESSION *session)
{
    return say(((struct file *)handle)->api, session, dsw_sync(FILE_OF(handle)));
}

static int file_truncate(WT_FILE_HANDLE *handle, WT_SESSION *session, wt_off_t len)
{
    return say(((struct file *)handle)->api, session, dsw_truncate_file(FILE_OF(handle), (uint64_t)len));
}

static int file_write(WT_FILE_HANDLE *handle, WT_SESSION *session, wt_off_t offset, size_t len, const void *from)
{
    return say(((struct file *)handle)->api, session, dsw_write(FILE_OF(handle), (uint64_t)offset, len, from));
}

static int open_file(WT_FILE_SYSTEM *fs, WT_SESSION *session, const char *name, WT_FS_OPEN_FILE_TYPE type, uint32_t flags,
                     WT_FILE_HANDLE **opened)
{
    struct file *file = calloc(1, sizeof(*file));
    unsigned how = (flags & WT_FS_OPEN_CREATE ? DSW_CREATE : 0) | (flags & WT_FS_OPEN_EXCLUSIVE ? DSW_EXCLUSIVE : 0) |
                   (flags & WT_FS_OPEN_READONLY ? DSW_READONLY : 0) | (flags & WT_FS_OPEN_DURABLE ? DSW_DURABLE : 0) |
                   (type == WT_FS_OPEN_FILE_TYPE_DATA || type == WT_FS_OPEN_FILE_TYPE_CHECKPOINT ? DSW_DATA : 0) |
                   (type == WT_FS_OPEN_FILE_TYPE_DIRECTORY ? DSW_DIRECTORY : 0);
    if (!file || !(file->of_wiredtiger.name = strdup(name))) {
        free(file);
        return ENOMEM;
    }
    int error = dsw_open_file(SPACE(fs), name, how, &file->file);
    if (error) {
        free(file->of_wiredtiger.name);
        free(file);
        return error == ENOENT ? error : SAY(fs, session, error);
    }
    file->api = ((struct file_system *)fs)->api;
    WT_FILE_HANDLE *handle = &file->of_wiredtiger;
    handle->file_system = fs;
    handle->close = file_close;
    handle->fh_lock = file_lock;
    handle->fh_read = file_read;
    handle->fh_size = file_size;
    handle->fh_sync = file_sync;
    handle->fh_truncate = file_truncate;
    handle->fh_write = file_write;
    *opened = handle;
    return 0;
}

/* Takes the configuration's values; one that is not there stays as it is. */
static int configure(WT_EXTENSION_API *api, WT_CONFIG_ARG *config, struct dsw_config *to)
{
    WT_CONFIG_PARSER *parser;
    WT_CONFIG_ITEM key, value;
    int error = api->config_parser_open_arg(api, NULL, config, &parser);
    if (error)
        return error;
    while ((error = parser->next(parser, &key, &value)) == 0) {
#define IS(text) (key.len == sizeof(text) - 1 && memcmp(key.str, text, key.len) == 0)
        if (IS("url")) {
            to->url = value.str;
            to->url_len = value.len;
        } else if (IS("timeout") && value.val > 0 && value.val <= 3600) {
            to->timeout_s = (unsigned)value.val;
        } else if (IS("takeover")) {
            to->takeover = value.val != 0;
        } else if (IS("make_directory")) {
            to->make_directory = value.val != 0;
        } else if (IS("push_old")) {
            to->push = to->push || value.val != 0;
#ifdef DSW_CONTROLS
        } else if (IS("unlogged")) {
            to->unlogged = value.val != 0;
        } else if (IS("late")) {
            to->late = value.val != 0;
#endif
        } else {
            api->err_printf(api, NULL, "diskside: config={%.*s=%.*s}: unknown, or not a value that it can have", (int)key.len,
                            key.str, (int)value.len, value.str);
            parser->close(parser);
            return EINVAL;
        }
#undef IS
    }
    parser->close(parser);
    return error == WT_NOTFOUND ? 0 : error;
}

int dswc_init(void *loaded, void *arguments)
{
    WT_CONNECTION *connection = loaded;
    WT_EXTENSION_API *api = connection->get_extension_api(connection);
    struct dsw_config config = {
        .connection = connection,
        .home = connection->get_home(connection),
        .timeout_s = 30,
        .push = WIREDTIGER_VERSION_MAJOR >= 10,
    };
    int major = WIREDTIGER_VERSION_MAJOR, minor = WIREDTIGER_VERSION_MINOR, patch;
    if (wiredtiger_version)
        wiredtiger_version(&major, &minor, &patch);
    if (major != WIREDTIGER_VERSION_MAJOR || minor != WIREDTIGER_VERSION_MINOR) {
        api->err_printf(api, NULL, "diskside: this is WiredTiger %d.%d, the library was built for %d.%d: build it with that header",
                        major, minor, WIREDTIGER_VERSION_MAJOR, WIREDTIGER_VERSION_MINOR);
        return EINVAL;
    }
    int error = configure(api, arguments, &config);
    if (error)
        return error;
    struct file_system *fs = calloc(1, sizeof(*fs));
    if (!fs)
        return ENOMEM;
    fs->api = api;
    error = say(api, NULL, dsw_open(&config, &fs->space));
    if (error) {
        free(fs);
        return error;
    }
    WT_FILE_SYSTEM *of_wiredtiger = &fs->of_wiredtiger;
    of_wiredtiger->fs_directory_list = list_all;
    of_wiredtiger->fs_directory_list_single = list_single;
    of_wiredtiger->fs_directory_list_free = list_free;
    of_wiredtiger->fs_exist = exists;
    of_wiredtiger->fs_open_file = open_file;
    of_wiredtiger->fs_remove = remove_file;
    of_wiredtiger->fs_rename = rename_file;
    of_wiredtiger->fs_size = size;
    of_wiredtiger->terminate = terminate;
    return connection->set_file_system(connection, of_wiredtiger, NULL);
}

/* A value as it is stored, whatever its format. */
static void set_raw_value(WT_CURSOR *cursor, const void *bytes, size_t len)
{
    WT_ITEM item = {.data = bytes, .size = len};
    uint64_t was_raw = cursor->flags & WT_CURSTD_RAW;
    cursor->flags |= WT_CURSTD_RAW;
    cursor->set_value(cursor, &item);
    if (!was_raw)
        cursor->flags &= ~WT_CURSTD_RAW;
}

int dswc_search(void *of_caller)
{
    WT_CURSOR *cursor = of_caller;
    const char *uri = cursor->internal_uri ? cursor->internal_uri : cursor->uri;
    const void *value = NULL;
    size_t value_len = 0;
    bool is_hinted = cursor->flags & WT_CURSTD_KEY_SET && strncmp(uri, "file:", 5) == 0 && cursor->key_format[0] != 'r' &&
                     dsw_hint(cursor->session->connection, uri, cursor->key.data, cursor->key.size, 0, true) == 0;
    int error = cursor->search(cursor);
    int is_answered = is_hinted ? dsw_hint_end(&value, &value_len) : 0;
    if (error != WT_PREPARE_CONFLICT || !is_answered)
        return error;
    if (is_answered == 2)
        return cursor->search(cursor);
    if (!value)
        return WT_NOTFOUND;
    set_raw_value(cursor, value, value_len);
    return 0;
}

int dswc_truncate(void *of_caller, const char *uri, void *start, void *stop, const char *config)
{
    WT_SESSION *session = of_caller;
    WT_CURSOR *cursor = start ? start : stop;
    if (!uri && !cursor)
        return EINVAL;
    dsw_truncated(session->connection, uri ? uri : cursor->uri);
    return session->truncate(session, uri, start, stop, config);
}

const void *dswc_connection(void *session)
{
    return ((WT_SESSION *)session)->connection;
}
