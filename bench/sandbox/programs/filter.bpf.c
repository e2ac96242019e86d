/* SPDX-License-Identifier: Apache-2.0 */
/* filter: which numbers of a column lie between two others, as a bitmap. */
#include "diskside.h"

DS_OUTPUT(1, 32, 64);

struct filter_args {
    __u32 lo, hi;
};

SEC("read/filter")
__s64 filter(__u8 *out, const __u32 *in, __u64 in_len, const struct filter_args *args, const struct ds_call *call)
{
    __u64 n = in_len / (8 * sizeof(*in));
    __u32 lo = args->lo, width = args->hi - lo;

    for (__u64 i = 0; i < n; i++) {
        __u8 bits = 0;
        for (int k = 0; k < 8; k++)
            bits |= (in[8 * i + k] - lo <= width) << k;
        out[i] = bits;
    }
    return n;
}
