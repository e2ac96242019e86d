#include "types.h"

SEC("xdp/pass")
s64 pass(void *context) { return 2; }
