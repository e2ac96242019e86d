/* SPDX-License-Identifier: Apache-2.0 */
/* The sixth query of TPC-H over the columns of lineitem: the revenue that small discounts cost in a year.
 *
 *     diskside scan lineitem.parquet --function functions/columns_revenue.bpf.c --arg from=8766 --arg to=9131
 */
#include "diskside.h"

struct revenue {
    __s64 revenue DS_DECIMAL(4), rows;
};

struct args {
    __s32 from DS_ARG_DOC("first day, counted from 1970-01-01"), to DS_ARG_DOC("the day behind the last one");
};

struct lineitem {
    const __s64 *l_quantity DS_DECIMAL(2), *l_extendedprice DS_DECIMAL(2), *l_discount DS_DECIMAL(2);
    const __s32 *l_shipdate;
};

DS_OUTPUT(0, 1, 64);

SEC("columns/revenue")
__s64 revenue(struct revenue *out, const struct lineitem *in, __u64 rows, const struct args *args,
              const struct ds_call *call) {
    const __s64 *quantity = in->l_quantity, *price = in->l_extendedprice, *discount = in->l_discount;
    const __s32 *day = in->l_shipdate, from = args->from, to = args->to;
    __s64 sum = 0, taken = 0;
    for (__u64 i = 0; i < rows; i++) {
        int is_taken = (day[i] >= from) & (day[i] < to) & (discount[i] >= 5) & (discount[i] <= 7) & (quantity[i] < 2400);
        sum += is_taken ? price[i] * discount[i] : 0;
        taken += is_taken;
    }
    out->revenue = sum;
    out->rows = taken;
    return sizeof(*out);
}

SEC("combine/revenue")
__s64 revenue_fold(struct revenue *acc, __u64 acc_len, __u64 acc_cap, const struct revenue *part, __u64 part_len) {
    acc->revenue += part->revenue;
    acc->rows += part->rows;
    return sizeof(*acc);
}
