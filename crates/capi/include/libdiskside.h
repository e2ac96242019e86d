/* libdiskside: files and functions, here and at storage servers.
 *
 * Functions that return a pointer return NULL on failure; those that return a number, a negative errno. ds_error()
 * then says in words what failed, where, and why, for the calling thread.
 *
 * Objects may be used by several threads at once. Free each once, in any order; NULL is nothing to free. A
 * request keeps alive what it needs. Strings are UTF-8 and end with a NUL.
 *
 * This file is made of the library's source.
 */

#ifndef LIBDISKSIDE_H
#define LIBDISKSIDE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

// The kind of failure, the same wherever the function ran.
typedef enum ds_failed {
    // The call is wrong.
    DS_FAILED_USAGE = 1,
    // A file, the network, a target, memory.
    DS_FAILED_ENVIRONMENT = 2,
    // The function made an access that it must not make.
    DS_FAILED_TRAP = 3,
    // It used up its loop iterations.
    DS_FAILED_BUDGET = 4,
    // It ran until its deadline.
    DS_FAILED_DEADLINE = 5,
    // More output than there is room for.
    DS_FAILED_OUTPUT_FULL = 6,
    // The function itself returned an error.
    DS_FAILED_RETURNED = 7,
    // It cannot be run there.
    DS_FAILED_REFUSED = 8,
    // The file changed while it was read.
    DS_FAILED_CHANGED = 9,
    // The request was cancelled.
    DS_FAILED_CANCELLED = 10,
} ds_failed;

// What stopped a function.
typedef enum ds_trap_kind {
    // Nothing did: it returned an error.
    DS_TRAP_NONE = 0,
    // An access outside its region.
    DS_TRAP_OUT_OF_BOUNDS = 1,
    // An access to an address that no region covers, NULL among them.
    DS_TRAP_UNMAPPED = 2,
    // A write to what it may only read.
    DS_TRAP_READ_ONLY = 3,
    // An atomic operation at an address that is not a multiple of its size.
    DS_TRAP_MISALIGNED = 4,
    // It used up its loop iterations.
    DS_TRAP_BUDGET = 5,
    // The deadline passed.
    DS_TRAP_DEADLINE = 6,
    // The request was cancelled.
    DS_TRAP_CANCELLED = 7,
    // A helper refused its arguments.
    DS_TRAP_HELPER = 8,
} ds_trap_kind;

// What ds_file_open opens for.
typedef enum ds_mode {
    // Reading.
    DS_READ = 0,
    // Reading and writing; it must be there.
    DS_WRITE = 1,
    // Reading and writing; it is made if it is not there.
    DS_CREATE = 2,
} ds_mode;

// Where a function runs.
typedef enum ds_place {
    // Where it is faster, or on both sides.
    DS_AUTO = 0,
    // With the caller.
    DS_HOST = 1,
    // With the data.
    DS_DEVICE = 2,
} ds_place;

// What runs a function.
typedef enum ds_tier {
    // What is there first, then what is fastest.
    DS_TIER_BEST = 0,
    // The interpreter.
    DS_TIER_INTERPRETER = 1,
    // The compiler that is ready at once.
    DS_TIER_CRANELIFT = 2,
    // The compiler that makes vectors; the call waits for it.
    DS_TIER_LLVM = 3,
} ds_tier;

// The unit of division: none is cut in two.
typedef enum ds_split {
    // What the function declares.
    DS_SPLIT_FUNCTION = 0,
    // Every byte: the input may be cut anywhere.
    DS_SPLIT_ANYWHERE = 1,
    // After so many bytes as `split_at` says.
    DS_SPLIT_LENGTH = 2,
    // After the byte that `split_at` is, for instance '\n'.
    DS_SPLIT_BYTE = 3,
    // All of the input: the function is called once.
    DS_SPLIT_WHOLE = 4,
} ds_split;

// Whether input that is compressed is decompressed: then offsets, lengths and ranges count decompressed bytes.
typedef enum ds_decompress {
    // The function is given the bytes as they are.
    DS_DECOMPRESS_NONE = 0,
    // Files and streams are whose first bytes say that they are compressed.
    DS_DECOMPRESS_AUTO = 1,
    // All input is gzip.
    DS_DECOMPRESS_GZIP = 2,
    // All input is zstd.
    DS_DECOMPRESS_ZSTD = 3,
} ds_decompress;

