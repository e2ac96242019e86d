/* Options and results: results DIRECTORY URL URL, with a file of numbers `n` in each. */
#include <assert.h>
#include <errno.h>
#include <libdiskside.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct stats { uint64_t count; int64_t sum, min, max; };

static ds_session *session;

static ds_file *open_in(const char *where, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", where, name);
    ds_file *file = ds_file_open(session, path, DS_READ);
    if (!file) fprintf(stderr, "%s\n", ds_error());
    assert(file);
    return file;
}

static ds_function *function(const char *where, const char *what) {
    char path[4096];
    snprintf(path, sizeof path, "%s%s%s", where, *where ? "/" : "", what);
    ds_function *found = ds_function_find(session, path);
    if (!found) fprintf(stderr, "%s\n", ds_error());
    assert(found);
    return found;
}

static struct ds_part part_of(const ds_result *result, size_t index) {
    struct ds_part part = { .size = sizeof part };
    assert(ds_result_part(result, index, &part) == 0 && part.size == sizeof part);
    return part;
}

static struct stats stats_of(const ds_result *result) {
    struct stats stats;
    assert(ds_result_len(result) == sizeof stats);
    memcpy(&stats, ds_result_bytes(result), sizeof stats);
    return stats;
}

/* One file at a server, on either side. */
static void places(ds_file *file, ds_function *stats64) {
    int64_t told = ds_session_count(session, "told");
    for (int place = DS_HOST; place <= DS_DEVICE; place++) {
        ds_options options = { .size = sizeof options, .place = place, .threads = 2, .flags = DS_BACKGROUND };
        ds_result *result = ds_wait_result(ds_submit_pread_fn(file, 0, UINT64_MAX, stats64, NULL, 0, &options));
        assert(result && !*ds_error());
        assert(stats_of(result).count == 100000 && stats_of(result).min == 1000);
        assert(ds_result_parts(result) == 1);
        ds_part part = part_of(result, 0);
        assert(part.place == place && part.from == 0 && part.to == 800000 && part.input_bytes == 800000);
        assert(!strcmp(part.reason, "told") && strstr(part.why, "the caller says so"));
        assert(strstr(part.name, "diskside://") && strstr(part.name, "/data/n"));
        assert(place == DS_HOST ? *part.tier : !*part.tier);
        ds_stats stats = { .size = sizeof stats };
        assert(ds_result_stats(result, &stats) == 0);
        assert(stats.input_bytes == 800000 && stats.output_bytes >= sizeof(struct stats) && stats.iterations > 0);
        assert(stats.fold_ns == part.fold_ns && (place == DS_DEVICE || stats.fold_ns > 0));
        assert(stats.total_ns > 0 && stats.written_bytes == 0 && stats.log_dropped == 0);
        /* The data moves to the host, or only the result does. */
        uint64_t moved = stats.sent_bytes + stats.received_bytes;
        assert(place == DS_HOST ? moved >= 800000 : moved > 0 && moved < 4096);
        ds_result_free(result);
    }
    assert(ds_session_count(session, "told") == told + 2 && ds_session_count(session, "device") == 1);
    assert(ds_session_count(session, "all") == told + 2 && ds_session_count(session, "faster") == 0);
    char text[16384];
    int64_t len = ds_session_metrics(session, text, sizeof(text) - 1);
    assert(len > 0);
    text[len] = 0;
    assert(strstr(text, "diskside_client_requests_total{plan=\"device\"} 1\n") && strstr(text, "\n# EOF\n"));
    assert(ds_session_metrics(session, text, 10) == -ENOBUFS && ds_session_metrics(NULL, text, 10) < 0);
    assert(ds_session_count(session, "fastest") == -EINVAL && strstr(ds_error(), "`fastest` is neither"));
}

