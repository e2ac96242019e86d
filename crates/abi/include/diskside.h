/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diskside.h: what a Diskside program sees. Include it, write a function, compile with
 *
 *     clang -O2 -g -target bpf -mcpu=v3 -c mine.bpf.c -o mine.bpf.o
 *
 * A section name chooses the kind of a program, `SEC("read/mine")`, and with it the signature:
 *
 *   read, write  __s64 f(OUT *out, const IN *in, __u64 in_len, const ARGS *args,
 *                        const struct ds_call *call)      returns the length of the output in bytes
 *   combine      __s64 f(OUT *acc, __u64 acc_len, __u64 acc_cap, const OUT *part, __u64 part_len)
 *                                                         returns the new acc_len; it is 0 at first
 *   columns      __s64 f(OUT *out, const COLUMNS *in, __u64 rows, const ARGS *args,
 *                        const struct ds_call *call)      returns the length of the output in bytes
 *   traverse     __s64 f(struct ds_traverse *t)           0: read t->next, 1: done
 *   kernel       __s64 f(struct ds_kernel *k, const ARGS *args, OUT *result)
 *                                                         returns the length of the result in bytes
 *   exec         __s64 f(struct ds_exec *x)               returns the command's return value
 *
 * A negative value is an error, best one of the DS_E numbers below. Sources of other systems
 * compile with lambda_io.h, xrp.h, delilah.h and isp_agent.h.
 *
 * The type of args describes the arguments: names, types and the DS_ARG tags of its members are
 * what `diskside run --arg name=value` checks. The type of out describes the result in the same
 * way: when it points to a structure, the output is rows of it. `combine/NAME` belongs to
 * `read/NAME`; an output part and an accumulator have one format.
 *
 * Pointers are checked at each access and loops may run as long as the budget lasts: no access
 * needs a test of its own. Memory is little-endian, and loads need no alignment. Atomics do.
 *
 * Compiled for another target than bpf, the header declares the same for native code, so that a
 * function can be timed and debugged beside its sandboxed self.
 */
#ifndef DISKSIDE_H
#define DISKSIDE_H

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "Diskside runs little-endian programs: use -target bpf or -target bpfel"
#endif

typedef unsigned char __u8;
typedef signed char __s8;
typedef unsigned short __u16;
typedef short __s16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;

/* Floating-point values travel as bits; the ds_f64_ and ds_f32_ functions compute with them. */
typedef __u64 ds_f64;
typedef __u32 ds_f32;

#ifndef NULL
#define NULL ((void *)0)
#endif

/* ---- Declaring a program -------------------------------------------------------------------- */

#ifdef __bpf__
#ifndef SEC
#define SEC(name) __attribute__((section(name), used))
#endif
#else
#ifndef SEC
#define SEC(name)
#endif
#endif

/* A helper that may be absent: test its address before the call. */
#define DS_WEAK __attribute__((weak))
#define DS_INLINE static inline __attribute__((always_inline))

/* Documentation and checks for `--arg`, written behind a member of the structure of the arguments. */
#if defined(__has_attribute)
#if __has_attribute(btf_decl_tag)
#define DS_TAG(text) __attribute__((btf_decl_tag(text)))
#endif
#endif
#ifndef DS_TAG
#define DS_TAG(text)
#endif
#define DS_ARG_DEFAULT(text) DS_TAG("default:" text) /* in quotes: DS_ARG_DEFAULT("1") */
#define DS_ARG_MIN(text) DS_TAG("min:" text)
#define DS_ARG_MAX(text) DS_TAG("max:" text)
#define DS_ARG_DOC(text) DS_TAG("doc:" text) /* one line of help */
#define DS_ARG_F32 DS_TAG("type:f32")        /* a ds_f32 holds a float */
#define DS_ARG_F64 DS_TAG("type:f64")        /* a ds_f64 holds a float */
#define DS_ARG_COLUMN DS_TAG("is:column")    /* a column of a table of text: its number from 1, or its name */
#define DS_ARG_COLUMN_NAMES DS_TAG("is:column_names") /* the line of their names; left out, the input's first line */
#define DS_ARG_REGEX DS_TAG("is:regex")      /* text for ds_regex_find: a wrong one is refused before anything runs */
#define DS_RESULT_HIDDEN DS_TAG("is:hidden") /* a member of the result that `combine` needs and nobody is shown */
#define DS_DECIMAL(digits) DS_TAG("decimal:" #digits) /* an integer with all digits of a decimal, so many behind the point */
#define DS_ARG_RECORD_LEN DS_TAG("is:record_len") /* bytes of a record; 0: as if there were no such argument */

