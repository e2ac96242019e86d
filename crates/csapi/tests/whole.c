/* From discovery to the result, and every call that asks something; its arguments are the directory that the export is seen in, and
 * objects of functions. */
#include "check.h"

#define COUNT 100000

static void lists(const char *dir, CS_DEV_HANDLE device) {
    char name[512], again[512], path[512];
    unsigned int len = 0;
    int count = 0, bytes = 0;

    OK(csGetCSxFromPath(dir, &len, NULL));
    HOLDS(len == sizeof "near");
    OK(csGetCSxFromPath(dir, &len, name));
    HOLDS(!strcmp(name, "near"));
    snprintf(path, sizeof path, "%s/numbers", dir);
    OK(csGetCSxFromPath(path, &len, name));
    len = 2;
    IS(csGetCSxFromPath(path, &len, name), CS_INVALID_LENGTH);
    HOLDS(len == sizeof "near");
    IS(csGetCSxFromPath("/", &len, name), CS_ENTITY_NOT_ON_DEVICE);
    IS(csGetCSxFromPath("/no/such/file", &len, name), CS_ENOENT);
    IS(csGetCSxFromPath(NULL, &len, name), CS_INVALID_ARG);
    len = sizeof name;
    OK(csGetCSxFromPath("diskside://elsewhere:1234/data/x", &len, name));
    HOLDS(!strcmp(name, "diskside://elsewhere:1234"));

    bytes = sizeof name;
    OK(csQueryCSxList(&bytes, name));
    HOLDS(!strcmp(name, "near"));
    len = sizeof name;
    OK(csGetCSEFromCSx(device, &len, name));
    bytes = sizeof again;
    OK(csQueryCSEList("stats64", &bytes, again));
    HOLDS(!strcmp(name, again));
    IS(csQueryCSEList("no_such_function", &bytes, again), CS_ENTITY_NOT_ON_DEVICE);
    HOLDS(bytes == 0);

    OK(csQueryCSFList(path, &bytes, &count, NULL));
    HOLDS(count > 20 && bytes == count * (int)sizeof(CSFUniqueId));
    CSFUniqueId *functions = calloc(count, sizeof *functions);
    OK(csQueryCSFList("near", &bytes, &count, functions));
    u64 stats64 = 0;
    for (int i = 0; i < count; i++) {
        if (!strcmp(functions[i].UniqueName, "stats64")) stats64 = functions[i].GlobalId;
        for (int j = 0; j < i; j++) HOLDS(functions[i].GlobalId != functions[j].GlobalId);
    }
    HOLDS(stats64 != 0);
    bytes = 8;
    IS(csQueryCSFList("near", &bytes, &count, functions), CS_INVALID_LENGTH);
    HOLDS(bytes == count * (int)sizeof *functions);
    free(functions);

    struct { CSFIdInfo info; FDMAccess memory; } csf;
    bytes = sizeof csf;
    OK(csGetCSFId(device, NULL, stats64, &bytes, &count, &csf.info));
    CS_CSF_ID same;
    OK(csGetFunction(device, "stats64", NULL, &same));
    HOLDS(csf.info.CSFId == function(device, "stats64") && csf.info.CSFId == same);
    OK(csQueryFunctionList("near", &bytes, NULL));
    char *names = malloc(bytes);
    OK(csQueryFunctionList("near", &bytes, names));
    HOLDS(strstr(names, "grep_count,") || strstr(names, ",grep_count"));
    free(names);
    OK(csQueryDeviceForComputeList(device, &bytes, NULL));
    CsFunctionInfo *infos = malloc(bytes);
    OK(csQueryDeviceForComputeList(device, &bytes, infos));
    int found = 0;
    for (size_t i = 0; i < bytes / sizeof *infos; i++)
        found += !strcmp(infos[i].Name, "stats64") && infos[i].FunctionId == same;
    HOLDS(found == 1);
    free(infos);
}

