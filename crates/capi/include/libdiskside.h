/* libdiskside: files and functions, here and at storage servers.
 *
 * What returns a pointer returns NULL on failure; what returns a number returns a negative errno. ds_error()
 * then says in words what failed, where, and why, for the calling thread.
 *
 * Objects may be used by several threads at once. Free each once, in any order; a request keeps alive what
 * it needs. Strings are UTF-8 and end with a NUL.
 */
#ifndef LIBDISKSIDE_H
#define LIBDISKSIDE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ds_session ds_session;
typedef struct ds_function ds_function;
typedef struct ds_file ds_file;
typedef struct ds_request ds_request;

/* What ds_file_open opens for. */
enum { DS_READ = 0, DS_WRITE = 1, DS_CREATE = 2 };

/* Where a function runs: where it is faster, with the caller, or with the data. */
enum { DS_AUTO = 0, DS_HOST = 1, DS_DEVICE = 2 };

/* What failed last in this thread; "" if nothing did. Valid until the thread's next call. */
const char *ds_error(void);

/* What kind of failure that was, the same wherever the function ran; 0 if nothing failed. Of a function that was
 * stopped, ds_error() names the place in the input, the instruction and the source line. */
enum {
    DS_FAILED_USAGE = 1,       /* the call is wrong */
    DS_FAILED_ENVIRONMENT = 2, /* a file, the network, a target, memory */
    DS_FAILED_TRAP = 3,        /* the function made an access that it must not make */
    DS_FAILED_BUDGET = 4,      /* it used up its loop iterations */
    DS_FAILED_DEADLINE = 5,    /* it ran until its deadline */
    DS_FAILED_OUTPUT_FULL = 6, /* more output than there is room for */
    DS_FAILED_RETURNED = 7,    /* the function itself returned an error */
    DS_FAILED_REFUSED = 8,     /* it cannot be run there */
    DS_FAILED_CHANGED = 9      /* the file changed while it was read */
};
int ds_error_kind(void);

/* A session keeps connections, and up to cache_len bytes of what it read. */
ds_session *ds_session_new(uint64_t cache_len);
void ds_session_free(ds_session *session);

/* A shipped function's name, FILE.o[:NAME], or FILE.c[:NAME] to compile. */
ds_function *ds_function_find(ds_session *session, const char *what);
/* From the bytes of an object; name may be NULL if there is one function in it. */
ds_function *ds_function_load(ds_session *session, const void *object, size_t len, const char *name);
/* Arguments "name=value" as the bytes of the function's structure. Returns their number; nothing is written
 * beyond cap. */
ssize_t ds_function_args(const ds_function *function, const char *const *pairs, size_t count, void *args, size_t cap);
void ds_function_free(ds_function *function);

/* A path, diskside://HOST[:PORT]/EXPORT/PATH, or nvme-tcp://HOST[:PORT]/NQN/NSID. */
ds_file *ds_file_open(ds_session *session, const char *path, int mode);
int64_t ds_file_len(const ds_file *file);
int ds_file_sync(const ds_file *file);
int ds_file_truncate(const ds_file *file, uint64_t len);
void ds_file_free(ds_file *file);

/* As pread(2) and pwrite(2). */
ssize_t ds_pread(const ds_file *file, void *buffer, size_t len, uint64_t offset);
ssize_t ds_pwrite(const ds_file *file, const void *buffer, size_t len, uint64_t offset);

/* Runs a function over len bytes at offset (UINT64_MAX: to the end) and copies its result, of which there may
 * be cap bytes. Returns the result's length; -ENOBUFS if it is longer than cap. */
ssize_t ds_pread_fn(const ds_file *file, void *result, size_t cap, uint64_t offset, uint64_t len,
                    const ds_function *function, const void *args, size_t args_len, int where);
/* Runs a function over the buffer and writes its output at offset, onto stable media if durable is not 0.
 * Returns the output's length. */
ssize_t ds_pwrite_fn(const ds_file *file, const void *buffer, size_t len, uint64_t offset,
                     const ds_function *function, const void *args, size_t args_len, int where, int durable);

/* The same without waiting. Buffers are copied when they are submitted, results when they are taken. */
ds_request *ds_submit_pread(const ds_file *file, size_t len, uint64_t offset);
ds_request *ds_submit_pwrite(const ds_file *file, const void *buffer, size_t len, uint64_t offset);
ds_request *ds_submit_pread_fn(const ds_file *file, uint64_t offset, uint64_t len, const ds_function *function,
                               const void *args, size_t args_len, int where);
ds_request *ds_submit_pwrite_fn(const ds_file *file, const void *buffer, size_t len, uint64_t offset,
                                const ds_function *function, const void *args, size_t args_len, int where, int durable);
/* 1 if the request is done, else 0. */
int ds_poll(const ds_request *request);
/* Waits, copies the result (result may be NULL if cap is 0), and frees the request. Returns the length of what was read or written. */
ssize_t ds_wait(ds_request *request, void *result, size_t cap);
/* Gives a request up. It may still take effect. */
void ds_request_free(ds_request *request);

#ifdef __cplusplus
}
#endif
#endif
