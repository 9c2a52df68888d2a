/* A disk that forgets what was not synced: a library under a program, for power_cut.py.

   For all files below the folder of TEST_POWER_ROOT it keeps, in the folder TEST_POWER_STATE on the same file system:

     inodes/N  the content of the inode N as of its last sync. Without it, nothing was written since the begin
     names/N   the names in the directory with the inode N as of its last sync: lines "f INODE NAME" and "d INODE NAME".
               Without it, nothing changed there since the begin
     kept/N    another name of a file that was removed, and kept/dN a directory that was: so that no number is used again

   The program itself sees all that it wrote. Its syncs write to inodes and names only, as the machine does not really stop. */

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define FDS 65536
#define BUCKETS 1024
#define RANGES 64
#define PIECE (1 << 18)
#define REAL(name) ({ static __typeof__(&name) found; if (!found) found = (__typeof__(&name))dlsym(RTLD_NEXT, #name); found; })

struct range { off_t from, to; };

/* A file, and where it was written since its last sync. */
struct file {
  ino_t inode;
  pthread_mutex_t lock;
  int count;
  struct range dirty[RANGES];
  struct file *next;
};

static char root[PATH_MAX], state[PATH_MAX];
static size_t root_length;
static unsigned sync_us;
static struct file outside;
static _Atomic(struct file *) of_fd[FDS];
static struct file *files[BUCKETS];
static pthread_mutex_t registry = PTHREAD_MUTEX_INITIALIZER, listing = PTHREAD_MUTEX_INITIALIZER;

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("TEST_POWER_ROOT"), *kept = getenv("TEST_POWER_STATE"), *sync = getenv("TEST_POWER_SYNC_US");
  if (!path || !kept) return;
  /* Not for programs that this one starts: workers may call little of the system. */
  unsetenv("LD_PRELOAD");
  snprintf(root, sizeof root, "%s", path);
  snprintf(state, sizeof state, "%s", kept);
  sync_us = sync ? (unsigned)atoi(sync) : 0;
  root_length = strlen(root);
}

static void fail(const char *what) {
  dprintf(2, "power_cut.c: %s: %s\n", what, strerror(errno));
  abort();
}

static int is_below(const char *path) {
  return root_length && !strncmp(path, root, root_length) && (path[root_length] == '/' || !path[root_length]);
}

static int path_of(int fd, char *path) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, PATH_MAX - 1);
  if (length < 0) return 0;
  path[length] = 0;
  return 1;
}

/* The absolute path, if it is below the root. */
static int resolve(int at, const char *path, char *whole) {
  char folder[PATH_MAX];
  if (!root_length || !path) return 0;
  if (path[0] == '/') return is_below(path) && snprintf(whole, PATH_MAX, "%s", path) < PATH_MAX;
  if (at == AT_FDCWD ? !getcwd(folder, sizeof folder) : !path_of(at, folder)) return 0;
  return is_below(folder) && snprintf(whole, PATH_MAX, "%s/%s", folder, path) < PATH_MAX;
}

static void in_state(char *path, const char *kind, ino_t inode) {
  snprintf(path, PATH_MAX, "%s/%s%lu", state, kind, (unsigned long)inode);
}

static void copy(int from, int to, off_t at, off_t end) {
  char *piece = malloc(PIECE);
  if (!piece) fail("malloc");
  while (at < end) {
    size_t wanted = end - at < PIECE ? (size_t)(end - at) : PIECE;
    ssize_t n = REAL(pread)(from, piece, wanted, at);
    if (n < 0) fail("reading a file");
    if (!n) break;
    if (REAL(pwrite)(to, piece, (size_t)n, at) != n) fail("writing what was synced");
    at += n;
  }
  free(piece);
}

static int reopen(int fd) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  int again = REAL(open)(link, O_RDONLY | O_CLOEXEC);
  if (again < 0) fail("opening a file again");
  return again;
}

