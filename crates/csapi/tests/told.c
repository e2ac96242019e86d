/* Requests that are told of by events and callbacks, batches, and giving requests up; its arguments are a file of the CSx and an
 * object of a function that does not end. */
#include "check.h"

#define COUNT 100000

struct told { pthread_mutex_t lock; pthread_cond_t changed; int count; CS_STATUS status; u64 value; };

static void tell(void *context, CS_STATUS status, u64 value) {
    struct told *told = context;
    pthread_mutex_lock(&told->lock);
    told->count++;
    told->status = status;
    told->value = value;
    pthread_cond_signal(&told->changed);
    pthread_mutex_unlock(&told->lock);
}

static void await(struct told *told) {
    pthread_mutex_lock(&told->lock);
    while (!told->count) pthread_cond_wait(&told->changed, &told->lock);
    told->count--;
    pthread_mutex_unlock(&told->lock);
}

static CS_STATUS poll_for(CS_EVT_HANDLE event, void **context) {
    CS_STATUS status;
    while ((status = csPollEvent(event, context)) == CS_NOT_DONE) usleep(100);
    return status;
}

static struct told told = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, 0};

/* Load, run and copy, each when the one before was told of. */
static void steps(CS_DEV_HANDLE device, void *file, CS_MEM_HANDLE in, CS_MEM_HANDLE out) {
    CS_EVT_HANDLE event;
    CS_REQ_HANDLE request = NULL;
    u64 value = 0;
    void *context = NULL;
    struct stats stats = {0};
    OK(csCreateEvent(&event));
    IS(csPollEvent(event, &context), CS_NOT_DONE);
    CsStorageRequest load = file_io(device, CS_STORAGE_LOAD_TYPE, file, 0, COUNT * 8, in, 0);
    IS(csQueueStorageRequest(&load, &load, NULL, event, &request, &value), CS_QUEUED);
    HOLDS(request != NULL);
    IS(csDeleteEvent(event), CS_HANDLE_IN_USE);
    OK(poll_for(event, &context));
    HOLDS(context == &load && value == COUNT * 8);
    IS(csAbortRequest(request), CS_INVALID_HANDLE);
    CsComputeRequest *run = computing(function(device, "stats64"), in, COUNT * 8, out);
    IS(csQueueComputeRequest(run, run, NULL, event, &request, &value), CS_QUEUED);
    OK(poll_for(event, &context));
    HOLDS(context == run && value == sizeof stats);
    CsCopyMemRequest back = copying(CS_COPY_FROM_DEVICE, out, 0, &stats, sizeof stats);
    IS(csQueueCopyMemRequest(&back, NULL, NULL, event, NULL, NULL), CS_QUEUED);
    OK(poll_for(event, NULL));
    HOLDS(stats.count == COUNT && stats.max == COUNT);

    /* Many at once over one event; each is told of once. */
    char seen[200] = {0};
    for (int i = 0; i < 200; i++)
        IS(csQueueCopyMemRequest(&back, seen + i, NULL, event, NULL, NULL), CS_QUEUED);
    for (int i = 0; i < 200; i++) {
        OK(poll_for(event, &context));
        HOLDS(++*(char *)context == 1);
    }
    IS(csPollEvent(event, &context), CS_NOT_DONE);
    OK(csDeleteEvent(event));

    memset(&stats, 0, sizeof stats);
    IS(csQueueComputeRequest(run, &told, tell, NULL, NULL, NULL), CS_QUEUED);
    await(&told);
    HOLDS(told.status == CS_SUCCESS && told.value == sizeof stats);
    IS(csQueueCopyMemRequest(&back, &told, tell, NULL, NULL, NULL), CS_QUEUED);
    await(&told);
    HOLDS(told.status == CS_SUCCESS && stats.count == COUNT);
    IS(csQueueCopyMemRequest(&back, &told, tell, event, NULL, NULL), CS_INVALID_OPTION);
    IS(csQueueCopyMemRequest(&back, NULL, NULL, event, NULL, NULL), CS_INVALID_HANDLE);
    free(run);
}

static CsBatchRequest *entry(CS_BATCH_REQ_TYPE type, const void *request, size_t len) {
    CsBatchRequest *entry = calloc(1, sizeof *entry + len);
    entry->ReqType = type;
    entry->reqLength = len;
    memcpy(&entry->u, request, len);
    return entry;
}

