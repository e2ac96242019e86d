/* Every call of libdiskside.h and lambda_io.h over a local file, and how misuse is answered. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <lambda_io.h>
#include <libdiskside.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct stats { uint64_t count; int64_t sum, min, max; };

int main(int argc, char **argv) {
    assert(argc == 2);
    ds_session *session = ds_session_new(0);
    assert(session && !*ds_error());

    ds_file *file = ds_file_open(session, argv[1], DS_CREATE);
    assert(file);
    uint64_t numbers[512];
    for (size_t i = 0; i < 512; i++) numbers[i] = i;
    assert(ds_pwrite(file, numbers, sizeof numbers, 0) == sizeof numbers);
    assert(ds_file_sync(file) == 0 && ds_file_len(file) == sizeof numbers);
    uint64_t back[512];
    assert(ds_pread(file, back, sizeof back, 0) == sizeof back && !memcmp(back, numbers, sizeof back));

    ds_options host = { .size = sizeof host, .place = DS_HOST };
    ds_options device = { .size = sizeof device, .place = DS_DEVICE };
    ds_options durable = { .size = sizeof durable, .flags = DS_DURABLE };
    ds_options unknown = { .size = sizeof unknown, .place = 9 };
    ds_function *stats64 = ds_function_find(session, "stats64");
    assert(stats64);
    struct stats s;
    assert(ds_pread_fn(file, &s, sizeof s, 0, 80, stats64, NULL, 0, NULL) == sizeof s);
    assert(s.count == 10 && s.sum == 45 && s.min == 0 && s.max == 9);
    assert(ds_pread_fn(file, &s, 8, 0, UINT64_MAX, stats64, NULL, 0, &host) == -ENOBUFS);
    assert(strstr(ds_error(), "the result has 32 bytes, the buffer 8") && ds_error_kind() == DS_FAILED_OUTPUT_FULL);

    ds_request *request = ds_submit_pread_fn(file, 0, UINT64_MAX, stats64, NULL, 0, NULL);
    while (ds_poll(request) == 0) usleep(100);
    assert(ds_wait(request, &s, sizeof s) == sizeof s && s.count == 512);
    ds_request_free(ds_submit_pread(file, 8, 0));
    assert(ds_wait(ds_submit_pwrite(file, numbers, 8, 4096), NULL, 0) == 8);

    /* The output of a function goes to the file. */
    assert(ds_pwrite_fn(file, numbers, sizeof numbers, 8192, stats64, NULL, 0, &durable) == sizeof s);
    assert(ds_wait(ds_submit_pwrite_fn(file, numbers, 8, 8192, stats64, NULL, 0, NULL), NULL, 0) == sizeof s);
    assert(ds_file_truncate(file, 4096) == 0 && ds_file_len(file) == 4096);

    ds_function *grep = ds_function_find(session, "grep");
    const char *pairs[] = { "pattern=x" };
    char args[4096];
    assert(ds_function_args(grep, pairs, 1, args, sizeof args) > 0);
    pairs[0] = "patern=x";
    assert(ds_function_args(grep, pairs, 1, args, sizeof args) == -EINVAL && strstr(ds_error(), "patern"));
    assert(ds_function_args(grep, pairs, 0, args, sizeof args) == -EINVAL);
    assert(!strcmp(ds_error(), "argument `pattern` (text) must be given: what to look for"));

    /* Misuse. */
    assert(!ds_function_find(session, "nothing") && strstr(ds_error(), "no function is called `nothing`"));
    assert(!ds_function_load(session, "no ELF", 6, NULL) && *ds_error());
    assert(!ds_file_open(session, "/no/such/file", DS_READ) && strstr(ds_error(), "/no/such/file"));
    assert(ds_error_kind() == DS_FAILED_ENVIRONMENT);
    assert(!ds_file_open(session, argv[1], 7) && strstr(ds_error(), "no mode"));
    assert(!ds_file_open(NULL, argv[1], DS_READ) && !ds_file_open(session, NULL, DS_READ));
    assert(ds_pread(NULL, back, 8, 0) == -EINVAL);
    assert(ds_pread_fn(file, &s, sizeof s, 0, 8192, stats64, NULL, 0, NULL) == -EINVAL);
    assert(ds_error_kind() == DS_FAILED_USAGE);
    assert(ds_pread_fn(file, &s, sizeof s, 0, 8, stats64, NULL, 0, &unknown) == -EINVAL && strstr(ds_error(), "no place"));
    assert(ds_pread_fn(file, &s, sizeof s, 0, 8, stats64, NULL, 0, &device) == -EINVAL);
    assert(strstr(ds_error(), "no target serves it") && ds_error_kind() == DS_FAILED_USAGE);
    /* A request that was not made: the failure of the call that was to make it. */
    assert(ds_wait(ds_submit_pread(NULL, 8, 0), back, 8) == -EINVAL && strstr(ds_error(), "NULL"));
    assert(!ds_wait_result(ds_submit_pread_fn(file, 0, 8, stats64, NULL, 0, &unknown)) && strstr(ds_error(), "no place"));
    ds_file_free(NULL);
    ds_result_free(NULL);

    /* lambda-IO's names. */
    int fd = open(argv[1], O_RDWR), lambda = load_lambda("stats64");
    assert(fd >= 0 && lambda >= 0);
    uint64_t big[100];
    assert(pread_lambda(fd, big, sizeof big, 0, lambda) == sizeof s && big[0] == 100);
    assert(pwrite_lambda(fd, numbers, 16, 0, lambda) == sizeof s);
    assert(pread(fd, &s, sizeof s, 0) == sizeof s && s.count == 2 && s.sum == 1);
    assert(pread_lambda(fd, &s, sizeof s, 0, 99) == -EINVAL && load_lambda("nothing") == -EINVAL);

    ds_file_free(file);
    ds_function_free(stats64);
    ds_function_free(grep);
    ds_session_free(session);
    puts("good");
    return 0;
}
