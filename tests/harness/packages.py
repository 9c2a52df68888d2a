"""Packages that the tests need, installed into the machine's cache, once per version of the lists that name them."""

import hashlib
import shutil
import subprocess

INSTALL_TIMEOUT_S = 600


def node_modules(ctx, folder):
    lock = folder / "package-lock.json"
    place = ctx.cache / "node" / fingerprint(lock)
    if not (place / "installed").exists():
        fresh(place)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(folder / name, place / name)
        install(ctx, "Node packages", ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error", "--prefix", place], place)
    return place / "node_modules"


def virtual_environment(ctx, folder):
    requirements = folder / "requirements.txt"
    place = ctx.cache / "venv" / fingerprint(requirements)
    if not (place / "installed").exists():
        fresh(place)
        subprocess.run(["python3", "-m", "venv", place], check=True, timeout=INSTALL_TIMEOUT_S)
        install(ctx, "Python packages", [place / "bin" / "python", "-m", "pip", "install", "--quiet", "-r", requirements], place)
    return place


def go_program(ctx, folder):
    """Compiled once per version of its source."""
    place = ctx.cache / "go" / fingerprint(folder / "main.go", folder / "go.sum")
    if not (place / "installed").exists():
        fresh(place)
        install(ctx, folder.name, ["go", "build", "-buildvcs=false", "-o", place / folder.name, "."], place, folder)
    return place / folder.name


def install(ctx, what, command, place, cwd=None):
    ctx.report.note(f"installing {what} into {place}")
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{what} could not be installed:\n{done.stdout}{done.stderr}")
    (place / "installed").touch()  # last, so that half an installation is not taken for one


def fresh(place):
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)


def fingerprint(*paths):
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:16]
