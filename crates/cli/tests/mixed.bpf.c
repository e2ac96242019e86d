/* SPDX-License-Identifier: Apache-2.0 */
/* Accesses of all lengths at all offsets, one after another and several at a time; tests/kernels.rs knows what comes out. */
#include "isp_agent.h"

#define AT_ONCE 8
#define ROOM 16384

struct mixed_args {
    __u64 seed;
};

struct mixed_result {
    __u64 digest, bytes, short_reads;
};

DS_INLINE __u64 next(__u64 *x)
{
    *x = *x * 6364136223846793005ull + 1442695040888963407ull;
    return *x >> 33;
}

DS_INLINE __u64 digest(__u64 sum, const __u8 *bytes, __u64 len)
{
    for (__u64 i = 0; i < len; i++)
        sum = sum * 31 + bytes[i];
    return sum;
}

SEC("kernel/mixed")
__s64 mixed(struct ds_kernel *k, const struct mixed_args *args, struct mixed_result *result)
{
    __u8 *memory = aligned_alloc_ik(4096, AT_ONCE * ROOM);
    __u64 x = args->seed, lens[AT_ONCE], offsets[AT_ONCE], cookies[AT_ONCE], ended;
    __s64 results[AT_ONCE], got[AT_ONCE], done;

    if (k->nfiles != 2 || k->nreadonly != 1 || filesize_ik(0) <= 0 || memory == NULL)
        return -DS_EINVAL;
    for (int i = 0; i < 60; i++) {
        __u64 len = next(&x) % 9000, offset = next(&x) % 70000;

        if (i % 3 == 0)
            len = len / 4096 * 4096, offset = offset / 4096 * 4096;
        done = pread_ik(0, memory, len, offset);
        if (done < 0)
            return done;
        result->digest = digest(result->digest, memory, (__u64)done);
        result->bytes += (__u64)done;
        result->short_reads += (__u64)done < len;
        if (pwrite_ik(1, memory, (__u64)done, offset + i % 3 * 13) != done)
            return -DS_EIO;
    }
    for (int round = 0; round < 4; round++) {
        for (__u64 i = 0; i < AT_ONCE; i++) {
            lens[i] = i % 2 == 0 ? 8192 : next(&x) % 9000;
            offsets[i] = i % 2 == 0 ? next(&x) % 16 * 4096 : next(&x) % 70000;
            done = pread_begin_ik(0, memory + i * ROOM, lens[i], offsets[i], i);
            if (done < 0)
                return done;
        }
        for (ended = 0; ended < AT_ONCE;) {
            __s64 count = wait_any_ik(cookies, results, AT_ONCE);

            if (count <= 0)
                return -DS_ENOENT;
            for (__s64 i = 0; i < count; i++)
                got[cookies[i] % AT_ONCE] = results[i];
            ended += (__u64)count;
        }
        for (__u64 i = 0; i < AT_ONCE; i++) {
            if (got[i] < 0)
                return got[i];
            result->digest = digest(result->digest, memory + i * ROOM, (__u64)got[i]);
            result->bytes += (__u64)got[i];
            /* Apart from each other, since their order is not known. */
            done = pwrite_begin_ik(1, memory + i * ROOM, (__u64)got[i], 80000 + ((__u64)round * AT_ONCE + i) * ROOM, i);
            if (done < 0)
                return done;
        }
        for (__u64 i = 0; i < AT_ONCE; i++)
            if (wait_ik(i) != got[i])
                return -DS_EIO;
        if (wait_ik(0) != -DS_ENOENT || wait_any_ik(cookies, results, 1) != 0)
            return -DS_EBADMSG;
    }
    done = fsync_ik(1);
    return done < 0 ? done : (__s64)sizeof(*result);
}
