/* A program in lambda-IO's plain form: entry in .text, helpers by number. */
#include "types.h"

static void *(*const copy)(void *to, const void *from, u64 len) = (void *)156;
static void *(*const fill)(void *to, int byte, u64 len) = (void *)162;

static NOINLINE u64 half(u64 x) { return x / 2; }

s64 compute(u8 *out, const u8 *in, u64 len) {
    u64 n = half(len);
    copy(out, in, n);
    fill(out + n, 0xee, len - n);
    return len;
}
