#include "types.h"

SEC("read.unordered/flag") s64 flag(u64 *out) { return 1; }
