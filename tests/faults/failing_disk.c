/* Preloaded into a server: system calls that write or sync fail on command.
 *
 * A file named after the call in the directory $DISK_FAULTS holds "SUBSTRING ERRNO ONCE":
 * while it exists, the call fails with ERRNO for descriptors whose path contains SUBSTRING. With ONCE = 1
 * the file is removed by the first failure. Nothing is written or synced by a call that fails.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static int fails(const char *call, int fd)
{
    const char *directory = getenv("DISK_FAULTS");
    char command[4096], link[64], path[4096], substring[256];
    int number = 0, once = 0;
    if (!directory)
        return 0;
    snprintf(command, sizeof command, "%s/%s", directory, call);
    if (access(command, F_OK) != 0)
        return 0;
    FILE *file = fopen(command, "r");
    if (!file)
        return 0;
    int fields = fscanf(file, "%255s %d %d", substring, &number, &once);
    fclose(file);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (fields != 3 || length < 0)
        return 0;
    path[length] = 0;
    if (!strstr(path, substring))
        return 0;
    if (once && unlink(command) != 0)
        return 0; /* another thread had the failure */
    errno = number;
    return 1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

int fdatasync(int fd) { return fails("fdatasync", fd) ? -1 : REAL(fdatasync)(fd); }
int fsync(int fd) { return fails("fsync", fd) ? -1 : REAL(fsync)(fd); }

ssize_t pwritev(int fd, const struct iovec *iov, int count, off_t offset)
{
    return fails("pwritev", fd) ? -1 : REAL(pwritev)(fd, iov, count, offset);
}

ssize_t pwritev64(int fd, const struct iovec *iov, int count, off64_t offset)
{
    return fails("pwritev", fd) ? -1 : REAL(pwritev64)(fd, iov, count, offset);
}

ssize_t pwritev2(int fd, const struct iovec *iov, int count, off_t offset, int flags)
{
    return fails("pwritev", fd) ? -1 : REAL(pwritev2)(fd, iov, count, offset, flags);
}

ssize_t pwritev64v2(int fd, const struct iovec *iov, int count, off64_t offset, int flags)
{
    return fails("pwritev", fd) ? -1 : REAL(pwritev64v2)(fd, iov, count, offset, flags);
}
