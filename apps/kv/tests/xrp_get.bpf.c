/*
 * A point lookup as XRP's own examples are written: the block's program keeps its state in scratch and
 * sets done, or the address and size of the next block.
 */
#include "xrp.h"

#define FAN_OUT 31
#define VALUE_LEN 64
#define FILE_MASK (1ull << 63)

struct node {
    unsigned long num;
    unsigned long type;
    unsigned long key[FAN_OUT];
    unsigned long ptr[FAN_OUT];
};

enum { START, WALK, VALUE };

struct query {
    unsigned long key;
    unsigned long found;
    unsigned long offset; /* of the value in its block */
    unsigned long state;
    char value[VALUE_LEN];
};

static __inline void read_block(struct bpf_xrp *context, unsigned long at)
{
    context->next_addr[0] = at;
    context->size[0] = 512;
    context->done = 0;
}

SEC("oliver_agg")
unsigned int get(struct bpf_xrp *context)
{
    struct query *query = (struct query *)context->scratch;
    if (query->state == START) {
        query->state = WALK;
        read_block(context, 0);
        return 0;
    }
    if (query->state == VALUE) {
        bpf_printk("the value is at %d\n", query->offset);
        __builtin_memcpy(query->value, context->data + query->offset, VALUE_LEN);
        query->found = 1;
        context->done = 1;
        return 0;
    }
    struct node *node = (struct node *)context->data;
    unsigned long i = 0;
    while (i + 1 < FAN_OUT && node->key[i + 1] <= query->key)
        i++;
    unsigned long ptr = node->ptr[i] & ~FILE_MASK;
    if (node->type == 0) {
        read_block(context, ptr);
        return 0;
    }
    if (node->key[i] != query->key) {
        context->done = 1;
        return 0;
    }
    query->state = VALUE;
    query->offset = ptr & 511;
    read_block(context, ptr & ~511ull);
    return 0;
}