// Whether the header of a file is left out: then offsets, lengths and ranges count the bytes behind it.
typedef enum ds_header {
    // The function is given all bytes.
    DS_HEADER_NONE = 0,
    // That of a file that begins with one of a known format: NumPy's .npy.
    DS_HEADER_AUTO = 1,
    // All input is of NumPy's format.
    DS_HEADER_NPY = 2,
} ds_header;

// Which accesses of a kernel go straight to its files, past its buffer.
typedef enum ds_direct {
    // Those that are whole slices.
    DS_DIRECT_POSSIBLE = 0,
    // None.
    DS_DIRECT_OFF = 1,
    // All, with the slices around them.
    DS_DIRECT_ALL = 2,
} ds_direct;

// Flags of ds_options.
typedef enum ds_flags {
    // What is written is on stable media before the call ends.
    DS_DURABLE = 1,
    // The device runs it only when nothing else is to do.
    DS_BACKGROUND = 2,
    // Results of chunks and of files stand one after another, although the function could combine them.
    DS_NO_COMBINE = 4,
    // The host folds the results of all pieces itself: the device gives each as it is.
    DS_FOLD_HERE = 8,
} ds_flags;

// How sure a function over a file on a mounted volume has to be of the file's blocks.
typedef enum ds_proof {
    // A lease: nobody writes while it runs.
    DS_PROOF_LEASE = 0,
    // Comparing extents and times, for files that are always open for writing: ordinary changes are noticed, and nothing is
    // proved.
    DS_PROOF_DETECT = 1,
} ds_proof;

// A file here, a file of an export, or a volume.
typedef struct ds_file ds_file;

// A function, to be run here and at targets.
typedef struct ds_function ds_function;

// A function that reads and writes files itself: of kind kernel.
typedef struct ds_kernel ds_kernel;

// A function over a range of a file, ready to be called often.
typedef struct ds_prepared ds_prepared;

// A request under way.
typedef struct ds_request ds_request;

// A result, and how it came to be.
typedef struct ds_result ds_result;

// Connections to targets, what was read of their files, and what was measured of functions.
typedef struct ds_session ds_session;

// A function that follows pointers: of kind traverse or xrp.
typedef struct ds_traversal ds_traversal;

// Where a function was stopped. Set `size` before the call: later versions add fields at the end.
typedef struct ds_trap {
    // sizeof(ds_trap).
    size_t size;
    // A ds_trap_kind.
    int32_t kind;
    // Which instruction of its code, counted in slots of 8 bytes.
    uint32_t insn;
    // First byte of the input that it was given, in the file.
    uint64_t from;
    // End of that input.
    uint64_t to;
    // What it returned.
    int64_t returned;
} ds_trap;

// How a session works. Begin with all zero except `size`; zero selects the defaults below. Later versions add fields
// at the end; `size` says which are there.
typedef struct ds_session_options {
    // sizeof(ds_session_options).
    size_t size;
    // Bytes of files at targets that are kept; 0: none.
    uint64_t cache_len;
    // How DS_AUTO chooses: "adaptive", or as lambda-IO does, "lambda-io" or "lambda-io:n=N,k=K", measuring the first K of every
    // N requests on both sides; NULL: adaptive.
    const char *policy;
    // A directory where ds_session_save_learnt keeps what was measured, for the next session; NULL: nowhere.
    const char *learnt_directory;
    // Volumes that local files may be on, nvme-tcp://HOST[:PORT]/NQN/NSID, beside those that the kernel tells of.
    const char *const *mounted_volumes;
    // How many those are.
    size_t mounted_volume_count;
    // The NQN to connect as; NULL: this machine's.
    const char *host_nqn;
    // A ds_proof.
    int32_t mounted_proof;
    // Must be 0.
    uint32_t reserved;
    // Instances that read and write the session's files of this machine, each one io_uring with threads of its own; 0: 1.
    uint32_t instances;
    // Threads of an instance: 1, or 2, of which one submits and the other completes; 0: 1.
    uint32_t instance_threads;
    // Requests of an instance that are in flight at once; 0: 128.
    uint32_t in_flight_max;
    // Requests that wait for an instance, before submitting another sleeps; 0: 4096.
    uint32_t staging_max;
    // A kernel thread submits, and sleeps after so many milliseconds without work; 0: none does.
    uint32_t sq_poll_ms;
    // 1: the device is polled for completions, which only files opened with O_DIRECT can be; 0: it interrupts.
    uint32_t io_poll;
    // How many microseconds a thread polls before it sleeps; 0: 100.
    uint32_t spin_us;
    // Must be 0.
    uint32_t reserved_too;
} ds_session_options;

