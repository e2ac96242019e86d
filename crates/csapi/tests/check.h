/* The common part of the tests' programs. */
#ifndef CHECK_H
#define CHECK_H
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cs.h"

/* A call returns this status. */
#define IS(call, wanted) is((call), (wanted), #call, __LINE__)
#define OK(call) IS(call, CS_SUCCESS)
#define HOLDS(what) ((what) ? (void)0 : (fprintf(stderr, "line %d: not so: %s\n", __LINE__, #what), exit(1)))

static inline void is(CS_STATUS got, CS_STATUS wanted, const char *call, int line) {
    if (got == wanted) return;
    fprintf(stderr, "line %d: %s: status %d and not %d: %s\n", line, call, (int)got, (int)wanted, dsCsError());
    exit(1);
}

static inline CS_DEV_HANDLE open_first(void) {
    char names[1024];
    int len = sizeof names;
    CS_DEV_HANDLE device;
    OK(csQueryCSxList(&len, names));
    HOLDS(len == (int)strlen(names) + 1);
    if (strchr(names, ',')) *strchr(names, ',') = 0;
    OK(csOpenCSx(names, NULL, &device));
    return device;
}

static inline CS_MEM_HANDLE alloc(CS_DEV_HANDLE device, int bytes) {
    CS_MEM_HANDLE memory;
    CsMemFlags clear = {.Flags = CS_FDM_CLEAR};
    OK(csAllocMem(device, bytes, &clear, &memory, NULL));
    return memory;
}

static inline CS_CSF_ID function(CS_DEV_HANDLE device, const char *name) {
    struct { CSFIdInfo info; FDMAccess memory; } csf;
    int len = sizeof csf, count = 0;
    OK(csGetCSFId(device, name, 0, &len, &count, &csf.info));
    HOLDS(count == 1 && csf.info.NumFDMs == 1 && csf.info.FDMList == &csf.memory && csf.memory.FDMId == 0);
    return csf.info.CSFId;
}

static inline CsCopyMemRequest copying(CS_MEM_COPY_TYPE type, CS_MEM_HANDLE memory, unsigned long offset, void *bytes, unsigned len) {
    CsCopyMemRequest copy = {.Type = type, .HostVAddress = bytes, .Bytes = len};
    copy.DevMem.MemHandle = memory;
    copy.DevMem.ByteOffset = offset;
    return copy;
}

static inline CS_STATUS copy(CS_MEM_COPY_TYPE type, CS_MEM_HANDLE memory, unsigned long offset, void *bytes, unsigned len) {
    CsCopyMemRequest request = copying(type, memory, offset, bytes, len);
    return csQueueCopyMemRequest(&request, NULL, NULL, NULL, NULL, NULL);
}

static inline CsStorageRequest file_io(CS_DEV_HANDLE device, CS_STORAGE_IO_TYPE type, void *file, u64 offset, u32 len, CS_MEM_HANDLE memory, unsigned long at) {
    CsStorageRequest request = {.Mode = CS_STORAGE_FILE_IO, .DevHandle = device};
    request.u.FileIo.Type = type;
    request.u.FileIo.FileHandle = file;
    request.u.FileIo.Offset = offset;
    request.u.FileIo.Bytes = len;
    request.u.FileIo.DevMem.MemHandle = memory;
    request.u.FileIo.DevMem.ByteOffset = at;
    return request;
}

static inline CsStorageRequest *block_io(CS_DEV_HANDLE device, CS_STORAGE_IO_TYPE type, CS_MEM_HANDLE memory, unsigned long at, int ranges) {
    CsStorageRequest *request = calloc(1, sizeof *request + ranges * sizeof(CsBlockRange));
    request->Mode = CS_STORAGE_BLOCK_IO;
    request->DevHandle = device;
    request->u.BlockIo.Type = type;
    request->u.BlockIo.DevMem.MemHandle = memory;
    request->u.BlockIo.DevMem.ByteOffset = at;
    request->u.BlockIo.NumRanges = ranges;
    return request;
}

/* Over in_len bytes of one memory to another. */
static inline CsComputeRequest *computing(CS_CSF_ID csf, CS_MEM_HANDLE in, u64 in_len, CS_MEM_HANDLE out) {
    CsComputeRequest *request = calloc(1, sizeof *request + 3 * sizeof request->Args[0]);
    request->CSFId = csf;
    request->NumArgs = 3;
    csHelperSetComputeArg(&request->Args[0], CS_AFDM_TYPE, in, 0);
    csHelperSetComputeArg(&request->Args[1], CS_64BIT_VALUE_TYPE, in_len);
    csHelperSetComputeArg(&request->Args[2], CS_AFDM_TYPE, out, 0);
    return request;
}

static inline void *open_fd(const char *path, int flags) {
    int fd = open(path, flags, 0644);
    HOLDS(fd >= 0);
    return (void *)(intptr_t)fd;
}

struct stats { u64 count; int64_t sum, min, max; };

#endif