/* Files of this machine and of two servers are one result. */
static void several(ds_file *const *files, const char *here, const char *url, ds_function *stats64) {
    const ds_file *all[] = { files[0], files[1], files[2] };
    ds_options options = { .size = sizeof options };
    ds_result *result = ds_wait_result(ds_submit_run(session, all, 3, stats64, NULL, 0, &options, NULL));
    struct stats sum = stats_of(result);
    assert(sum.count == 201000 && sum.min == 0 && sum.max == 200999);
    assert(ds_result_parts(result) >= 3);
    assert(!strcmp(part_of(result, 0).reason, "here") && part_of(result, 0).place == DS_HOST);
    assert(strcmp(part_of(result, 1).reason, "here"));
    ds_part beyond = { .size = sizeof beyond };
    assert(ds_result_part(result, 99, &beyond) == -EINVAL && strstr(ds_error(), "none at 99"));
    ds_result_free(result);

    struct stats one;
    assert(ds_wait(ds_submit_run(session, all, 3, stats64, NULL, 0, NULL, NULL), &one, sizeof one) == sizeof one);
    assert(!memcmp(&one, &sum, sizeof sum));

    /* Not combined, they stand one after another. */
    struct stats each[3];
    options = (ds_options){ .size = sizeof options, .place = DS_HOST, .flags = DS_NO_COMBINE };
    assert(ds_wait(ds_submit_run(session, all, 3, stats64, NULL, 0, &options, NULL), each, sizeof each) == sizeof each);
    assert(each[0].count == 1000 && each[1].min == 1000 && each[2].max == 200999);

    /* Written here, and there. */
    for (int there = 0; there < 2; there++) {
        char out[4096];
        snprintf(out, sizeof out, "%s/sum%d", there ? url : here, there);
        ssize_t written = ds_wait(ds_submit_run(session, all, 3, stats64, NULL, 0, NULL, out), NULL, 0);
        assert(written == sizeof sum);
        ds_file *file = ds_file_open(session, out, DS_READ);
        assert(file && ds_pread(file, &one, sizeof one, 0) == sizeof one && !memcmp(&one, &sum, sizeof sum));
        ds_file_free(file);
    }
    assert(ds_wait(ds_submit_run(session, all, 3, stats64, NULL, 0, NULL, "/no/such/place"), NULL, 0) == -ENOENT);
    const ds_file *none[] = { NULL };
    assert(!ds_submit_run(session, none, 1, stats64, NULL, 0, NULL, NULL) && strstr(ds_error(), "NULL"));
}

static void write_file(char *path, size_t room, const char *where, const char *name, const void *bytes, size_t len) {
    snprintf(path, room, "%s/%s", where, name);
    FILE *file = fopen(path, "wb");
    assert(file && fwrite(bytes, 1, len, file) == len && !fclose(file));
}

