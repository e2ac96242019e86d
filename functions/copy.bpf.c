/* SPDX-License-Identifier: Apache-2.0 */
/* copy: the bytes as they are. Moves at the server need it: a file into device memory, and back. */
#include "diskside.h"

DS_SPLIT_BYTES;
DS_CONCATENATE;
DS_OUTPUT(1, 1, 0);

SEC("write/copy")
__s64 copy(__u8 *out, const __u8 *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    ds_memcpy(out, in, in_len);
    return in_len;
}
