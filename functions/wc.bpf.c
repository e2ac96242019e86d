/* SPDX-License-Identifier: Apache-2.0 */
/* wc: lines, words and bytes of text, as wc(1) counts them in the C locale. */
#include "diskside.h"

DS_SPLIT_LINES;
DS_OUTPUT(0, 1, 64);

struct wc_result {
    __u64 lines, words, bytes;
};

/* Eight bytes are handled at once: each lane of a 64-bit word is a byte, its highest bit a flag. */
#define LANES(byte) ((byte) * 0x0101010101010101ull)
#define FLAGS LANES(0x80ull)

/* The flag of each lane that is 0. */
DS_INLINE __u64 zero_lanes(__u64 x)
{
    return ~(((x & ~FLAGS) + ~FLAGS) | x) & FLAGS;
}

/* The flag of each lane that is white space: 9 to 13 and 32. */
DS_INLINE __u64 space_lanes(__u64 x)
{
    __u64 low = x & ~FLAGS;
    __u64 from_9 = low + LANES(0x80ull - 9), from_14 = low + LANES(0x80ull - 14);

    return zero_lanes(x ^ LANES(0x20ull)) | (from_9 & ~from_14 & ~x & FLAGS);
}

DS_INLINE __u64 count_lanes(__u64 flags)
{
    return ((flags >> 7) * LANES(1ull)) >> 56;
}

SEC("read/wc")
__s64 wc(struct wc_result *out, const __u8 *in, __u64 in_len, const void *args,
         const struct ds_call *call)
{
    const __u8 *p = in, *end = in + in_len, *last = in + (in_len & ~7ull);
    __u64 lines = 0, words = 0, after_space = 0x80; /* a flag for the lowest lane */

    for (; p < last; p += 8) {
        __u64 x = *(const __u64 *)p;
        __u64 space = space_lanes(x);

        lines += count_lanes(zero_lanes(x ^ LANES(0x0aull)));
        words += count_lanes(~space & (space << 8 | after_space) & FLAGS);
        after_space = space >> 56;
    }
    for (; p < end; p++) {
        __u64 space = *p == 32 || (*p >= 9 && *p <= 13) ? 0x80 : 0;

        lines += *p == '\n';
        words += (after_space & ~space) >> 7;
        after_space = space;
    }
    *out = (struct wc_result){lines, words, in_len};
    return sizeof(*out);
}

SEC("combine.unordered/wc")
__s64 wc_combine(struct wc_result *acc, __u64 acc_len, __u64 acc_cap, const struct wc_result *part,
                 __u64 part_len)
{
    if (acc_len == 0) {
        *acc = *part;
        return sizeof(*acc);
    }
    acc->lines += part->lines;
    acc->words += part->words;
    acc->bytes += part->bytes;
    return sizeof(*acc);
}
