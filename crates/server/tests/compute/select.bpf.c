/* A selection as for Delilah: the host writes how many rows there are, a bound and a column into a data slot, the program
 * leaves there how many are above it and which, and keeps in the shared state what all executions found. */
#include "delilah.h"

struct slot {
    uint64_t rows, bound, matches, reserved;
    uint32_t column[];
};

struct shared {
    uint64_t executions, matches;
};

uint64_t select_rows(void *data, uint64_t len, void *state, uint64_t state_len)
{
    struct slot *slot = data;
    struct shared *shared = state;
    uint64_t found = 0;

    if (len < sizeof(*slot) || slot->rows > (len - sizeof(*slot)) / sizeof(uint32_t))
        return ~0ull;
    for (uint64_t row = 0; row < slot->rows; row++)
        if (slot->column[row] > slot->bound)
            slot->column[found++] = row;
    slot->matches = found;
    if (state_len < sizeof(*shared))
        return found;
    shared->executions++;
    shared->matches += found;
    return shared->matches;
}
