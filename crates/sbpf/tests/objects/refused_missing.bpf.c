#include "types.h"

extern u64 ds_popcnt(const void *p, u64 len);
extern u64 nothing_like_it(u64 x);
extern u64 shared_total;

SEC("read/missing")
s64 missing(u64 *out, const u64 *in, u64 in_len) {
    return ds_popcnt(in, in_len) + nothing_like_it(in_len) + ds_popcnt(in, 1) + shared_total;
}
