/* lambda-IO's calls work on the descriptors that they are given: FILE has the numbers 0 to 99, 8 bytes each.
 *
 *     program rights FILE    what each descriptor may be used for
 *     program without FILE   descriptors that a process without rights receives
 *     program at FILE        runs functions over it by descriptors of each kind, and says what came of it
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <lambda_io.h>
#include <libdiskside.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

struct stats { uint64_t count; int64_t sum, min, max; };

static int stats64;
static uint64_t numbers[100];

static void counts(int fd, uint64_t wanted) {
    uint64_t out[100];
    ssize_t len = pread_lambda(fd, out, sizeof out, 0, stats64);
    if (len != sizeof(struct stats) || out[0] != wanted)
        fprintf(stderr, "%zd: %s\n", len, ds_error());
    assert(len == sizeof(struct stats) && out[0] == wanted);
}

static void fails(ssize_t got, int wanted, const char *said) {
    if (got != -wanted || !strstr(ds_error(), said))
        fprintf(stderr, "%zd, not %d: %s\n", got, -wanted, ds_error());
    assert(got == -wanted && strstr(ds_error(), said));
}

static void send_descriptor(int to, int fd) {
    char byte = 0, control[CMSG_SPACE(sizeof fd)] = { 0 };
    struct iovec part = { &byte, 1 };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    assert(sendmsg(to, &message, 0) == 1);
}

static int received_descriptor(int from) {
    int fd;
    char byte, control[CMSG_SPACE(sizeof fd)];
    struct iovec part = { &byte, 1 };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
    assert(recvmsg(from, &message, 0) == 1);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

/* A process that may open none of it gets descriptors of a file that has no name any more. */
static void without_rights(const char *path) {
    int pair[2];
    assert(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    pid_t child = fork();
    if (child == 0) {
        assert(geteuid() != 0 || setresuid(65534, 65534, 65534) == 0);
        stats64 = load_lambda("stats64");
        int fd = received_descriptor(pair[1]);
        counts(fd, 100);
        assert(pwrite_lambda(fd, numbers, 80, 0, stats64) == sizeof(struct stats));
        counts(received_descriptor(pair[1]), 100);
        _exit(0);
    }
    int both = open(path, O_RDWR), reads = open(path, O_RDONLY), status;
    assert(chmod(path, 0) == 0 && unlink(path) == 0);
    send_descriptor(pair[0], both);
    send_descriptor(pair[0], reads);
    assert(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    struct stats s;
    assert(pread(reads, &s, sizeof s, 0) == sizeof s && s.count == 10 && s.sum == 45);
}

static void rights(const char *path) {
    int reads = open(path, O_RDONLY), writes = open(path, O_WRONLY), both = open(path, O_RDWR);
    uint64_t before[100], after[100];
    assert(pread(reads, before, sizeof before, 0) == sizeof before);
    fails(pwrite_lambda(reads, numbers, 80, 0, stats64), EBADF, "for writing at positions: Bad file descriptor");
    fails(pread_lambda(writes, before, sizeof before, 0, stats64), EBADF, "for reading at positions: Bad file descriptor");
    assert(pread(reads, after, sizeof after, 0) == sizeof after && !memcmp(before, after, sizeof after));

    /* A position is neither used nor moved. */
    for (int i = 0; i < 2; i++) {
        int fd = i ? both : reads;
        assert(lseek(fd, 24, SEEK_SET) == 24);
        counts(fd, 100);
        assert(lseek(fd, 0, SEEK_CUR) == 24);
    }
    assert(pwrite_lambda(writes, numbers, 80, 64, stats64) == sizeof(struct stats));
    struct stats s;
    assert(pread(reads, &s, sizeof s, 64) == sizeof s && s.count == 10 && s.sum == 45);
    assert(lseek(writes, 0, SEEK_CUR) == 0);

    /* Whatever has the name by now: the descriptor's file it is. */
    char other[4096];
    snprintf(other, sizeof other, "%s.other", path);
    int replaces = open(other, O_CREAT | O_RDWR, 0600);
    assert(pwrite(replaces, numbers, 8, 0) == 8 && rename(other, path) == 0);
    counts(both, 100);
    counts(replaces, 1);

    int appends = open(path, O_RDWR | O_APPEND), pipes[2], directory = open("/", O_RDONLY);
    assert(pipe(pipes) == 0);
    fails(pwrite_lambda(appends, numbers, 80, 0, stats64), EINVAL, "at positions: Invalid argument");
    fails(pread_lambda(pipes[0], after, sizeof after, 0, stats64), ESPIPE, "Illegal seek");
    fails(pread_lambda(directory, after, sizeof after, 0, stats64), EISDIR, "Is a directory");
    fails(pread_lambda(-1, after, sizeof after, 0, stats64), EBADF, "-1 is no descriptor");
    assert(close(replaces) == 0);
    fails(pread_lambda(replaces, after, sizeof after, 0, stats64), EBADF, "Bad file descriptor");
    fails(pread_lambda(both, after, sizeof after, -1, stats64), EINVAL, "the offset is negative");
}

int main(int argc, char **argv) {
    assert(argc == 3);
    for (size_t i = 0; i < 100; i++) numbers[i] = i;
    if (!strcmp(argv[1], "without")) {
        without_rights(argv[2]);
        return puts("good") < 0;
    }
    stats64 = load_lambda("stats64");
    if (stats64 < 0) {
        fprintf(stderr, "%s\n", ds_error());
        return 1;
    }
    if (!strcmp(argv[1], "rights")) {
        rights(argv[2]);
        return puts("good") < 0;
    }
    /* By a descriptor for reading, and by one for both, which is the only one then. */
    int fd = open(argv[2], O_RDONLY);
    counts(fd, 100);
    close(fd);
    fd = open(argv[2], O_RDWR);
    counts(fd, 100);
    /* A plain write between two calls is seen by the next. */
    assert(pwrite(fd, numbers, 8, 800) == 8 && fsync(fd) == 0);
    usleep(50000);
    uint64_t out[101];
    assert(pread_lambda(fd, out, sizeof out, 0, stats64) == sizeof(struct stats) && out[0] == 101);
    assert(pwrite_lambda(fd, numbers, 80, 8, stats64) == sizeof(struct stats));
    struct stats s;
    assert(pread(fd, &s, sizeof s, 8) == sizeof s && s.count == 10 && s.sum == 45);
    return puts("good") < 0;
}
