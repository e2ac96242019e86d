/* Every way in which code and data refer to each other. The test knows what each slot of `out` must
 * hold after a call with 19 bytes of input. */
#include "types.h"

extern u64 ds_popcount(const void *p, u64 len);
extern u64 ds_hash64(const void *p, u64 len, u64 seed) __attribute__((weak));
extern u64 ds_not_there(u64 x) __attribute__((weak));

static const u32 table[8] = {10, 11, 12, 13, 14, 15, 16, 17};
static u64 counter = 7;
static u64 zeros[4];
int cells[3] = {100, 200, 300};
static int *pointer = &cells[1];
static const char *names[2] = {"alpha", "beta"};
static const char *const constants[2] = {"gamma", "delta"};

static NOINLINE u64 twice_plus(u64 a, u64 b) {
    counter += b;
    return 2 * a + b;
}

SEC(".text.other") NOINLINE u64 other(u64 a) { return twice_plus(a, 3) ^ 0x55; }

NOINLINE u64 visible(const u8 *p, u64 a) { return p[a & 3] + twice_plus(a, 9); }

SEC("read/link")
s64 link_entry(u64 *out, const u8 *in, u64 in_len) {
    out[0] = table[in_len & 7];
    out[1] = counter;
    zeros[in_len & 3] += in_len;
    out[2] = zeros[3] + zeros[in_len & 1];
    out[3] = names[in_len & 1][in_len & 3];
    out[4] = constants[in_len & 1][1];
    out[5] = *pointer;
    out[6] = twice_plus(in_len, 5);
    out[7] = other(in_len);
    out[8] = visible(in, in_len);
    out[9] = ds_popcount(in, in_len);
    out[10] = ds_not_there ? ds_not_there(1) : 77;
    out[11] = ds_hash64 ? 1 : 0;
    out[12] = counter;
    switch (in[0] & 7) {
    case 0: out[13] = 5; break;
    case 1: out[13] = in_len * 3; break;
    case 2: out[13] = in_len ^ 9; break;
    case 3: out[13] = counter; break;
    case 4: out[13] = 1234; break;
    case 5: out[13] = in[1]; break;
    default: out[13] = 0;
    }
    return 14 * 8;
}

SEC("combine.unordered/link")
s64 link_combine(u64 *acc, u64 acc_len, u64 acc_cap, const u64 *part, u64 part_len) {
    if (acc_cap < 8 || part_len < 8)
        return -1;
    acc[0] = (acc_len ? acc[0] : 0) + part[0] + other(1);
    return 8;
}

char _license[] SEC("license") = "GPL";
