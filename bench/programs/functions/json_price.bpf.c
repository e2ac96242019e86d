/* Sum of the member "price" of JSON lines, by comparing names. */
#include "diskside.h"
DS_SPLIT_LINES;

struct result { __u64 lines, found, sum; };

static int has_price(const char *p)
{
    static const char name[] = "\"price\":";
    for (int i = 0; i < 8; i++)
        if (p[i] != name[i])
            return 0;
    return 1;
}

SEC("read/json_price")
__s64 json_price(struct result *out, const char *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    __u64 i = 0;
    while (i < in_len) {
        if (in[i] == '\n') {
            out->lines++;
            i++;
        } else if (in[i] == '"' && i + 8 < in_len && has_price(in + i)) {
            __u64 value = 0;
            for (i += 8; i < in_len && in[i] >= '0' && in[i] <= '9'; i++)
                value = value * 10 + (in[i] - '0');
            out->sum += value;
            out->found++;
        } else {
            i++;
        }
    }
    return sizeof(*out);
}
