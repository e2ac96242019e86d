#include "types.h"

SEC("read/same") s64 first(u64 *out) { return 1; }
SEC("read.x/same") s64 second(u64 *out) { return 2; }
