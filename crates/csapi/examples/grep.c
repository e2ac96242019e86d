/* Prints the lines of a file with a word in them. The file is loaded into device memory at its server, the lines are found
 * there, and they alone come here:
 *
 *     cc grep.c $(pkg-config --cflags --libs diskside-csapi) -o grep
 *     DISKSIDE_CSX=diskside://server,mount=logs:/mnt/logs ./grep /mnt/logs/today.log ERROR
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include "cs.h"

#define LEN (4 << 20)

static void must(CS_STATUS status, const char *what) {
    if (status == CS_SUCCESS) return;
    fprintf(stderr, "%s: status %d: %s\n", what, (int)status, dsCsError());
    exit(1);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    char csx[256], name[256];
    unsigned int len = sizeof csx;
    CS_DEV_HANDLE device;
    must(csGetCSxFromPath(argv[1], &len, csx), argv[1]);
    must(csOpenCSx(csx, NULL, &device), csx);

    CsMemFlags flags = {0};
    CS_MEM_HANDLE in, out;
    must(csAllocMem(device, LEN, &flags, &in, NULL), "memory");
    must(csAllocMem(device, LEN, &flags, &out, NULL), "memory");

    CsStorageRequest load = {.Mode = CS_STORAGE_FILE_IO, .DevHandle = device};
    load.u.FileIo.Type = CS_STORAGE_LOAD_TYPE;
    load.u.FileIo.FileHandle = (void *)(intptr_t)open(argv[1], O_RDONLY);
    load.u.FileIo.Bytes = LEN;
    load.u.FileIo.DevMem.MemHandle = in;
    u64 loaded, found;
    must(csQueueStorageRequest(&load, NULL, NULL, NULL, NULL, &loaded), "load");

    struct { CSFIdInfo info; FDMAccess memory; } csf;
    int csf_len = sizeof csf, count;
    snprintf(name, sizeof name, "grep?pattern=%s", argv[2]);
    must(csGetCSFId(device, name, 0, &csf_len, &count, &csf.info), name);

    CsComputeRequest *run = calloc(1, sizeof *run + 3 * sizeof *run->Args);
    run->CSFId = csf.info.CSFId;
    run->NumArgs = 3;
    csHelperSetComputeArg(&run->Args[0], CS_AFDM_TYPE, in, 0);
    csHelperSetComputeArg(&run->Args[1], CS_64BIT_VALUE_TYPE, loaded); /* so many bytes of it */
    csHelperSetComputeArg(&run->Args[2], CS_AFDM_TYPE, out, 0);
    must(csQueueComputeRequest(run, NULL, NULL, NULL, NULL, &found), "run");

    char *lines = malloc(found + 1);
    CsCopyMemRequest copy = {.Type = CS_COPY_FROM_DEVICE, .HostVAddress = lines, .Bytes = found};
    copy.DevMem.MemHandle = out;
    must(csQueueCopyMemRequest(&copy, NULL, NULL, NULL, NULL, NULL), "copy");
    fwrite(lines, 1, found, stdout);

    must(csFreeMem(in, NULL), "free");
    must(csFreeMem(out, NULL), "free");
    must(csCloseCSx(device), "close");
    free(lines);
    free(run);
    return 0;
}
