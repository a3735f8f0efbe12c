/* Copies a file and its write-ahead log before each sync of one of them. It is preloaded into the program under test.
 *
 * DISK_IMAGES_OF is the absolute path of the file, and DISK_IMAGES a directory. There the first sync makes a directory 000000 with the copies and,
 * when they are complete, an empty file named `synced` or `synced-wal` after what is synced; and so on. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* All syncs of the file come from one connection, which one thread uses at a time. */
static int number;

static void copy(const char *from, const char *to)
{
	char bytes[1 << 16];
	ssize_t length;
	int in = open(from, O_RDONLY | O_CLOEXEC), out;

	if (in < 0)
		return;
	out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	while ((length = read(in, bytes, sizeof bytes)) > 0)
		if (write(out, bytes, length) != length)
			abort();
	close(out);
	close(in);
}

static void keep(int fd)
{
	const char *file = getenv("DISK_IMAGES_OF"), *directory = getenv("DISK_IMAGES");
	char link[32], path[4096], from[4096], to[4200];
	ssize_t length;

	if (!file || !directory)
		return;
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	length = readlink(link, path, sizeof path - 1);
	path[length < 0 ? 0 : length] = 0;
	if (strncmp(path, file, strlen(file)))
		return;
	snprintf(to, sizeof to, "%s/%06d", directory, number);
	mkdir(to, 0700);
	snprintf(to, sizeof to, "%s/%06d/state.db", directory, number);
	copy(file, to);
	snprintf(from, sizeof from, "%s-wal", file);
	snprintf(to, sizeof to, "%s/%06d/state.db-wal", directory, number);
	copy(from, to);
	snprintf(to, sizeof to, "%s/%06d/synced%s", directory, number, path + strlen(file));
	close(open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	number++;
}

int fsync(int fd)
{
	keep(fd);
	return syscall(SYS_fsync, fd);
}

int fdatasync(int fd)
{
	keep(fd);
	return syscall(SYS_fdatasync, fd);
}
