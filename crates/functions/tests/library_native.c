/* Runs a test of the library natively: standard input to standard output. */
#include <stdio.h>
#define SEC(name)
#include SOURCE

int main(void)
{
    static char in[1 << 20];
    static char out[8 << 20];
    struct ds_call call = {.size = sizeof(call), .flags = DS_FIRST | DS_LAST, .out_cap = 4 << 20};
    __u64 len = fread(in, 1, sizeof(in), stdin);
    __s64 written = ENTRY(out, in, len, NULL, &call);

    if (written < 0)
        return 1;
    fwrite(out, 1, written, stdout);
    return 0;
}
