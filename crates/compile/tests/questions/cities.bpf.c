/* Turnover by city, of a CSV file with quoted names. */
#include <diskside/groups.h>

DS_OUTPUT(1, 1, 1048576);

struct row { char name[24]; double value; };
DS_GROUPS(cities, struct row, name);

SEC("read/f")
__s64 f(struct row *out, const char *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    struct ds_text rest = ds_text(in, in_len), line, field, city = {0};
    struct cities table = {0};

    while (ds_next_line(&rest, &line)) {
        double price = 0, count = 0;
        for (int i = 0; ds_next_field(&line, ',', &field); i++) {
            if (i == 1)
                city = field;
            if (i == 2)
                ds_parse_double(field, &price);
            if (i == 3)
                ds_parse_double(field, &count);
        }
        struct row *row = cities_at(&table, city);
        if (!row)
            return table.error;
        row->value += price * count;
    }
    return cities_write(&table, out, call->out_cap);
}
