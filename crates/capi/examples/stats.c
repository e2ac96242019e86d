/* Sums the 64-bit numbers of a file, here or at a server, without fetching them:
 *
 *     cc stats.c $(pkg-config --cflags --libs diskside) -o stats
 *     ./stats diskside://server/data/measured.u64
 */
#include <inttypes.h>
#include <libdiskside.h>
#include <stdio.h>

struct stats { uint64_t count; int64_t sum, min, max; };

static int fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, ds_error());
    return 1;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: %s FILE|URL\n", argv[0]);
        return 2;
    }
    ds_session *session = ds_session_new(64 << 20);
    if (!session) return fail("session");
    ds_function *stats64 = ds_function_find(session, "stats64");
    if (!stats64) return fail("stats64");
    ds_file *file = ds_file_open(session, argv[1], DS_READ);
    if (!file) return fail(argv[1]);

    ds_request *request = ds_submit_pread_fn(file, 0, UINT64_MAX, stats64, NULL, 0, NULL);
    if (!request) return fail("submit");
    struct stats stats;
    ssize_t len = ds_wait(request, &stats, sizeof stats);
    if (len < 0) return fail(argv[1]);
    printf("%" PRIu64 " numbers, sum %" PRId64 ", least %" PRId64 ", greatest %" PRId64 "\n",
           stats.count, stats.sum, stats.min, stats.max);

    ds_file_free(file);
    ds_function_free(stats64);
    ds_session_free(session);
    return 0;
}
