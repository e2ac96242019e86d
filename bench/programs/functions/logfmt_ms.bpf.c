/* key=value records: the sum and the greatest of `ms`, of lines with `level=error`. */
#include "diskside.h"
DS_SPLIT_LINES;

struct result { __u64 errors, sum_ms, max_ms; };

static int equals(const char *text, __u64 len, const char *word, __u64 word_len)
{
    if (len != word_len)
        return 0;
    for (__u64 i = 0; i < len; i++)
        if (text[i] != word[i])
            return 0;
    return 1;
}

SEC("read/logfmt_ms")
__s64 logfmt_ms(struct result *out, const char *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    __u64 i = 0, ms = 0;
    int error = 0;
    while (i < in_len) {
        __u64 key = i;
        while (i < in_len && in[i] != '=' && in[i] != '\n')
            i++;
        __u64 key_len = i - key;
        if (i < in_len && in[i] == '=')
            i++;
        __u64 value = i;
        while (i < in_len && in[i] != ' ' && in[i] != '\n')
            i++;
        __u64 value_len = i - value;
        if (equals(in + key, key_len, "level", 5)) {
            error = equals(in + value, value_len, "error", 5);
        } else if (equals(in + key, key_len, "ms", 2)) {
            ms = 0;
            for (__u64 k = 0; k < value_len; k++)
                ms = ms * 10 + (in[value + k] - '0');
        }
        if (i < in_len && in[i] == '\n') {
            if (error) {
                out->errors++;
                out->sum_ms += ms;
                if (ms > out->max_ms)
                    out->max_ms = ms;
            }
            error = 0;
            ms = 0;
        }
        i++;
    }
    return sizeof(*out);
}
