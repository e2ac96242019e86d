#include "types.h"

static NOINLINE u64 one(u64 x) { return x + 1; }
static NOINLINE u64 two(u64 x) { return x + 2; }
static u64 (*const steps[2])(u64) = {one, two};

SEC("read/pointer")
s64 pointer(u64 *out, const u64 *in, u64 in_len) { return steps[in_len & 1](in_len); }
