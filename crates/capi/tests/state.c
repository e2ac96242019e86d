/* The states of functions from call to call, and the options of a session. Arguments: a directory with the sources count.bpf.c
 * and select.bpf.c and a file in, and the URL of an export with that file. */
#include <assert.h>
#include <errno.h>
#include <libdiskside.h>
#include <stdio.h>
#include <string.h>

#define NEVER(condition) \
    do { \
        if (condition) { \
            fprintf(stderr, "%s:%d: " #condition ": %s\n", __FILE__, __LINE__, ds_error()); \
            return 1; \
        } \
    } while (0)

static char path[4096], learnt[4096], url[4096], server[4096];

/* The count after one more call; negative if it failed. */
static int64_t count(const ds_file *file, const ds_function *function, ds_options options)
{
    uint64_t result;
    ssize_t len = ds_pread_fn(file, &result, sizeof(result), 0, UINT64_MAX, function, NULL, 0, &options);
    return len == sizeof(result) ? (int64_t)result : len < 0 ? len : -EBADMSG;
}

int main(int argc, char **argv)
{
    assert(argc == 3);
    snprintf(learnt, sizeof(learnt), "%s/learnt", argv[1]);
    snprintf(url, sizeof(url), "%s/in", argv[2]);
    snprintf(server, sizeof(server), "%.*s", (int)(strrchr(argv[2], '/') - argv[2]), argv[2]);

    /* Options of a session. */
    ds_session_options how = { .size = sizeof(how), .cache_len = 1 << 20 };
    NEVER(ds_session_new_with(NULL) != NULL || !strstr(ds_error(), "NULL"));
    how.policy = "whatever";
    NEVER(ds_session_new_with(&how) != NULL || !strstr(ds_error(), "`whatever` is no policy"));
    how.policy = "lambda-io:n=2,k=1";
    const char *volumes[] = { "nvme-tcp://server/nqn.2026-11.org.example:a/1", "nowhere" };
    how.mounted_volumes = volumes;
    how.mounted_volume_count = 2;
    NEVER(ds_session_new_with(&how) != NULL || !strstr(ds_error(), "mounted_volumes: nowhere"));
    how.mounted_volume_count = 1;
    how.mounted_proof = 7;
    NEVER(ds_session_new_with(&how) != NULL || !strstr(ds_error(), "7 is no proof"));
    how.mounted_proof = DS_PROOF_DETECT;
    how.host_nqn = "me";
    NEVER(ds_session_new_with(&how) != NULL || !strstr(ds_error(), "host_nqn: me"));
    how.host_nqn = "nqn.2026-11.org.example:c-host";
    how.learnt_directory = learnt;
    how.instances = 257;
    NEVER(ds_session_new_with(&how) != NULL || !strstr(ds_error(), "instances is 257, and must be from 1 to 256"));
    how.instances = 2;
    how.instance_threads = 3;
    NEVER(ds_session_new_with(&how) != NULL || !strstr(ds_error(), "instance_threads is 3, and must be 1 or 2"));
    how.instance_threads = 2;
    how.in_flight_max = 16;
    ds_session *session = ds_session_new_with(&how);
    NEVER(session == NULL);
    /* A program that was compiled with an older header has fewer fields. */
    ds_session_options older = { .size = offsetof(ds_session_options, learnt_directory), .policy = "adaptive" };
    ds_session *old = ds_session_new_with(&older);
    NEVER(old == NULL || ds_session_save_learnt(old) != 0);
    ds_session_free(old);

    /* A named state, here and at the target. */
    snprintf(path, sizeof(path), "%s/count.bpf.c", argv[1]);
    ds_function *counts = ds_function_find(session, path);
    snprintf(path, sizeof(path), "%s/in", argv[1]);
    ds_file *files[] = { ds_file_open(session, path, DS_READ), ds_file_open(session, url, DS_READ) };
    NEVER(counts == NULL || files[0] == NULL || files[1] == NULL);
    for (int at = 0; at < 2; at++) {
        const char *where = at ? server : NULL;
        ds_options options = { .size = sizeof(options), .state = "counters", .state_len = 64 };
        options.place = at ? DS_DEVICE : DS_HOST;
        NEVER(ds_state_clear(session, where, "counters", 0, 8) >= 0 || !strstr(ds_error(), at ? "no state with this hash" : "named such a state"));
        NEVER(count(files[at], counts, options) != 1);
        NEVER(count(files[at], counts, options) != 2);
        NEVER(ds_state_clear(session, where, "counters", 8, UINT64_MAX) != 0);
        NEVER(count(files[at], counts, options) != 3);
        NEVER(ds_state_clear(session, where, "counters", 0, UINT64_MAX) != 0);
        NEVER(count(files[at], counts, options) != 1);
        options.state = "others";
        NEVER(count(files[at], counts, options) != 1);
        options.state_len = 0;
        NEVER(count(files[at], counts, options) != -EINVAL || !strstr(ds_error(), "1 byte to 16 MiB"));
        options.state = NULL;
        NEVER(count(files[at], counts, options) >= 0 || !strstr(ds_error(), "count.bpf.c"));
        options.state_len = 8;
        NEVER(count(files[at], counts, options) != -EINVAL || !strstr(ds_error(), "state is NULL"));
    }

    /* A program of Delilah: its output is its slot, and the return value is apart. */
    snprintf(path, sizeof(path), "%s/select.bpf.c", argv[1]);
    ds_function *selects = ds_function_find(session, path);
    NEVER(selects == NULL);
    for (int at = 0; at < 2; at++) {
        ds_options options = { .size = sizeof(options), .place = at ? DS_DEVICE : DS_HOST };
        const ds_file *one[] = { files[at] };
        ds_request *request = ds_submit_run(session, one, 1, selects, NULL, 0, &options, NULL);
        ds_result *result = ds_wait_result(request);
        NEVER(result == NULL);
        ds_stats stats = { .size = sizeof(stats) };
        const uint64_t *slot = ds_result_bytes(result);
        NEVER(ds_result_stats(result, &stats) != 0 || ds_result_len(result) != 48);
        NEVER(stats.returned != 2 || slot[2] != 2 || ((const uint32_t *)slot)[8] != 1 || ((const uint32_t *)slot)[9] != 3);
        ds_result_free(result);
    }

    /* Measurements are there for the next session. */
    ds_options automatic = { .size = sizeof(automatic) };
    uint64_t numbers[8];
    ds_function *stats = ds_function_find(session, "stats64");
    NEVER(ds_pread_fn(files[1], numbers, sizeof(numbers), 0, UINT64_MAX, stats, NULL, 0, &automatic) != 32);
    NEVER(ds_session_count(session, "both") != 1);
    NEVER(ds_session_save_learnt(session) != 0);

    ds_function_free(stats);
    ds_function_free(selects);
    ds_function_free(counts);
    ds_file_free(files[0]);
    ds_file_free(files[1]);
    ds_session_free(session);
    puts("good");
    return 0;
}
