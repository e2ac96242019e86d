/* Reads above its stack, which its verifier sees. */
#include "diskside.h"

SEC("read/nowhere")
__s64 nowhere(__u8 *out, const __u8 *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    __s64 above;
    asm volatile("%0 = *(u64 *)(r10 + 8)" : "=r"(above));
    return above;
}
