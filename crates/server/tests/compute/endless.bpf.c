/* An execution that lasts: each trip of its loop takes long, so the budget for some MiB of memory is enough for minutes.
 * Its result is the next address, so no compiler finds a shorter way. */
#include "diskside.h"

#define TEN(x) x x x x x x x x x x
#define MIX mixed = mixed * 0x9e3779b1 ^ mixed >> 15;

SEC("exec/endless")
__s64 endless(struct ds_exec *x)
{
    volatile __u64 *words = x->range[1].addr;
    __u64 mixed = 1;
    for (;;) {
        TEN(TEN(MIX MIX MIX MIX))
        mixed += words[mixed & 1023];
        words[mixed & 1023] = mixed;
    }
}
