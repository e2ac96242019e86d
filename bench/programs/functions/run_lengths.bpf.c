/* Run-length encoding of bytes: pairs of how often and what. */
#include "diskside.h"
DS_OUTPUT(2, 1, 64);

SEC("read/run_lengths")
__s64 run_lengths(__u8 *out, const __u8 *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    __u64 i = 0, n = 0;
    while (i < in_len) {
        __u8 value = in[i];
        __u64 run = 1;
        while (i + run < in_len && in[i + run] == value && run < 255)
            run++;
        out[n++] = run;
        out[n++] = value;
        i += run;
    }
    return n;
}
