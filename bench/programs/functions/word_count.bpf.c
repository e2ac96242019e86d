/* Lines, words and bytes, as wc has them. */
#include "diskside.h"

struct counts { __u64 lines, words, bytes; };

SEC("read/word_count")
__s64 word_count(struct counts *out, const char *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    int in_word = 0;
    for (__u64 i = 0; i < in_len; i++) {
        char c = in[i];
        if (c == '\n')
            out->lines++;
        int space = c == ' ' || (c >= '\t' && c <= '\r');
        if (!space && !in_word)
            out->words++;
        in_word = !space;
    }
    out->bytes = in_len;
    return sizeof(*out);
}
