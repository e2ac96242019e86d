#include "types.h"

int cell;
u32 narrow __attribute__((used));
__asm__(".data\n.long cell\n.text\n");

SEC("read/narrow") s64 first(u64 *out) { return cell; }
