/* A `.diskside` note with every record, padding between two of them, and an optional unknown one. */
#include "types.h"

struct __attribute__((packed, aligned(4))) word_record { u16 type, len; u32 value; };
struct __attribute__((packed, aligned(4))) pair_record { u16 type, len; u32 a, b; };
struct __attribute__((packed, aligned(4))) ratio_record { u16 type, len; u32 num, den; u64 constant; };
struct __attribute__((packed, aligned(4))) odd_record { u16 type, len; u8 bytes[5]; };

SEC(".diskside") const struct word_record abi = {1, 4, 1};
SEC(".diskside") const struct word_record stack = {2, 4, 8192};
SEC(".diskside") const struct odd_record hint = {0x8007, 5, {1, 2, 3, 4, 5}};
SEC(".diskside") const struct ratio_record ratio = {3, 16, 32, 1, 0x100000001ull};
SEC(".diskside") const struct pair_record split = {4, 8, 2, '\n'};

SEC("read/note")
s64 note(u64 *out, const u64 *in, u64 in_len) {
    volatile u64 frame[32];
    for (int i = 0; i < 32; i++)
        frame[i] = i;
    return frame[in_len & 31];
}