/*
 * For a function to return, with an error such as DS_EINVAL: the message of its failure has the text, beside the
 * function, the file and the place. It says what is wrong, and what to do.
 */
#define DS_FAIL(error, text) ds_fail(error, text, sizeof(text) - 1)

/*
 * The requests of an object to its host, each at most once an object, at file scope. The section holds
 * records: type, length, payload. Native code has none.
 */
#ifdef __bpf__
#define DS_NOTE(name, kind, payload, ...)                                                  \
    static const struct {                                                                  \
        __u16 type, len;                                                                   \
        payload                                                                            \
    } __attribute__((packed, aligned(4))) ds_note_##name                                   \
        __attribute__((section(".diskside"), used)) = {                                    \
            kind, sizeof(ds_note_##name) - 4, __VA_ARGS__}
#else
#define DS_NOTE(name, kind, payload, ...) _Static_assert(1, "no note in native code")
#endif

#define DS_ABI_VERSION 1
DS_NOTE(abi, 1, __u32 version;, DS_ABI_VERSION);

/* Bytes of a stack frame: a multiple of 64 up to 1 MiB. Needs clang 19, which `diskside` calls with
   -mllvm -bpf-stack-size=bytes. */
#define DS_STACK_BYTES(bytes) DS_NOTE(stack, 2, __u32 frame;, bytes)
/* Room for the output: in_len * num / den + constant bytes. Without it: in_len + 4096. */
#define DS_OUTPUT(num, den, constant)                                                      \
    DS_NOTE(out_ratio, 3, __u32 numerator; __u32 denominator; __u64 rest;, num, den, constant)
/* The named state of the call, kept between calls: DS_STATE(struct counters)->calls++. A call that names none has
   none, and the access traps. */
#define DS_STATE(type) ((type *)(11ull << 40))
/*
 * Where the input may be cut. A function is called for one piece of it after another, the same pieces
 * wherever it runs. It has to say two things for that; one that does not say both is called once, over all of its input.
 *
 * First, what its records are, so that none is cut: one of the DS_SPLIT lines, or a member of its arguments with
 * DS_ARG_RECORD_LEN, or the type of in: that of `const __u32 *in` are records of 4 bytes, of a pointer to a structure
 * the structure's. Pointers to void and to single bytes say nothing.
 */
#define DS_SPLIT_RECORDS(bytes) DS_NOTE(split, 4, __u32 how; __u32 arg;, 1, bytes)
#define DS_SPLIT_AFTER(delimiter) DS_NOTE(split, 4, __u32 how; __u32 arg;, 2, (__u8)(delimiter))
#define DS_SPLIT_LINES DS_SPLIT_AFTER('\n')
#define DS_SPLIT_BYTES DS_NOTE(split, 4, __u32 how; __u32 arg;, 3, 0) /* between any two bytes */
/* Each piece except the last holds a multiple of so many records: bitmaps want 8. */
#define DS_PIECE_RECORDS(records) DS_NOTE(piece, 7, __u32 multiple;, records)
/*
 * Second, what becomes of the outputs: `combine/NAME` folds them, or they simply stand one after another.
 */
#define DS_CONCATENATE DS_NOTE(concatenate, 6, __u32 yes;, 1)
/*
 * A function of kind columns selects rows: its output is a byte for each row, and the scan continues with the rows where it is not 0.
 */
#define DS_SELECT DS_NOTE(select, 8, __u32 yes;, 1)

/*
 * Hints of its author on its cost: bytes of output for 1000 bytes of input (output), how often it goes through its input
 * (passes: 1 is best), and how it accesses memory (places: DS_IN_ORDER, or DS_SCATTERED over more than a cache holds). Where a
 * request runs is decided by this until it is measured, and never what comes of it. Older hosts ignore it.
 */
#define DS_IN_ORDER 0
#define DS_SCATTERED 1
#define DS_COST(output, passes, places)                                                    \
    DS_NOTE(cost, 0x8001, __u32 permille; __u32 times; __u32 how;, output, passes, places)

/* ---- What a program is given ---------------------------------------------------------------- */

/* ds_call.flags */
#define DS_FIRST 1u /* the piece that the request begins with */
#define DS_LAST 2u  /* the piece whose last record reaches the request's end */
/* Unknown: ds_call.record_index, ds_call.source_len */
#define DS_UNKNOWN (~0ull)

/* Read-only. A later header may add members at the end: test size before using them. */
struct ds_call {
    __u32 size, flags;
    __u64 args_len, out_cap;
    __u64 in_offset;    /* of in[0] in the source */
    __u64 record_index; /* of in[0]; known when split at fixed records */
    __u64 source_len;
    __u32 source_index, chunk_index; /* of the source in the request; of the piece on its grid */
};

/*
 * A function of kind columns has these in its structure besides pointers to numbers, one for each row: const __s64 *price.
 * A member is called as its column; NAME__valid, a const __u8 *, is 1 for the rows that have a value, and 0 for those that
 * are NULL. Each buffer ends behind its last value: an access beyond it stops the function.
 */
struct ds_utf8 { /* texts: that of row i is bytes[offsets[i]] to bytes[offsets[i + 1] - 1] */
    const __u32 *offsets;
    const char *bytes;
};

struct ds_dict { /* the text of row i is number codes[i] of values, which has count texts, all different */
    const __u32 *codes;
    struct ds_utf8 values;
    __u64 count;
};

struct ds_next {
    __u64 offset, len;
    __u32 file, cookie;
};

#define DS_NEXT_MAX 16

/* Writable: result_len, nnext, next. */
struct ds_traverse {
    __u32 size, flags;
    const void *data; /* what was read */
    __u64 data_len, offset;
    __u32 file, hop, cookie, nfiles;
    void *scratch; /* state that travels from hop to hop; its first result_len bytes travel back */
    __u64 scratch_cap;
    __u64 result_len;
    __u32 nnext, rsvd;
    struct ds_next next[DS_NEXT_MAX]; /* one call for each read, in this order */
};

/* The context of a function that reads and writes files itself (docs/kernels.md). It returns the length of its result. */
struct ds_kernel {
    __u32 size, flags;
    const void *args;
    __u64 args_len;
    void *result; /* zeroed, result_cap bytes */
    __u64 result_cap, result_len;
    __u8 *mask; /* the blocks of the result that travel to the host: see ds_mark_blocks */
    __u64 mask_len;
    __u32 nfiles;    /* files are numbered from 0 */
    __u32 nreadonly; /* the first so many may only be read; those behind them may be written as well */
};

/* ds_range.perm */
#define DS_READ 1u
#define DS_WRITE 2u

struct ds_range {
    void *addr;
    __u64 len;
    __u32 perm, nsid;
};

/* The context of the standard Execute Program command. data is range[0]; the memory ranges follow from range[1] on. */
struct ds_exec {
    __u32 size, nranges;
    __u64 cparam1, cparam2;
    void *data;
    __u64 data_len;
    struct ds_range range[];
};

/* Errors to return, negated; numbers and meanings are those of errno. */
#define DS_ENOENT 2
#define DS_EIO 5
#define DS_E2BIG 7
#define DS_EBADF 9
#define DS_EAGAIN 11
#define DS_ENOMEM 12
#define DS_EACCES 13
#define DS_EINVAL 22
#define DS_ENOSPC 28 /* the output is too small, or the disk full */
#define DS_EROFS 30
#define DS_ERANGE 34
#define DS_EOVERFLOW 75
#define DS_EBADMSG 74
#define DS_ESTALE 116 /* the file was closed or replaced */

/*
 * Bytes of a block of a kernel's result. Bit i % 8 of mask[i / 8] is block i. Blocks whose bit is 1 travel to the host; the others are
 * held back, and the host has zeroes there. At first these are all, or those that the host wants.
 */
#define DS_RESULT_BLOCK_LEN 4096

/* Has count blocks from the first on travel, or be held back: 0; -DS_EINVAL, and nothing is changed: there is no room for them. */
DS_INLINE __s64 ds_mark_blocks(struct ds_kernel *k, __u64 first, __u64 count)
{
    __u64 blocks = (k->result_cap + DS_RESULT_BLOCK_LEN - 1) / DS_RESULT_BLOCK_LEN;

    if (first > blocks || count > blocks - first)
        return -DS_EINVAL;
    for (__u64 i = first; i < first + count; i++)
        k->mask[i / 8] |= 1 << i % 8;
    return 0;
}
DS_INLINE __s64 ds_unmark_blocks(struct ds_kernel *k, __u64 first, __u64 count)
{
    __u64 blocks = (k->result_cap + DS_RESULT_BLOCK_LEN - 1) / DS_RESULT_BLOCK_LEN;

    if (first > blocks || count > blocks - first)
        return -DS_EINVAL;
    for (__u64 i = first; i < first + count; i++)
        k->mask[i / 8] &= ~(1 << i % 8);
    return 0;
}

/* ---- Helpers -------------------------------------------------------------------------------- */

enum ds_filter_op {
    DS_EQ,
    DS_NE,
    DS_LT,
    DS_LE,
    DS_GT,
    DS_GE,
    DS_BETWEEN, /* lo <= x && x <= hi */
};

enum ds_filter_form {
    DS_BITMAP,    /* bit i % 8 of byte i / 8 is element i; (n + 7) / 8 bytes */
    DS_POSITIONS, /* the indices of matches as __u32 */
};

struct ds_filter {
    __u32 op, form;
    __u64 lo, hi; /* the low bits hold a value of the element type; hi is for DS_BETWEEN alone */
};

/* How bytes are compressed: each for itself, as formats of files have their blocks. */
enum ds_codec {
    DS_SNAPPY, /* a raw block, which begins with its length */
    DS_LZ4,    /* a block, without a length */
    DS_ZSTD,   /* frames */
};

struct ds_compression {
    __u32 codec, dict_len;
    const void *dict; /* that they were compressed with, if dict_len is not 0: not for DS_SNAPPY */
};

#ifdef __bpf__
/*
 * Each helper costs one unit of budget (a loop trip) and one more for each 64 bytes that it handles.
 * Ranges are checked as a whole before anything is done.
 */

/* Zeroed memory, aligned to 64 bytes; NULL when len is 0 or the quota is used up. It lives until it
 * is freed or the program's globals are set back. */
void *ds_alloc(__u64 len);
/* As ds_alloc, aligned to a power of two up to 1 MiB. */
void *ds_alloc_aligned(__u64 align, __u64 len);
/* NULL is allowed; a pointer that ds_alloc did not give out, or that was freed, traps. */
void ds_free(void *p);

/* memcpy, memmove, memset and memcmp are these. The ranges of both copies may overlap. */
void *ds_memcpy(void *to, const void *from, __u64 len);
void *ds_memmove(void *to, const void *from, __u64 len);
void *ds_memset(void *to, int value, __u64 len);
/* -1, 0 or 1 */
__s64 ds_memcmp(const void *a, const void *b, __u64 len);

/* Offset of the first occurrence, or -1. The empty needle is found at 0. */
__s64 ds_find(const void *hay, __u64 hay_len, const void *needle, __u64 needle_len);

/* Where the match of a regular expression ends that ends first, or -1. The expression is over bytes: `.` is any but a
 * newline; \w, \d, \s, \b and (?i) know ASCII. An expression that is none traps, with the byte where it is wrong; so
 * does one longer than 4096 bytes, or whose repetitions need more than 256 KiB. Its time grows with hay_len alone. */
__s64 ds_regex_find(const void *hay, __u64 hay_len, const void *pattern, __u64 pattern_len);

/* lambda-IO's reads and writes at an offset of a buffer with a stated boundary: len bytes from
 * from + offset, or to to + offset. An offset past boundary - len counts as boundary - len. Both return
 * len; a len greater than boundary traps. */
__s64 ds_lambda_mem_read(void *to, const void *from, __u64 offset, __u64 len, __u64 boundary);
__s64 ds_lambda_mem_write(void *to, const void *from, __u64 offset, __u64 len, __u64 boundary);

/* Which of n elements satisfy spec: the number of matches, or -DS_ENOSPC when out_cap is too small.
 * Comparisons of floats are those of IEEE 754: NaN satisfies DS_NE alone. out and in may not
 * overlap. */
__s64 ds_filter_u32(void *out, __u64 out_cap, const __u32 *in, __u64 n,
                    const struct ds_filter *spec);
__s64 ds_filter_i32(void *out, __u64 out_cap, const __s32 *in, __u64 n,
                    const struct ds_filter *spec);
__s64 ds_filter_u64(void *out, __u64 out_cap, const __u64 *in, __u64 n,
                    const struct ds_filter *spec);
__s64 ds_filter_i64(void *out, __u64 out_cap, const __s64 *in, __u64 n,
                    const struct ds_filter *spec);
__s64 ds_filter_f32(void *out, __u64 out_cap, const ds_f32 *in, __u64 n,
                    const struct ds_filter *spec);
__s64 ds_filter_f64(void *out, __u64 out_cap, const ds_f64 *in, __u64 n,
                    const struct ds_filter *spec);

/* Integer sums wrap modulo 2^64; float sums are made in binary64, in eight lanes: element i is
 * added to lane i % 8, and the lanes as ((0+4) + (2+6)) + ((1+5) + (3+7)). */
__u64 ds_sum_u32(const __u32 *p, __u64 n);
__s64 ds_sum_i32(const __s32 *p, __u64 n);
__u64 ds_sum_u64(const __u64 *p, __u64 n);
__s64 ds_sum_i64(const __s64 *p, __u64 n);
ds_f64 ds_sum_f32(const ds_f32 *p, __u64 n);
ds_f64 ds_sum_f64(const ds_f64 *p, __u64 n);

/* Of no elements: the greatest value of the type (plus infinity). NaN when an element is NaN. */
__u64 ds_min_u32(const __u32 *p, __u64 n);
__s64 ds_min_i32(const __s32 *p, __u64 n);
__u64 ds_min_u64(const __u64 *p, __u64 n);
__s64 ds_min_i64(const __s64 *p, __u64 n);
ds_f32 ds_min_f32(const ds_f32 *p, __u64 n);
ds_f64 ds_min_f64(const ds_f64 *p, __u64 n);

/* Of no elements: the least value of the type (minus infinity). NaN when an element is NaN. */
__u64 ds_max_u32(const __u32 *p, __u64 n);
__s64 ds_max_i32(const __s32 *p, __u64 n);
__u64 ds_max_u64(const __u64 *p, __u64 n);
__s64 ds_max_i64(const __s64 *p, __u64 n);
ds_f32 ds_max_f32(const ds_f32 *p, __u64 n);
ds_f64 ds_max_f64(const ds_f64 *p, __u64 n);

/* Bits that are set. */
__u64 ds_popcount(const void *p, __u64 len);

/* CRC-32C (Castagnoli); seed is the CRC of what came before, 0 at the start. */
__u32 ds_crc32c(__u32 seed, const void *p, __u64 len);
/* XXH3 of 64 bits. */
__u64 ds_hash64(const void *p, __u64 len, __u64 seed);

/* Bytes that from_len bytes at from decompress to, which are at to; -DS_ENOSPC: they are more than to_len, or than 16 MiB;
 * -DS_EBADMSG: they are damaged. Then to_len bytes at to are zero. to and from may not overlap. */
__s64 ds_decompress(void *to, __u64 to_len, const void *from, __u64 from_len,
                    const struct ds_compression *how);

/* A line to the host's log: up to 256 bytes, 16 lines a call; further lines are counted. */
void ds_log(const char *msg, __u64 len);
/* -error, for a function to return; the message of its failure then says why, in up to 256 bytes. */
__s64 ds_fail(__s64 error, const char *why, __u64 len);
/* Nanoseconds of a clock that never goes back. */
__u64 ds_now(void);

/*
 * Files of a program of kind kernel, by their numbers; programs of other kinds that call these are refused. Offsets and
 * lengths are in bytes and need no alignment; multiples of 4096 pass the buffer by (docs/kernels.md). Each returns a
 * negative errno when it fails: DS_EBADF no such file, or read-only; DS_ESTALE closed or replaced; DS_EACCES not allowed any
 * more; DS_ENOSPC; DS_EIO; DS_EINVAL an offset beyond 2^63.
 */
/* Bytes read: fewer than len only at the end of the file. */
__s64 ds_pread(__u32 file, void *buf, __u64 len, __u64 offset);
/* len; after an error some of it may be written. A file grows, a volume does not (DS_ENOSPC). */
__s64 ds_pwrite(__u32 file, const void *buf, __u64 len, __u64 offset);
/* Its present length in bytes. */
__s64 ds_file_len(__u32 file);
/* Bytes that were written before, and waited for, survive power loss: 0. */
__s64 ds_sync(__u32 file);
/*
 * Begin a read or a write of up to 512 KiB and return 0, while it runs; DS_EAGAIN: as many as may be are under way. The
 * bytes of a write are taken at once. Those of a read are in buf, which is not on the stack, when a wait has returned for
 * it, and not before. In which order those under way take place is not defined.
 */
__s64 ds_submit_read(__u32 file, void *buf, __u64 len, __u64 offset, __u64 cookie);
__s64 ds_submit_write(__u32 file, const void *buf, __u64 len, __u64 offset, __u64 cookie);
/* Waits for the oldest of this cookie: what ds_pread or ds_pwrite would return. DS_ENOENT: there is none. */
__s64 ds_wait(__u64 cookie);
/* Waits until one of them is done, or more: their cookies and results, up to n. Their number; 0: none is under way. */
__s64 ds_wait_any(__u64 *cookies, __s64 *results, __u64 n);

/*
 * Floating point. These are not calls: each becomes one or two machine instructions. A NaN result is
 * always the same quiet NaN; rounding is to nearest, ties to even; nothing is fused or reordered.
 * Minimum and maximum are NaN when one operand is, with -0 below +0. Conversions to integers
 * truncate and saturate, and NaN gives 0. Comparisons are 1 or 0, and 0 with NaN.
 */
ds_f64 ds_f64_add(ds_f64 a, ds_f64 b);
ds_f64 ds_f64_sub(ds_f64 a, ds_f64 b);
ds_f64 ds_f64_mul(ds_f64 a, ds_f64 b);
ds_f64 ds_f64_div(ds_f64 a, ds_f64 b);
ds_f64 ds_f64_sqrt(ds_f64 a);
ds_f64 ds_f64_neg(ds_f64 a);
ds_f64 ds_f64_abs(ds_f64 a);
ds_f64 ds_f64_min(ds_f64 a, ds_f64 b);
ds_f64 ds_f64_max(ds_f64 a, ds_f64 b);
ds_f64 ds_f64_floor(ds_f64 a);
ds_f64 ds_f64_ceil(ds_f64 a);
ds_f64 ds_f64_trunc(ds_f64 a);
ds_f64 ds_f64_round(ds_f64 a);
__u64 ds_f64_eq(ds_f64 a, ds_f64 b);
__u64 ds_f64_lt(ds_f64 a, ds_f64 b);
__u64 ds_f64_le(ds_f64 a, ds_f64 b);
ds_f64 ds_f64_from_i64(__s64 a);
ds_f64 ds_f64_from_u64(__u64 a);
__s64 ds_f64_to_i64(ds_f64 a);
__u64 ds_f64_to_u64(ds_f64 a);
ds_f64 ds_f64_from_f32(ds_f32 a);
ds_f32 ds_f32_add(ds_f32 a, ds_f32 b);
ds_f32 ds_f32_sub(ds_f32 a, ds_f32 b);
ds_f32 ds_f32_mul(ds_f32 a, ds_f32 b);
ds_f32 ds_f32_div(ds_f32 a, ds_f32 b);
ds_f32 ds_f32_sqrt(ds_f32 a);
ds_f32 ds_f32_neg(ds_f32 a);
ds_f32 ds_f32_abs(ds_f32 a);
ds_f32 ds_f32_min(ds_f32 a, ds_f32 b);
ds_f32 ds_f32_max(ds_f32 a, ds_f32 b);
ds_f32 ds_f32_floor(ds_f32 a);
ds_f32 ds_f32_ceil(ds_f32 a);
ds_f32 ds_f32_trunc(ds_f32 a);
ds_f32 ds_f32_round(ds_f32 a);
__u64 ds_f32_eq(ds_f32 a, ds_f32 b);
__u64 ds_f32_lt(ds_f32 a, ds_f32 b);
__u64 ds_f32_le(ds_f32 a, ds_f32 b);
ds_f32 ds_f32_from_i64(__s64 a);
ds_f32 ds_f32_from_u64(__u64 a);
__s64 ds_f32_to_i64(ds_f32 a);
__u64 ds_f32_to_u64(ds_f32 a);
ds_f32 ds_f32_from_f64(ds_f64 a);
#else
#include "diskside_native.h"
#endif

/* ---- Layout: the same in every compiler ----------------------------------------------------- */

#define DS_LAYOUT(type, len) _Static_assert(sizeof(type) == (len), #type " has another layout")
#define DS_FIELD(type, field, at)                                                          \
    _Static_assert(__builtin_offsetof(type, field) == (at), #type "." #field " has another offset")

DS_LAYOUT(struct ds_call, 56);
DS_FIELD(struct ds_call, args_len, 8);
DS_FIELD(struct ds_call, in_offset, 24);
DS_FIELD(struct ds_call, record_index, 32);
DS_FIELD(struct ds_call, source_len, 40);
DS_FIELD(struct ds_call, chunk_index, 52);
DS_LAYOUT(struct ds_next, 24);
DS_LAYOUT(struct ds_traverse, 464);
DS_FIELD(struct ds_traverse, data, 8);
DS_FIELD(struct ds_traverse, file, 32);
DS_FIELD(struct ds_traverse, scratch, 48);
DS_FIELD(struct ds_traverse, result_len, 64);
DS_FIELD(struct ds_traverse, nnext, 72);
DS_FIELD(struct ds_traverse, next, 80);
DS_LAYOUT(struct ds_kernel, 72);
DS_FIELD(struct ds_kernel, args, 8);
DS_FIELD(struct ds_kernel, result, 24);
DS_FIELD(struct ds_kernel, result_len, 40);
DS_FIELD(struct ds_kernel, mask, 48);
DS_FIELD(struct ds_kernel, nfiles, 64);
DS_FIELD(struct ds_kernel, nreadonly, 68);
DS_LAYOUT(struct ds_range, 24);
DS_FIELD(struct ds_range, perm, 16);
DS_LAYOUT(struct ds_exec, 40);
DS_FIELD(struct ds_exec, cparam1, 8);
DS_FIELD(struct ds_exec, data, 24);
DS_FIELD(struct ds_exec, range, 40);
DS_LAYOUT(struct ds_filter, 24);
DS_FIELD(struct ds_filter, lo, 8);

#endif
