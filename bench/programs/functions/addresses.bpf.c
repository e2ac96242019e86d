/* Lines that begin with an IPv4 address: how many by its first byte. */
#include "diskside.h"
DS_SPLIT_LINES;
DS_OUTPUT(0, 1, 2056);

SEC("read/addresses")
__s64 addresses(__u64 *out, const char *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    __u64 i = 0;
    while (i < in_len) {
        __u32 parts[4] = {0}, part = 0, ok = 1;
        while (i < in_len && in[i] != ' ' && in[i] != '\n') {
            if (in[i] == '.')
                part++;
            else if (in[i] >= '0' && in[i] <= '9' && part < 4)
                parts[part] = parts[part] * 10 + (in[i] - '0');
            else
                ok = 0;
            i++;
        }
        if (ok && part == 3 && parts[0] < 256 && parts[1] < 256 && parts[2] < 256 && parts[3] < 256)
            out[parts[0]]++;
        else
            out[256]++;
        while (i < in_len && in[i] != '\n')
            i++;
        i++;
    }
    return 257 * sizeof(*out);
}
