"""Processes whose clock is wrong: a small library that shifts the time of day under a program, and leaves the time that only counts on.

It is compiled with the C compiler that the engine needs too. What a process waits for is shifted back, so that nothing waits for an hour.
"""

import contextlib
import shutil
import subprocess

from harness.environment import changed_environment

HOUR_S = 3600
DAY_S = 24 * HOUR_S
# Servers take names that begin with SETTEE_ for settings.
VARIABLE = "TEST_CLOCK_SHIFT_S"

SOURCE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>

#define REAL(name) ({ static __typeof__(&name) found; if (!found) found = (__typeof__(&name))dlsym(RTLD_NEXT, #name); found; })

static long shift(void) {
  static long by;
  static int known;
  if (!known) {
    const char *text = getenv("%(variable)s");
    by = text ? atol(text) : 0;
    known = 1;
  }
  return by;
}

/* Of clocks that count from the start of the machine this is far away. */
static struct timespec back(const struct timespec *until) {
  struct timespec real = *until;
  if (real.tv_sec > 1000000000) real.tv_sec -= shift();
  return real;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  int failed = REAL(clock_gettime)(clock, now);
  if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += shift();
  return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  int failed = REAL(gettimeofday)(now, zone);
  if (!failed) now->tv_sec += shift();
  return failed;
}

int timespec_get(struct timespec *now, int base) {
  int done = REAL(timespec_get)(now, base);
  if (done == TIME_UTC) now->tv_sec += shift();
  return done;
}

time_t time(time_t *out) {
  time_t now = REAL(time)(NULL) + shift();
  if (out) *out = now;
  return now;
}

int pthread_cond_timedwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex, const struct timespec *restrict until) {
  struct timespec real = back(until);
  return REAL(pthread_cond_timedwait)(cond, mutex, &real);
}

int pthread_cond_clockwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex, clockid_t clock, const struct timespec *restrict until) {
  struct timespec real = back(until);
  return REAL(pthread_cond_clockwait)(cond, mutex, clock, &real);
}

int cnd_timedwait(cnd_t *restrict cond, mtx_t *restrict mutex, const struct timespec *restrict until) {
  struct timespec real = back(until);
  return REAL(cnd_timedwait)(cond, mutex, &real);
}

int pthread_mutex_timedlock(pthread_mutex_t *restrict mutex, const struct timespec *restrict until) {
  struct timespec real = back(until);
  return REAL(pthread_mutex_timedlock)(mutex, &real);
}

int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict until) {
  struct timespec real = back(until);
  return REAL(sem_timedwait)(semaphore, &real);
}
"""


class Clock:
    """Made in a folder; `refused` says why it cannot be."""

    def __init__(self, folder):
        self.library, self.refused = folder / "clock.so", ""
        compiler = shutil.which("cc")
        if not compiler:
            self.refused = "there is no C compiler"
            return
        source = folder / "clock.c"
        source.write_text(SOURCE % {"variable": VARIABLE}, encoding="ascii")
        command = [compiler, "-shared", "-fPIC", "-O1", "-o", self.library, source, "-ldl", "-lpthread"]
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
        if done.returncode:
            self.refused = f"the clock does not compile: {done.stderr}"

    @contextlib.contextmanager
    def off_by(self, seconds):
        """Processes that are started meanwhile take the time for so much later than it is."""
        changed = {"LD_PRELOAD": str(self.library), VARIABLE: str(seconds)}
        with changed_environment(changed):
            yield
