/*
 * A function for engines whose programs see one memory: the very source that runs in the sandbox,
 * behind an entry that finds its buffers by a header (the runner's Layout) and makes the call's
 * description. Nothing here is linked, and nothing may call out.
 */
#define SEC(name) static inline __attribute__((always_inline))
#ifdef __bpf__
/* These engines do in a loop what the sandbox has helpers for. */
#define ds_memset peer_memset
#define ds_find peer_find
#include "diskside.h"
inline __attribute__((always_inline)) void *peer_memset(void *to, int value, __u64 len)
{
    for (__u64 i = 0; i < len; i++)
        ((volatile __u8 *)to)[i] = value;
    return to;
}
inline __attribute__((always_inline)) __s64 peer_find(const void *hay, __u64 hay_len,
                                                      const void *needle, __u64 needle_len)
{
    const __u8 *h = hay, *n = needle;
    for (__u64 i = 0; i + needle_len <= hay_len; i++) {
        __u64 same = 0;
        while (same < needle_len && h[i + same] == n[same])
            same++;
        if (same == needle_len)
            return (__s64)i;
    }
    return -1;
}
#endif
#include SOURCE

struct peer_header {
    __u64 args, args_len, input, input_len, output, output_cap;
};

#ifdef __bpf__
typedef __u64 peer_len;
__attribute__((section("peer/entry"), used))
#else
typedef __u32 peer_len;
#endif
__s64 peer(__u8 *memory, peer_len len)
{
    const struct peer_header *header = (const struct peer_header *)memory;
    (void)len;
    const struct ds_call call = {
        .size = sizeof(call),
        .flags = DS_FIRST | DS_LAST,
        .args_len = header->args_len,
        .out_cap = header->output_cap,
        .record_index = DS_UNKNOWN,
        .source_len = header->input_len,
    };
    return NAME((void *)(memory + header->output), (const void *)(memory + header->input),
                header->input_len, (const void *)(memory + header->args), &call);
}
