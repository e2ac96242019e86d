/* An argument structure of every kind of member. */
#include "types.h"
#define TAG(text) __attribute__((btf_decl_tag(text)))

enum order { ASCENDING, DESCENDING = 5, NONE = -1 };

struct point {
    s32 x;
    s32 y TAG("default:-4");
};

struct all_args {
    u32 k TAG("default:10") TAG("min:1") TAG("max:1000") TAG("doc:how many rows");
    enum order order TAG("default:DESCENDING");
    char pattern[16] TAG("default:abc");
    struct point origin;
    u32 ratio TAG("type:f32") TAG("default:0.5");
    u64 weight TAG("type:f64");
    s8 small;
    u8 byte;
    s16 half;
    u16 word;
    _Bool strict;
    s64 wide;
    u16 grid[2][3];
    u64 target[];
};

SEC("read/args")
s64 args(void *out, const void *in, u64 in_len, const struct all_args *args) { return args->k; }

SEC("write/plain")
s64 plain(void *out, const void *in, u64 in_len, const void *args) { return 0; }

SEC("combine/args")
s64 combine(void *acc, u64 acc_len, u64 acc_cap, const struct point *part, u64 part_len) {
    return part->x;
}