// How a function is to run. Begin with all zero except `size`; zero selects the defaults below: `ds_options options =
// { .size = sizeof options, .place = DS_DEVICE };`. Later versions add fields at the end; `size` says which are there.
typedef struct ds_options {
    // sizeof(ds_options).
    size_t size;
    // A ds_place.
    int32_t place;
    // A ds_tier.
    int32_t tier;
    // Any of ds_flags.
    uint32_t flags;
    // Threads on the host, and the most at the device; 0: 1.
    uint32_t threads;
    // Bytes of a chunk, rounded to whole records; 0: what suits the function, 4 MiB at most.
    uint64_t chunk_len;
    // Loop iterations that a chunk may take; 0: 4 a byte, at least 16 Mi.
    uint64_t budget;
    // Milliseconds that the call may take; 0: as many as it wants.
    uint64_t deadline_ms;
    // Most bytes of a result; 0: 64 MiB.
    uint64_t result_len_max;
    // A ds_split.
    int32_t split;
    // Length of a record, or the byte that ends it.
    uint32_t split_at;
    // The named state that the function works with (DS_STATE in its source); NULL: none. At a target all calls of this host
    // that name it share it, on the host those of the session.
    const char *state;
    // Bytes of that state.
    uint64_t state_len;
    // A ds_decompress.
    int32_t decompress;
    // A ds_header.
    int32_t header;
    // Where in each file a run over files begins. Calls that are given a range begin there.
    uint64_t offset;
    // How many bytes of each file a run over files is given; 0: all behind the offset.
    uint64_t length;
    // Bytes that the function may have allocated at one time; 0: 16 MiB.
    uint64_t heap_len;
    // Chunks that are read ahead besides one for each thread, at most 64; 0: the usual, UINT32_MAX: none.
    uint32_t depth;
    // A ds_direct: of a kernel.
    int32_t direct;
    // The blocks of its result that a kernel gives back, unless it decides otherwise: bit i % 8 of byte i / 8 is 1 for block i,
    // of 4096 bytes. NULL: all.
    const uint8_t *result_blocks;
    // Bytes of that mask; blocks that it has no bit for are held back.
    uint64_t result_blocks_len;
} ds_options;

// The statistics of a request. Times are sums over its parts, which may have run at the same time; total_ns is from
// the request to the result. Set `size` before the call: later versions add fields at the end.
typedef struct ds_stats {
    // sizeof(ds_stats).
    size_t size;
    // Bytes that the function was given.
    uint64_t input_bytes;
    // Bytes that it gave back, before its results were combined.
    uint64_t output_bytes;
    // Bytes of output that were written to a file.
    uint64_t written_bytes;
    // Bytes that were sent to targets, without the protocol's headers.
    uint64_t sent_bytes;
    // Bytes that came from targets.
    uint64_t received_bytes;
    // Loop iterations.
    uint64_t iterations;
    // Waiting for an engine.
    uint64_t queue_ns;
    // Waiting for input.
    uint64_t wait_ns;
    // In the function.
    uint64_t run_ns;
    // From the request to the result.
    uint64_t total_ns;
    // Steps of a function that follows pointers.
    uint64_t hops;
    // Lines that the function logged beyond those that are kept.
    uint64_t log_dropped;
    // The return value of a function of kind `delilah` over its last chunk; 0 for others.
    uint64_t returned;
    // Folding results with the function's `combine`, here and at targets that tell.
    uint64_t fold_ns;
} ds_stats;

