/* Sections named for another loader; the kind is chosen when the object is loaded. */
#include "types.h"

struct bpf_xrp {
    char *data;
    char *scratch;
    int done;
    u32 rest[80];
};

SEC("oliver_agg")
u32 aggregate(struct bpf_xrp *context) {
    context->done = 1;
    return context->data[0] == 'x';
}
