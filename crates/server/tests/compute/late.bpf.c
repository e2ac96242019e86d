/* Copies its input. At the first chunk that begins with a byte other than 0 it goes wrong, as its argument says. */
#include "diskside.h"

DS_SPLIT_BYTES;
DS_CONCATENATE;
DS_OUTPUT(1, 1, 64);

SEC("read/late")
__s64 late(__u8 *out, const __u8 *in, __u64 in_len, const __u64 *how, const struct ds_call *call)
{
    volatile __u64 spent = 0;
    if (in_len > 0 && in[0] != 0) {
        switch (*how) {
        case 1: /* reads behind its input */
            out[0] = in[in_len + (*how << 20)];
            return 1;
        case 2: /* never ends */
            for (;;)
                spent++;
        case 3: /* says that it wrote more than there is room for */
            return 1ll << 40;
        case 4: /* fails by its own will */
            return -DS_EBADMSG;
        }
    }
    ds_memcpy(out, in, in_len);
    return in_len;
}
