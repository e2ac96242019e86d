/* Many hosts that read 4 KiB of a file of a server again and again, each a process with a connection of its own:
 *
 *     hosts URL COUNT SECONDS PAUSE_US
 *
 * prints, for each request, when it began and how long it took, in microseconds since the start by CLOCK_MONOTONIC in the
 * first line. A request that fails is reported on standard error, and ends the program with 1.
 */
#include <inttypes.h>
#include <libdiskside.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { REQUESTS_MAX = 100000, BLOCK = 4096 };

struct host {
    uint32_t count;
    struct { uint32_t began, took; } requests[REQUESTS_MAX];
};

static uint64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static int read_until(const char *url, unsigned number, uint64_t start, uint64_t end, useconds_t pause, struct host *host) {
    char nqn[80], block[BLOCK];
    snprintf(nqn, sizeof nqn, "nqn.2026-11.io.diskside:bench:%u", number);
    ds_session_options options = { .size = sizeof options, .host_nqn = nqn };
    ds_session *session = ds_session_new_with(&options);
    ds_file *file = session ? ds_file_open(session, url, DS_READ) : NULL;
    if (!file) {
        fprintf(stderr, "host %u: %s\n", number, ds_error());
        return 1;
    }
    uint64_t blocks = ds_file_len(file) / BLOCK, random = number + 1;
    while (host->count < REQUESTS_MAX && now_us() < end) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        uint64_t began = now_us();
        ssize_t len = ds_pread(file, block, BLOCK, (random >> 33) % blocks * BLOCK);
        if (len != BLOCK) {
            fprintf(stderr, "host %u: a read of %d: %zd: %s\n", number, BLOCK, len, ds_error());
            return 1;
        }
        host->requests[host->count].began = began - start;
        host->requests[host->count].took = now_us() - began;
        host->count += 1;
        usleep(pause / 2 + (random >> 40) % pause);
    }
    ds_file_free(file);
    ds_session_free(session);
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 5 || atoi(argv[2]) < 1 || atoi(argv[4]) < 2) {
        fprintf(stderr, "usage: %s URL COUNT SECONDS PAUSE_US\n", argv[0]);
        return 2;
    }
    unsigned count = atoi(argv[2]);
    struct host *hosts = mmap(NULL, sizeof *hosts * count, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (hosts == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    uint64_t start = now_us(), end = start + strtoull(argv[3], NULL, 10) * 1000000;
    for (unsigned number = 0; number < count; number++) {
        pid_t child = fork();
        if (child < 0) perror("fork");
        if (child == 0) _exit(read_until(argv[1], number, start, end, atoi(argv[4]), hosts + number));
    }
    int failed = 0, status;
    while (wait(&status) > 0) failed |= status != 0;
    printf("%" PRIu64 "\n", start);
    for (unsigned number = 0; number < count; number++)
        for (uint32_t at = 0; at < hosts[number].count; at++)
            printf("%" PRIu32 " %" PRIu32 "\n", hosts[number].requests[at].began, hosts[number].requests[at].took);
    return failed;
}
