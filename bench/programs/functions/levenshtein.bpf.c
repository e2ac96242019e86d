/* The line nearest to a word, by edit distance. */
#include "diskside.h"
DS_SPLIT_LINES;

struct word { __u32 len; char text[32]; };
struct nearest { __u64 offset, distance; };

SEC("read/levenshtein")
__s64 levenshtein(struct nearest *out, const char *in, __u64 in_len, const struct word *word, const struct ds_call *call)
{
    __u8 row[33];
    __u64 start = 0, best = ~0ull, at = 0;
    __u32 n = word->len;
    if (n > 32)
        return -DS_EINVAL;
    while (start < in_len) {
        for (__u32 j = 0; j <= n; j++)
            row[j] = j;
        __u64 i = start;
        for (; i < in_len && in[i] != '\n'; i++) {
            __u8 diagonal = row[0];
            row[0] = i - start + 1;
            for (__u32 j = 1; j <= n; j++) {
                __u8 cost = diagonal + (in[i] != word->text[j - 1]);
                diagonal = row[j];
                __u8 least = row[j] < row[j - 1] ? row[j] : row[j - 1];
                row[j] = cost < least + 1 ? cost : least + 1;
            }
        }
        if (row[n] < best) {
            best = row[n];
            at = start;
        }
        start = i + 1;
    }
    out->offset = at;
    out->distance = best;
    return sizeof(*out);
}
