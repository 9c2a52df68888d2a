"""Counting and printing checks: a line each, and the closing line that CI reads."""

import sys
import threading


class Report:
    def __init__(self, out=sys.stdout):
        self.out = out
        self.suite = ""
        self.passed = 0
        self.failures = []
        self.skipped = 0
        self._lock = threading.Lock()

    def check(self, name, ok, detail="", quiet=False):
        """Records one check. `detail` is printed when it fails; `quiet` prints nothing when it passes."""
        with self._lock:
            if ok:
                self.passed += 1
                if not quiet:
                    self._line(f"ok    {self.suite} / {name}")
            else:
                self.failures.append(f"{self.suite} / {name}")
                self._line(f"FAIL  {self.suite} / {name}")
                for line in str(detail)[:4000].splitlines():
                    self._line(f"        {line}")
        return ok

    def equal(self, name, actual, expected, quiet=False):
        return self.check(name, actual == expected, f"expected {_short(expected)}\nactual   {_short(actual)}", quiet)

    def skip(self, name, why):
        self.skipped += 1
        self._line(f"skip  {self.suite} / {name}: {why}")

    def note(self, text):
        """A figure for the reader; decides nothing."""
        with self._lock:
            self._line(f"      {self.suite}: {text}")

    def add(self, passed, failures, skipped):
        """What another report has counted, and has printed."""
        self.passed += passed
        self.failures += failures
        self.skipped += skipped

    def closing(self):
        if self.failures:
            self._line("")
            self._line("failed:")
            for name in self.failures:
                self._line(f"  {name}")
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        self._line(f"{self.passed} passed, {len(self.failures)} failed{skipped}")

    def _line(self, text):
        print(text, file=self.out, flush=True)


def _short(value):
    text = repr(value)
    return text if len(text) <= 600 else text[:600] + "…"
