/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Source compatibility with Delilah: `u64 f(void *data, u64 len, void *state, u64 state_len)`. The
 * data slot is one writable range: a memory range of an execution, or a copy of what is read of a file,
 * and what is there when the program ends is its output. The state is shared by programs across
 * executions; without one, state_len is 0. The entry is the first function of .text, or the one in
 * SEC("delilah/NAME").
 */
#ifndef DISKSIDE_DELILAH_H
#define DISKSIDE_DELILAH_H

#include "diskside.h"

/* Programs whose section names no kind are of this one. */
DS_NOTE(kind, 5, __u32 kind;, 2);

#ifdef __bpf__
typedef __u8 uint8_t;
typedef __u16 uint16_t;
typedef __u32 uint32_t;
typedef __u64 uint64_t;
typedef __s8 int8_t;
typedef __s16 int16_t;
typedef __s32 int32_t;
typedef __s64 int64_t;
typedef __u64 size_t;
#else
#include <stddef.h>
#include <stdint.h>
#endif

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;

#endif
