/* Quotes that a backslash does not escape: a look back that the source guards. */
#include "diskside.h"

SEC("read/quotes_escaped")
__s64 quotes_escaped(__u64 *out, const char *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    __u64 plain = 0, escaped = 0;
    for (__u64 i = 0; i < in_len; i++) {
        if (in[i] != '"')
            continue;
        if (i >= 1 && in[i - 1] == '\\' && !(i >= 2 && in[i - 2] == '\\'))
            escaped++;
        else
            plain++;
    }
    out[0] = plain;
    out[1] = escaped;
    return 16;
}
