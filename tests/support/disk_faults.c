/* Makes I/O on some files fail. It is preloaded into the program under test.
 *
 * The environment variable DISK_FAULTS names a file with one line: an error, what the paths begin with, and the operations that fail:
 *
 *     EIO /tmp/example/state.db read write sync
 *
 * "check" is a read of the file itself that is not of its first page: it can be opened, but not be checked.
 *
 * The file is read at each call. While it is missing, nothing fails. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static int number_of(const char *error)
{
	if (!strcmp(error, "ETIMEDOUT"))
		return ETIMEDOUT;
	if (!strcmp(error, "ENOSPC"))
		return ENOSPC;
	return EIO;
}

static int fails(const char *path, const char *operation)
{
	const char *name = getenv("DISK_FAULTS");
	char line[8192], error[32], prefix[4096];
	int file, length, used = 0;

	if (!name || *path != '/')
		return 0;
	file = syscall(SYS_openat, AT_FDCWD, name, O_RDONLY | O_CLOEXEC);
	if (file < 0)
		return 0;
	length = syscall(SYS_read, file, line, sizeof line - 1);
	syscall(SYS_close, file);
	line[length < 0 ? 0 : length] = 0;
	if (sscanf(line, "%31s %4095s%n", error, prefix, &used) < 2 || strncmp(path, prefix, strlen(prefix)))
		return 0;
	for (char *word = strtok(line + used, " \n"); word; word = strtok(NULL, " \n"))
		if (!strcmp(word, operation) && (strcmp(word, "check") || !path[strlen(prefix)])) {
			errno = number_of(error);
			return 1;
		}
	return 0;
}

static int fails_on(int fd, const char *operation)
{
	char link[32], path[4096];
	int length;

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	length = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1);
	path[length < 0 ? 0 : length] = 0;
	return fails(path, operation);
}

#define ON(fd, operation, ...) (fails_on(fd, operation) ? -1 : syscall(__VA_ARGS__))

int open(const char *path, int flags, ...)
{
	va_list arguments;
	mode_t mode;

	va_start(arguments, flags);
	mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
	va_end(arguments);
	return fails(path, "open") ? -1 : syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int open64(const char *, int, ...) __attribute__((alias("open")));

ssize_t read(int fd, void *bytes, size_t count)
{
	return ON(fd, "read", SYS_read, fd, bytes, count);
}

ssize_t pread64(int fd, void *bytes, size_t count, off64_t offset)
{
	if (offset >= 4096 && fails_on(fd, "check"))
		return -1;
	return ON(fd, "pread", SYS_pread64, fd, bytes, count, offset);
}

ssize_t pread(int, void *, size_t, off_t) __attribute__((alias("pread64")));

ssize_t write(int fd, const void *bytes, size_t count)
{
	return ON(fd, "write", SYS_write, fd, bytes, count);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t offset)
{
	return ON(fd, "write", SYS_pwrite64, fd, bytes, count, offset);
}

ssize_t pwrite(int, const void *, size_t, off_t) __attribute__((alias("pwrite64")));

int fsync(int fd)
{
	return ON(fd, "sync", SYS_fsync, fd);
}

int fdatasync(int fd)
{
	return ON(fd, "sync", SYS_fdatasync, fd);
}

int ftruncate64(int fd, off64_t length)
{
	return ON(fd, "truncate", SYS_ftruncate, fd, length);
}

int ftruncate(int, off_t) __attribute__((alias("ftruncate64")));
