/* Goes wrong as its argument says, at the first chunk that begins with a byte other than 0. */
#include "diskside.h"

DS_SPLIT_BYTES;
DS_CONCATENATE;
DS_OUTPUT(1, 1, 64);

struct hostile_args {
    __u64 how;
};

SEC("read/hostile")
__s64 hostile(__u8 *out, const __u8 *in, __u64 in_len, const struct hostile_args *args,
              const struct ds_call *call)
{
    volatile __u64 spent = 0;
    if (in_len == 0 || in[0] == 0)
        return 0;
    switch (args->how) {
    case 1: /* reads behind its input */
        out[0] = in[in_len + (args->how << 20)];
        return 1;
    case 2: /* writes behind its output */
        out[args->how << 32] = 1;
        return 1;
    case 3: /* never ends */
        for (;;)
            spent++;
    case 4: /* says that it wrote more than there is room for */
        return 1ll << 40;
    case 5: /* fails by its own will */
        return -DS_EBADMSG;
    }
    out[0] = in[0];
    return 1;
}
