/* How many fields, quoted fields, and commas inside of quotes a CSV file has. */
#include "diskside.h"

struct fields { __u64 fields, quoted, inner; };

SEC("read/csv_fields")
__s64 csv_fields(struct fields *out, const char *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    int quoted = 0;
    for (__u64 i = 0; i < in_len; i++) {
        if (in[i] == '"') {
            quoted = !quoted;
            if (quoted)
                out->quoted++;
        } else if (in[i] == ',' || in[i] == '\n') {
            if (quoted)
                out->inner++;
            else
                out->fields++;
        }
    }
    return sizeof(*out);
}
