/* How a function that fails is told: failures FUNCTION.bpf.c FILE WHERE. */
#include <inttypes.h>
#include <libdiskside.h>
#include <stdio.h>
#include <stdlib.h>

static const char *names[] = { "trap", "budget", "returned" };

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    ds_session *session = ds_session_new(0);
    ds_file *file = ds_file_open(session, argv[2], DS_READ);
    for (int i = 0; i < 3; i++) {
        char what[4096];
        uint64_t out;
        snprintf(what, sizeof what, "%s:%s", argv[1], names[i]);
        ds_function *function = ds_function_find(session, what);
        if (!file || !function) {
            fprintf(stderr, "%s\n", ds_error());
            return 1;
        }
        ds_options options = { .size = sizeof options, .place = atoi(argv[3]) };
        ssize_t n = ds_pread_fn(file, &out, sizeof out, 32, UINT64_MAX, function, NULL, 0, &options);
        printf("%zd %d %s\n", n, ds_error_kind(), ds_error());
        ds_trap trap = { .size = sizeof trap };
        if (ds_error_trap(&trap) != 1) return 3;
        printf("%d %" PRIu64 " %" PRIu64 " %" PRId64 "\n", trap.kind, trap.from, trap.to, trap.returned);
        ds_function_free(function);
    }
    ds_file_free(file);
    ds_session_free(session);
    return 0;
}
