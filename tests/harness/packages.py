"""Packages that the tests need, installed into the machine's cache, once per version of the lists that name them."""

import contextlib
import fcntl
import hashlib
import shutil
import subprocess

INSTALL_TIMEOUT_S = 600


def node_modules(ctx, folder):
    lock = folder / "package-lock.json"
    place = ctx.cache / "node" / fingerprint(lock)
    with missing(place) as is_missing:
        if is_missing:
            for name in ("package.json", "package-lock.json"):
                shutil.copy(folder / name, place / name)
            install(ctx, "Node packages", ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error", "--prefix", place], place)
    return place / "node_modules"


def virtual_environment(ctx, folder):
    requirements = folder / "requirements.txt"
    place = ctx.cache / "venv" / fingerprint(requirements)
    with missing(place) as is_missing:
        if is_missing:
            subprocess.run(["python3", "-m", "venv", place], check=True, timeout=INSTALL_TIMEOUT_S)
            install(ctx, "Python packages", [place / "bin" / "python", "-m", "pip", "install", "--quiet", "-r", requirements], place)
    return place


def go_program(ctx, folder):
    """Compiled once per version of its source."""
    place = ctx.cache / "go" / fingerprint(folder / "main.go", folder / "go.sum")
    with missing(place) as is_missing:
        if is_missing:
            install(ctx, folder.name, ["go", "build", "-buildvcs=false", "-o", place / folder.name, "."], place, folder)
    return place / folder.name


@contextlib.contextmanager
def missing(place):
    """Whether `place` is still to be installed, by whoever asks: it is empty then, and others who ask wait until this one is done."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{place}.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        is_missing = not (place / "installed").exists()
        if is_missing:
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
        yield is_missing


def install(ctx, what, command, place, cwd=None):
    ctx.report.note(f"installing {what} into {place}")
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{what} could not be installed:\n{done.stdout}{done.stderr}")
    (place / "installed").touch()  # last, so that half an installation is not taken for one


def fingerprint(*paths):
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:16]
