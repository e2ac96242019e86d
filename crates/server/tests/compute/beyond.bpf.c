/* Goes beyond what it was given, as the first bytes of its data say. */
#include "delilah.h"

SEC("delilah/beyond")
u64 beyond(u8 *data, u64 len, u8 *state, u64 state_len)
{
    u64 how = *(u64 *)data;
    volatile u64 spent = 0;

    switch (how) {
    case 1:
        data[len] = 1;
        break;
    case 2:
        data[-1] = 1;
        break;
    case 3:
        state[state_len] = 1;
        break;
    case 4: /* the next memory range, of which there is none */
        data[1ull << 40] = 1;
        break;
    case 5:
        for (;;)
            spent++;
    case 6: /* a copy that begins inside and ends outside */
        ds_memset(data + len - 8, 1, 9);
        break;
    }
    return ~0ull;
}
