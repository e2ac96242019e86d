/* Sum of the third column of comma-separated lines. */
#include "diskside.h"
DS_SPLIT_LINES;

SEC("read/csv_sum")
__s64 csv_sum(__u64 *out, const char *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    __u64 sum = 0, value = 0;
    __u32 column = 0;
    for (__u64 i = 0; i < in_len; i++) {
        char c = in[i];
        if (c == ',') {
            column++;
        } else if (c == '\n') {
            sum += value;
            value = 0;
            column = 0;
        } else if (column == 2 && c >= '0' && c <= '9') {
            value = value * 10 + (c - '0');
        }
    }
    *out = sum + value;
    return sizeof(*out);
}
