/* Lines that equal the line before them. */
#include "diskside.h"
DS_SPLIT_LINES;

SEC("read/repeated_lines")
__s64 repeated_lines(__u64 *out, const char *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    __u64 start = 0, before = 0, before_len = ~0ull, repeated = 0;
    for (__u64 i = 0; i < in_len; i++) {
        if (in[i] != '\n')
            continue;
        __u64 len = i - start;
        if (len == before_len) {
            __u64 k = 0;
            while (k < len && in[start + k] == in[before + k])
                k++;
            if (k == len)
                repeated++;
        }
        before = start;
        before_len = len;
        start = i + 1;
    }
    *out = repeated;
    return sizeof(*out);
}
