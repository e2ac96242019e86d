/* Reads sixteen places at each step, as many rounds as its input says, and mixes what it finds in the order in which it
 * asked. */
#include "diskside.h"

struct fan {
    __u64 rounds;
    __u64 mix;
    __u64 left;
};

SEC("traverse/fan")
__s64 fan(struct ds_traverse *t)
{
    struct fan *fan = t->scratch;
    if (t->data_len) {
        fan->mix = fan->mix * 31 + *(const __u64 *)t->data + t->cookie;
        if (--fan->left)
            return 0;
    }
    if (!fan->rounds) {
        fan->rounds = fan->mix;
        t->result_len = sizeof(fan->rounds);
        return 1;
    }
    fan->rounds--;
    fan->left = DS_NEXT_MAX;
    for (__u32 i = 0; i < DS_NEXT_MAX; i++) {
        t->next[i].offset = (fan->mix + i * 1009) % (32 << 10) * 8;
        t->next[i].len = 8;
        t->next[i].file = 0;
        t->next[i].cookie = i;
    }
    t->nnext = DS_NEXT_MAX;
    return 0;
}
