#include "types.h"

SEC("read/same") s64 first(u64 *out) { return 1; }
SEC("read") s64 same(u64 *out) { return 2; }