static void properties(CS_DEV_HANDLE device) {
    CSxProperties csx;
    CSEProperties cse;
    struct { FDMProperties fdm; CSEAccess cse; } memory;
    CsCapabilities can;
    CsStatsInfo stats;
    int len = sizeof csx;
    OK(csQueryDeviceProperties(device, &len, &csx));
    HOLDS(csx.NumCSEs == 1 && csx.FDMinMB == 64 && !csx.Flags.FDMIsHostVisible && !strcmp(csx.FriendlyName, "near"));
    HOLDS(csx.CSE[0].NumBuiltinFunctions > 20 && csx.CSE[0].MaxFunctionParametersAllowed == 256);
    len = 3;
    IS(csQueryDeviceProperties(device, &len, &csx), CS_INVALID_LENGTH);
    HOLDS(len == sizeof csx);
    len = sizeof cse;
    OK(csQueryDeviceProperties(device, CS_CSE_TYPE, &len, &cse));
    HOLDS(!strncmp(cse.UniqueName, "near", 4) && cse.MaxConcurrentFunctionInstances >= 1);
    len = sizeof memory;
    OK(csQueryDeviceProperties(device, CS_FDM_TYPE, &len, &memory));
    HOLDS(memory.fdm.NumFDMs == 1 && memory.fdm.FDM[0].FDMSize == 64 << 20 && memory.fdm.FDM[0].CSEList == &memory.cse);
    HOLDS(memory.fdm.FDM[0].Flags.ClearContentsSupported && !memory.fdm.FDM[0].Flags.HostVisible);
    IS(csQueryDeviceProperties(device, CS_VENDOR_SPECIFIC_TYPE, &len, &memory), CS_UNSUPPORTED);
    OK(csQueryDeviceCapabilities(device, &can));
    HOLDS(can.Functions.RegEx && can.Functions.DbFilter && !can.Functions.Encryption);

    CS_CSF_ID csf = function(device, "stats64");
    OK(csQueryDeviceStatistics(device, CS_STAT_FUNCTION, &csf, &stats));
    HOLDS(stats.FunctionDetails.TotalExecutions >= 1);
    OK(csQueryDeviceStatistics(device, CS_STAT_CSE_USAGE, NULL, &stats));
    HOLDS(stats.CSEDetails.TotalFunctionExecutions >= 1);
    CS_MEM_HANDLE held = alloc(device, 1 << 20);
    OK(csQueryDeviceStatistics(device, CS_STAT_CSx_MEM_USAGE, NULL, &stats));
    HOLDS(stats.MemoryDetails.TotalAllocatedFDM == 1 << 20);
    HOLDS(stats.MemoryDetails.LargestBlockAvailableFDM == 63 << 20);
    HOLDS(stats.MemoryDetails.TotalAllocationsFDM > stats.MemoryDetails.TotalDeAllocationsFDM);
    OK(csFreeMem(held, NULL));
    OK(csQueryDeviceStatistics(device, CS_STAT_CSx_MEM_USAGE, NULL, &stats));
    HOLDS(stats.MemoryDetails.TotalAllocatedFDM == 0);
    IS(csQueryDeviceStatistics(device, 9, NULL, &stats), CS_INVALID_ARG);
}

