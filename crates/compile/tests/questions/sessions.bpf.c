/* Sessions by visitor: visits with more than 30 minutes between them belong to two. */
#include <diskside/groups.h>

DS_OUTPUT(1, 1, 1048576);

struct row { char name[24]; double value; };
struct visitor { char name[24]; double sessions; __u64 last; };
DS_GROUPS(visitors, struct visitor, name);

SEC("read/f")
__s64 f(struct row *out, const char *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    struct ds_text rest = ds_text(in, in_len), line, name, field;
    struct visitors table = {0};
    struct visitor *all = ds_alloc(4096 * sizeof(*all));

    if (!all)
        return -DS_ENOMEM;
    while (ds_next_line(&rest, &line)) {
        __u64 second;
        ds_next_field(&line, ',', &name);
        if (!ds_next_field(&line, ',', &field) || !ds_parse_u64(field, &second))
            continue;
        struct visitor *visitor = visitors_at(&table, name);
        if (!visitor)
            return table.error;
        if (visitor->sessions == 0 || second - visitor->last > 1800)
            visitor->sessions++;
        visitor->last = second;
    }
    __s64 len = visitors_write(&table, all, 4096 * sizeof(*all));
    if (len < 0)
        return len;
    __u64 count = len / sizeof(*all);
    for (__u64 i = 0; i < count; i++) {
        __builtin_memcpy(out[i].name, all[i].name, sizeof(out[i].name));
        out[i].value = all[i].sessions;
    }
    return count * sizeof(*out);
}
