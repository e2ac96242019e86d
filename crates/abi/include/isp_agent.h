/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ISP Agent's names for what kernels do: the calls of libc with _ik behind them. A file is its number; a kernel begins as
 *
 *     SEC("kernel/mine") __s64 mine(struct ds_kernel *k, const struct mine_args *args, void *result)
 *
 * The non-blocking forms end with a wait; see ds_submit_read and ds_wait_any in diskside.h.
 */
#ifndef DISKSIDE_ISP_AGENT_H
#define DISKSIDE_ISP_AGENT_H

#include "diskside.h"

/* Bytes from which an access may pass the buffer by: its offset and its length are multiples of it. */
#define SLICE_LEN_IK 4096

DS_INLINE __s64 pread_ik(__u32 file, void *buf, __u64 len, __u64 offset) { return ds_pread(file, buf, len, offset); }
DS_INLINE __s64 pwrite_ik(__u32 file, const void *buf, __u64 len, __u64 offset)
{
    return ds_pwrite(file, buf, len, offset);
}
DS_INLINE __s64 filesize_ik(__u32 file) { return ds_file_len(file); }
DS_INLINE __s64 fsync_ik(__u32 file) { return ds_sync(file); }

/* The mask of the result: a block of SLICE_LEN_IK bytes that is masked does not travel to the host. */
DS_INLINE __s64 mask_ik(struct ds_kernel *k, __u64 first, __u64 count) { return ds_unmark_blocks(k, first, count); }
DS_INLINE __s64 unmask_ik(struct ds_kernel *k, __u64 first, __u64 count) { return ds_mark_blocks(k, first, count); }

DS_INLINE void *malloc_ik(__u64 len) { return ds_alloc(len); }
DS_INLINE void *aligned_alloc_ik(__u64 align, __u64 len) { return ds_alloc_aligned(align, len); }
DS_INLINE void free_ik(void *p) { ds_free(p); }

DS_INLINE __s64 pread_begin_ik(__u32 file, void *buf, __u64 len, __u64 offset, __u64 cookie)
{
    return ds_submit_read(file, buf, len, offset, cookie);
}
DS_INLINE __s64 pwrite_begin_ik(__u32 file, const void *buf, __u64 len, __u64 offset, __u64 cookie)
{
    return ds_submit_write(file, buf, len, offset, cookie);
}
DS_INLINE __s64 wait_ik(__u64 cookie) { return ds_wait(cookie); }
DS_INLINE __s64 wait_any_ik(__u64 *cookies, __s64 *results, __u64 n) { return ds_wait_any(cookies, results, n); }

#endif