/* The file of a descriptor, whose content is what was synced unless that is known or the file is new. */
static struct file *add(int fd, const struct stat *about, int is_new) {
  char path[PATH_MAX];
  in_state(path, "inodes/", about->st_ino);
  pthread_mutex_lock(&registry);
  struct file **bucket = &files[about->st_ino % BUCKETS], *file = *bucket;
  while (file && file->inode != about->st_ino) file = file->next;
  if (is_new || !file) {
    int synced = REAL(open)(path, O_WRONLY | O_CREAT | O_CLOEXEC | (is_new ? O_TRUNC : O_EXCL), 0600);
    if (synced < 0 && errno != EEXIST) fail(path);
    if (synced >= 0 && !is_new) {
      int reader = reopen(fd);
      copy(reader, synced, 0, about->st_size);
      REAL(close)(reader);
    }
    if (synced >= 0) REAL(close)(synced);
  }
  if (file && is_new) file->count = 0;
  if (!file) {
    file = calloc(1, sizeof *file);
    if (!file) fail("calloc");
    file->inode = about->st_ino;
    pthread_mutex_init(&file->lock, NULL);
    file->next = *bucket;
    *bucket = file;
  }
  pthread_mutex_unlock(&registry);
  return file;
}

static struct file *examine(int fd) {
  struct stat about;
  char path[PATH_MAX];
  if (fstat(fd, &about) || !S_ISREG(about.st_mode) || !path_of(fd, path) || !is_below(path)) return NULL;
  return add(fd, &about, 0);
}

static struct file *find(int fd) {
  if (!root_length || fd < 0) return NULL;
  struct file *file = fd < FDS ? atomic_load(&of_fd[fd]) : NULL;
  if (!file) {
    int before = errno;
    file = examine(fd);
    if (fd < FDS) atomic_store(&of_fd[fd], file ? file : &outside);
    errno = before;
  }
  return file == &outside ? NULL : file;
}

static void mark(struct file *file, off_t from, off_t to) {
  if (from >= to) return;
  pthread_mutex_lock(&file->lock);
  int at = 0;
  while (at < file->count && (from > file->dirty[at].to || to < file->dirty[at].from)) at++;
  if (at == RANGES) {
    /* Too many: one that has all of them. */
    for (int i = 1; i < RANGES; i++) {
      if (file->dirty[i].from < file->dirty[0].from) file->dirty[0].from = file->dirty[i].from;
      if (file->dirty[i].to > file->dirty[0].to) file->dirty[0].to = file->dirty[i].to;
    }
    file->count = 1;
    at = 0;
  }
  if (at == file->count) {
    file->dirty[file->count++] = (struct range){from, to};
  } else {
    if (from < file->dirty[at].from) file->dirty[at].from = from;
    if (to > file->dirty[at].to) file->dirty[at].to = to;
  }
  pthread_mutex_unlock(&file->lock);
}

static void keep_content(int fd, struct file *file) {
  char path[PATH_MAX];
  struct stat about;
  in_state(path, "inodes/", file->inode);
  pthread_mutex_lock(&file->lock);
  if (fstat(fd, &about)) fail("fstat");
  int synced = REAL(open)(path, O_WRONLY | O_CLOEXEC), reader = reopen(fd);
  if (synced < 0) fail(path);
  for (int i = 0; i < file->count; i++) {
    off_t end = file->dirty[i].to < about.st_size ? file->dirty[i].to : about.st_size;
    copy(reader, synced, file->dirty[i].from, end);
  }
  file->count = 0;
  if (REAL(ftruncate)(synced, about.st_size)) fail(path);
  REAL(close)(reader);
  REAL(close)(synced);
  pthread_mutex_unlock(&file->lock);
}

