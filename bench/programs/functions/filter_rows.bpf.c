/* A filter over rows with a sum of products, as TPC-H's sixth query. */
#include "diskside.h"

struct row { __u32 date, quantity, discount, price; };
struct result { __u64 rows, revenue; };

SEC("read/filter_rows")
__s64 filter_rows(struct result *out, const struct row *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    for (__u64 i = 0; i < in_len / sizeof(*in); i++) {
        const struct row *row = &in[i];
        if (row->date >= 1000 && row->date < 2000 && row->discount >= 5 && row->discount <= 7 && row->quantity < 24) {
            out->rows++;
            out->revenue += (__u64)row->price * row->discount;
        }
    }
    return sizeof(*out);
}
