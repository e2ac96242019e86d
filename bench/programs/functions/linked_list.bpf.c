/* Builds chains in the heap, one for each of 256 classes, and walks them. */
#include "diskside.h"
DS_OUTPUT(0, 1, 2048);

struct node { struct node *next; __u64 value; };

SEC("read/linked_list")
__s64 linked_list(__u64 *out, const __u64 *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    __u64 n = in_len / 8;
    struct node **heads = ds_alloc(256 * sizeof(*heads));
    struct node *nodes = ds_alloc(n * sizeof(*nodes));
    if (!heads || !nodes)
        return -DS_ENOMEM;
    for (__u64 i = 0; i < n; i++) {
        struct node *node = &nodes[i];
        node->value = in[i];
        node->next = heads[in[i] & 255];
        heads[in[i] & 255] = node;
    }
    for (int class = 0; class < 256; class++)
        for (struct node *node = heads[class]; node; node = node->next)
            out[class] += node->value >> 8;
    ds_free(heads);
    ds_free(nodes);
    return 2048;
}
