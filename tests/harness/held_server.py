"""A server that is stopped for a share of the time."""

import os
import signal
import threading
import time

# To plant a slow-down, a server is stopped for a share of each period of this length: short, so that each turn has several.
PERIOD_S = 0.02


class Held:
    """A server that is stopped for a share of the time, fifty times a second.

    The clock starts when the kernel says that it has stopped, and each stop is as long as the share still wants. That is the share by the
    clock; the work that it loses is less, as the client, which has the same processors, catches up with its own meanwhile.
    """

    def __init__(self, server, share):
        self.process, self.share, self.done = server.process, share, threading.Event()
        self.began, self.held_s = time.perf_counter(), 0.0
        self.thread = threading.Thread(target=self.hold)
        self.thread.start()

    def hold(self):
        each = PERIOD_S * self.share
        while not self.done.wait(PERIOD_S - each):
            self.process.send_signal(signal.SIGSTOP)
            if os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT).si_code != os.CLD_STOPPED:
                return
            stopped = time.perf_counter()
            missing = self.share * (stopped + each - self.began) - self.held_s
            time.sleep(min(max(missing, 0), 2 * each))
            self.process.send_signal(signal.SIGCONT)
            self.held_s += time.perf_counter() - stopped

    def end(self):
        """Returns the share that it was really held back."""
        self.done.set()
        self.thread.join()
        return self.held_s / (time.perf_counter() - self.began)
