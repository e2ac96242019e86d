/* SPDX-License-Identifier: Apache-2.0 */
/* The part that knows WiredTiger's structures, which differ from version to version: it is compiled with the header of the one that
 * loads it. It does no work of its own. */
#define _GNU_SOURCE
#include "glue.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wiredtiger.h>
#include <wiredtiger_ext.h>

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

/*
 * The structures differ from version to version, and nothing in them tells which one it is. `wiredtiger_version` does, of the library
 * or program that the connection's first function is in: its symbols need not be those that this library sees.
 */
static bool find_version(void *const *connection, int version[3])
{
    union {
        void *address;
        const char *(*function)(int *, int *, int *);
    } found = {NULL};
    Dl_info module, found_in;
    if (!dladdr(connection[0], &module) || !module.dli_fname)
        return false;
    /* A program may not be found by its path. */
    void *handles[] = {dlopen(module.dli_fname, RTLD_LAZY | RTLD_NOLOAD), dlopen(NULL, RTLD_LAZY)};
    for (int i = 0; i < 2; i++) {
        if (!handles[i])
            continue;
        void *symbol = found.address ? NULL : dlsym(handles[i], "wiredtiger_version");
        /* Two WiredTigers may be there. */
        if (symbol && dladdr(symbol, &found_in) && found_in.dli_fbase == module.dli_fbase)
            found.address = symbol;
        dlclose(handles[i]);
    }
    if (found.address)
        found.function(&version[0], &version[1], &version[2]);
    return found.address;
}

