#include "diskside.h"

DS_CONCATENATE;
DS_OUTPUT(0, 1, 64);

struct items { const __s64 *price, *l_tax; struct ds_utf8 name; };
struct out { __s64 a; };
#define FUNCTION(name) SEC("columns/" #name) __s64 name(struct out *out, const struct items *in, __u64 rows, const void *args, const struct ds_call *call)

FUNCTION(overrun) { return out->a = in->l_tax[rows]; }
FUNCTION(below) { return out->a = in->name.bytes[-1]; }
FUNCTION(writes) { ((__s64 *)in->price)[0] = 1; return 8; }
FUNCTION(moves) { ((struct items *)in)->price = in->l_tax; return 8; }
FUNCTION(endless) { for (;;) *(volatile __s64 *)&out->a += 1; }
FUNCTION(too_long) { return 65; }
FUNCTION(fails) { return DS_FAIL(DS_EINVAL, "a price is negative"); }
FUNCTION(clock) { out->a = ds_now(); return 8; }
FUNCTION(good) { out->a = in->price[0] + call->out_cap; return 8; }
