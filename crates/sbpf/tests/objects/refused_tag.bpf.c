#include "types.h"

struct bad_args {
    u32 k __attribute__((btf_decl_tag("defalt:3")));
};

SEC("read/bad")
s64 bad(u64 *out, const u64 *in, u64 in_len, const struct bad_args *args) { return args->k; }
