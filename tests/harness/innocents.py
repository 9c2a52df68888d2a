"""Calls of harmless functions while other functions overload the server.

The time limit of functions is one of the processor, but a call that takes ten times as long is ended
anyway: on a busy machine also a harmless one. Their calls are repeated, and counted. The share of these
is compared with a control: a process that computes for a moment again and again, and counts how often
that takes longer than the limit.
"""

import subprocess
import sys
import threading

from harness.api import Disconnected
from harness.server import end, track

ATTEMPTS_MAX = 20
# One pause of the machine may end a call on each thread.
ENDED_ANYWAY = 3
SHARE_MAX = 0.1
# A call depends on more threads than the control: those of the server, and its worker.
CONTROL_FACTOR = 3
CONTROL = """
import select, sys, time
turns = slow = 0
while not select.select([sys.stdin], [], [], 0.05)[0]:
    began, end = time.monotonic(), time.process_time() + 0.005
    while time.process_time() < end:
        pass
    turns += 1
    slow += time.monotonic() - began > float(sys.argv[1])
print(turns, slow)
"""


class Innocents:
    """Counts the calls, and those that the time limit ended, while the control runs."""

    def __init__(self, limit_ms):
        self.calls, self.ended = 0, 0
        self._lock = threading.Lock()
        self._control = subprocess.Popen(
            [sys.executable, "-c", CONTROL, str(limit_ms / 1000)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        track(self._control)

    def call(self, request):
        """Returns the first answer of a function that was not ended, or the last answer."""
        return self._repeat(request, lambda answer: b"function_limit_exceeded" in answer.raw)

    def feed(self, api, path):
        """Returns the rows of a feed, which is cut off when the time limit ends its filter."""

        def rows():
            try:
                return api.get(path).json["results"]
            except (Disconnected, ValueError, KeyError) as cut:
                return cut

        return self._repeat(rows, lambda found: not isinstance(found, list))

    def _repeat(self, request, is_ended):
        for _ in range(ATTEMPTS_MAX):
            answer = request()
            ended = is_ended(answer)
            with self._lock:
                self.calls += 1
                self.ended += ended
            if not ended:
                break
        return answer

    def judge(self, report, label):
        """Ends the control and compares the shares."""
        turns, slow = map(int, self._control.communicate(input="\n", timeout=60)[0].split())
        end(self._control)
        allowed = ENDED_ANYWAY + self.calls * (SHARE_MAX + CONTROL_FACTOR * slow / max(turns, 1))
        told = f"{self.ended} of {self.calls} innocent calls were ended; {slow} of {turns} turns of the control took as long"
        report.check(f"{label}: hardly any innocent function is ended", self.calls and self.ended <= allowed, f"{told}; {allowed:.1f} are allowed")
        report.note(f"{label}: {told}")
