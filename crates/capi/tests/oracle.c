/* Runs what standard input says, a line for each run: FUNCTION FILE PLACE TIER THREADS CHUNK FLAGS BUDGET FROM LEN ARGS, with the
 * arguments as hexadecimal digits or "-", and LEN -1 for all. Prints "gave HEX" or "failed ERRNO KIND TRAP INSN FROM TO RETURNED TEXT". */
#include <inttypes.h>
#include <libdiskside.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RESULT_CAP = 1 << 20, ARGS_CAP = 256, WORD_CAP = 1024 };

static size_t unhex(const char *text, unsigned char *bytes) {
    size_t len = 0;
    unsigned byte;
    for (; len < ARGS_CAP && sscanf(text, "%2x", &byte) == 1; text += 2) bytes[len++] = (unsigned char)byte;
    return len;
}

static void failed(ssize_t returned) {
    ds_trap trap = { .size = sizeof trap, .kind = -1 };
    ds_error_trap(&trap);
    printf("failed %zd %d %d %u %" PRIu64 " %" PRIu64 " %" PRId64 " %s\n", returned, ds_error_kind(), trap.kind,
           trap.insn, trap.from, trap.to, trap.returned, ds_error());
}

int main(void) {
    static unsigned char result[RESULT_CAP];
    ds_session *session = ds_session_new(64 << 20);
    char what[WORD_CAP], path[WORD_CAP], hex[2 * ARGS_CAP + 2];
    int place, tier;
    unsigned threads, flags;
    uint64_t chunk, budget, from;
    int64_t len;
    const char *line = "%1023s %1023s %d %d %u %" SCNu64 " %u %" SCNu64 " %" SCNu64 " %" SCNd64 " %513s";
    while (scanf(line, what, path, &place, &tier, &threads, &chunk, &flags, &budget, &from, &len, hex) == 11) {
        unsigned char args[ARGS_CAP];
        size_t args_len = strcmp(hex, "-") == 0 ? 0 : unhex(hex, args);
        ds_function *function = ds_function_find(session, what);
        ds_file *file = ds_file_open(session, path, DS_READ);
        ds_options options = {
            .size = sizeof options,
            .decompress = DS_DECOMPRESS_AUTO,
            .header = DS_HEADER_AUTO,
            .place = place,
            .tier = tier,
            .threads = threads,
            .chunk_len = chunk,
            .flags = flags,
            .budget = budget,
        };
        if (!function || !file) {
            failed(0);
        } else {
            uint64_t wanted = len < 0 ? UINT64_MAX : (uint64_t)len;
            ssize_t n = ds_pread_fn(file, result, sizeof result, from, wanted, function, args, args_len, &options);
            if (n < 0) {
                failed(n);
            } else {
                printf("gave ");
                for (ssize_t i = 0; i < n; i++) printf("%02x", result[i]);
                printf("\n");
            }
        }
        ds_file_free(file);
        ds_function_free(function);
    }
    ds_session_free(session);
    return 0;
}