/* Keeps the names of a directory: as they are now, or as they were at its last sync if that is known already. */
static void keep_names(const char *folder, int is_sync) {
  char path[PATH_MAX], part[PATH_MAX];
  struct stat about, entry;
  int before = errno;
  if (stat(folder, &about)) { errno = before; return; }
  in_state(path, "names/", about.st_ino);
  in_state(part, "names/part-", about.st_ino);
  pthread_mutex_lock(&listing);
  if (is_sync || access(path, F_OK)) {
    DIR *open_folder = opendir(folder);
    int list = REAL(open)(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (!open_folder || list < 0) fail(folder);
    for (struct dirent *one; (one = readdir(open_folder));) {
      if (!strcmp(one->d_name, ".") || !strcmp(one->d_name, "..")) continue;
      if (fstatat(dirfd(open_folder), one->d_name, &entry, AT_SYMLINK_NOFOLLOW)) continue;
      if (!S_ISREG(entry.st_mode) && !S_ISDIR(entry.st_mode)) continue;
      dprintf(list, "%c %lu %s\n", S_ISDIR(entry.st_mode) ? 'd' : 'f', (unsigned long)entry.st_ino, one->d_name);
    }
    closedir(open_folder);
    REAL(close)(list);
    if (REAL(rename)(part, path)) fail(path);
  }
  pthread_mutex_unlock(&listing);
  errno = before;
}

/* Before a name in its folder changes. */
static void before_change(const char *path) {
  char folder[PATH_MAX];
  snprintf(folder, sizeof folder, "%s", path);
  char *slash = strrchr(folder, '/');
  if (slash && slash > folder) {
    *slash = 0;
    if (is_below(folder)) keep_names(folder, 0);
  }
}

/* Before a file loses a name. */
static void keep_file(const char *path) {
  char kept[PATH_MAX];
  struct stat about;
  int before = errno;
  if (!lstat(path, &about) && S_ISREG(about.st_mode)) {
    in_state(kept, "kept/", about.st_ino);
    if (REAL(link)(path, kept) && errno != EEXIST) fail(kept);
  }
  errno = before;
}

/* What is to be noted of a file that is opened: -1 for nothing, else the length that it had. */
static off_t before_open(const char *whole, int flags, int *is_new) {
  struct stat about;
  off_t cut = -1;
  int before = errno;
  *is_new = 0;
  if (lstat(whole, &about)) {
    *is_new = (flags & O_CREAT) != 0;
    if (*is_new) before_change(whole);
  } else if ((flags & O_TRUNC) && S_ISREG(about.st_mode)) {
    int old = REAL(open)(whole, O_RDONLY | O_CLOEXEC);
    if (old >= 0) {
      add(old, &about, 0);
      REAL(close)(old);
      cut = about.st_size;
    }
  }
  errno = before;
  return cut;
}

static int opened(int fd, const char *whole, off_t cut, int is_new) {
  int before = errno;
  if (fd >= 0 && fd < FDS) atomic_store(&of_fd[fd], NULL);
  struct stat about;
  if (whole && fd >= 0 && is_new && !fstat(fd, &about) && S_ISREG(about.st_mode)) add(fd, &about, 1);
  struct file *file = whole && fd >= 0 && cut > 0 ? find(fd) : NULL;
  if (file) mark(file, 0, cut);
  errno = before;
  return fd;
}

#define OPEN(at, real, ...) \
  mode_t mode = 0; \
  if (flags & (O_CREAT | O_TMPFILE)) { va_list more; va_start(more, flags); mode = va_arg(more, mode_t); va_end(more); } \
  char whole[PATH_MAX]; \
  int is_new = 0, is_ours = resolve(at, path, whole); \
  off_t cut = is_ours ? before_open(whole, flags, &is_new) : -1; \
  return opened(REAL(real)(__VA_ARGS__, flags, mode), is_ours ? whole : NULL, cut, is_new);

int open(const char *path, int flags, ...) { OPEN(AT_FDCWD, open, path) }
int open64(const char *path, int flags, ...) { OPEN(AT_FDCWD, open64, path) }
int openat(int at, const char *path, int flags, ...) { OPEN(at, openat, at, path) }
int openat64(int at, const char *path, int flags, ...) { OPEN(at, openat64, at, path) }

int close(int fd) {
  if (fd >= 0 && fd < FDS) atomic_store(&of_fd[fd], NULL);
  return REAL(close)(fd);
}

static ssize_t appended(int fd, struct file *file, ssize_t n) {
  if (!file || n <= 0) return n;
  int before = errno;
  off_t end = lseek(fd, 0, SEEK_CUR);
  if (end >= n) mark(file, end - n, end);
  errno = before;
  return n;
}

static ssize_t written(struct file *file, ssize_t n, off_t at) {
  if (file && n > 0) mark(file, at, at + n);
  return n;
}

ssize_t write(int fd, const void *bytes, size_t n) {
  struct file *file = find(fd);
  return appended(fd, file, REAL(write)(fd, bytes, n));
}
ssize_t writev(int fd, const struct iovec *parts, int count) {
  struct file *file = find(fd);
  return appended(fd, file, REAL(writev)(fd, parts, count));
}
ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at) {
  struct file *file = find(fd);
  return written(file, REAL(pwrite)(fd, bytes, n, at), at);
}
ssize_t pwrite64(int fd, const void *bytes, size_t n, off64_t at) {
  struct file *file = find(fd);
  return written(file, REAL(pwrite64)(fd, bytes, n, at), at);
}
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) {
  struct file *file = find(fd);
  return written(file, REAL(pwritev)(fd, parts, count, at), at);
}
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t at) {
  struct file *file = find(fd);
  return written(file, REAL(pwritev64)(fd, parts, count, at), at);
}

