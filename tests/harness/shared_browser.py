"""One Chromium for all tests of a run, which have contexts of their own in it.

The first process that needs it starts it, and ends it with its session, when no test uses it.
"""

import atexit
import contextlib
import fcntl
import os
import pathlib
import select
import subprocess

from harness.packages import node_modules

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "clients" / "browser"
START_TIMEOUT_S = 60
END_TIMEOUT_S = 30

# The browser that this process started, and the folder that says so.
_own = []


@contextlib.contextmanager
def shared_browser(ctx):
    """Yields the address of the run's browser, which stays until the caller is done."""
    folder = ctx.root.parent
    with locked(folder / "browser.users", fcntl.LOCK_SH):
        with locked(folder / "browser.start", fcntl.LOCK_EX):
            address = running(folder) or start(ctx, folder)
        yield address


def running(folder):
    """The address of a browser that was started; None if there is none, or if it has crashed."""
    path = folder / "browser.address"
    pid, _, address = path.read_text(encoding="ascii").partition(" ") if path.exists() else ("", "", "")
    return address if pid and is_alive(int(pid)) else None


def is_alive(pid):
    """A process that has ended and was not waited for is a zombie."""
    for process, _ in _own:
        process.poll()
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = pathlib.Path("/proc", str(pid), "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    return state != "Z"


def start(ctx, folder):
    env = {**os.environ, "NODE_PATH": str(node_modules(ctx, FOLDER))}
    process = subprocess.Popen(["node", str(FOLDER / "shared.mjs")], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    if not _own:
        atexit.register(end)
    _own.append((process, folder))
    ready, _, _ = select.select([process.stdout], [], [], START_TIMEOUT_S)
    address = process.stdout.readline().strip() if ready else ""
    if not address:
        raise RuntimeError("Chromium did not start")
    (folder / "browser.address").write_text(f"{process.pid} {address}", encoding="ascii")
    return address


def end():
    """Ends what this process started, when no test of another one uses it."""
    for process, folder in _own:
        with contextlib.ExitStack() as locks:
            if folder.exists():
                locks.enter_context(locked(folder / "browser.users", fcntl.LOCK_EX))
                (folder / "browser.address").unlink(missing_ok=True)
            process.stdin.close()
            try:
                process.wait(END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    _own.clear()


@contextlib.contextmanager
def locked(path, how):
    with open(path, "a", encoding="ascii") as file:
        fcntl.flock(file, how)
        yield
