#!/usr/bin/env python3
"""Makes what is released of the built programs: tarballs, the Debian package, the bill of materials, and their SHA-256 sums.

usage: dist.py --binary FILE [--debug] [--out DIR] [--version VERSION] [--quick]

FILE is `settee`; `settee-bench` is beside it, and with --debug the debug information of both, as scripts/strip.sh leaves them.

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
    for path in out.glob("settee[-_]*"):
        path.unlink()
    binary, version, epoch, machine = options.binary.resolve(), version_of(options.binary), commit_time(), os.uname().machine
    name = f"settee-{version}-{machine}-linux"
    made = [out / f"{name}.tar.gz"]
    with tempfile.TemporaryDirectory(prefix="settee-dist-") as temporary:
        temporary = pathlib.Path(temporary)
        tree = temporary / name
        fill(tree, binary)
        unit(tree / "lib/systemd/system/settee.service", "/usr/local/bin")
        (tree / "INSTALL.md").write_text(how_to_install(), encoding="utf-8")
        level = 1 if options.quick else 9
        pack(tree, made[0], epoch, level)
        context = out / "container"
        shutil.rmtree(context, ignore_errors=True)
        context.mkdir()
        for part in (PACKAGING / "container/Containerfile", PACKAGING / "container/root.sh", made[0]):
            shutil.copy(part, context)
        if options.debug:
            made.append(out / f"{name}-debug.tar.gz")
            folder = temporary / f"{name}-debug"
            folder.mkdir()
            for program in PROGRAMS:
                shutil.copyfile(binary.with_name(f"{program}.debug"), folder / f"{program}.debug")
            pack(folder, made[-1], epoch, level)
        if deb.can_be_made():
            made.append(deb.build(tree, temporary / "debian", out, options.version or version, epoch, options.quick))
        else:
            print("dist: no Debian package, as debhelper is not installed", file=sys.stderr)
    if not options.quick:
        bills = {crate: out / f"{name.replace('settee', program, 1)}.cdx.json" for program, crate in PROGRAMS.items()}
        bills_of_materials(bills, epoch)
        made += bills.values()
    sums = out / "SHA256SUMS"
    sums.write_text("".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(made)), encoding="ascii")
    return [*made, sums]


def version_of(binary):
    """The binary's, which has to be this checkout's."""
    said = subprocess.run([binary.resolve(), "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]
    wanted = re.search(r'^version = "(.*)"', (CHECKOUT / "Cargo.toml").read_text(encoding="utf-8"), re.MULTILINE)[1]
    if said != wanted:
        raise SystemExit(f"dist: {binary} is version {said}, this checkout {wanted}")
    return said


def commit_time():
    """Seconds since 1970; the time of everything that is made here."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given:
        return int(given)
    return int(subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout)


def fill(tree, binary):
    """What is installed below /usr or /usr/local, and `etc`."""
    for program in PROGRAMS:
        install(tree / "bin" / program, binary.with_name(program).read_bytes(), 0o755)
    run = lambda *arguments: subprocess.run([binary, *arguments], capture_output=True, check=True).stdout
    for shell, place in COMPLETIONS.items():
        install(tree / place, run("completions", shell))
    run("man", str(tree / "share/man/man1"))
    install(tree / "share/settee/default.ini", (CHECKOUT / "default.ini").read_bytes())
    install(tree / "share/settee/monitoring/alerts.yml", run("monitoring", "alerts"))
    install(tree / "share/settee/monitoring/dashboard.json", run("monitoring", "dashboard"))
    install(tree / "etc/settee/settee.ini", (PACKAGING / "settee.ini").read_bytes())
    for name in ("LICENSE", "CHANGELOG.md"):
        install(tree / "share/doc/settee" / name, (CHECKOUT / name).read_bytes())
    texts = licences.document(licences.linked(licences.metadata(licences.host())))
    install(tree / "share/doc/settee/THIRD-PARTY-LICENCES.txt", texts.encode())


def install(path, contents, mode=0o644):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(contents)
    path.chmod(mode)


def unit(path, bin_folder):
    install(path, (PACKAGING / "settee.service").read_text(encoding="utf-8").replace("@BIN@", bin_folder).encode())


def how_to_install():
    """The manual's part about the tarball."""
    page = (CHECKOUT / "docs/src/operations/install.md").read_text(encoding="utf-8")
    part = re.search(r"^## The tarball\n.*?(?=^## )", page, re.MULTILINE | re.DOTALL)[0]
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


def bills_of_materials(paths, epoch):
    """Writes in CycloneDX what each program is linked from: crates with versions, licences and check sums. `paths` has a file by crate."""
    tools = pathlib.Path(os.environ.get("SETTEE_CACHE") or pathlib.Path.home() / ".cache/settee") / "tools/bin"
    command = [
        tools / "cargo-cyclonedx",
        "cyclonedx",
        "--manifest-path",
        CHECKOUT / "crates/settee/Cargo.toml",
        "--format",
        "json",
        "--target",
        licences.host(),
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
