/* The five dearest sales, of a CSV file. */
#include <diskside/text.h>
#include <diskside/topk.h>

DS_OUTPUT(1, 1, 1048576);

struct row { char name[24]; double value; };
DS_TOP_K(dearest, struct row, a->value > b->value);

SEC("read/f")
__s64 f(struct row *out, const char *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    struct ds_text rest = ds_text(in, in_len), line, field;
    __u64 count = 0;

    while (ds_next_line(&rest, &line)) {
        struct row row = {0};
        for (int i = 0; ds_next_field(&line, ',', &field); i++) {
            if (i == 0)
                for (__u64 k = 0; k < field.len && k < sizeof(row.name); k++)
                    row.name[k] = field.at[k];
            if (i == 2)
                ds_parse_double(field, &row.value);
        }
        dearest_add(out, &count, 5, &row);
    }
    dearest_sort(out, count);
    return count * sizeof(*out);
}
