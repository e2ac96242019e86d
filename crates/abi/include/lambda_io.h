/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Source compatibility with lambda-IO (FAST '23). Its functions come in two forms:
 *
 *   SEC("lambda/NAME")    ssize_t compute(void *output, void *input, size_t length_i)
 *   LIO_PROG(NAME)        int NAME(struct context *ctx), in section lambda_io/NAME
 *
 * Both return the length of the output. The checking macros of its sources still compile; the
 * sandbox checks each access itself, so they only access.
 */
#ifndef DISKSIDE_LAMBDA_IO_H
#define DISKSIDE_LAMBDA_IO_H

#include "diskside.h"

#ifdef __bpf__
typedef __u64 size_t;
typedef __s64 ssize_t;
typedef __u8 uint8_t;
typedef __u16 uint16_t;
typedef __u32 uint32_t;
typedef __u64 uint64_t;
typedef __s8 int8_t;
typedef __s16 int16_t;
typedef __s32 int32_t;
typedef __s64 int64_t;
#else
#include <stdint.h>
#include <sys/types.h>
#endif

struct context {
    void *buf_o;
    void *buf_i;
    __u64 size_i;
};

DS_LAYOUT(struct context, 24);
DS_FIELD(struct context, buf_i, 8);
DS_FIELD(struct context, size_i, 16);

#define LIO_PROG(name) SEC("lambda_io/" #name) name

#define min(x, y) ((x) < (y) ? (x) : (y))
#define max(x, y) ((x) > (y) ? (x) : (y))
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

#define for_check(start, condition, step) for (start; condition; step)
#define while_check(condition) while (condition)
#define deref_check(type, base, boundary, offset) (*(type *)((char *)(base) + (offset)))
#define ibuf_deref_check(type, offset) deref_check(type, buf_i, size_i, offset)
#define obuf_deref_check(type, offset) deref_check(type, buf_o, size_i, offset)

#define bpf_mem_read ds_lambda_mem_read
#define bpf_mem_write ds_lambda_mem_write

#ifdef __bpf__
#define memcpy ds_memcpy
#define memcmp ds_memcmp
#define memset ds_memset
#define malloc ds_alloc
#define free ds_free
#endif

#endif
