/* SPDX-License-Identifier: Apache-2.0 */
/* Functions whose `combine` is wrong. */
#include "diskside.h"

DS_SPLIT_RECORDS(8);
DS_OUTPUT(0, 1, 64);

#define FIRST(name) SEC("read/" #name) \
    __s64 name(__u64 *out, const __u64 *in, __u64 in_len, const void *args, const struct ds_call *call) \
    { *out = in_len; return sizeof(*out); } \
    SEC("combine/" #name) \
    __s64 name##_fold(__u64 *acc, __u64 acc_len, __u64 acc_cap, const __u64 *part, __u64 part_len)

/* More than there is room for. */
FIRST(grows) { return acc_cap + 1; }

/* An error, at the second result. */
FIRST(refuses) { return acc_len ? -DS_EBADMSG : 8; }

/* One more number each time, and it reads one that is not there. */
FIRST(reads) { acc[acc_len / 8] = part[acc_len / 8]; return acc_len + 8; }

/* Past the end of the accumulator. */
FIRST(writes) { acc[acc_cap / 8] = *part; return 8; }

/* For ever. */
FIRST(spins)
{
    for (volatile __u64 i = 0; acc_len && i < 1ull << 50; i++)
        ;
    return 8;
}

/* The function fails on the second file, and what it gave before cannot be folded. */
SEC("read/second")
__s64 second(__u64 *out, const __u64 *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    *out = in_len;
    return call->source_index ? -DS_EBADMSG : 8;
}
SEC("combine/second")
__s64 second_fold(__u64 *acc, __u64 acc_len, __u64 acc_cap, const __u64 *part, __u64 part_len)
{
    acc[acc_cap / 8] = *part;
    return 8;
}

/* The function fails on the second piece of the second file, and its result of the first one cannot be folded. */
SEC("read/after")
__s64 after(__u64 *out, const __u64 *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    *out = call->source_index;
    return call->source_index && call->chunk_index ? -DS_EBADMSG : 8;
}
SEC("combine/after")
__s64 after_fold(__u64 *acc, __u64 acc_len, __u64 acc_cap, const __u64 *part, __u64 part_len)
{
    return *part ? -DS_EBADMSG : 8;
}
