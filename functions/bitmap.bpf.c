/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bitmap: expands a run-length encoded bitmap on its way to the medium. The input is pairs of bytes,
 * how often (0 to 255) and what; the output has each byte that often.
 *
 * There is room for runs of 64 on average in each piece; a longer expansion is -DS_ENOSPC.
 */
#include "diskside.h"

DS_SPLIT_RECORDS(2);
DS_CONCATENATE;
DS_OUTPUT(32, 1, 256);

SEC("write/bitmap")
__s64 bitmap(__u8 *out, const __u8 *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    __u64 room = call->out_cap;
    __u8 *o = out;

    if (in_len % 2 != 0)
        return DS_FAIL(DS_EINVAL, "the input is pairs of bytes, how often and what, and ends within one");
    for (const __u8 *end = in + in_len; in < end; in += 2) {
        __u64 n = in[0], word = in[1] * 0x0101010101010101ull;

        if (n > room)
            return DS_FAIL(DS_ENOSPC, "the input expands to more than 32 times its length, for which there is no room: with --chunk 2 "
                                      "there is room for any");
        room -= n;
        for (; n >= 32; n -= 32, o += 32) {
            ((__u64 *)o)[0] = word;
            ((__u64 *)o)[1] = word;
            ((__u64 *)o)[2] = word;
            ((__u64 *)o)[3] = word;
        }
        for (; n >= 8; n -= 8, o += 8)
            *(__u64 *)o = word;
        if (n & 4) {
            *(__u32 *)o = word;
            o += 4;
        }
        if (n & 2) {
            *(__u16 *)o = word;
            o += 2;
        }
        if (n & 1)
            *o++ = word;
    }
    return o - out;
}
