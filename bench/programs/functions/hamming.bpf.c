/* The signature of 256 bits nearest to a given one. */
#include "diskside.h"

struct signature { __u64 words[4]; };
struct nearest { __u64 at, distance; };

SEC("read/hamming")
__s64 hamming(struct nearest *out, const struct signature *in, __u64 in_len, const struct signature *wanted,
              const struct ds_call *call)
{
    __u64 best = ~0ull, at = 0;
    for (__u64 i = 0; i < in_len / sizeof(*in); i++) {
        __u64 distance = 0;
        for (int k = 0; k < 4; k++)
            distance += __builtin_popcountll(in[i].words[k] ^ wanted->words[k]);
        if (distance < best) {
            best = distance;
            at = i;
        }
    }
    out->at = at;
    out->distance = best;
    return sizeof(*out);
}
