/*
 * A function for native code: the very source that runs in the sandbox, behind an entry whose
 * pointers are `restrict`, so that a compiler knows as much as ours may.
 */
#define SEC(name) static inline __attribute__((always_inline))
#include SOURCE

__s64 ENTRY(void *restrict out, const void *restrict in, __u64 in_len, const void *restrict args,
            const struct ds_call *restrict call)
{
    return NAME(out, in, in_len, args, call);
}
