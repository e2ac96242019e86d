/* Kernels: launch SOURCE FILE OUT, for files here and at a server. SOURCE is window.bpf.c. */
#include <assert.h>
#include <errno.h>
#include <libdiskside.h>
#include <stdio.h>
#include <string.h>

#define BLOCK 4096
#define LEN (3 * BLOCK + 5)

static ds_session *session;

/* Launches it with this argument, and gives its result. */
static ds_result *launch(const ds_kernel *kernel, const ds_file *file, const char *what, ds_options options) {
    char args[64];
    char len[32];
    snprintf(len, sizeof len, "len=%d", LEN);
    const char *pairs[] = { len, what, "first=1", "count=1" };
    ssize_t args_len = ds_kernel_args(kernel, pairs, 4, args, sizeof args);
    assert(args_len == 24);
    options.size = sizeof options;
    options.result_len_max = 5 * BLOCK;
    return ds_wait_result(ds_submit_launch(session, &file, 1, NULL, 0, kernel, args, args_len, &options));
}

/* Whether the result has these blocks alone: bit by bit. */
static void check(ds_result *result, unsigned given) {
    if (!result) fprintf(stderr, "%s\n", ds_error());
    assert(result && ds_result_len(result) == LEN);
    const unsigned char *bytes = ds_result_bytes(result);
    for (size_t i = 0; i < LEN; i++)
        assert(bytes[i] == (given >> i / BLOCK & 1 ? (unsigned char)(1 + i / BLOCK * 7 + i % 3) : 0));
    unsigned char mask[4] = { 0 };
    ssize_t len = ds_result_blocks(result, mask, sizeof mask);
    assert(given == 15 ? len == 0 : len == 1 && mask[0] == given);
    if (given != 15) assert(ds_result_blocks(result, NULL, 0) == -ENOBUFS);
    ds_result_free(result);
}

int main(int argc, char **argv) {
    assert(argc == 4);
    session = ds_session_new(1 << 20);
    ds_kernel *kernel = ds_kernel_find(session, argv[1]);
    if (!kernel) fprintf(stderr, "%s\n", ds_error());
    assert(kernel);
    ds_file *file = ds_file_open(session, argv[2], DS_READ);
    assert(file);

    check(launch(kernel, file, "what=0", (ds_options){ 0 }), 15);
    check(launch(kernel, file, "what=1", (ds_options){ 0 }), 2);
    check(launch(kernel, file, "what=2", (ds_options){ .direct = DS_DIRECT_OFF }), 13);
    const uint8_t wanted[] = { 12 };
    check(launch(kernel, file, "what=0", (ds_options){ .result_blocks = wanted, .result_blocks_len = 1 }), 12);
    check(launch(kernel, file, "what=3", (ds_options){ .result_blocks = wanted, .result_blocks_len = 1 }), 14);
    check(launch(kernel, file, "what=0", (ds_options){ .result_blocks = wanted }), 0);
    const uint8_t beyond[] = { 32 };
    assert(!launch(kernel, file, "what=0", (ds_options){ .result_blocks = beyond, .result_blocks_len = 1 }));
    assert(ds_error_kind() == DS_FAILED_USAGE && strstr(ds_error(), "block 5 is not in its result"));
    assert(!launch(kernel, file, "what=0", (ds_options){ .result_blocks_len = 1 }) && strstr(ds_error(), "no such mask"));
    assert(!launch(kernel, file, "what=0", (ds_options){ .direct = 3 }) && strstr(ds_error(), "DS_DIRECT_"));

    /* It writes a file, and says what it took. */
    ds_kernel *filter = ds_kernel_find(session, "ndp_filter");
    ds_file *out = ds_file_open(session, argv[3], DS_CREATE);
    assert(filter && out);
    const char *pairs[] = { "pattern=needle", "unit=4096" };
    char args[256];
    ssize_t args_len = ds_kernel_args(filter, pairs, 2, args, sizeof args);
    const ds_file *from = file, *to = out;
    ds_result *result = ds_wait_result(ds_submit_launch(session, &from, 1, &to, 1, filter, args, args_len, NULL));
    assert(result && ds_result_parts(result) == 1);
    ds_stats stats = { .size = sizeof stats };
    assert(ds_result_stats(result, &stats) == 0 && stats.written_bytes == 4096 && stats.input_bytes >= 3 * 4096);
    ds_part part = { .size = sizeof part };
    assert(ds_result_part(result, 0, &part) == 0);
    assert(!strcmp(part.reason, part.place == DS_DEVICE ? "in_place" : "here"));
    printf("%s\n", part.place == DS_DEVICE ? "device" : "host");
    ds_result_free(result);
    assert(ds_file_len(out) == 4096);

    assert(!ds_kernel_find(session, "stats64") && !ds_kernel_find(session, NULL) && !ds_kernel_find(NULL, "ndp_filter"));
    assert(!ds_submit_launch(session, NULL, 1, NULL, 0, filter, args, args_len, NULL) && *ds_error());
    assert(!ds_submit_launch(session, &from, 1, NULL, 0, NULL, args, args_len, NULL) && *ds_error());
    assert(ds_result_blocks(NULL, NULL, 0) < 0);
    ds_kernel_free(kernel);
    ds_kernel_free(filter);
    ds_kernel_free(NULL);
    ds_file_free(file);
    ds_file_free(out);
    ds_session_free(session);
    return 0;
}