/* The part of its input that a function gets. */
static void inputs(ds_file *file, const char *here, ds_function *stats64) {
    struct stats s;
    const ds_file *all[] = { file };
    for (int place = DS_HOST; place <= DS_DEVICE; place++) {
        ds_options options = { .size = sizeof options, .place = place, .offset = 800, .length = 80, .heap_len = 1 << 20 };
        for (size_t i = 0; i < 3; i++) {
            options.depth = (uint32_t[]){ 0, 2, UINT32_MAX }[i];
            assert(ds_wait(ds_submit_run(session, all, 1, stats64, NULL, 0, &options, NULL), &s, sizeof s) == sizeof s);
            assert(s.count == 10 && s.min == 1100 && s.max == 1109);
        }
    }
    char path[4096];
    /* "hello, hello, hello\n", by gzip -n. */
    const unsigned char hello[] = { 0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0xcb, 0x48, 0xcd, 0xc9, 0xc9, 0xd7, 0x51, 0xc8,
                                    0x40, 0xa2, 0xb8, 0, 0xe7, 0x42, 0x6e, 0x52, 0x14, 0, 0, 0 };
    write_file(path, sizeof path, here, "hello\xff.gz", hello, sizeof hello);
    ds_file *gz = ds_file_open(session, path, DS_READ);
    ds_function *wc = ds_function_find(session, "wc");
    assert(gz && wc);
    struct { uint64_t lines, words, bytes; } counts;
    ds_options options = { .size = sizeof options };
    const int32_t ways[] = { DS_DECOMPRESS_NONE, DS_DECOMPRESS_AUTO, DS_DECOMPRESS_GZIP };
    for (size_t i = 0; i < 3; i++) {
        options.decompress = ways[i];
        assert(ds_pread_fn(gz, &counts, sizeof counts, 0, UINT64_MAX, wc, NULL, 0, &options) == sizeof counts);
        assert(i ? counts.lines == 1 && counts.words == 3 && counts.bytes == 20 : counts.bytes == sizeof hello);
    }
    options.decompress = DS_DECOMPRESS_ZSTD;
    assert(ds_pread_fn(gz, &counts, sizeof counts, 0, UINT64_MAX, wc, NULL, 0, &options) < 0 && strstr(ds_error(), "zstd"));
    ds_file_free(gz);
    ds_function_free(wc);

    unsigned char npy[128 + 16] = "\x93NUMPY\1\0v\0{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }";
    memset(npy + strlen((char *)npy + 10) + 10, ' ', 127 - strlen((char *)npy + 10) - 10);
    npy[127] = '\n';
    npy[128] = 7;
    npy[136] = 9;
    write_file(path, sizeof path, here, "two.npy", npy, sizeof npy);
    ds_file *array = ds_file_open(session, path, DS_READ);
    for (int32_t header = DS_HEADER_NONE; header <= DS_HEADER_NPY; header++) {
        options = (ds_options){ .size = sizeof options, .header = header };
        assert(ds_pread_fn(array, &s, sizeof s, 0, UINT64_MAX, stats64, NULL, 0, &options) == sizeof s);
        assert(header == DS_HEADER_NONE ? s.count == 18 : s.count == 2 && s.min == 7 && s.max == 9);
    }
    ds_file_free(array);
}

/* Limits hold on both sides. */
static void limits(ds_file *file, ds_function *stats64) {
    for (int place = DS_HOST; place <= DS_DEVICE; place++) {
        struct stats stats[200];
        ds_options options = { .size = sizeof options, .place = place, .budget = 10 };
        assert(ds_pread_fn(file, stats, sizeof stats, 0, UINT64_MAX, stats64, NULL, 0, &options) == -EIO);
        assert(ds_error_kind() == DS_FAILED_BUDGET);
        ds_trap trap = { .size = sizeof trap };
        assert(ds_error_trap(&trap) == 1 && trap.kind == DS_TRAP_BUDGET);
        /* Chunks of so many bytes, cut between records of 8. */
        options = (ds_options){ .size = sizeof options, .place = place, .chunk_len = 65536, .flags = DS_NO_COMBINE,
                                .split = DS_SPLIT_LENGTH, .split_at = 8, .tier = DS_TIER_INTERPRETER };
        ssize_t len = ds_pread_fn(file, stats, sizeof stats, 0, UINT64_MAX, stats64, NULL, 0, &options);
        assert(len == 13 * sizeof stats[0] && stats[0].count == 8192 && stats[12].max == 100999);
        options.result_len_max = 100;
        assert(ds_pread_fn(file, stats, sizeof stats, 0, UINT64_MAX, stats64, NULL, 0, &options) < 0);
        assert(ds_error_kind() == DS_FAILED_OUTPUT_FULL && ds_error_trap(&trap) == 0);
    }
}

