/* Code that clang proves undefined becomes a trap from clang 21 on. */
#include "types.h"

SEC("read/trap")
s64 trap(u64 *out, const u64 *in, u64 in_len) {
    if (in_len > 8)
        return 2;
    __builtin_trap();
}
