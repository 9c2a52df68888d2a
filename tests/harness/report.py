"""Counting checks: a test goes on after one that failed, and fails at its end."""

import threading


class CheckFailed(AssertionError):
    """Checks of a test that failed, with their details."""


class Report:
    """The checks of the test that runs now in this process."""

    def __init__(self):
        self._lock = threading.Lock()
        self.begin("", "")

    def begin(self, suite, test):
        self.suite, self.test = suite, test
        self.passed, self.failed, self.skipped = 0, 0, 0
        self.panicked = False
        self.lines = []
        self._failures = []

    def check(self, name, ok, detail="", quiet=False):
        """Records one check. `detail` is printed when it fails; `quiet` has no line when it passes."""
        with self._lock:
            if ok:
                self.passed += 1
                if not quiet:
                    self.lines.append(f"ok    {self.test} / {name}")
            else:
                self.failed += 1
                self.panicked = self.panicked or "panicked" in str(detail) or "panic" in name
                self.lines.append(f"FAIL  {self.test} / {name}")
                self._failures.append("\n".join([name, *(f"    {line}" for line in str(detail)[:4000].splitlines())]))
        return ok

    def equal(self, name, actual, expected, quiet=False):
        return self.check(name, actual == expected, f"expected {_short(expected)}\nactual   {_short(actual)}", quiet)

    def skip(self, name, why):
        with self._lock:
            self.skipped += 1
            self.lines.append(f"skip  {self.test} / {name}: {why}")

    def note(self, text):
        """A figure for the reader; decides nothing."""
        with self._lock:
            self.lines.append(f"      {self.test}: {text}")
        print(text)

    def broken(self, name, failures):
        """The test raised: that counts as a failed check."""
        with self._lock:
            self.failed += 1
            self.lines.append(f"FAIL  {self.test} / {name}")

    def take_failures(self):
        """The failures that nobody has raised yet."""
        with self._lock:
            failures, self._failures = self._failures, []
        return failures


def _short(value):
    text = repr(value)
    return text if len(text) <= 600 else text[:600] + "…"


report = Report()
