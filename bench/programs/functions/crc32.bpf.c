/* CRC-32 (of zip) by a table that is made first. */
#include "diskside.h"
DS_OUTPUT(0, 1, 64);

SEC("read/crc32")
__s64 crc32(__u32 *out, const __u8 *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    __u32 *table = ds_alloc(1024);
    if (!table)
        return -DS_ENOMEM;
    for (__u32 i = 0; i < 256; i++) {
        __u32 c = i;
        for (int k = 0; k < 8; k++)
            c = c & 1 ? 0xedb88320 ^ c >> 1 : c >> 1;
        table[i] = c;
    }
    __u32 crc = ~0u;
    for (__u64 i = 0; i < in_len; i++)
        crc = table[(crc ^ in[i]) & 255] ^ crc >> 8;
    *out = ~crc;
    ds_free(table);
    return sizeof(*out);
}
