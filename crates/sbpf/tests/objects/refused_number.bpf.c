#include "types.h"

static u64 (*const get_time)(void) = (void *)5;

SEC("read/number")
s64 number(u64 *out, const u64 *in, u64 in_len) { return get_time(); }
