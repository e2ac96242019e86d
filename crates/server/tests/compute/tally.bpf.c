/* A kernel that makes each page of its first file one of its result, with a number added to each byte, and of its second file, if it
 * has one. */
#include "diskside.h"

#define PAGE DS_RESULT_BLOCK_LEN

struct tally_args {
    __u32 add;
    __u32 odd;     /* pages with an even number are held back */
    __u32 fails;
    __u32 strange; /* sets this bit of the mask, unless it is 0 */
};

SEC("kernel/tally")
__s64 tally(struct ds_kernel *k, const struct tally_args *args, __u8 *result)
{
    __u64 pages = (__u64)ds_file_len(0) / PAGE;

    if (args->fails)
        return DS_FAIL(DS_ERANGE, "it was told to fail");
    for (__u64 i = 0; i < pages; i++) {
        __u8 *page = result + i * PAGE;
        __s64 got = ds_pread(0, page, PAGE, i * PAGE);

        if (got != PAGE)
            return got < 0 ? got : -DS_EIO;
        for (__u64 j = 0; j < PAGE; j++)
            page[j] += args->add;
        if (k->nfiles > 1) {
            __s64 put = ds_pwrite(1, page, PAGE, i * PAGE);

            if (put < 0)
                return put;
        }
        if (args->odd && i % 2 == 0)
            ds_unmark_blocks(k, i, 1);
    }
    if (args->strange)
        k->mask[args->strange / 8] |= 1 << args->strange % 8;
    return pages * PAGE;
}
