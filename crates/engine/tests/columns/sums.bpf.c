#include "diskside.h"

struct sum { __s64 total, rows; };
struct args { __s64 below; };
struct items {
    const __s64 *price DS_DECIMAL(2), *quantity;
    const __u8 *quantity__valid;
    struct ds_dict mode;
};

/* Over the rows whose quantity is known and below a bound, and whose mode is AIR. */
SEC("columns/air") __s64 air(struct sum *out, const struct items *in, __u64 rows, const struct args *args, const struct ds_call *call) {
    const __s64 *price = in->price, *quantity = in->quantity;
    const __u8 *valid = in->quantity__valid;
    const __u32 *codes = in->mode.codes, *offsets = in->mode.values.offsets;
    const char *texts = in->mode.values.bytes;
    __u64 code = ~0ull;
    for (__u64 i = 0; i < in->mode.count; i++)
        if (offsets[i + 1] - offsets[i] == 3 && ds_memcmp(texts + offsets[i], "AIR", 3) == 0)
            code = i;
    for (__u64 i = 0; i < rows; i++)
        if (valid[i] && quantity[i] < args->below && codes[i] == code) {
            out->total += price[i] * quantity[i];
            out->rows++;
        }
    return sizeof(*out);
}
SEC("combine/air") __s64 air_fold(struct sum *acc, __u64 acc_len, __u64 acc_cap, const struct sum *part, __u64 part_len) {
    acc->total += part->total;
    acc->rows += part->rows;
    return sizeof(*acc);
}
