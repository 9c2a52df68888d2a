"""A small Debian of its own, booted with its own systemd in a container of namespaces (systemd-nspawn). Needs root."""

import os
import pathlib
import shutil
import signal
import subprocess
import time

from harness import server as servers

# What the package needs.
FOREIGN_PACKAGES = "adduser,ca-certificates,debconf,libstdc++6"
PACKAGES = "adduser,ca-certificates,curl,debconf,libstdc++6,systemd,systemd-sysv"
RELEASE = "bookworm"
BUILD_TIMEOUT_S = 900
BOOT_TIMEOUT_S = 90
COMMAND_TIMEOUT_S = 180


def missing():
    """What is not here of what this needs."""
    wanted = [name for name in ("mmdebstrap", "systemd-nspawn", "nsenter") if not shutil.which(name)]
    return wanted if os.geteuid() == 0 else ["root", *wanted]


def base(ctx, foreign=None):
    """The tar file of a Debian that is not booted yet, made once per machine. `foreign` is Debian's name of another architecture than
    this machine's: a smaller one without systemd, whose programs run by qemu-user.
    """
    name = f"{RELEASE}-{foreign}" if foreign else RELEASE
    options = [f"--architectures={foreign}", f"--include={FOREIGN_PACKAGES}"] if foreign else [f"--include={PACKAGES}"]
    path = ctx.cache / "roots" / f"{name}.tar"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f"{name}-unfinished.tar")
        ctx.report.note(f"making a Debian in {path}")
        done = subprocess.run(
            ["mmdebstrap", "--quiet", "--variant=minbase", *options, RELEASE, unfinished],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=BUILD_TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"mmdebstrap failed:\n{done.stderr[-2000:]}")
        unfinished.rename(path)
    return path


class Machine:
    """Files are in `root`. `run` runs a command inside, as root, and answers what it did."""

    def __init__(self, ctx, name):
        self.root = ctx.folder(name) / "root"
        self.root.mkdir()
        self.log = ctx.root / f"{name}.log"
        self.nspawn = None
        subprocess.run(["tar", "-xf", base(ctx), "-C", self.root, "--exclude=./dev/*"], check=True)

    def __enter__(self):
        # Without a machine's registration there is no need of a systemd outside.
        command = ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--private-network", "--boot", f"--directory={self.root}"]
        with self.log.open("wb") as log:
            self.nspawn = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        servers.track(self.nspawn)
        deadline = time.monotonic() + BOOT_TIMEOUT_S
        # `starting` is followed by `running`, or `degraded` where the container may not do something.
        while not self.leader() or self.run("systemctl is-system-running --wait").stdout.strip() not in ("running", "degraded"):
            if time.monotonic() > deadline or self.nspawn.poll() is not None:
                raise RuntimeError(f"the machine does not boot:\n{self.log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.2)
        return self

    def __exit__(self, *_):
        leader = self.leader()
        if leader:
            # SIGRTMIN+4: systemd powers off.
            os.kill(leader, signal.SIGRTMIN + 4)
        try:
            self.nspawn.wait(timeout=30)
        except subprocess.TimeoutExpired:
            pass  # ended below
        servers.end(self.nspawn)

    def leader(self):
        """The process that is 1 inside."""
        children = pathlib.Path(f"/proc/{self.nspawn.pid}/task/{self.nspawn.pid}/children")
        try:
            found = children.read_text(encoding="ascii").split()
        except FileNotFoundError:
            return None
        return int(found[0]) if found else None

    def run(self, script, **environment):
        inside = ["nsenter", f"--target={self.leader()}", "--mount", "--uts", "--ipc", "--net", "--pid", "--root", "--wd", "--"]
        return subprocess.run(
            [*inside, "sh", "-c", script],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
            env={
                "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                "HOME": "/root",
                "DEBIAN_FRONTEND": "noninteractive",
                "LC_ALL": "C.UTF-8",
                **environment,
            },
        )
