/* The median and the 99th percentile of the bytes sent, exactly. */
#include <diskside/sort.h>
#include <diskside/text.h>

DS_OUTPUT(1, 1, 1048576);

struct row { char name[24]; double value; };
DS_SORT(numbers, __u64, *a < *b);

SEC("read/f")
__s64 f(struct row *out, const char *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    struct ds_text rest = ds_text(in, in_len), line, field;
    __u64 *all = ds_alloc((in_len + 1) * 8), n = 0;

    if (!all)
        return -DS_ENOMEM;
    while (ds_next_line(&rest, &line))
        for (int i = 0; ds_next_field(&line, ' ', &field); i++)
            if (i == 7 && ds_parse_u64(field, &all[n]))
                n++;
    numbers(all, n);
    out[0] = (struct row){"median", all[n / 2]};
    out[1] = (struct row){"p99", all[n * 99 / 100]};
    ds_free(all);
    return 2 * sizeof(*out);
}
