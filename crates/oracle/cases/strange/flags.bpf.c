/* SPDX-License-Identifier: Apache-2.0 */
/* The place of each piece, as the function sees it. */
#include "diskside.h"

DS_SPLIT_LINES;
DS_CONCATENATE;

struct told {
    __u64 in_len, flags, in_offset, source_index, chunk_index;
};

SEC("read/told")
__s64 told(struct told *out, const char *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    out->in_len = in_len;
    out->flags = call->flags;
    out->in_offset = call->in_offset;
    out->source_index = call->source_index;
    out->chunk_index = call->chunk_index;
    return sizeof(*out);
}