/* Structures of other versions of the library, and of nobody. */
static void sizes(ds_file *file, ds_function *stats64) {
    struct stats stats;
    struct { ds_options known; uint64_t unknown; } newer = { .known = { .size = sizeof newer } };
    assert(ds_pread_fn(file, &stats, sizeof stats, 0, 80, stats64, NULL, 0, &newer.known) == sizeof stats);
    newer.unknown = 1;
    assert(ds_pread_fn(file, &stats, sizeof stats, 0, 80, stats64, NULL, 0, &newer.known) == -EINVAL);
    assert(strstr(ds_error(), "which this version lacks"));
    struct { size_t size; int32_t place, tier; uint64_t beyond; } older = { .size = 16, .place = DS_HOST, .beyond = UINT64_MAX };
    assert(ds_pread_fn(file, &stats, sizeof stats, 0, 80, stats64, NULL, 0, (ds_options *)&older) == sizeof stats);
    size_t wrong[] = { 0, 4, 1 << 20 };
    for (size_t i = 0; i < 3; i++) {
        ds_options options = { .size = wrong[i] };
        assert(ds_pread_fn(file, &stats, sizeof stats, 0, 80, stats64, NULL, 0, &options) == -EINVAL);
        assert(strstr(ds_error(), "ds_options: its size is"));
    }
    ds_options bad[] = {
        { .tier = 9 }, { .flags = 16 }, { .split = 9 }, { .split = DS_SPLIT_LENGTH }, { .split = DS_SPLIT_BYTE, .split_at = 256 },
        { .split_at = 1 }, { .decompress = 4 }, { .header = 3 }, { .depth = 65 }, { .direct = 3 }, { .result_blocks_len = 1 },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        bad[i].size = sizeof *bad;
        assert(ds_pread_fn(file, &stats, sizeof stats, 0, 80, stats64, NULL, 0, &bad[i]) == -EINVAL && *ds_error());
    }

    ds_result *result = ds_wait_result(ds_submit_pread_fn(file, 0, 80, stats64, NULL, 0, NULL));
    struct { ds_stats known; uint64_t unknown; } filled = { .known = { .size = sizeof filled }, .unknown = 1 };
    assert(ds_result_stats(result, &filled.known) == 0 && filled.known.input_bytes == 80 && filled.unknown == 0);
    assert(filled.known.size == sizeof filled);
    ds_stats shorter = { .size = 16, .output_bytes = 77 };
    assert(ds_result_stats(result, &shorter) == 0 && shorter.input_bytes == 80 && shorter.output_bytes == 77);
    ds_stats unset = { 0 };
    assert(ds_result_stats(result, &unset) == -EINVAL && ds_result_stats(result, NULL) == -EINVAL);
    ds_result_free(result);
    assert(!ds_result_bytes(NULL) && !ds_result_len(NULL) && !ds_result_parts(NULL) && !ds_result_log(NULL, 0));
}

/* A function's log comes with its result. */
static void logs(ds_file *file, ds_function *talks) {
    for (int place = DS_HOST; place <= DS_DEVICE; place++) {
        ds_options options = { .size = sizeof options, .place = place };
        ds_result *result = ds_wait_result(ds_submit_pread_fn(file, 0, 64, talks, NULL, 0, &options));
        assert(result && ds_result_len(result) == 8);
        assert(strstr(ds_result_log(result, 0), "first") && strstr(ds_result_log(result, 1), "second"));
        assert(!ds_result_log(result, 2));
        ds_result_free(result);
    }
}

