#include "types.h"

struct bad_args {
    u32 k;
    const char *name;
};

SEC("read/bad")
s64 bad(u64 *out, const u64 *in, u64 in_len, const struct bad_args *args) { return args->k; }
