/* The greatest rise between any earlier and any later value. */
#include "diskside.h"

struct result { __s64 rise; __s64 mean; };

SEC("read/delta_max")
__s64 delta_max(struct result *out, const __s32 *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    __s64 n = in_len / 4, least = 0x7fffffff, rise = 0, sum = 0;
    for (__s64 i = 0; i < n; i++) {
        if (in[i] < least)
            least = in[i];
        if (in[i] - least > rise)
            rise = in[i] - least;
        sum += in[i] / 16;
    }
    out->rise = rise;
    out->mean = n ? sum / n : 0;
    return sizeof(*out);
}
