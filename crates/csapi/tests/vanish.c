/* The server goes away while requests run, and comes back; its argument is an object of a function that does not end. Says "ready" and
 * "gone", and continues with the next line of its input. */
#include "check.h"

int main(int argc, char **argv) {
    HOLDS(argc == 2);
    CS_DEV_HANDLE device = open_first(), again;
    CS_MEM_HANDLE in = alloc(device, 4096), out = alloc(device, 4096), more;
    CsCSFDownloadInfo info = {.Type = CS_CSF_BPF_PROGRAM};
    CS_CSF_ID endless;
    CS_EVT_HANDLE event;
    CS_STATUS status;
    char bytes[64];
    info.common.DataBuffer = malloc(1 << 20);
    FILE *source = fopen(argv[1], "rb");
    info.common.Length = fread(info.common.DataBuffer, 1, 1 << 20, source);
    fclose(source);
    OK(csCSFDownload(device, &info, &endless));
    OK(csCreateEvent(&event));
    CsComputeRequest *run = computing(endless, in, 8, out);
    for (int i = 0; i < 4; i++) IS(csQueueComputeRequest(run, NULL, NULL, event, NULL, NULL), CS_QUEUED);
    puts("ready");
    fflush(stdout);
    HOLDS(getchar() == '\n');
    for (int i = 0; i < 4; i++) {
        while ((status = csPollEvent(event, NULL)) == CS_NOT_DONE) usleep(1000);
        IS(status, CS_DEVICE_NOT_AVAILABLE);
    }
    int len = 0, count;
    CsStatsInfo stats;
    IS(copy(CS_COPY_FROM_DEVICE, in, 0, bytes, sizeof bytes), CS_DEVICE_NOT_AVAILABLE);
    IS(csQueueComputeRequest(run, NULL, NULL, event, NULL, NULL), CS_DEVICE_NOT_AVAILABLE);
    IS(csAllocMem(device, 64, NULL, &more, NULL), CS_DEVICE_NOT_AVAILABLE);
    IS(csGetCSFId(device, "wc", 0, &len, &count, NULL), CS_DEVICE_NOT_AVAILABLE);
    IS(csQueryDeviceStatistics(device, CS_STAT_CSE_USAGE, NULL, &stats), CS_DEVICE_NOT_AVAILABLE);
    IS(csCSFDownload(device, &info, &endless), CS_DEVICE_NOT_AVAILABLE);
    IS(csOpenCSx("near", NULL, &again), CS_DEVICE_NOT_AVAILABLE);
    OK(csDeleteEvent(event));
    OK(csFreeMem(in, NULL));
    puts("gone");
    fflush(stdout);
    HOLDS(getchar() == '\n');

    /* Its resources are gone, also now that it is there again. */
    IS(copy(CS_COPY_FROM_DEVICE, out, 0, bytes, sizeof bytes), CS_DEVICE_NOT_AVAILABLE);
    OK(csOpenCSx("near", NULL, &again));
    in = alloc(again, 4096);
    OK(copy(CS_COPY_FROM_DEVICE, in, 0, bytes, sizeof bytes));
    function(again, "wc");
    IS(csQueueComputeRequest(run, NULL, NULL, NULL, NULL, NULL), CS_DEVICE_NOT_AVAILABLE);
    OK(csCloseCSx(device));
    IS(csFreeMem(out, NULL), CS_INVALID_HANDLE);
    OK(csCloseCSx(again));
    free(run);
    free(info.common.DataBuffer);
    puts("good");
    return 0;
}