/* The same as one batch, in each mode. */
static void batches(CS_DEV_HANDLE device, void *file, CS_MEM_HANDLE in, CS_MEM_HANDLE out) {
    struct stats stats;
    u64 value;
    CsStorageRequest load = file_io(device, CS_STORAGE_LOAD_TYPE, file, 0, COUNT * 8, in, 0);
    CsComputeRequest *run = computing(function(device, "stats64"), in, COUNT * 8, out);
    CsCopyMemRequest back = copying(CS_COPY_FROM_DEVICE, out, 0, &stats, sizeof stats);
    CsBatchRequest *loading = entry(CS_STORAGE_IO, &load, sizeof load);
    CsBatchRequest *running = entry(CS_QUEUE_COMPUTE, run, sizeof *run + 2 * sizeof *run->Args);
    CsBatchRequest *copying_back = entry(CS_COPY_AFDM, &back, sizeof back);
    CS_BATCH_HANDLE batch;
    CS_BATCH_INDEX first, second, third;
    for (CS_BATCH_MODE mode = CS_BATCH_SERIAL; mode <= CS_BATCH_HYBRID; mode += 2) {
        memset(&stats, 0, sizeof stats);
        CsMemFlags clear = {.Flags = CS_FDM_CLEAR};
        OK(csInitMem(in, 0, COUNT * 8, &clear));
        OK(csAllocBatchRequest(mode, 3, &batch));
        OK(csAddBatchEntry(batch, loading, 0, 0, &first));
        OK(csAddBatchEntry(batch, copying_back, 0, first, &third));
        OK(csAddBatchEntry(batch, running, third, first, &second));
        IS(csAddBatchEntry(batch, running, 0, third, &second), CS_OUT_OF_RESOURCES);
        OK(csHelperResizeBatchRequest(batch, 8));
        IS(csAddBatchEntry(batch, running, first, third, &second), CS_INVALID_ARG);
        IS(csAddBatchEntry(batch, running, 0, 99, &second), CS_INVALID_ARG);
        IS(csHelperResizeBatchRequest(batch, 2), CS_INVALID_ARG);
        OK(csQueueBatchRequest(batch, NULL, NULL, NULL, NULL, &value));
        HOLDS(stats.count == COUNT);
        memset(&stats, 0, sizeof stats);
        IS(csQueueBatchRequest(batch, &told, tell, NULL, NULL, NULL), CS_QUEUED);
        await(&told);
        HOLDS(told.status == CS_SUCCESS && stats.count == COUNT);

        /* One that fails ends it. */
        memset(&stats, 0, sizeof stats);
        run->CSFId = 4000000000u;
        CsBatchRequest *wrong = entry(CS_QUEUE_COMPUTE, run, sizeof *run + 2 * sizeof *run->Args);
        run->CSFId = function(device, "stats64");
        OK(csHelperReconfigureBatchEntry(batch, second, wrong));
        IS(csQueueBatchRequest(batch, NULL, NULL, NULL, NULL, NULL), CS_UNKNOWN_COMPUTE_FUNCTION);
        HOLDS(stats.count == 0);
        wrong->reqLength = 3;
        IS(csHelperReconfigureBatchEntry(batch, second, wrong), CS_INVALID_LENGTH);
        IS(csHelperReconfigureBatchEntry(batch, 77, running), CS_INVALID_ARG);
        free(wrong);
        OK(csFreeBatchRequest(batch));
        IS(csFreeBatchRequest(batch), CS_INVALID_HANDLE);
        IS(csQueueBatchRequest(batch, NULL, NULL, NULL, NULL, NULL), CS_INVALID_HANDLE);
    }

    char parts[50][64];
    OK(csAllocBatchRequest(CS_BATCH_PARALLEL, 50, &batch));
    for (int i = 0; i < 50; i++) {
        CsCopyMemRequest part = copying(CS_COPY_FROM_DEVICE, in, i * 64, parts[i], 64);
        CsBatchRequest *one = entry(CS_COPY_AFDM, &part, sizeof part);
        OK(csAddBatchEntry(batch, one, 0, 0, NULL));
        IS(csAddBatchEntry(batch, one, 1, 0, NULL), i == 49 ? CS_OUT_OF_RESOURCES : CS_INVALID_ARG);
        free(one);
    }
    OK(csQueueBatchRequest(batch, NULL, NULL, NULL, NULL, NULL));
    char whole[sizeof parts];
    OK(copy(CS_COPY_FROM_DEVICE, in, 0, whole, sizeof whole));
    HOLDS(!memcmp(whole, parts, sizeof whole));
    OK(csFreeBatchRequest(batch));

    IS(csAllocBatchRequest(4, 3, &batch), CS_INVALID_OPTION);
    IS(csAllocBatchRequest(CS_BATCH_SERIAL, 0, &batch), CS_INVALID_ARG);
    OK(csAllocBatchRequest(CS_BATCH_SERIAL, 1, &batch));
    IS(csQueueBatchRequest(batch, NULL, NULL, NULL, NULL, NULL), CS_INVALID_ARG);
    OK(csFreeBatchRequest(batch));
    free(loading);
    free(running);
    free(copying_back);
    free(run);
}