static off_t length(int fd) {
  struct stat about;
  return fstat(fd, &about) ? 0 : about.st_size;
}

#define TRUNCATE(real) \
  struct file *file = find(fd); \
  off_t before = file ? length(fd) : 0; \
  int failed = REAL(real)(fd, end); \
  if (file && !failed) mark(file, end < before ? end : before, end < before ? before : end); \
  return failed;

int ftruncate(int fd, off_t end) { TRUNCATE(ftruncate) }
int ftruncate64(int fd, off64_t end) { TRUNCATE(ftruncate64) }

#define ALLOCATE(is_hole, ...) \
  struct file *file = find(fd); \
  off_t before = file ? length(fd) : 0; \
  int failed = __VA_ARGS__; \
  if (file && !failed) { if (is_hole) mark(file, at, at + n); else mark(file, before, length(fd)); } \
  return failed;

int fallocate(int fd, int how, off_t at, off_t n) { ALLOCATE(how & ~FALLOC_FL_KEEP_SIZE, REAL(fallocate)(fd, how, at, n)) }
int fallocate64(int fd, int how, off64_t at, off64_t n) { ALLOCATE(how & ~FALLOC_FL_KEEP_SIZE, REAL(fallocate64)(fd, how, at, n)) }
int posix_fallocate(int fd, off_t at, off_t n) { ALLOCATE(0, REAL(posix_fallocate)(fd, at, n)) }
int posix_fallocate64(int fd, off64_t at, off64_t n) { ALLOCATE(0, REAL(posix_fallocate64)(fd, at, n)) }

/* Whether it is ours, and synced now. */
static int keep(int fd) {
  struct stat about;
  char path[PATH_MAX];
  if (!root_length || fstat(fd, &about)) return 0;
  if (S_ISDIR(about.st_mode)) {
    if (!path_of(fd, path) || !is_below(path)) return 0;
    keep_names(path, 1);
  } else {
    struct file *file = find(fd);
    if (!file) return 0;
    keep_content(fd, file);
  }
  if (sync_us) usleep(sync_us);
  return 1;
}

