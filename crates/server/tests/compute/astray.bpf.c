/* A traversal that reads a few words and then goes wrong, as its input says. */
#include "diskside.h"

struct astray {
    __u64 left;
    __u64 how;
};

static void ask(struct ds_traverse *t, __u32 index, __u32 file, __u64 offset, __u64 len)
{
    t->next[index].file = file;
    t->next[index].offset = offset;
    t->next[index].len = len;
    t->nnext = index + 1;
}

SEC("traverse/astray")
__s64 astray(struct ds_traverse *t)
{
    struct astray *state = t->scratch;
    volatile __u64 spent = 0;
    if (state->left) {
        state->left--;
        ask(t, 0, 0, 0, 8);
        return 0;
    }
    switch (state->how) {
    case 1: /* reads behind what was read */
        return *((const __u8 *)t->data + t->data_len);
    case 2: /* never ends */
        for (;;)
            spent++;
    case 3: /* fails by its own will */
        return -DS_EBADMSG;
    case 4: /* returns what means nothing */
        return 7;
    case 5: /* asks for nothing */
        return 0;
    case 6: /* for more at once than there is room for */
        t->nnext = DS_NEXT_MAX + 1;
        return 0;
    case 7: /* for a file that is not listed */
        ask(t, 0, t->nfiles, 0, 8);
        return 0;
    case 8: /* for no bytes */
        ask(t, 0, 0, 16, 0);
        return 0;
    case 9: /* for too many */
        ask(t, 0, 0, 0, (1 << 20) + 1);
        return 0;
    case 10: /* for some that are not there */
        ask(t, 0, 0, ~0ull - 7, 8);
        return 0;
    case 11: /* gives more than there is room for */
        t->result_len = t->scratch_cap + 1;
        return 1;
    case 12: /* asks for ever more */
        for (__u32 i = 0; i < DS_NEXT_MAX; i++)
            ask(t, i, 0, 8 * i, 8);
        return 0;
    case 13: /* goes on and on */
        ask(t, 0, 0, 0, 8);
        return 0;
    case 14: /* and reads everything each time */
        ask(t, 0, 0, 0, 1 << 20);
        return 0;
    }
    t->result_len = 8;
    return 1;
}
