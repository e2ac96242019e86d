/* A program in lambda-IO's plain form that reads and writes by helper, at offsets. */
#include "types.h"

static int (*const read_at)(void *to, const void *from, s64 offset, u64 size, u64 boundary) = (void *)159;
static int (*const write_at)(void *to, const void *from, s64 offset, u64 size, u64 boundary) = (void *)160;

/* The last four bytes first: to read at the end is to read as late as the boundary allows. */
s64 compute(u8 *out, const u8 *in, u64 len) {
    u8 last[4];
    if (read_at(last, in, len, sizeof(last), len) != sizeof(last))
        return -1;
    write_at(out, last, 0, sizeof(last), len);
    write_at(out, in, sizeof(last), len - sizeof(last), len);
    return len;
}
