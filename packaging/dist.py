#!/usr/bin/env python3
"""Makes what is released of the built programs: tarballs, the Debian package, the bill of materials, and their SHA-256 sums.

usage: dist.py --binary FILE [--runs FILE] [--debug] [--out DIR] [--version VERSION] [--quick]

FILE is `settee`; `settee-bench` is beside it, and with --debug the debug information of both, as scripts/strip.sh leaves them. Names are
of the architecture that it is for. Completions, pages and so on are what it prints: if it is for another architecture, qemu-user runs it, or
--runs names a `settee` of this checkout that prints them instead. In DIR, files of the same version for other architectures stay.

The same programs and commit give the same bytes: names are sorted, owners are root, times are the commit's (SOURCE_DATE_EPOCH).
What is in the tarball: docs/src/operations/install.md. `--quick` is for tests: hardly compressed, and without the bill of materials.
"""

import argparse
import gzip
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

import deb
import licences
from architecture import Architecture

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent
PACKAGING = CHECKOUT / "packaging"
# Each with its crate.
PROGRAMS = {"settee": "settee", "settee-bench": "bench"}
COMPLETIONS = {
    "bash": "share/bash-completion/completions/settee",
    "zsh": "share/zsh/site-functions/_settee",
    "fish": "share/fish/vendor_completions.d/settee.fish",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, required=True)
    parser.add_argument("--runs", type=pathlib.Path)
    parser.add_argument("--debug", action="store_true", help="their debug information too, in a tarball of its own")
    parser.add_argument("--out", type=pathlib.Path, default=CHECKOUT / "dist")
    parser.add_argument("--version", help="of the Debian package, when it is not the binary's: for tests of upgrades")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    for path in make(options):
        print(f"{path.stat().st_size / 1e6:8.1f} MB  {path}")


def make(options):
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    binary, epoch = options.binary.resolve(), commit_time()
    architecture = Architecture(binary)
    program = [options.runs.resolve()] if options.runs else architecture.command(binary)
    version = version_of(program)
    for path in out.glob("settee[-_]*"):
        if not is_of_another(path.name, version, architecture):
            path.unlink()
    name = f"settee-{version}-{architecture.machine}-linux"
    made = [out / f"{name}.tar.gz"]
    with tempfile.TemporaryDirectory(prefix="settee-dist-") as temporary:
        temporary = pathlib.Path(temporary)
        tree = temporary / name
        fill(tree, binary, program, architecture.target)
        unit(tree / "lib/systemd/system/settee.service", "/usr/local/bin")
        (tree / "INSTALL.md").write_text(how_to_install(architecture), encoding="utf-8")
        level = 1 if options.quick else 9
        pack(tree, made[0], epoch, level)
        make_context(out, version, architecture, made[0])
        if options.debug:
            made.append(out / f"{name}-debug.tar.gz")
            folder = temporary / f"{name}-debug"
            folder.mkdir()
            for each in PROGRAMS:
                shutil.copyfile(binary.with_name(f"{each}.debug"), folder / f"{each}.debug")
            pack(folder, made[-1], epoch, level)
        if deb.can_be_made():
            package = deb.Package(options.version or version, epoch, architecture, options.quick)
            made.append(package.build(tree, temporary / "debian", out))
        else:
            print("dist: no Debian package, as debhelper is not installed", file=sys.stderr)
    if not options.quick:
        bills = {crate: out / f"{name.replace('settee', each, 1)}.cdx.json" for each, crate in PROGRAMS.items()}
        bills_of_materials(bills, epoch, architecture.target)
        made += bills.values()
    return [*made, write_sums(out)]


def is_of_another(name, version, architecture):
    """Whether this file belongs to this version, and is for another architecture."""
    is_this = any(word in name for word in (f"-{architecture.machine}-", f"_{architecture.debian}."))
    return not is_this and any(
        name.startswith(f"{start}{version}{end}") for start, end in (("settee-", "-"), ("settee-bench-", "-"), ("settee_", "_"))
    )


def write_sums(out):
    """The sums of all files in a folder, also of those for other architectures."""
    sums, released = out / "SHA256SUMS", sorted(path for path in out.glob("settee[-_]*") if path.is_file())
    sums.write_text("".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in released), encoding="ascii")
    return sums


def make_context(out, version, architecture, tarball):
    """The folder that the container image is built from; it may have the tarballs of several architectures."""
    context = out / "container"
    context.mkdir(exist_ok=True)
    for path in context.glob("settee-*"):
        if not is_of_another(path.name, version, architecture):
            path.unlink()
    for part in (PACKAGING / "container/Containerfile", PACKAGING / "container/root.sh", tarball):
        shutil.copy(part, context)