/* A file that this machine sees, a function over it, its result. */
static void files(const char *dir, CS_DEV_HANDLE device) {
    char path[512];
    u64 value;
    snprintf(path, sizeof path, "%s/numbers", dir);
    void *file = open_fd(path, O_RDONLY);
    CS_MEM_HANDLE in = alloc(device, COUNT * 8), out = alloc(device, 4096);
    CsStorageRequest load = file_io(device, CS_STORAGE_LOAD_TYPE, file, 0, COUNT * 8, in, 0);
    OK(csQueueStorageRequest(&load, NULL, NULL, NULL, NULL, &value));
    HOLDS(value == COUNT * 8);

    struct stats stats;
    CsComputeRequest *run = computing(function(device, "stats64"), in, COUNT * 8, out);
    OK(csQueueComputeRequest(run, NULL, NULL, NULL, &value));
    HOLDS(value == sizeof stats);
    OK(copy(CS_COPY_FROM_DEVICE, out, 0, &stats, sizeof stats));
    HOLDS(stats.count == COUNT && stats.sum == (int64_t)COUNT * (COUNT + 1) / 2 && stats.min == 1 && stats.max == COUNT);

    /* A part from the middle of the file to the middle of the memory; beyond its end there is less, and then nothing. */
    load = file_io(device, CS_STORAGE_LOAD_TYPE, file, 8 * 10 + 1, 13, in, 801);
    OK(csQueueStorageRequest(&load, NULL, NULL, NULL, &value));
    char part[15], wanted[15];
    OK(copy(CS_COPY_FROM_DEVICE, in, 800, part, sizeof part));
    HOLDS(pread((int)(intptr_t)file, wanted + 1, 13, 81) == 13);
    HOLDS(!memcmp(part + 1, wanted + 1, 13));
    load = file_io(device, CS_STORAGE_LOAD_TYPE, file, COUNT * 8 - 5, 100, in, 0);
    OK(csQueueStorageRequest(&load, NULL, NULL, NULL, NULL, &value));
    HOLDS(value == 5);
    load = file_io(device, CS_STORAGE_LOAD_TYPE, file, COUNT * 9, 100, in, 0);
    OK(csQueueStorageRequest(&load, NULL, NULL, NULL, NULL, &value));
    HOLDS(value == 0);

    /* Back into a file, which grows. */
    snprintf(path, sizeof path, "%s/made", dir);
    void *made = open_fd(path, O_RDWR | O_CREAT | O_TRUNC);
    OK(copy(CS_COPY_TO_DEVICE, out, 3, "some words", 10));
    CsStorageRequest store = file_io(device, CS_STORAGE_STORE_TYPE, made, 2, 10, out, 3);
    OK(csQueueStorageRequest(&store, NULL, NULL, NULL, NULL, &value));
    HOLDS(value == 10 && pread((int)(intptr_t)made, part, 15, 0) == 12 && !memcmp(part, "\0\0some words", 12));
    store = file_io(device, CS_STORAGE_STORE_TYPE, file, 0, 10, out, 0);
    IS(csQueueStorageRequest(&store, NULL, NULL, NULL, NULL, NULL), CS_NO_PERMISSIONS);

    /* The same file by its path in the export, and with arguments in the function's name. */
    void *there, *words;
    OK(dsCsOpenFile(device, "data/numbers", 0, &there));
    load = file_io(device, CS_STORAGE_LOAD_TYPE, there, 0, 16, in, 0);
    OK(csQueueStorageRequest(&load, NULL, NULL, NULL, NULL, &value));
    OK(dsCsCloseFile(there));
    IS(dsCsCloseFile(there), CS_INVALID_HANDLE);
    IS(csQueueStorageRequest(&load, NULL, NULL, NULL, NULL, &value), CS_INVALID_HANDLE);
    IS(dsCsOpenFile(device, "data/none", 0, &there), CS_ENOENT);
    OK(dsCsOpenFile(device, "data/words", 0, &words));
    load = file_io(device, CS_STORAGE_LOAD_TYPE, words, 0, 4096, in, 0);
    OK(csQueueStorageRequest(&load, NULL, NULL, NULL, NULL, &value));
    CsComputeRequest *grep = computing(function(device, "grep?pattern=ERROR"), in, value, out);
    OK(csQueueComputeRequest(grep, NULL, NULL, NULL, NULL, &value));
    char lines[64] = {0};
    OK(copy(CS_COPY_FROM_DEVICE, out, 0, lines, value));
    HOLDS(!strcmp(lines, "ERROR here\nERROR there\n"));
    OK(dsCsCloseFile(words));

    OK(csFreeMem(in, NULL));
    OK(csFreeMem(out, NULL));
    free(run);
    free(grep);
}

