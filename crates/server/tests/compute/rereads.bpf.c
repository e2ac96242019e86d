/* A kernel that reads the start of its first file again and again, and takes what cannot be read for nothing. */
#include "diskside.h"

SEC("kernel/rereads")
__s64 rereads(struct ds_kernel *k, const __u64 *args, __u64 *result)
{
    for (;;)
        if (ds_pread(0, result, 8, 0) < 0)
            *result = 0;
}
