/* Follows pointers: as many as its input says, from where it says. Each pointer is the first word of what is read, and says
 * where the next one is. The result is the last. */
#include "diskside.h"

struct walk {
    __u64 left;
    __u64 at;
};

static __s64 step(struct ds_traverse *t, __u64 len)
{
    struct walk *walk = t->scratch;
    if (t->data_len)
        walk->at = *(const __u64 *)t->data;
    if (!walk->left) {
        walk->left = walk->at;
        t->result_len = sizeof(walk->left);
        return 1;
    }
    walk->left--;
    t->next[0].offset = walk->at;
    t->next[0].len = len;
    t->next[0].file = t->nfiles - 1;
    t->nnext = 1;
    return 0;
}

SEC("traverse/walk")
__s64 walk(struct ds_traverse *t)
{
    return step(t, 8);
}

/* Reads much at each step. */
SEC("traverse/stroll")
__s64 stroll(struct ds_traverse *t)
{
    return step(t, 2048);
}
