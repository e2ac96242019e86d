/* SPDX-License-Identifier: Apache-2.0 */
/*
 * <diskside/bits.h>: sets of numbers below n, as bits of 64-bit words: bit i % 64 of words[i / 64].
 *
 *     __u64 seen[DS_BIT_WORDS(65536)] = {0};
 *     ds_bit_set(seen, port);
 *     for (__u64 i = 0; (i = ds_bit_next(seen, 65536, i)) < 65536; i++)
 *         ...                                          each number of the set
 */
#ifndef DISKSIDE_BITS_H
#define DISKSIDE_BITS_H

#include "../diskside.h"

#define DS_BIT_WORDS(n) (((n) + 63) / 64)

DS_INLINE int ds_bit_get(const __u64 *words, __u64 i) { return words[i / 64] >> (i % 64) & 1; }
DS_INLINE void ds_bit_set(__u64 *words, __u64 i) { words[i / 64] |= 1ull << (i % 64); }
DS_INLINE void ds_bit_clear(__u64 *words, __u64 i) { words[i / 64] &= ~(1ull << (i % 64)); }

/* The bits of a word that are set. */
DS_INLINE __u64 ds_bits_of(__u64 word)
{
    word -= word >> 1 & 0x5555555555555555ull;
    word = (word & 0x3333333333333333ull) + (word >> 2 & 0x3333333333333333ull);
    word = (word + (word >> 4)) & 0x0f0f0f0f0f0f0f0full;
    return word * 0x0101010101010101ull >> 56;
}

/* How many numbers below n are in the set. */
DS_INLINE __u64 ds_bit_count(const __u64 *words, __u64 n)
{
    __u64 count = 0;

    for (__u64 w = 0; w < n / 64; w++)
        count += ds_bits_of(words[w]);
    if (n % 64 != 0)
        count += ds_bits_of(words[n / 64] & ((1ull << (n % 64)) - 1));
    return count;
}

/* The least number of the set that is `from` or more; n when there is none below n. */
DS_INLINE __u64 ds_bit_next(const __u64 *words, __u64 n, __u64 from)
{
    while (from < n) {
        __u64 word = words[from / 64] >> (from % 64);
        if (word != 0) {
            from += ds_bits_of((word & (0 - word)) - 1);
            return from < n ? from : n;
        }
        from = (from / 64 + 1) * 64;
    }
    return n;
}

/* to = to | from, and to = to & from, for sets of numbers below n. */
DS_INLINE void ds_bit_or(__u64 *to, const __u64 *from, __u64 n)
{
    for (__u64 w = 0; w < DS_BIT_WORDS(n); w++)
        to[w] |= from[w];
}
DS_INLINE void ds_bit_and(__u64 *to, const __u64 *from, __u64 n)
{
    for (__u64 w = 0; w < DS_BIT_WORDS(n); w++)
        to[w] &= from[w];
}

#endif