// A part of a request, which ran on one side. Texts live as long as the result. Set `size` before the call: later
// versions add fields at the end.
typedef struct ds_part {
    // sizeof(ds_part).
    size_t size;
    // Which file, or which files with commas between them.
    const char *name;
    // First byte of its range.
    uint64_t from;
    // End of its range.
    uint64_t to;
    // Why it ran there, in a word: "told", "effects", "link_lost", "no_compute", "in_place", "many_files", "unmeasured",
    // "hinted", "profiling", "faster", "tie", "faster_together", "tried"; "here" if the data is here, so that there is no choice;
    // "refused" if it could not run at the target of a mounted volume.
    const char *reason;
    // The same in a sentence, with what was expected of each side.
    const char *why;
    // The tier that ran it: "interp", "cranelift" or "llvm"; "" if a device does not say.
    const char *tier;
    // DS_HOST or DS_DEVICE.
    int32_t place;
    // Always 0.
    uint32_t reserved;
    // Bytes that the function was given.
    uint64_t input_bytes;
    // Bytes that it gave back.
    uint64_t output_bytes;
    // Loop iterations.
    uint64_t iterations;
    // Waiting for an engine.
    uint64_t queue_ns;
    // Waiting for input.
    uint64_t wait_ns;
    // In the function.
    uint64_t run_ns;
    // In all.
    uint64_t total_ns;
    // Folding the results of its pieces with the function's `combine`; 0 if a device does not tell.
    uint64_t fold_ns;
} ds_part;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The last failure in this thread, with its subject, and for a function the place in the input, the instruction and
// the source line; "" if nothing failed. Valid until the thread's next call.
const char *ds_error(void);

// The kind of that failure: a ds_failed; 0 if nothing failed.
int ds_error_kind(void);

// Fills in where the function was stopped and returns 1, if that is what failed last in this thread; else 0.
int ds_error_trap(struct ds_trap *trap);

// A session that keeps up to cache_len bytes of what it reads of files at targets.
struct ds_session *ds_session_new(uint64_t cache_len);

// A session that works as the options say.
struct ds_session *ds_session_new_with(const struct ds_session_options *options);

// Keeps what was measured of functions at targets in the session's learnt_directory, for the next session; without one it
// does nothing.
int ds_session_save_learnt(const struct ds_session *session);

// Zeroes len bytes of a named state from offset on; UINT64_MAX: to its end. The state is the one that this host has at
// the target that url names (diskside://HOST[:PORT]), or with NULL the one of calls on the host. While a call uses the
// state, this comes behind it and before the next.
int ds_state_clear(const struct ds_session *session, const char *url, const char *name, uint64_t offset, uint64_t len);

// How many requests were placed so, or for such a reason: by one of the words that ds_part has in `reason`, by a
// plan ("host", "device", "split", "both"), or all of them ("all"). Only requests with a choice are counted.
int64_t ds_session_count(const struct ds_session *session, const char *what);

// Writes what the session counts as text in the format of OpenMetrics, without a zero at its end, and returns its length in
// bytes: decisions, what is kept, and what the connections to each server did. -ENOBUFS: text_cap bytes do not suffice; it is some
// kilobytes long, and grows with servers.
int64_t ds_session_metrics(const struct ds_session *session,
                           char *text,
                           size_t text_cap);

// Frees a session; what came from it keeps alive what it needs.
void ds_session_free(struct ds_session *session);

// Finds a function: a shipped one by its name, FILE.o[:NAME], or FILE.c[:NAME] to compile.
struct ds_function *ds_function_find(struct ds_session *session, const char *what);

// Takes a function from the bytes of an object; name may be NULL if there is one function in it.
struct ds_function *ds_function_load(struct ds_session *session,
                                     const void *object_bytes,
                                     size_t len,
                                     const char *name);

// Makes arguments "name=value" the bytes of the function's structure. Returns their number; nothing is written
// beyond cap.
ssize_t ds_function_args(const struct ds_function *function,
                         const char *const *pairs,
                         size_t count,
                         void *args,
                         size_t cap);

// Frees a function.
void ds_function_free(struct ds_function *function);

// Opens a path of any bytes, diskside://HOST[:PORT]/EXPORT/PATH (with %FF for a byte; HOST,HOST where several servers hold copies,
// which are only read), or nvme-tcp://HOST[:PORT]/NQN/NSID.
struct ds_file *ds_file_open(struct ds_session *session,
                             const char *path,
                             int mode);

