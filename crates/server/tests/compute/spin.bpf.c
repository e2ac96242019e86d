/* Computes for as many trips of a loop as its argument says, and reads nothing. */
#include "diskside.h"

DS_SPLIT_BYTES;
DS_CONCATENATE;
DS_OUTPUT(0, 1, 64);

struct spin_args {
    __u64 trips;
};

SEC("read/spin")
__s64 spin(__u8 *out, const __u8 *in, __u64 in_len, const struct spin_args *args)
{
    for (volatile __u64 trip = 0; trip < args->trips;)
        trip++;
    out[0] = 7;
    return 1;
}
