/* How many different addresses asked for a page that is not there. */
#include <diskside/groups.h>

DS_OUTPUT(1, 1, 1048576);

struct row { char name[24]; double value; };
DS_GROUPS(addresses, struct row, name);

SEC("read/f")
__s64 f(struct row *out, const char *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    struct ds_text rest = ds_text(in, in_len), line, field, address = {0};
    struct addresses table = {0};

    while (ds_next_line(&rest, &line)) {
        for (int i = 0; ds_next_field(&line, ' ', &field); i++) {
            if (i == 0)
                address = field;
            if (i == 6 && ds_equal(field, ds_literal("404")) && !addresses_at(&table, address))
                return table.error;
        }
    }
    out[0] = (struct row){"addresses", table.count};
    return sizeof(*out);
}
