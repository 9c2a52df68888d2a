"""How a Python client script says what worked."""

import os
import time

URL = os.environ["SETTEE_URL"]
NAME, PASSWORD = os.environ["SETTEE_ADMIN"].split(":", 1)
URL_WITH_ADMIN = URL.replace("://", f"://{NAME}:{PASSWORD}@")


def check(name, ok, detail=""):
    print(f"ok {name}" if ok else f"not ok {name}: {detail!r}", flush=True)


def equal(name, actual, expected):
    check(name, actual == expected, {"expected": expected, "actual": actual})


def raises(name, kind, act, test=lambda error: True):
    try:
        got = act()
    except kind as error:
        check(name, test(error), repr(error))
    else:
        check(name, False, f"no {kind.__name__}, but {got!r}")


def until(condition, timeout_s=30):
    """Whether `condition()` becomes true in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
