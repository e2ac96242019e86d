/* Traversals that no host should send, and one that it may. */
#include "diskside.h"

static __s64 ask(struct ds_traverse *t, __u64 offset, __u64 len, __u32 file)
{
    t->next[0].offset = offset;
    t->next[0].len = len;
    t->next[0].file = file;
    t->nnext = 1;
    return 0;
}

SEC("traverse/endless")
__s64 endless(struct ds_traverse *t)
{
    return ask(t, 0, 8, 0);
}

SEC("traverse/spin")
__s64 spin(struct ds_traverse *t)
{
    volatile __u64 n = 0;
    while (n < ~0ull)
        n++;
    return 1;
}

SEC("traverse/beyond")
__s64 beyond(struct ds_traverse *t)
{
    return ask(t, t->hop, 512, 1);
}

SEC("traverse/far")
__s64 far(struct ds_traverse *t)
{
    return ask(t, -4ull, 8, 0);
}

SEC("traverse/other_file")
__s64 other_file(struct ds_traverse *t)
{
    return ask(t, 0, 8, t->nfiles);
}

SEC("traverse/nothing")
__s64 nothing(struct ds_traverse *t)
{
    return ask(t, 0, 0, 0);
}

SEC("traverse/huge")
__s64 huge(struct ds_traverse *t)
{
    return ask(t, 0, (1 << 20) + 1, 0);
}

SEC("traverse/overrun")
__s64 overrun(struct ds_traverse *t)
{
    ((volatile char *)t->scratch)[t->scratch_cap] = 1;
    return 1;
}

SEC("traverse/long_result")
__s64 long_result(struct ds_traverse *t)
{
    t->result_len = t->scratch_cap + 1;
    return 1;
}

SEC("traverse/window")
__s64 window(struct ds_traverse *t)
{
    if (!t->hop)
        return ask(t, 100, 256, 1);
    ds_memcpy(t->scratch, t->data, t->data_len);
    t->result_len = t->data_len;
    return 1;
}
