/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A function as an application would have it without Diskside: the same source compiled to native
 * code, over a file that it reads or writes itself. The plain side of bench/pushdown.
 *
 *     plain PATH buffered|direct|mmap ARGS_HEX LEN REQUEST AT_ONCE WARM [INPUT]
 *
 * Rounds are those of crates/diskside/examples/pushdown.rs: the first LEN bytes by requests of
 * REQUEST bytes, AT_ONCE threads, results hashed the same way. WARM is none, last-half, pieces or
 * all. With INPUT the function runs over its bytes and the output is written, flushed at the end.
 * Standard input says `warm` (the file's cache is dropped, and read in part) or `go`.
 *
 * Compile with NAME and SOURCE defined, and LINES for a function whose records are lines.
 */
#define _GNU_SOURCE
#define SEC(name) static inline __attribute__((always_inline))
#include SOURCE

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#ifndef LINES
#define LINES 0
#endif
#define PAGE 4096ull
#define MIB (1ull << 20)
/* Room for the end of a request's last line. */
#define OVERRUN (64ull << 10)
/* Output of a write: so many bytes for each of input, as the function says. */
#define EXPANSION 32ull

enum mode { BUFFERED, DIRECT, MAPPED };

static struct {
    const char *path, *warm;
    enum mode mode;
    int fd;
    __u8 args[4096];
    __u64 args_len, len, request, file_len;
    unsigned at_once;
    __u8 *input;
    __u64 input_len;
    __u8 *map;
} plain;

static struct {
    pthread_mutex_t lock;
    __u64 next, bytes, hash;
} sum = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void fail(const char *what)
{
    fprintf(stderr, "plain: %s: %s: %s\n", plain.path, what, strerror(errno));
    exit(1);
}

static __u64 least(__u64 a, __u64 b) { return a < b ? a : b; }

static void *buffer(__u64 len)
{
    void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (p == MAP_FAILED)
        fail("memory");
    return p;
}

/* Reads until the end of the range or of the file; whole pages, so that it serves direct I/O. */
static __u64 read_at(__u8 *to, __u64 from, __u64 len)
{
    __u64 done = 0;
    while (done < len) {
        ssize_t n = pread(plain.fd, to + done, len - done, from + done);
        if (n < 0)
            fail("pread");
        if (n == 0)
            break;
        done += n;
    }
    return done;
}

static __s64 call(__u8 *out, __u64 out_cap, const __u8 *in, __u64 in_len, __u64 in_offset)
{
    struct ds_call call = {
        .size = sizeof(call),
        .flags = DS_FIRST | DS_LAST,
        .args_len = plain.args_len,
        .out_cap = out_cap,
        .in_offset = in_offset,
        .record_index = DS_UNKNOWN,
        .source_len = plain.len,
    };
    __s64 n = NAME((void *)out, (const void *)in, in_len, (const void *)plain.args, &call);
    if (n < 0) {
        errno = (int)-n;
        fail("the function");
    }
    return n;
}

static void add(__u64 index, __u64 bytes, const __u8 *result, __u64 len)
{
    __u64 hash = 0xcbf29ce484222325ull;
    for (__u64 i = 0; i < len; i++)
        hash = (hash ^ result[i]) * 0x100000001b3ull;
    pthread_mutex_lock(&sum.lock);
    sum.bytes += bytes;
    sum.hash += hash * (2 * index + 1);
    pthread_mutex_unlock(&sum.lock);
}

static __u64 take(void)
{
    pthread_mutex_lock(&sum.lock);
    __u64 index = sum.next++;
    pthread_mutex_unlock(&sum.lock);
    return index;
}

/* The records of a request: lines belong where they begin. */
static void read_request(__u64 index, __u8 *in, __u8 *out, __u64 out_cap)
{
    __u64 start = index * plain.request, end = least(start + plain.request, plain.len);
    __u64 before = LINES && start > 0 ? 1 : 0; /* the byte that may end the line before */
    __u64 first = (start - before) / PAGE * PAGE, skip = start - before - first;
    __u64 until = LINES ? least(end + OVERRUN, plain.len) : end;
    __u8 *data = plain.map ? plain.map + first : in;
    __u64 len = until - first;

    if (!plain.map && read_at(in, first, (len + PAGE - 1) / PAGE * PAGE) < len) {
        errno = EIO;
        fail("the file ended");
    }
    __u8 *from = data + skip, *to = data + (end - first);
    if (LINES) {
        if (before) {
            from = memchr(from, '\n', data + len - from);
            from = from ? from + 1 : data + len;
        }
        if (end < plain.len && from < to && to[-1] != '\n') {
            to = memchr(to, '\n', data + len - to);
            to = to ? to + 1 : data + len;
        }
    }
    __s64 n = from < to ? call(out, out_cap, from, to - from, first + (from - data)) : 0;
    add(index, end - start, out, n);
}

static void write_request(__u64 index, __u8 *out, __u64 out_cap)
{
    __u64 part = plain.request / EXPANSION, start = index * part;
    __u64 n = call(out, out_cap, plain.input + start, least(part, plain.input_len - start), start);
    __u64 at = start * EXPANSION;

    if (plain.map) {
        memcpy(plain.map + at, out, n);
    } else {
        for (__u64 done = 0; done < n;) {
            ssize_t written = pwrite(plain.fd, out + done, n - done, at + done);
            if (written <= 0)
                fail("pwrite");
            done += written;
        }
    }
    add(index, n, out, 0);
}

static void *work(void *unused)
{
    __u64 cap = 2 * plain.request + MIB;
    __u8 *in = buffer(plain.request + 2 * PAGE + OVERRUN), *out = buffer(cap);
    __u64 total = plain.input ? plain.input_len * EXPANSION : plain.len;

    (void)unused;
    for (;;) {
        __u64 index = take();
        if (index * plain.request >= total)
            break;
        if (plain.input)
            write_request(index, out, cap);
        else
            read_request(index, in, out, cap);
    }
    munmap(in, plain.request + 2 * PAGE + OVERRUN);
    munmap(out, cap);
    return NULL;
}

static void warm(void)
{
    __u64 pieces = (plain.len + MIB - 1) / MIB;
    __u8 *bytes = buffer(MIB);
    int fd = open(plain.path, O_RDONLY);

    if (fd < 0)
        fail("open");
    /* A loop device keeps the write error of its last user, and reports it to the next: not to us. */
    (void)!fsync(fd);
    if (plain.map && madvise(plain.map, plain.file_len, MADV_DONTNEED))
        fail("madvise");
    if (posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED))
        fail("fadvise");
    posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
    for (__u64 piece = 0; piece < pieces; piece++) {
        int wanted = !strcmp(plain.warm, "all") || (!strcmp(plain.warm, "last-half") && piece >= pieces / 2) ||
                     (!strcmp(plain.warm, "pieces") && (piece * 0x9e3779b97f4a7c15ull) >> 63);
        if (wanted && pread(fd, bytes, MIB, piece * MIB) < 0)
            fail("pread");
    }
    close(fd);
    munmap(bytes, MIB);
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

static void go(void)
{
    pthread_t threads[256];
    double started = seconds();

    sum.next = sum.bytes = sum.hash = 0;
    for (unsigned i = 1; i < plain.at_once; i++)
        if (pthread_create(&threads[i], NULL, work, NULL))
            fail("a thread");
    work(NULL);
    for (unsigned i = 1; i < plain.at_once; i++)
        pthread_join(threads[i], NULL);
    if (plain.input && (plain.map ? msync(plain.map, plain.file_len, MS_SYNC) : fsync(plain.fd)))
        fail("flushing");
    double ended = seconds();
    /* Nobody can drop pages that a process has mapped: other ways would find it in the cache. */
    if (plain.map && madvise(plain.map, plain.file_len, MADV_DONTNEED))
        fail("madvise");
    printf("{\"seconds\":%.6f,\"bytes\":%llu,\"result\":\"%016llx\",\"plans\":{}}\n", ended - started,
           (unsigned long long)sum.bytes, (unsigned long long)sum.hash);
}

static __u64 number(const char *text) { return strtoull(text, NULL, 10); }

int main(int argc, char **argv)
{
    char line[64];

    if (argc < 8) {
        fprintf(stderr, "plain PATH buffered|direct|mmap ARGS_HEX LEN REQUEST AT_ONCE WARM [INPUT]\n");
        return 2;
    }
    plain.path = argv[1];
    plain.mode = !strcmp(argv[2], "direct") ? DIRECT : !strcmp(argv[2], "mmap") ? MAPPED : BUFFERED;
    for (const char *hex = argv[3]; hex[0] && hex[1] && plain.args_len < sizeof(plain.args); hex += 2)
        sscanf(hex, "%2hhx", &plain.args[plain.args_len++]);
    plain.request = number(argv[5]);
    plain.at_once = number(argv[6]) < 256 ? number(argv[6]) : 256;
    plain.warm = argv[7];
    if (argc > 8) {
        int fd = open(argv[8], O_RDONLY);
        struct stat found;
        if (fd < 0 || fstat(fd, &found))
            fail(argv[8]);
        plain.input_len = found.st_size;
        plain.input = buffer(plain.input_len);
        if (read(fd, plain.input, plain.input_len) != (ssize_t)plain.input_len)
            fail(argv[8]);
    }
    plain.fd = open(plain.path, (plain.input ? O_RDWR : O_RDONLY) | (plain.mode == DIRECT ? O_DIRECT : 0));
    if (plain.fd < 0)
        fail("open");
    plain.file_len = lseek(plain.fd, 0, SEEK_END);
    plain.len = least(number(argv[4]), plain.file_len);
    if (plain.mode == MAPPED) {
        int access = PROT_READ | (plain.input ? PROT_WRITE : 0);
        plain.map = mmap(NULL, plain.file_len, access, MAP_SHARED, plain.fd, 0);
        if (plain.map == MAP_FAILED)
            fail("mmap");
    }
    while (fgets(line, sizeof(line), stdin)) {
        if (!strcmp(line, "warm\n")) {
            warm();
            printf("{}\n");
        } else {
            go();
        }
        fflush(stdout);
    }
    return 0;
}
