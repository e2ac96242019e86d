/* 32 threads, each with memory and numbers of its own, some with a CSx of their own; its argument is how often each does it. */
#include "check.h"

#define COUNT 2000

static CS_DEV_HANDLE shared;
static int rounds;

static void *work(void *argument) {
    intptr_t number = (intptr_t)argument;
    CS_DEV_HANDLE device = shared;
    if (number % 4 == 0) device = open_first();
    int64_t numbers[COUNT];
    for (int round = 0; round < rounds; round++) {
        CS_MEM_HANDLE in = alloc(device, sizeof numbers), out = alloc(device, 64 + number);
        CsComputeRequest *run = computing(function(device, "stats64"), in, sizeof numbers, out);
        for (int i = 0; i < COUNT; i++) numbers[i] = number * 1000000 + round * 10000 + i;
        OK(copy(CS_COPY_TO_DEVICE, in, 0, numbers, sizeof numbers));
        struct stats stats;
        u64 value;
        OK(csQueueComputeRequest(run, NULL, NULL, NULL, NULL, &value));
        OK(copy(CS_COPY_FROM_DEVICE, out, 0, &stats, sizeof stats));
        HOLDS(stats.count == COUNT && stats.min == numbers[0] && stats.max == numbers[COUNT - 1]);
        OK(csFreeMem(in, NULL));
        OK(csFreeMem(out, NULL));
        IS(csFreeMem(out, NULL), CS_INVALID_HANDLE);
        free(run);
    }
    if (device != shared) OK(csCloseCSx(device));
    return NULL;
}

int main(int argc, char **argv) {
    HOLDS(argc == 2);
    rounds = atoi(argv[1]);
    shared = open_first();
    pthread_t threads[32];
    for (intptr_t i = 0; i < 32; i++) HOLDS(!pthread_create(&threads[i], NULL, work, (void *)i));
    for (int i = 0; i < 32; i++) HOLDS(!pthread_join(threads[i], NULL));
    OK(csCloseCSx(shared));
    puts("good");
    return 0;
}
