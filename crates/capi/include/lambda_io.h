/* lambda-IO's calls (Yang et al., FAST '23, table 1) over libdiskside. File descriptors are the process's own;
 * plain pread and pwrite on them can be mixed in.
 *
 * This file is made of the library's source.
 */

#ifndef LAMBDA_IO_H
#define LAMBDA_IO_H

#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Loads a function: an object (FILE.o[:NAME]) or a shipped function's name. Returns its lambda_id, or a negative
// errno; ds_error() of libdiskside.h says why.
int load_lambda(const char *path);

// Loads length bytes at offset, runs the function over them, and copies its output, at most length bytes, into
// buffer. Returns the output's length. The descriptor is open for reading, else it is -EBADF; its position stays.
ssize_t pread_lambda(int fd, void *buffer, size_t length, off_t offset, int lambda_id);

// Runs the function over the buffer and writes its output at offset. Returns the output's length. The descriptor is
// open for writing, else it is -EBADF, and without O_APPEND, else it is -EINVAL; its position stays.
ssize_t pwrite_lambda(int fd, const void *buffer, size_t length, off_t offset, int lambda_id);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* LAMBDA_IO_H */
