/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Source compatibility with XRP (OSDI '22) and BPF-oF: programs that are given a block and name the
 * blocks to read next, `unsigned int f(struct bpf_xrp *context)`. A section is named SEC("xrp/NAME"),
 * or anything that names no other kind: there, section names are arbitrary.
 *
 * Writable: done, next_addr, size, fd_arr. A next block of size 0 ends the list.
 */
#ifndef DISKSIDE_XRP_H
#define DISKSIDE_XRP_H

#include "diskside.h"

/* Programs whose section names no kind are of this one. */
DS_NOTE(kind, 5, __u32 kind;, 1);

struct bpf_xrp {
    char *data;
    char *scratch;
    __s32 done;
    __s32 rsvd;
    __u64 next_addr[16];
    __u64 size[16];
    __s32 fd_arr[16];
    __s32 cur_fd;
    __s32 rsvd2;
};

DS_LAYOUT(struct bpf_xrp, 352);
DS_FIELD(struct bpf_xrp, scratch, 8);
DS_FIELD(struct bpf_xrp, done, 16);
DS_FIELD(struct bpf_xrp, next_addr, 24);
DS_FIELD(struct bpf_xrp, size, 152);
DS_FIELD(struct bpf_xrp, fd_arr, 280);
DS_FIELD(struct bpf_xrp, cur_fd, 344);

/* Tracing output of the originals; a program with effects would not be moved. */
#define bpf_printk(...) ((void)0)

#endif
