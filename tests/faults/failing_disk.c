/* Preloaded into a server: system calls that write or sync fail on command.
 *
 * A file named after the call in the directory $DISK_FAULTS holds "SUBSTRING ERRNO ONCE":
 * while it exists, the call fails with ERRNO for descriptors whose path contains SUBSTRING. With ONCE = 1
 * the file is removed by the first failure. Nothing is written or synced by a call that fails, but for a data sync
 * in the background (io_submit): the kernel makes it, and its completion says that it failed.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/aio_abi.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
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

/* The kernel's asynchronous I/O has no function in the C library: who uses it calls syscall(2). One sync is under way
 * at a time. */
static int background_sync_fails;

long syscall(long number, ...)
{
    va_list list;
    long a[6];
    va_start(list, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(list, long);
    va_end(list);
    if (number == SYS_io_submit && a[1] == 1) {
        struct iocb *request = *(struct iocb **)a[2];
        background_sync_fails =
            request->aio_lio_opcode == IOCB_CMD_FDSYNC && fails("fdatasync", (int)request->aio_fildes) ? errno : 0;
    }
    long result = REAL(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    if (number == SYS_io_getevents && result > 0 && background_sync_fails) {
        ((struct io_event *)a[3])[0].res = -background_sync_fails;
        background_sync_fails = 0;
    }
    return result;
}
