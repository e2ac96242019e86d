/* One traversal, and nothing else. */
#include "diskside.h"

SEC("traverse/step")
__s64 step(struct ds_traverse *t)
{
    return 1;
}
