/* SPDX-License-Identifier: Apache-2.0 */
/* aggregate: count and sum of a value for each of 256 groups. */
#include "diskside.h"

DS_OUTPUT(0, 1, 4096);

struct row {
    __u32 group, value;
};

struct group {
    __u64 count, sum;
};

SEC("read/aggregate")
__s64 aggregate(struct group *out, const struct row *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    ds_memset(out, 0, 256 * sizeof(*out));
    for (const struct row *end = in + in_len / sizeof(*in); in < end; in++) {
        struct group *group = &out[in->group & 255];
        group->count++;
        group->sum += in->value;
    }
    return 256 * sizeof(*out);
}