static CsComputeRequest *waiting;

static void *wait_for_it(void *status) {
    *(CS_STATUS *)status = csQueueComputeRequest(waiting, NULL, NULL, NULL, NULL, NULL);
    HOLDS(strstr(dsCsError(), "cancelled"));
    return NULL;
}

/* A function that does not end is given up, and meanwhile what it uses is in use. */
static void aborts(CS_DEV_HANDLE device, const char *object, CS_MEM_HANDLE in, CS_MEM_HANDLE out) {
    CsCSFDownloadInfo info = {.Type = CS_CSF_BPF_PROGRAM};
    CS_CSF_ID endless;
    CS_EVT_HANDLE event;
    CS_REQ_HANDLE request;
    info.common.DataBuffer = malloc(1 << 20);
    FILE *source = fopen(object, "rb");
    info.common.Length = fread(info.common.DataBuffer, 1, 1 << 20, source);
    fclose(source);
    OK(csCSFDownload(device, &info, &endless));
    OK(csCreateEvent(&event));
    CsComputeRequest *run = computing(endless, in, 8, out);
    for (int way = 0; way < 3; way++) {
        IS(csQueueComputeRequest(run, NULL, NULL, event, &request, NULL), CS_QUEUED);
        IS(csFreeMem(in, NULL), CS_MEMORY_IN_USE);
        IS(csCloseCSx(device), CS_HANDLE_IN_USE);
        usleep(100 * 1000);
        IS(csPollEvent(event, NULL), CS_NOT_DONE);
        if (way == 0) OK(csAbortRequest(request));
        if (way == 1) OK(csStopFunction(endless));
        if (way == 2) OK(csAbortCSE(device));
        IS(poll_for(event, NULL), CS_ERROR_IN_EXECUTION);
        /* It was given up, and did not come to its end. */
        HOLDS(strstr(dsCsError(), "cancelled"));
    }
    OK(csDeleteEvent(event));

    /* One whose caller waits, too, and the entries of a batch. */
    pthread_t thread;
    CS_STATUS status;
    waiting = run;
    HOLDS(!pthread_create(&thread, NULL, wait_for_it, &status));
    usleep(100 * 1000);
    OK(csStopFunction(endless));
    HOLDS(!pthread_join(thread, NULL) && status == CS_ERROR_IN_EXECUTION);
    CS_BATCH_HANDLE batch;
    OK(csAllocBatchRequest(CS_BATCH_PARALLEL, 2, &batch));
    CsBatchRequest *running = entry(CS_QUEUE_COMPUTE, run, sizeof *run + 2 * sizeof *run->Args);
    for (int i = 0; i < 2; i++) OK(csAddBatchEntry(batch, running, 0, 0, NULL));
    IS(csQueueBatchRequest(batch, &told, tell, NULL, &request, NULL), CS_QUEUED);
    IS(csFreeBatchRequest(batch), CS_HANDLE_IN_USE);
    IS(csAddBatchEntry(batch, running, 0, 0, NULL), CS_HANDLE_IN_USE);
    usleep(100 * 1000);
    OK(csAbortRequest(request));
    await(&told);
    HOLDS(told.status == CS_ERROR_IN_EXECUTION);
    OK(csFreeBatchRequest(batch));
    free(running);
    free(info.common.DataBuffer);
    free(run);
}

int main(int argc, char **argv) {
    HOLDS(argc == 3);
    CS_DEV_HANDLE device = open_first();
    void *file = open_fd(argv[1], O_RDONLY);
    CS_MEM_HANDLE in = alloc(device, COUNT * 8), out = alloc(device, 4096);
    steps(device, file, in, out);
    batches(device, file, in, out);
    aborts(device, argv[2], in, out);
    OK(csFreeMem(in, NULL));
    OK(csFreeMem(out, NULL));
    OK(csCloseCSx(device));
    puts("good");
    return 0;
}
