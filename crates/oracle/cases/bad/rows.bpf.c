/* SPDX-License-Identifier: Apache-2.0 */
/* Functions with the length of a record as an argument. */
#include "diskside.h"

DS_CONCATENATE;

struct rows {
    __u64 row_len DS_ARG_RECORD_LEN DS_ARG_DEFAULT("0");
};

/* Gives the length of each piece. */
SEC("read/lens")
__s64 lens(__u64 *out, const char *in, __u64 in_len, const struct rows *args, const struct ds_call *call)
{
    *out = in_len;
    return sizeof(*out);
}

/* Is stopped in every piece but the first. */
SEC("read/traps")
__s64 traps(__u64 *out, const char *in, __u64 in_len, const struct rows *args, const struct ds_call *call)
{
    *out = in[call->chunk_index == 0 ? 0 : in_len + call->chunk_index];
    return sizeof(*out);
}

/* Gives an error in every piece but the first two. */
SEC("read/fails")
__s64 fails(__u64 *out, const char *in, __u64 in_len, const struct rows *args, const struct ds_call *call)
{
    return call->chunk_index < 2 ? 0 : -(__s64)call->chunk_index;
}

/* More output than there is room for, from the third piece on. */
SEC("read/overflows")
__s64 overflows(__u64 *out, const char *in, __u64 in_len, const struct rows *args, const struct ds_call *call)
{
    return call->chunk_index < 3 ? 0 : call->out_cap + call->chunk_index;
}

/* For ever, from the fourth piece on. */
SEC("read/spins")
__s64 spins(__u64 *out, const char *in, __u64 in_len, const struct rows *args, const struct ds_call *call)
{
    for (volatile __u64 i = 0; call->chunk_index > 3 && i < 1ull << 50; i++)
        ;
    return 0;
}