/* Blocks to memory and back, in several ranges. */
static void blocks(CS_DEV_HANDLE device) {
    CS_MEM_HANDLE memory = alloc(device, 4 << 20);
    unsigned *words = malloc(4 << 20), *back = malloc(4 << 20);
    for (unsigned i = 0; i < 1 << 20; i++) words[i] = i * 2654435761u;
    u64 value;
    OK(copy(CS_COPY_TO_DEVICE, memory, 0, words, 4 << 20));
    CsStorageRequest *store = block_io(device, CS_STORAGE_STORE_TYPE, memory, 0, 2);
    CsBlockRange *ranges = store->u.BlockIo.Range;
    ranges[0] = (CsBlockRange){.NamespaceId = 1, .StartLba = 100, .NumBlocks = 256};
    ranges[1] = (CsBlockRange){.NamespaceId = 1, .StartLba = 1000, .NumBlocks = 768};
    OK(csQueueStorageRequest(store, NULL, NULL, NULL, NULL, &value));
    HOLDS(value == 4 << 20);
    CsMemFlags fill = {.Flags = CS_FDM_FILL, .FillValue = 0x04030201};
    OK(csInitMem(memory, 5, 4001, &fill));
    OK(copy(CS_COPY_FROM_DEVICE, memory, 0, back, 4100));
    HOLDS(!memcmp(back, words, 5) && ((u8 *)back)[5] == 1 && ((u8 *)back)[8] == 4 && ((u8 *)back)[4005] == 1);
    HOLDS(!memcmp((u8 *)back + 4006, (u8 *)words + 4006, 94));
    store->u.BlockIo.Type = CS_STORAGE_LOAD_TYPE;
    CsBlockRange first = ranges[0];
    ranges[0] = ranges[1];
    ranges[1] = first;
    OK(csQueueStorageRequest(store, NULL, NULL, NULL, NULL, NULL));
    OK(copy(CS_COPY_FROM_DEVICE, memory, 0, back, 4 << 20));
    HOLDS(!memcmp(back, words + (1 << 18), 3 << 20) && !memcmp(back + (3 << 18), words, 1 << 20));

    ranges[0].StartLba = 1 << 20;
    IS(csQueueStorageRequest(store, NULL, NULL, NULL, NULL, NULL), CS_INVALID_ARG);
    ranges[0].StartLba = ~0ull - 3;
    IS(csQueueStorageRequest(store, NULL, NULL, NULL, NULL, NULL), CS_INVALID_ARG);
    ranges[0] = (CsBlockRange){.NamespaceId = 77, .NumBlocks = 1};
    IS(csQueueStorageRequest(store, NULL, NULL, NULL, NULL, NULL), CS_INVALID_ARG);
    ranges[0] = (CsBlockRange){.NamespaceId = 1, .NumBlocks = 0};
    IS(csQueueStorageRequest(store, NULL, NULL, NULL, NULL, NULL), CS_INVALID_ARG);
    ranges[0] = (CsBlockRange){.NamespaceId = 1, .NumBlocks = 2000};
    IS(csQueueStorageRequest(store, NULL, NULL, NULL, NULL, NULL), CS_INVALID_ARG);
    OK(csFreeMem(memory, &fill));
    free(store);
    free(words);
    free(back);
}

static void *contents(const char *path, int *len) {
    FILE *file = fopen(path, "rb");
    HOLDS(file);
    void *bytes = malloc(1 << 20);
    *len = fread(bytes, 1, 1 << 20, file);
    fclose(file);
    return bytes;
}