/* Before this has succeeded nothing of the connection can be used, not even to print. */
static int check_version(void *const *connection)
{
    const int own[3] = {WIREDTIGER_VERSION_MAJOR, WIREDTIGER_VERSION_MINOR, WIREDTIGER_VERSION_PATCH};
    const char *told = getenv("DISKSIDE_WIREDTIGER_VERSION");
    int is[3] = {0};
    if (!find_version(connection, is) && (!told || sscanf(told, "%d.%d.%d", &is[0], &is[1], &is[2]) != 3)) {
        fprintf(stderr,
                "diskside: cannot tell which WiredTiger this is: the program hides its function wiredtiger_version. The library was "
                "built for %d.%d.%d; if it is that one, set DISKSIDE_WIREDTIGER_VERSION=%d.%d.%d, else build it with its header\n",
                own[0], own[1], own[2], own[0], own[1], own[2]);
        return EINVAL;
    }
    if (memcmp(is, own, sizeof(own)) == 0)
        return 0;
    fprintf(stderr, "diskside: this is WiredTiger %d.%d.%d, the library was built for %d.%d.%d: build it with that header\n", is[0],
            is[1], is[2], own[0], own[1], own[2]);
    return EINVAL;
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
    int error = check_version(loaded);
    if (error)
        return error;
    WT_CONNECTION *connection = loaded;
    WT_EXTENSION_API *api = connection->get_extension_api(connection);
    struct dsw_config config = {
        .connection = connection,
        .home = connection->get_home(connection),
        .timeout_s = 30,
        .push = WIREDTIGER_VERSION_MAJOR >= 10,
    };
    error = configure(api, arguments, &config);
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

/* ---- Tables --------------------------------------------------------------------------------- */

/* A cursor on WiredTiger's metadata: its keys are URIs, its values their configurations. */
static int open_metadata(WT_SESSION *session, WT_CURSOR **cursor)
{
    return session->open_cursor(session, "metadata:", NULL, NULL, cursor);
}

typedef int visit(void *of, WT_SESSION *session, const char *file, const char *config);

static int refuse(const char *uri, const char *why)
{
    dsw_refuse(uri, why);
    return EINVAL;
}

/* Calls `each` for the file that is the source of a part of a table. */
static int visit_source(WT_SESSION *session, WT_CURSOR *metadata, const char *part, const char *config, visit *each, void *of)
{
    WT_EXTENSION_API *api = session->connection->get_extension_api(session->connection);
    WT_CONFIG_ITEM source;
    char file[1024];
    const char *of_file;
    if (api->config_get_string(api, session, config, "source", &source) || source.len < 6 || source.len >= sizeof(file) ||
        memcmp(source.str, "file:", 5) != 0)
        return refuse(part, "its data is not in a file");
    memcpy(file, source.str, source.len);
    file[source.len] = 0;
    metadata->set_key(metadata, file);
    int error = metadata->search(metadata);
    if (!error)
        error = metadata->get_value(metadata, &of_file);
    return error ? error : each(of, session, file + 5, of_file);
}

/* Calls `each` for the parts of a table whose URIs begin so: "colgroup:NAME", "index:NAME". They end there, or have names. */
static int visit_parts(WT_SESSION *session, const char *kind, const char *name, visit *each, void *of)
{
    WT_CURSOR *parts, *metadata;
    char begin[1024];
    int order, len = snprintf(begin, sizeof(begin), "%s:%s", kind, name);
    if (len >= (int)sizeof(begin))
        return refuse(name, "the name is too long");
    int error = open_metadata(session, &parts);
    if (error)
        return error;
    error = open_metadata(session, &metadata);
    if (!error) {
        parts->set_key(parts, begin);
        error = parts->search_near(parts, &order);
        if (!error && order < 0)
            error = parts->next(parts);
        while (!error) {
            const char *part, *config;
            if ((error = parts->get_key(parts, &part)) || (error = parts->get_value(parts, &config)) ||
                strncmp(part, begin, (size_t)len) != 0)
                break;
            if (!part[len] || part[len] == ':')
                error = visit_source(session, metadata, part, config, each, of);
            if (!error)
                error = parts->next(parts);
        }
        metadata->close(metadata);
    }
    parts->close(parts);
    return error == WT_NOTFOUND ? 0 : error;
}

/* Calls `each` for the files below a table, a part of one, or for the file itself. */
static int visit_files(WT_SESSION *session, const char *uri, bool with_indexes, visit *each, void *of)
{
    WT_CURSOR *metadata;
    const char *config;
    char plain[1024];
    /* A cursor on some columns of a table. */
    size_t len = strcspn(uri, "(");
    if (len >= sizeof(plain))
        return refuse(uri, "the name is too long");
    memcpy(plain, uri, len);
    plain[len] = 0;
    if (strncmp(plain, "table:", 6) != 0 && strncmp(plain, "file:", 5) != 0 && strncmp(plain, "colgroup:", 9) != 0)
        return refuse(uri, "name a table as table:NAME or file:NAME.wt");
    int error = open_metadata(session, &metadata);
    if (error)
        return error;
    metadata->set_key(metadata, plain);
    error = metadata->search(metadata);
    if (!error)
        error = metadata->get_value(metadata, &config);
    if (error == WT_NOTFOUND) {
        dsw_refuse(uri, "the database has none of this name");
        error = ENOENT;
    } else if (!error && strncmp(plain, "file:", 5) == 0) {
        error = each(of, session, plain + 5, config);
    } else if (!error && strncmp(plain, "colgroup:", 9) == 0) {
        char *copy = strdup(config);
        error = copy ? visit_source(session, metadata, plain, copy, each, of) : ENOMEM;
        free(copy);
    } else if (!error) {
        error = visit_parts(session, "colgroup", plain + 6, each, of);
        if (!error && with_indexes)
            error = visit_parts(session, "index", plain + 6, each, of);
    }
    metadata->close(metadata);
    return error;
}

/* The one file of a table. */
struct one_file {
    char *name; /* of DSW_NAME_LEN bytes */
    int count;
    bool pushed;
    const char *why; /* its keys cannot be looked up at the server */
};

/* Why the functions at the server would read this file wrong. A setting that this version does not have is not found. */
static const char *why_not_pushed(WT_SESSION *session, const char *config)
{
    static const struct {
        const char *key, *harmless, *why;
    } settings[] = {
        {"collator", "none", "it has a collator: a server knows only the order of bytes"},
        {"huffman_key", "none", "its keys are encoded (huffman_key)"},
        {"huffman_value", "none", "its values are encoded (huffman_value)"},
        {"encryption.name", "none", "it is encrypted"},
    };
    WT_EXTENSION_API *api = session->connection->get_extension_api(session->connection);
    WT_CONFIG_ITEM value;
    for (size_t i = 0; i < sizeof(settings) / sizeof(*settings); i++) {
        int error = api->config_get_string(api, session, config, settings[i].key, &value);
        if (error && error != WT_NOTFOUND)
            return "its configuration cannot be read";
        if (!error && value.len && (value.len != strlen(settings[i].harmless) || memcmp(value.str, settings[i].harmless, value.len)))
            return settings[i].why;
    }
    if (api->config_get_string(api, session, config, "key_format", &value) == 0 && value.len == 1 && *value.str == 'r')
        return "it is a column store";
    return NULL;
}

static int take_one(void *of, WT_SESSION *session, const char *file, const char *config)
{
    struct one_file *one = of;
    if (one->count++ || strlen(file) >= DSW_NAME_LEN)
        return 0;
    strcpy(one->name, file);
    one->why = one->pushed ? why_not_pushed(session, config) : NULL;
    return 0;
}

int dswc_file_of(void *of_caller, const char *uri, bool pushed, char *name)
{
    WT_SESSION *session = of_caller;
    struct one_file one = {.name = name, .pushed = pushed};
    int error = visit_files(session, uri, false, take_one, &one);
    if (error)
        return error;
    if (one.why)
        return refuse(uri, one.why);
    return one.count == 1 ? 0 : refuse(uri, "it has column groups: name one, as colgroup:TABLE:NAME");
}

static int mark_truncated(void *of, WT_SESSION *session, const char *file, const char *config)
{
    return dsw_truncated(session->connection, file);
}

int dswc_truncate(void *of_caller, const char *uri, void *start, void *stop, const char *config)
{
    WT_SESSION *session = of_caller;
    WT_CURSOR *cursor = start ? start : stop;
    if (!uri && !cursor)
        return refuse("truncate", "name the table, or give a cursor");
    const char *of = uri ? uri : cursor->uri;
    /* The log, for instance, has no keys. */
    bool is_table = strncmp(of, "log:", 4) != 0;
    int error = is_table ? visit_files(session, of, true, mark_truncated, NULL) : 0;
    return error ? error : session->truncate(session, uri, start, stop, config);
}

/* ---- Searches ------------------------------------------------------------------------------- */

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
                     dsw_hint(cursor->session, cursor->session->connection, uri, cursor->key.data, cursor->key.size, 0, true) == 0;
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

const void *dswc_connection(void *session)
{
    return ((WT_SESSION *)session)->connection;
}