// Its present length in bytes.
int64_t ds_file_len(const struct ds_file *file);

// Makes durable what was written before.
int ds_file_sync(const struct ds_file *file);

// Makes it len bytes long.
int ds_file_truncate(const struct ds_file *file, uint64_t len);

// Closes a file.
void ds_file_free(struct ds_file *file);

// Reads as pread(2).
ssize_t ds_pread(const struct ds_file *file, void *buffer, size_t len, uint64_t offset);

// Writes as pwrite(2).
ssize_t ds_pwrite(const struct ds_file *file, const void *buffer, size_t len, uint64_t offset);

// Runs a function over len bytes at offset (UINT64_MAX: to the end) and copies its result, of which there may
// be cap bytes. Returns the result's length; -ENOBUFS if it is longer than cap. options may be NULL.
ssize_t ds_pread_fn(const struct ds_file *file,
                    void *result,
                    size_t cap,
                    uint64_t offset,
                    uint64_t len,
                    const struct ds_function *function,
                    const void *args,
                    size_t args_len,
                    const struct ds_options *options);

// Runs a function over the buffer and writes its output at offset. Returns the output's length. options may be NULL.
ssize_t ds_pwrite_fn(const struct ds_file *file,
                     const void *buffer,
                     size_t len,
                     uint64_t offset,
                     const struct ds_function *function,
                     const void *args,
                     size_t args_len,
                     const struct ds_options *options);

// As ds_pread, without waiting. The bytes are copied when they are taken.
struct ds_request *ds_submit_pread(const struct ds_file *file, size_t len, uint64_t offset);

// As ds_pwrite, without waiting. The buffer is copied at once.
struct ds_request *ds_submit_pwrite(const struct ds_file *file, const void *buffer, size_t len, uint64_t offset);

// As ds_pread_fn, without waiting. Arguments and options are copied at once, the result when it is taken.
struct ds_request *ds_submit_pread_fn(const struct ds_file *file,
                                      uint64_t offset,
                                      uint64_t len,
                                      const struct ds_function *function,
                                      const void *args,
                                      size_t args_len,
                                      const struct ds_options *options);

// As ds_pwrite_fn, without waiting. The buffer, arguments and options are copied at once.
struct ds_request *ds_submit_pwrite_fn(const struct ds_file *file,
                                       const void *buffer,
                                       size_t len,
                                       uint64_t offset,
                                       const struct ds_function *function,
                                       const void *args,
                                       size_t args_len,
                                       const struct ds_options *options);

// Runs a function over count whole files, wherever each is, several at once, and puts their results together in this
// order: with the function's combine, or one after another. With out (a path, or diskside://HOST/EXPORT/PATH) the
// result becomes that file, which appears whole or not at all, and ds_wait gives its length; NULL: ds_wait copies it.
struct ds_request *ds_submit_run(struct ds_session *session,
                                 const struct ds_file *const *files,
                                 size_t count,
                                 const struct ds_function *function,
                                 const void *args,
                                 size_t args_len,
                                 const struct ds_options *options,
                                 const char *out);

// 1 if the request is done, else 0.
int ds_poll(const struct ds_request *request);

// Asks that the request's function be stopped, here or at the target, and does not wait. The request then ends with
// -ECANCELED, or well if it was faster; when ds_wait returns, nothing of it runs or writes any more. Plain reads and writes
// end by themselves.
int ds_cancel(const struct ds_request *request);

// Waits, copies the result, of which there may be cap bytes, and frees the request. Returns the length of what was read
// or written. If the request is NULL, this is the failure of the call that was to make it.
ssize_t ds_wait(struct ds_request *request, void *result, size_t cap);

// Waits, frees the request, and gives its result, however long, with its statistics (a prepared call, and plain reads
// and writes, have only the result). If the request is NULL, this is the failure of the call that was to make it.
struct ds_result *ds_wait_result(struct ds_request *request);

// Abandons a request: its function is stopped as by ds_cancel, without a report of when. A plain write may still take
// effect.
void ds_request_free(struct ds_request *request);