/* Functions of our own: one with memory as its own, and one of two in an object. */
static void downloads(CS_DEV_HANDLE device, const char *exec, const char *two) {
    CsCSFDownloadInfo info = {.Type = CS_CSF_BPF_PROGRAM};
    CS_CSF_ID add, second;
    u64 value;
    info.common.DataBuffer = contents(exec, &info.common.Length);
    OK(csCSFDownload(device, &info, &add));
    CS_MEM_HANDLE in = alloc(device, 64), out = alloc(device, 16);
    u64 numbers[8] = {1, 2, 3, 4, 5, 6, 7, 8}, sum[2];
    OK(copy(CS_COPY_TO_DEVICE, in, 0, numbers, sizeof numbers));
    CsComputeRequest *run = calloc(1, sizeof *run + 6 * sizeof *run->Args);
    run->FunctionId = add;
    run->NumArgs = 5;
    csHelperSetComputeArg(&run->Args[0], CS_64BIT_VALUE_TYPE, 1000);
    csHelperSetComputeArg(&run->Args[1], CS_32BIT_VALUE_TYPE, 7);
    csHelperSetComputeArg(&run->Args[2], CS_AFDM_TYPE, in, 16);
    csHelperSetComputeArg(&run->Args[3], CS_32BIT_VALUE_TYPE, 32);
    csHelperSetComputeArg(&run->Args[4], CS_AFDM_TYPE, out, 8);
    OK(csQueueComputeRequest(run, NULL, NULL, NULL, NULL, &value));
    OK(copy(CS_COPY_FROM_DEVICE, out, 0, sum, sizeof sum));
    HOLDS(value == 4 && sum[0] == 0 && sum[1] == 1000 + 7 + 3 + 4 + 5 + 6);
    run->NumArgs = 4;
    IS(csQueueComputeRequest(run, NULL, NULL, NULL, NULL, &value), CS_ERROR_IN_EXECUTION);
    run->NumArgs = 5;
    csHelperSetComputeArg(&run->Args[2], CS_AFDM_TYPE, in, 4);
    IS(csQueueComputeRequest(run, NULL, NULL, NULL, NULL, &value), CS_INVALID_ARG);

    CsCSFDownloadInfo pair = {.Type = CS_CSF_BPF_PROGRAM};
    pair.common.DataBuffer = contents(two, &pair.common.Length);
    IS(csCSFDownload(device, &pair, &second), CS_LOAD_ERROR);
    strcpy(pair.common.UniqueName, "third");
    IS(csCSFDownload(device, &pair, &second), CS_LOAD_ERROR);
    strcpy(pair.common.UniqueName, "second");
    OK(csCSFDownload(device, &pair, &second));
    HOLDS(second == function(device, "second") && second != function(device, "first"));
    CsComputeRequest *twice = computing(second, in, 8, out);
    OK(csQueueComputeRequest(twice, NULL, NULL, NULL, NULL, &value));
    OK(copy(CS_COPY_FROM_DEVICE, out, 0, sum, 8));
    HOLDS(value == 8 && sum[0] == 2);

    CsDownloadInfo older = {.Type = CS_BPF_PROGRAM, .Length = info.common.Length, .DataBuffer = info.common.DataBuffer};
    OK(csDownload(device, &older));
    info.common.Unload = 1;
    strcpy(info.common.UniqueName, "add");
    OK(csCSFDownload(device, &info, NULL));
    IS(csQueueComputeRequest(run, NULL, NULL, NULL, NULL, &value), CS_UNKNOWN_COMPUTE_FUNCTION);
    IS(csCSFDownload(device, &info, NULL), CS_INVALID_ID);
    info.common.Unload = 0;
    info.common.Length = 100;
    info.common.UniqueName[0] = 0;
    IS(csCSFDownload(device, &info, &add), CS_LOAD_ERROR);
    info.Type = CS_CSF_FPGA_BITSTREAM;
    IS(csCSFDownload(device, &info, &add), CS_UNSUPPORTED);
    OK(csFreeMem(in, NULL));
    OK(csFreeMem(out, NULL));
    free(info.common.DataBuffer);
    free(pair.common.DataBuffer);
    free(run);
    free(twice);
}

int main(int argc, char **argv) {
    HOLDS(argc == 4);
    CS_DEV_HANDLE device = open_first();
    CS_CSE_HANDLE cse;
    files(argv[1], device);
    lists(argv[1], device);
    properties(device);
    blocks(device);
    downloads(device, argv[2], argv[3]);
    char name[256];
    unsigned int len = sizeof name;
    OK(csGetCSEFromCSx(device, &len, name));
    OK(csOpenCSE(name, NULL, &cse));
    function(cse, "wc");
    IS(csCloseCSx(cse), CS_INVALID_HANDLE);
    OK(csCloseCSE(cse));
    OK(csCloseCSx(device));
    puts("good");
    return 0;
}
