/* How many different words there are, about: a HyperLogLog of 1024 registers. */
#include "diskside.h"
DS_OUTPUT(0, 1, 1024);

SEC("read/distinct")
__s64 distinct(__u8 *out, const char *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    __u64 hash = 0xcbf29ce484222325ull;
    int len = 0;
    for (__u64 i = 0; i < in_len; i++) {
        if (in[i] != ' ' && in[i] != '\n') {
            hash = (hash ^ (__u8)in[i]) * 0x100000001b3ull;
            len++;
            continue;
        }
        if (len) {
            hash ^= hash >> 32;
            hash *= 0x9e3779b97f4a7c15ull;
            __u32 slot = hash >> 54;
            __u8 rank = 1;
            for (__u64 rest = hash << 10 | 512; !(rest >> 63); rest <<= 1)
                rank++;
            if (rank > out[slot])
                out[slot] = rank;
        }
        hash = 0xcbf29ce484222325ull;
        len = 0;
    }
    return 1024;
}
