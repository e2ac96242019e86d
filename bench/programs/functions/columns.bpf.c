/* Rows of four members to four columns. */
#include "diskside.h"

struct row { __u32 a, b, c, d; };

SEC("read/columns")
__s64 columns(__u32 *out, const struct row *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    __u64 n = in_len / sizeof(*in);
    for (__u64 i = 0; i < n; i++) {
        out[i] = in[i].a;
        out[n + i] = in[i].b;
        out[2 * n + i] = in[i].c;
        out[3 * n + i] = in[i].d;
    }
    return n * sizeof(*in);
}