// Prepares a function to run often over len bytes at offset (UINT64_MAX: to the end). The target keeps the request, so that
// each call is one command; its result may have 256 KiB. It runs at the device, unless options say DS_HOST or the file is
// here. options may be NULL.
struct ds_prepared *ds_prepare(const struct ds_file *file,
                               uint64_t offset,
                               uint64_t len,
                               const struct ds_function *function,
                               const void *args,
                               size_t args_len,
                               const struct ds_options *options);

// DS_HOST or DS_DEVICE: where it runs.
int ds_prepared_place(const struct ds_prepared *prepared);

// Runs it and copies its result, of which there may be cap bytes; returns the result's length. args, up to 16 bytes, take
// the place of the first of those that it was prepared with.
ssize_t ds_prepared_call(const struct ds_prepared *prepared,
                         const void *args,
                         size_t args_len,
                         void *result,
                         size_t cap);

// As ds_prepared_call, without waiting; several may be under way. At a target a call ends within ten seconds by itself:
// ds_cancel does nothing there.
struct ds_request *ds_submit_prepared_call(const struct ds_prepared *prepared, const void *args, size_t args_len);

// Frees it; calls that are under way continue.
void ds_prepared_free(struct ds_prepared *prepared);

// Finds a function that follows pointers, as ds_function_find finds others.
struct ds_traversal *ds_traversal_find(struct ds_session *session, const char *what);

// Follows pointers over count files, which the function knows by their place in the array. Its scratch has scratch_len bytes
// and begins with the input; its result is made there. It runs at the target that has all of the files, in one round trip;
// here, read by read, if there is none or options say DS_HOST. options may be NULL.
struct ds_request *ds_submit_traverse(struct ds_session *session,
                                      const struct ds_file *const *files,
                                      size_t count,
                                      const struct ds_traversal *traversal,
                                      const void *input,
                                      size_t input_len,
                                      uint32_t scratch_len,
                                      const struct ds_options *options);

// Frees a function.
void ds_traversal_free(struct ds_traversal *traversal);

// Finds a kernel, as ds_function_find finds functions.
struct ds_kernel *ds_kernel_find(struct ds_session *session, const char *what);

// As ds_function_args, for a kernel.
ssize_t ds_kernel_args(const struct ds_kernel *kernel, const char *const *pairs, size_t count, void *args, size_t cap);

// Launches a kernel. It knows its files by numbers from 0: `count` of them, which it may read, and behind them those of
// writable, which were opened to be written. It runs once, at the target that has all of them, or here. Of options, which may
// be NULL, count: place, tier, DS_BACKGROUND, chunk_len (bytes of a slice), budget, deadline_ms, result_len_max, heap_len,
// depth (accesses under way), direct and result_blocks.
struct ds_request *ds_submit_launch(struct ds_session *session,
                                    const struct ds_file *const *files,
                                    size_t count,
                                    const struct ds_file *const *writable,
                                    size_t writable_count,
                                    const struct ds_kernel *kernel,
                                    const void *args,
                                    size_t args_len,
                                    const struct ds_options *options);

// The mask of a kernel's result: bit i % 8 of byte i / 8 is 1 if its block i, of 4096 bytes, was given back, and 0 if it was held
// back and is zeroes here. Returns its length in bytes; 0: the whole result was given back.
ssize_t ds_result_blocks(const struct ds_result *result,
                         uint8_t *mask,
                         size_t cap);

// Frees a kernel.
void ds_kernel_free(struct ds_kernel *kernel);

// The result's bytes, valid until it is freed; none if the output was written to a file.
const void *ds_result_bytes(const struct ds_result *result);

// How many bytes that are.
size_t ds_result_len(const struct ds_result *result);

// Fills in what the request took.
int ds_result_stats(const struct ds_result *result, struct ds_stats *stats);

// How many parts there are: one or more for each file.
size_t ds_result_parts(const struct ds_result *result);

// Fills in where a part ran, why, and what it took. Parts are counted from 0, in the order of the input.
int ds_result_part(const struct ds_result *result, size_t index, struct ds_part *part);

// A line that the function logged, counted from 0; NULL beyond the last.
const char *ds_result_log(const struct ds_result *result, size_t index);

// Frees a result.
void ds_result_free(struct ds_result *result);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* LIBDISKSIDE_H */
