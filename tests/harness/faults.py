"""System calls that fail, or take long: a small library under a program, and a file that both map, which says which calls fail for which files.

It is compiled with the C compiler that the engine needs too. Programs that are started within `Faults.preloaded` have it.
"""

import contextlib
import errno
import mmap
import shutil
import struct
import subprocess

from harness.environment import changed_environment

# Servers take names that begin with SETTEE_ for settings.
VARIABLE = "TEST_FAULTS_FILE"
# The rules are text at the start of the file, a line each; how many calls failed is behind them.
RULES_BYTES, FILE_BYTES = 2048, 4096
# In the place of an error: the call takes this long.
SLOW, SLOW_US = "SLOW", 300_000

SOURCE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#define RULES_MAX 16
#define REAL(name) ({ static __typeof__(&name) found; if (!found) found = (__typeof__(&name))dlsym(RTLD_NEXT, #name); found; })

struct counts { _Atomic unsigned seen[RULES_MAX]; _Atomic unsigned failed; };

static char *volatile shared;

__attribute__((constructor)) static void map(void) {
  const char *path = getenv("%(variable)s");
  if (!path) return;
  int file = REAL(open)(path, O_RDWR | O_CLOEXEC);
  if (file < 0) return;
  void *mapped = mmap(NULL, %(file_bytes)d, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (mapped != MAP_FAILED) shared = mapped;
}

/* A rule is: call, a pattern of the path, number of the error or 0 for a call that takes long, calls that pass before. */
static int fails(const char *call, const char *path) {
  struct counts *counts = (struct counts *)(shared + %(rules_bytes)d);
  char rules[%(rules_bytes)d];
  memcpy(rules, shared, sizeof rules);
  rules[sizeof rules - 1] = 0;
  int number = 0;
  for (char *rest, *line = strtok_r(rules, "\\n", &rest); line && number < RULES_MAX; line = strtok_r(NULL, "\\n", &rest), number++) {
    char wanted[32], part[128];
    unsigned error, after;
    if (sscanf(line, "%%31s %%127s %%u %%u", wanted, part, &error, &after) != 4) continue;
    if (strcmp(wanted, call) || fnmatch(part, path, 0)) continue;
    if (atomic_fetch_add(&counts->seen[number], 1) < after) continue;
    if (!error) { usleep(%(slow_us)d); continue; }
    atomic_fetch_add(&counts->failed, 1);
    errno = (int)error;
    return 1;
  }
  return 0;
}

static int fails_for(const char *call, int file) {
  if (!shared || !shared[0]) return 0;
  char link[64], path[512];
  snprintf(link, sizeof link, "/proc/self/fd/%%d", file);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return 0;
  path[length] = 0;
  return fails(call, path);
}

#define OPENED(real, ...) \\
  mode_t mode = 0; \\
  if (flags & (O_CREAT | O_TMPFILE)) { va_list more; va_start(more, flags); mode = va_arg(more, mode_t); va_end(more); } \\
  if (shared && shared[0] && fails("open", path)) return -1; \\
  return REAL(real)(__VA_ARGS__);

int open(const char *path, int flags, ...) { OPENED(open, path, flags, mode) }
int open64(const char *path, int flags, ...) { OPENED(open64, path, flags, mode) }
int openat(int at, const char *path, int flags, ...) { OPENED(openat, at, path, flags, mode) }
int openat64(int at, const char *path, int flags, ...) { OPENED(openat64, at, path, flags, mode) }

ssize_t write(int file, const void *bytes, size_t n) { return fails_for("write", file) ? -1 : REAL(write)(file, bytes, n); }
ssize_t pwrite(int file, const void *bytes, size_t n, off_t at) { return fails_for("pwrite", file) ? -1 : REAL(pwrite)(file, bytes, n, at); }
ssize_t pwrite64(int file, const void *bytes, size_t n, off64_t at) { return fails_for("pwrite", file) ? -1 : REAL(pwrite64)(file, bytes, n, at); }
int fsync(int file) { return fails_for("fsync", file) ? -1 : REAL(fsync)(file); }
int fdatasync(int file) { return fails_for("fdatasync", file) ? -1 : REAL(fdatasync)(file); }
int sync_file_range(int file, off64_t at, off64_t n, unsigned flags) {
  return fails_for("sync_file_range", file) ? -1 : REAL(sync_file_range)(file, at, n, flags);
}
int rename(const char *from, const char *to) {
  return shared && shared[0] && fails("rename", to) ? -1 : REAL(rename)(from, to);
}
"""


class Faults:
    """Made in a folder; `refused` says why it cannot be."""

    def __init__(self, folder):
        self.library, self.refused = folder / "faults.so", ""
        self.path = folder / "faults"
        compiler = shutil.which("cc")
        if not compiler:
            self.refused = "there is no C compiler"
            return
        source = folder / "faults.c"
        source.write_text(SOURCE % {"variable": VARIABLE, "rules_bytes": RULES_BYTES, "file_bytes": FILE_BYTES, "slow_us": SLOW_US}, encoding="ascii")
        command = [compiler, "-shared", "-fPIC", "-O1", "-o", self.library, source, "-ldl"]
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
        if done.returncode:
            self.refused = f"the library of faults does not compile: {done.stderr}"
        self.path.write_bytes(bytes(FILE_BYTES))
        with open(self.path, "r+b") as file:
            self.shared = mmap.mmap(file.fileno(), FILE_BYTES)

    @contextlib.contextmanager
    def preloaded(self):
        """Programs that are started meanwhile can have faults."""
        changed = {"LD_PRELOAD": str(self.library), VARIABLE: str(self.path)}
        with changed_environment(changed):
            yield

    def begin(self, *rules):
        """From now on calls fail. A rule is the name of a call, a pattern of the file's path, an error or SLOW, and how many such calls pass before."""
        number = lambda error: 0 if error == SLOW else getattr(errno, error)
        lines = [f"{call} {pattern} {number(error)} {after}\n" for call, pattern, error, after in rules]
        text = "".join(lines).encode()
        assert len(text) < RULES_BYTES
        self.end()
        self.shared[RULES_BYTES:] = bytes(FILE_BYTES - RULES_BYTES)
        self.shared[1:RULES_BYTES] = text[1:].ljust(RULES_BYTES - 1, b"\0")
        self.shared[0:1] = text[:1]

    def end(self):
        """No call fails any more."""
        self.shared[0:1] = b"\0"

    def failed(self):
        """How many calls have failed since `begin`."""
        return struct.unpack_from("I", self.shared, RULES_BYTES + 16 * 4)[0]