int fsync(int fd) { return keep(fd) ? 0 : REAL(fsync)(fd); }
int fdatasync(int fd) { return keep(fd) ? 0 : REAL(fdatasync)(fd); }
/* It promises nothing about what is there after a power failure. */
int sync_file_range(int fd, off64_t at, off64_t n, unsigned flags) { return find(fd) ? 0 : REAL(sync_file_range)(fd, at, n, flags); }

void *mmap(void *where, size_t n, int access, int flags, int fd, off_t at) {
  if (root_length && fd >= 0 && (access & PROT_WRITE) && (flags & MAP_SHARED) && find(fd)) {
    errno = ENOTSUP;
    fail("a file is written by mmap, which is not noticed here");
  }
  return (void *)syscall(SYS_mmap, where, n, access, flags, fd, at);
}
void *mmap64(void *where, size_t n, int access, int flags, int fd, off64_t at) { return mmap(where, n, access, flags, fd, at); }

/* Programs copy by reading and writing then. */
ssize_t copy_file_range(int from, off64_t *at, int to, off64_t *to_at, size_t n, unsigned flags) {
  if (!find(to)) return REAL(copy_file_range)(from, at, to, to_at, n, flags);
  errno = ENOSYS;
  return -1;
}
ssize_t sendfile64(int to, int from, off64_t *at, size_t n);
ssize_t sendfile64(int to, int from, off64_t *at, size_t n) {
  if (!find(to)) return REAL(sendfile64)(to, from, at, n);
  errno = ENOSYS;
  return -1;
}

static int renamed(int from_at, const char *from, int to_at, const char *to) {
  char old[PATH_MAX], new[PATH_MAX];
  int leaves = resolve(from_at, from, old), enters = resolve(to_at, to, new);
  if (leaves) before_change(old);
  if (enters) {
    before_change(new);
    keep_file(new);
  }
  return REAL(renameat)(from_at, from, to_at, to);
}
int rename(const char *from, const char *to) { return renamed(AT_FDCWD, from, AT_FDCWD, to); }
int renameat(int from_at, const char *from, int to_at, const char *to) { return renamed(from_at, from, to_at, to); }

int linkat(int from_at, const char *from, int to_at, const char *to, int flags) {
  char new[PATH_MAX];
  if (resolve(to_at, to, new)) before_change(new);
  return REAL(linkat)(from_at, from, to_at, to, flags);
}
int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }

static int made(int at, const char *path, mode_t mode) {
  char whole[PATH_MAX], names[PATH_MAX];
  struct stat about;
  int is_ours = resolve(at, path, whole);
  if (is_ours) before_change(whole);
  int failed = REAL(mkdirat)(at, path, mode);
  if (is_ours && !failed && !stat(whole, &about)) {
    in_state(names, "names/", about.st_ino);
    int empty = REAL(open)(names, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (empty < 0) fail(names);
    REAL(close)(empty);
  }
  return failed;
}
int mkdir(const char *path, mode_t mode) { return made(AT_FDCWD, path, mode); }
int mkdirat(int at, const char *path, mode_t mode) { return made(at, path, mode); }

/* A directory is moved instead, so that its number is not used again. */
static int remove_folder(const char *whole) {
  char kept[PATH_MAX];
  struct stat about;
  int entries = 0;
  DIR *folder = opendir(whole);
  if (!folder) return -1;
  while (readdir(folder)) entries++;
  closedir(folder);
  if (entries > 2) {
    errno = ENOTEMPTY;
    return -1;
  }
  before_change(whole);
  keep_names(whole, 0);
  if (stat(whole, &about)) return -1;
  in_state(kept, "kept/d", about.st_ino);
  return REAL(rename)(whole, kept);
}

int unlinkat(int at, const char *path, int flags) {
  char whole[PATH_MAX];
  if (!resolve(at, path, whole)) return REAL(unlinkat)(at, path, flags);
  if (flags & AT_REMOVEDIR) return remove_folder(whole);
  before_change(whole);
  keep_file(whole);
  return REAL(unlinkat)(at, path, flags);
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
