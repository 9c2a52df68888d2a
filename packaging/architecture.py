"""Which architecture a program is for, and how one for another architecture runs here."""

import os
import pathlib
import shutil
import subprocess

# By the number of the machine in ELF's header: the kernel's name, Debian's name, Rust's target.
BY_NUMBER = {
    62: ("x86_64", "amd64", "x86_64-unknown-linux-gnu"),
    183: ("aarch64", "arm64", "aarch64-unknown-linux-gnu"),
}
# Bytes of the header up to the number, which is at 18.
HEADER_BYTES = 20


class Architecture:
    """`machine`, `debian` and `target` are its names for the kernel, Debian and Rust."""

    def __init__(self, binary):
        with pathlib.Path(binary).open("rb") as file:
            header = file.read(HEADER_BYTES)
        number = int.from_bytes(header[18:20], "little")
        if header[:6] != b"\x7fELF\x02\x01" or number not in BY_NUMBER:
            raise SystemExit(f"{binary} is not a program for one of: {', '.join(debian for _, debian, _ in BY_NUMBER.values())}")
        self.machine, self.debian, self.target = BY_NUMBER[number]
        self.is_foreign = self.machine != os.uname().machine

    def command(self, binary):
        """How the program is started here. Another architecture's needs qemu-user, and its libraries from Debian's cross compiler."""
        if not self.is_foreign:
            return [binary]
        qemu = next(filter(None, map(shutil.which, (f"qemu-{self.machine}-static", f"qemu-{self.machine}"))), None)
        if not qemu:
            raise SystemExit(f"there is no qemu-{self.machine}: `ARCH={self.debian} scripts/setup.sh dist` installs it")
        return [qemu, "-L", f"/usr/{self.machine}-linux-gnu", binary]

    def debian_environment(self):
        """The variables by which Debian's tools make a package for it."""
        if not self.is_foreign:
            return {}
        said = subprocess.run(["dpkg-architecture", "--host-arch", self.debian, "--force", "--list"], capture_output=True, text=True, check=True)
        return dict(line.split("=", 1) for line in said.stdout.splitlines())
