/* Requests by HTTP status, in a web server's log: the number behind the quoted request. */
#include "diskside.h"
DS_SPLIT_LINES;
DS_OUTPUT(0, 1, 4800);

SEC("read/status_count")
__s64 status_count(__u64 *out, const char *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    for (__u64 i = 2; i + 3 < in_len; i++) {
        if (in[i - 2] != '"' || in[i - 1] != ' ')
            continue;
        if (in[i] < '1' || in[i] > '5' || in[i + 3] != ' ')
            continue;
        __u32 status = (in[i] - '0') * 100 + (in[i + 1] - '0') * 10 + (in[i + 2] - '0');
        if (status < 600)
            out[status]++;
    }
    return 600 * sizeof(*out);
}
