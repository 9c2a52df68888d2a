// Loaded into cargo's tests by `make unit` while their files are in memory, where room that the storage engine reserves is memory that the
// kernel clears: 70 MB at each opening of a store, which took more time than most tests. Reserving fails as on a file system that cannot, and
// the engine continues without. What extends a file is not affected. `make soak-units` runs the tests on a disk, without this.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

int fallocate(int fd, int mode, off_t offset, off_t length) {
  if (mode == FALLOC_FL_KEEP_SIZE) {
    errno = EOPNOTSUPP;
    return -1;
  }
  return (int)syscall(SYS_fallocate, fd, mode, offset, length);
}

int fallocate64(int fd, int mode, off64_t offset, off64_t length) {
  return fallocate(fd, mode, offset, length);
}
