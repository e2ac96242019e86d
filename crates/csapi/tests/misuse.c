/* Every wrong use has its status; its argument is a file that is on no CSx. */
#include "check.h"

int main(int argc, char **argv) {
    HOLDS(argc == 2);
    CS_DEV_HANDLE device = open_first(), other;
    CS_MEM_HANDLE memory, second;
    CS_MEM_PTR mapped;
    CS_EVT_HANDLE event;
    CS_BATCH_HANDLE batch;
    CsMemFlags flags = {0};
    char buffer[64] = {0};
    void *bad[] = {NULL, (void *)1, (void *)-1, buffer, (void *)((uintptr_t)device + 1000)};
    int len = sizeof buffer, count;

    IS(csOpenCSx("nobody", NULL, &other), CS_ENODEV);
    IS(csOpenCSx(NULL, NULL, &other), CS_INVALID_ARG);
    IS(csOpenCSx("near", NULL, NULL), CS_INVALID_ARG);
    IS(csOpenCSx("diskside://127.0.0.1:1", NULL, &other), CS_DEVICE_NOT_AVAILABLE);
    HOLDS(strstr(dsCsError(), "no server listens there"));
    IS(csOpenCSx("ftp://x", NULL, &other), CS_INVALID_ARG);
    IS(csOpenCSE("near", NULL, &other), CS_ENODEV);
    IS(csQueryCSxList(NULL, buffer), CS_INVALID_ARG);

    /* Handles that are invalid, and those of another kind. */
    OK(csCreateEvent(&event));
    OK(csAllocBatchRequest(CS_BATCH_SERIAL, 4, &batch));
    OK(csAllocMem(device, 4096, NULL, &memory, NULL));
    for (int i = 0; i < 8; i++) {
        void *handle = i < 5 ? bad[i] : i == 5 ? event : i == 6 ? batch : memory;
        unsigned int name_len = sizeof buffer;
        CsCapabilities can;
        CsStatsInfo stats;
        IS(csCloseCSx(handle), CS_INVALID_HANDLE);
        IS(csCloseCSE(handle), CS_INVALID_HANDLE);
        IS(csAllocMem(handle, 64, &flags, &second, NULL), CS_INVALID_HANDLE);
        IS(csGetCSEFromCSx(handle, &name_len, buffer), CS_INVALID_HANDLE);
        IS(csGetCSFId(handle, "wc", 0, &len, &count, NULL), CS_INVALID_HANDLE);
        IS(csQueryDeviceProperties(handle, &len, buffer), CS_INVALID_HANDLE);
        IS(csQueryDeviceCapabilities(handle, &can), CS_INVALID_HANDLE);
        IS(csQueryDeviceStatistics(handle, CS_STAT_CSE_USAGE, NULL, &stats), CS_INVALID_HANDLE);
        IS(csAbortCSE(handle), CS_INVALID_HANDLE);
        IS(csAbortRequest(handle), CS_INVALID_HANDLE);
        if (handle != memory) {
            IS(csFreeMem(handle, NULL), CS_INVALID_HANDLE);
            IS(csInitMem(handle, 0, 8, &flags), CS_INVALID_HANDLE);
            IS(copy(CS_COPY_TO_DEVICE, handle, 0, buffer, 8), CS_UNKNOWN_MEMORY);
        }
        if (handle != event) {
            IS(csDeleteEvent(handle), CS_INVALID_EVENT);
            IS(csPollEvent(handle, NULL), CS_INVALID_EVENT);
        }
        if (handle != batch) IS(csFreeBatchRequest(handle), CS_INVALID_HANDLE);
        CsStorageRequest load = file_io(handle, CS_STORAGE_LOAD_TYPE, (void *)0, 0, 8, memory, 0);
        IS(csQueueStorageRequest(&load, NULL, NULL, NULL, NULL, NULL), CS_INVALID_HANDLE);
        IS(csReset(handle, CS_CSx_TYPE), CS_INVALID_HANDLE);
    }

    /* Memory. */
    IS(csAllocMem(device, 0, &flags, &second, NULL), CS_INVALID_ARG);
    IS(csAllocMem(device, -5, &flags, &second, NULL), CS_INVALID_ARG);
    IS(csAllocMem(device, 64, &flags, NULL, NULL), CS_INVALID_ARG);
    IS(csAllocMem(device, 64, &flags, &second, &mapped), CS_COULD_NOT_MAP_MEMORY);
    IS(csAllocMem(device, 2000 << 20, &flags, &second, NULL), CS_NOT_ENOUGH_MEMORY);
    IS(csAllocMem(device, 64 << 20, &flags, &second, NULL), CS_NOT_ENOUGH_MEMORY);
    flags.FDMId = 7;
    IS(csAllocMem(device, 64, &flags, &second, NULL), CS_INVALID_OPTION);
    flags = (CsMemFlags){.Flags = 9};
    IS(csAllocMem(device, 64, &flags, &second, NULL), CS_INVALID_OPTION);
    IS(csInitMem(memory, 0, 8, NULL), CS_INVALID_ARG);
    flags.Flags = CS_FDM_CLEAR;
    IS(csInitMem(memory, 4090, 8, &flags), CS_INVALID_ARG);
    IS(csInitMem(memory, 0, -1, &flags), CS_INVALID_ARG);
    IS(csInitMem(memory, ~0ul, 8, &flags), CS_INVALID_ARG);
    OK(csInitMem(memory, 4096, 0, &flags));
    IS(copy(CS_COPY_TO_DEVICE, memory, 4090, buffer, 8), CS_INVALID_ARG);
    IS(copy(CS_COPY_FROM_DEVICE, memory, ~0ul - 3, buffer, 8), CS_INVALID_ARG);
    IS(copy(CS_COPY_FROM_DEVICE, memory, 0, NULL, 8), CS_INVALID_ARG);
    IS(copy(3, memory, 0, buffer, 8), CS_INVALID_ARG);
    OK(copy(CS_COPY_FROM_DEVICE, memory, 4096, NULL, 0));
    IS(csQueueCopyMemRequest(NULL, NULL, NULL, NULL, NULL, NULL), CS_INVALID_ARG);

    /* Storage. */
    CsStorageRequest load = file_io(device, CS_STORAGE_LOAD_TYPE, (void *)12345, 0, 8, memory, 0);
    IS(csQueueStorageRequest(&load, NULL, NULL, NULL, NULL, NULL), CS_INVALID_HANDLE);
    load.u.FileIo.FileHandle = buffer;
    IS(csQueueStorageRequest(&load, NULL, NULL, NULL, NULL, NULL), CS_INVALID_HANDLE);
    load.u.FileIo.FileHandle = open_fd(argv[1], O_RDONLY);
    IS(csQueueStorageRequest(&load, NULL, NULL, NULL, NULL, NULL), CS_ENTITY_NOT_ON_DEVICE);
    load.u.FileIo.Bytes = 5000;
    IS(csQueueStorageRequest(&load, NULL, NULL, NULL, NULL, NULL), CS_INVALID_ARG);
    load.u.FileIo.Type = 3;
    IS(csQueueStorageRequest(&load, NULL, NULL, NULL, NULL, NULL), CS_INVALID_ARG);
    load.Mode = 0;
    IS(csQueueStorageRequest(&load, NULL, NULL, NULL, NULL, NULL), CS_INVALID_ARG);
    IS(csQueueStorageRequest(NULL, NULL, NULL, NULL, NULL, NULL), CS_INVALID_ARG);
    CsStorageRequest *blocks = block_io(device, CS_STORAGE_LOAD_TYPE, memory, 2, 1);
    blocks->u.BlockIo.Range[0] = (CsBlockRange){.NamespaceId = 1, .NumBlocks = 1};
    IS(csQueueStorageRequest(blocks, NULL, NULL, NULL, NULL, NULL), CS_INVALID_ARG);
    blocks->u.BlockIo.DevMem.ByteOffset = 0;
    OK(csQueueStorageRequest(blocks, NULL, NULL, NULL, NULL, NULL));
    blocks->u.BlockIo.NumRanges = -1;
    IS(csQueueStorageRequest(blocks, NULL, NULL, NULL, NULL, NULL), CS_INVALID_ARG);
    blocks->u.BlockIo.NumRanges = 1;
    blocks->u.BlockIo.StorageIndex = 1;
    IS(csQueueStorageRequest(blocks, NULL, NULL, NULL, NULL, NULL), CS_INVALID_ARG);

    /* Functions. */
    IS(csGetCSFId(device, "nothing", 0, &len, &count, NULL), CS_INVALID_FUNCTION_NAME);
    IS(csGetCSFId(device, NULL, 0, &len, &count, NULL), CS_INVALID_ARG);
    IS(csGetCSFId(device, NULL, 77, &len, &count, NULL), CS_INVALID_ID);
    IS(csGetCSFId(device, "grep?colour=red", 0, &len, &count, NULL), CS_INVALID_ARG);
    IS(csGetCSFId(device, "kv_get", 0, &len, &count, NULL), CS_INVALID_FUNCTION);
    IS(csStopFunction(77777), CS_INVALID_ID);
    OK(csAllocMem(device, 16, NULL, &second, NULL));
    CsComputeRequest *run = computing(function(device, "stats64"), memory, 4096, second);
    IS(csQueueComputeRequest(run, NULL, NULL, NULL, NULL, NULL), CS_NOT_ENOUGH_MEMORY);
    csHelperSetComputeArg(&run->Args[1], CS_64BIT_VALUE_TYPE, 4097);
    IS(csQueueComputeRequest(run, NULL, NULL, NULL, NULL, NULL), CS_INVALID_ARG);
    csHelperSetComputeArg(&run->Args[2], CS_64BIT_VALUE_TYPE, 4096);
    csHelperSetComputeArg(&run->Args[1], CS_64BIT_VALUE_TYPE, 4096);
    IS(csQueueComputeRequest(run, NULL, NULL, NULL, NULL, NULL), CS_INVALID_ARG);
    csHelperSetComputeArg(&run->Args[1], CS_STREAM_TYPE, NULL);
    IS(csQueueComputeRequest(run, NULL, NULL, NULL, NULL, NULL), CS_UNSUPPORTED);
    run->Args[1].Type = 17;
    IS(csQueueComputeRequest(run, NULL, NULL, NULL, NULL, NULL), CS_INVALID_ARG);
    run->NumArgs = 1;
    IS(csQueueComputeRequest(run, NULL, NULL, NULL, NULL, NULL), CS_INVALID_ARG);
    run->NumArgs = -1;
    IS(csQueueComputeRequest(run, NULL, NULL, NULL, NULL, NULL), CS_INVALID_ARG);
    run->NumArgs = 1;
    csHelperSetComputeArg(&run->Args[0], CS_AFDM_TYPE, memory, 4097);
    IS(csQueueComputeRequest(run, NULL, NULL, NULL, NULL, NULL), CS_INVALID_ARG);
    csHelperSetComputeArg(&run->Args[0], CS_AFDM_TYPE, (void *)5, 0);
    IS(csQueueComputeRequest(run, NULL, NULL, NULL, NULL, NULL), CS_UNKNOWN_MEMORY);
    run->CSFId = 99;
    IS(csQueueComputeRequest(run, NULL, NULL, NULL, NULL, NULL), CS_UNKNOWN_COMPUTE_FUNCTION);

    /* Calls that are refused. */
    CS_STREAM_HANDLE stream;
    IS(csAllocStream(device, CS_STREAM_COMPUTE_TYPE, &stream), CS_UNSUPPORTED);
    IS(csFreeStream(NULL), CS_UNSUPPORTED);
    IS(csRegisterNotify(NULL, 1, NULL), CS_UNSUPPORTED);
    IS(csDeregisterNotify(NULL, NULL), CS_UNSUPPORTED);
    IS(csConfig(device, NULL), CS_UNSUPPORTED);
    IS(csSetDeviceCapability(device, CS_CAPABILITY_CSx_TEMP, NULL), CS_UNSUPPORTED);
    IS(csReset(device, CS_CSx_TYPE), CS_UNSUPPORTED);
    IS(csResetCSE(device), CS_UNSUPPORTED);
    IS(csQueryPlugin(NULL, NULL), CS_UNSUPPORTED);
    IS(csRegisterPlugin(NULL), CS_UNSUPPORTED);
    IS(csDeregisterPlugin(NULL), CS_UNSUPPORTED);
    OK(csQueryLibrarySupport(CS_FILE_SYSTEMS_SUPPORTED, &len, NULL));
    IS(csQueryLibrarySupport(5, &len, NULL), CS_INVALID_OPTION);

    /* Twice, and after the end. */
    OK(csFreeMem(second, NULL));
    IS(csFreeMem(second, NULL), CS_INVALID_HANDLE);
    IS(copy(CS_COPY_TO_DEVICE, second, 0, buffer, 8), CS_UNKNOWN_MEMORY);
    OK(csDeleteEvent(event));
    IS(csDeleteEvent(event), CS_INVALID_EVENT);
    OK(csFreeBatchRequest(batch));
    CS_CSF_ID csf = function(device, "stats64");
    OK(csCloseCSx(device));
    IS(csCloseCSx(device), CS_INVALID_HANDLE);
    IS(csFreeMem(memory, NULL), CS_INVALID_HANDLE);
    run->CSFId = csf;
    IS(csQueueComputeRequest(run, NULL, NULL, NULL, NULL, NULL), CS_UNKNOWN_COMPUTE_FUNCTION);
    IS(csAllocMem(device, 64, NULL, &second, NULL), CS_INVALID_HANDLE);

    /* The resources of a CSx were freed when it was closed. */
    device = open_first();
    OK(csAllocMem(device, 64 << 20, NULL, &memory, NULL));
    OK(csCloseCSx(device));
    free(blocks);
    free(run);
    puts("good");
    return 0;
}
