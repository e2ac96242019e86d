/* Requests by hour of the day, of the log of a web server. */
#include <diskside/text.h>

DS_OUTPUT(1, 1, 1048576);

struct row { char name[24]; double value; };

SEC("read/f")
__s64 f(struct row *out, const char *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    struct ds_text rest = ds_text(in, in_len), line;

    for (int h = 0; h < 24; h++)
        out[h] = (struct row){{h / 10 + '0', h % 10 + '0'}, 0};
    while (ds_next_line(&rest, &line)) {
        __s64 at = ds_search(line, ds_literal("["));
        __u64 hour;
        if (at >= 0 && at + 15 <= line.len && ds_parse_u64(ds_text(line.at + at + 13, 2), &hour) && hour < 24)
            out[hour].value++;
    }
    return 24 * sizeof(*out);
}