def version_of(program):
    """The program's, which has to be this checkout's."""
    said = subprocess.run([*program, "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]
    wanted = re.search(r'^version = "(.*)"', (CHECKOUT / "Cargo.toml").read_text(encoding="utf-8"), re.MULTILINE)[1]
    if said != wanted:
        raise SystemExit(f"dist: {program[-1]} is version {said}, this checkout {wanted}")
    return said


def commit_time():
    """Seconds since 1970; the time of everything that is made here."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given:
        return int(given)
    return int(subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout)


def fill(tree, binary, program, target):
    """What is installed below /usr or /usr/local, and `etc`. `program` is the command that starts `settee` here."""
    for each in PROGRAMS:
        install(tree / "bin" / each, binary.with_name(each).read_bytes(), 0o755)
    run = lambda *arguments: subprocess.run([*program, *arguments], capture_output=True, check=True).stdout
    for shell, place in COMPLETIONS.items():
        install(tree / place, run("completions", shell))
    run("man", str(tree / "share/man/man1"))
    install(tree / "share/settee/default.ini", (CHECKOUT / "default.ini").read_bytes())
    install(tree / "share/settee/monitoring/alerts.yml", run("monitoring", "alerts"))
    install(tree / "share/settee/monitoring/dashboard.json", run("monitoring", "dashboard"))
    install(tree / "etc/settee/settee.ini", (PACKAGING / "settee.ini").read_bytes())
    for name in ("LICENSE", "CHANGELOG.md"):
        install(tree / "share/doc/settee" / name, (CHECKOUT / name).read_bytes())
    texts = licences.document(licences.linked(licences.metadata(target)))
    install(tree / "share/doc/settee/THIRD-PARTY-LICENCES.txt", texts.encode())


def install(path, contents, mode=0o644):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(contents)
    path.chmod(mode)


def unit(path, bin_folder):
    install(path, (PACKAGING / "settee.service").read_text(encoding="utf-8").replace("@BIN@", bin_folder).encode())


def how_to_install(architecture):
    """The manual's part about the tarball, with this architecture's name."""
    page = (CHECKOUT / "docs/src/operations/install.md").read_text(encoding="utf-8")
    part = re.search(r"^## The tarball\n.*?(?=^## )", page, re.MULTILINE | re.DOTALL)[0]
    part = part.replace("x86_64-linux", f"{architecture.machine}-linux")
    return re.sub(r"^```sh (run|norun)$", "```sh", part.replace("## The tarball", "# Install Settee"), flags=re.MULTILINE)


def pack(folder, path, epoch, level):
    """A tar file in which nothing is left to chance."""

    def told(entry):
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = "root"
        entry.mtime = epoch
        entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
        return entry

    # gzip's header has a time and a name, too.
    with (
        open(path, "wb") as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=level, mtime=epoch) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for entry in [folder, *sorted(folder.rglob("*"))]:
            tar.add(entry, arcname=entry.relative_to(folder.parent).as_posix(), recursive=False, filter=told)


def bills_of_materials(paths, epoch, target):
    """Writes in CycloneDX what each program is linked from: crates with versions, licences and check sums. `paths` has a file by crate,
    `target` is Rust's name of the architecture.
    """
    tools = pathlib.Path(os.environ.get("SETTEE_CACHE") or pathlib.Path.home() / ".cache/settee") / "tools/bin"
    command = [
        tools / "cargo-cyclonedx",
        "cyclonedx",
        "--manifest-path",
        CHECKOUT / "crates/settee/Cargo.toml",
        "--format",
        "json",
        "--target",
        target,
    ]
    command += ["--no-build-deps", "--override-filename", "settee-bill"]
    written = "settee-bill.json"
    try:
        subprocess.run(
            command,
            check=True,
            cwd=CHECKOUT,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "CARGO_NET_OFFLINE": "true"},
        )
        bills = {crate: (CHECKOUT / "crates" / crate / written).read_text(encoding="utf-8") for crate in paths}
    finally:
        # It writes one beside each crate of the workspace.
        for each in [*CHECKOUT.glob(f"crates/*/{written}"), *CHECKOUT.glob(f"bindings/*/{written}")]:
            each.unlink()
    for crate, path in paths.items():
        # Crates of this workspace are named by where the checkout is.
        bill = bills[crate].replace(f"path+file://{CHECKOUT}/", "path+file:///settee/").replace(f"file://{CHECKOUT}/", "file:///settee/")
        path.write_text(json.dumps(json.loads(bill), indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