/* A function without an end is stopped on either side, also when its request is given up, and others run. */
static void cancels(ds_file *const *files, ds_function *endless, ds_function *stats64) {
    struct stats stats;
    for (int place = DS_HOST; place <= DS_DEVICE; place++) {
        ds_options options = { .size = sizeof options, .place = place, .budget = UINT64_MAX };
        for (int files_at_once = 0; files_at_once < 2; files_at_once++) {
            ds_request *request = files_at_once
                ? ds_submit_run(session, (const ds_file *[]){ files[1], files[2] }, 2, endless, NULL, 0, &options, NULL)
                : ds_submit_pread_fn(files[1], 0, UINT64_MAX, endless, NULL, 0, &options);
            assert(ds_poll(request) == 0 && ds_cancel(request) == 0);
            assert(ds_wait(request, &stats, sizeof stats) == -ECANCELED);
            assert(ds_error_kind() == DS_FAILED_CANCELLED && strstr(ds_error(), "cancel"));
        }
        for (int i = 0; i < 64; i++) ds_request_free(ds_submit_pread_fn(files[1], 0, 8, endless, NULL, 0, &options));
        ds_request *done = ds_submit_pread_fn(files[1], 0, 80, stats64, NULL, 0, &options);
        while (!ds_poll(done)) usleep(100);
        assert(ds_cancel(done) == 0 && ds_wait(done, &stats, sizeof stats) == sizeof stats && stats.count == 10);
    }
    assert(ds_cancel(NULL) == -EINVAL);
}

/* Calls of their own arguments over one range, one command each at a server. */
static void prepared(ds_file *const *files, ds_function *adds) {
    for (int there = 0; there < 2; there++) {
        uint64_t args[2] = { 0, 7 }, own = 40, sum = 0;
        ds_prepared *call = ds_prepare(files[there], 80, 80, adds, args, sizeof args, NULL);
        assert(call && ds_prepared_place(call) == (there ? DS_DEVICE : DS_HOST));
        /* Ten numbers from the eleventh on, and both arguments. */
        uint64_t numbers = (there ? 10000 : 0) + 145;
        assert(ds_prepared_call(call, NULL, 0, &sum, sizeof sum) == sizeof sum && sum == numbers + 7);
        assert(ds_prepared_call(call, &own, sizeof own, &sum, sizeof sum) == sizeof sum && sum == numbers + 47);
        ds_request *requests[16];
        for (uint64_t i = 0; i < 16; i++) requests[i] = ds_submit_prepared_call(call, &i, sizeof i);
        for (uint64_t i = 0; i < 16; i++) {
            assert(ds_wait(requests[i], &sum, sizeof sum) == sizeof sum && sum == numbers + 7 + i);
        }
        ds_result *result = ds_wait_result(ds_submit_prepared_call(call, NULL, 0));
        assert(ds_result_len(result) == sizeof sum && ds_result_parts(result) == 0);
        ds_result_free(result);
        ds_request *last = ds_submit_prepared_call(call, NULL, 0);
        uint64_t long_args[3] = { 0 };
        assert(ds_prepared_call(call, long_args, sizeof long_args, &sum, sizeof sum) == -EINVAL);
        assert(ds_prepared_call(call, NULL, 0, &sum, 4) == -ENOBUFS);
        ds_prepared_free(call);
        assert(ds_wait(last, &sum, sizeof sum) == sizeof sum && sum == numbers + 7);
    }
    assert(!ds_prepare(files[0], 0, UINT64_MAX - 1, adds, NULL, 0, NULL) && strstr(ds_error(), "are not in"));
    assert(ds_prepared_call(NULL, NULL, 0, NULL, 0) == -EINVAL && ds_prepared_place(NULL) == -EINVAL);
    ds_prepared_free(NULL);
}

