/* Requests by status, of the log of a web server. */
#include <diskside/groups.h>

DS_OUTPUT(1, 1, 1048576);

struct row { char name[24]; double value; };
DS_GROUPS(statuses, struct row, name);

SEC("read/f")
__s64 f(struct row *out, const char *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    struct ds_text rest = ds_text(in, in_len), line, field;
    struct statuses table = {0};

    while (ds_next_line(&rest, &line)) {
        for (int i = 0; ds_next_field(&line, ' ', &field); i++) {
            if (i != 6)
                continue;
            struct row *row = statuses_at(&table, field);
            if (!row)
                return table.error;
            row->value++;
        }
    }
    return statuses_write(&table, out, call->out_cap);
}