/* Pointers are followed at the server, or read by read. */
static void traversals(const char *here, const char *url, const ds_file *elsewhere) {
    char path[4096];
    snprintf(path, sizeof path, "%s/walk.bpf.c", here);
    ds_traversal *walk = ds_traversal_find(session, path);
    if (!walk) fprintf(stderr, "%s\n", ds_error());
    assert(walk);
    ds_file *there = open_in(url, "chain"), *local = open_in(here, "chain");
    struct { ds_file *file; int place, runs; } cases[] = {
        { there, DS_AUTO, DS_DEVICE }, { there, DS_DEVICE, DS_DEVICE }, { there, DS_HOST, DS_HOST }, { local, DS_AUTO, DS_HOST },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const ds_file *files[] = { cases[i].file };
        ds_options options = { .size = sizeof options, .place = cases[i].place };
        /* From byte 8 it is four cells to the end; those at 40 and 48 lead to themselves, and out of the file. */
        uint64_t start = 8, found[2];
        ds_result *result = ds_wait_result(ds_submit_traverse(session, files, 1, walk, &start, 8, 16, &options));
        assert(result && ds_result_len(result) == sizeof found);
        memcpy(found, ds_result_bytes(result), sizeof found);
        assert(found[0] == 32 && found[1] == 4);
        ds_stats stats = { .size = sizeof stats };
        assert(ds_result_stats(result, &stats) == 0 && stats.input_bytes == 32 && stats.hops == 5);
        assert(part_of(result, 0).place == cases[i].runs && *part_of(result, 0).why);
        ds_result_free(result);
        start = 40;
        assert(ds_wait(ds_submit_traverse(session, files, 1, walk, &start, 8, 16, &options), found, 16) == -EIO);
        assert(ds_error_kind() == DS_FAILED_BUDGET && strstr(ds_error(), "hop 4096"));
        start = 48;
        assert(ds_wait(ds_submit_traverse(session, files, 1, walk, &start, 8, 16, &options), found, 16) == -EINVAL);
        assert(ds_error_kind() == DS_FAILED_RETURNED && strstr(ds_error(), "8 bytes at offset 4096 of file 0"));
    }
    /* No one target has both files, so the steps run here, over both servers. */
    const ds_file *apart[] = { there, elsewhere };
    uint64_t first = 8;
    ds_result *result = ds_wait_result(ds_submit_traverse(session, apart, 2, walk, &first, 8, 16, NULL));
    assert(result && ds_result_len(result) == 16 && part_of(result, 0).place == DS_HOST);
    ds_result_free(result);
    const ds_file *files[] = { local };
    ds_options device = { .size = sizeof device, .place = DS_DEVICE };
    assert(ds_wait(ds_submit_traverse(session, files, 1, walk, NULL, 0, 16, &device), NULL, 0) == -EINVAL);
    assert(strstr(ds_error(), "no device to follow pointers at"));
    assert(ds_wait(ds_submit_traverse(session, NULL, 0, walk, NULL, 0, 16, NULL), NULL, 0) == -EINVAL);
    assert(!ds_traversal_find(session, "stats64") && strstr(ds_error(), "stats64"));
    ds_file_free(there);
    ds_file_free(local);
    ds_traversal_free(walk);
}

/* Plain requests have results, too. */
static void plain(ds_file *file) {
    ds_result *result = ds_wait_result(ds_submit_pread(file, 16, 8));
    const int64_t *numbers = ds_result_bytes(result);
    assert(ds_result_len(result) == 16 && numbers[0] == 1001 && numbers[1] == 1002 && ds_result_parts(result) == 0);
    ds_result_free(result);
}

int main(int argc, char **argv) {
    assert(argc == 4);
    session = ds_session_new(0);
    ds_file *files[] = { open_in(argv[1], "n"), open_in(argv[2], "n"), open_in(argv[3], "n") };
    ds_function *stats64 = function("", "stats64");
    ds_function *talks = function(argv[1], "talks.bpf.c"), *endless = function(argv[1], "endless.bpf.c");
    ds_function *adds = function(argv[1], "adds.bpf.c");
    places(files[1], stats64);
    several(files, argv[1], argv[3], stats64);
    inputs(files[1], argv[1], stats64);
    limits(files[1], stats64);
    sizes(files[1], stats64);
    logs(files[1], talks);
    plain(files[1]);
    cancels(files, endless, stats64);
    prepared(files, adds);
    traversals(argv[1], argv[2], files[2]);
    for (size_t i = 0; i < 3; i++) ds_file_free(files[i]);
    ds_function_free(stats64);
    ds_function_free(talks);
    ds_function_free(endless);
    ds_function_free(adds);
    ds_session_free(session);
    puts("good");
    return 0;
}
