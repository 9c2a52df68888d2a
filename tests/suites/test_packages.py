"""What is released, made of the binary under test: tarball, Debian package, the file system of the container image.

The long form installs, upgrades, removes and purges the Debian package in a small Debian with a systemd of its own.
"""

import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time

import pytest

from harness import machine
from harness import server as servers
from harness.api import Api
from ports import free_port

pytestmark = [pytest.mark.on_disk, pytest.mark.may_be_retried, pytest.mark.costly_hashes]

OLDER = "0.0.9"
EPOCH = 1_700_000_000
IN_THE_TARBALL = [
    "INSTALL.md",
    "bin/settee",
    "bin/settee-bench",
    "etc/settee/settee.ini",
    "lib/systemd/system/settee.service",
    "share/bash-completion/completions/settee",
    "share/doc/settee/CHANGELOG.md",
    "share/doc/settee/LICENSE",
    "share/doc/settee/THIRD-PARTY-LICENCES.txt",
    "share/fish/vendor_completions.d/settee.fish",
    "share/man/man1/settee-serve.1",
    "share/man/man1/settee.1",
    "share/settee/default.ini",
    "share/settee/monitoring/alerts.yml",
    "share/settee/monitoring/dashboard.json",
    "share/zsh/site-functions/_settee",
]
COMPLETIONS = {
    "bash": "share/bash-completion/completions/settee",
    "fish": "share/fish/vendor_completions.d/settee.fish",
    "zsh": "share/zsh/site-functions/_settee",
}
# By ELF's number of the machine: the kernel's and Debian's name.
ARCHITECTURES = {62: ("x86_64", "amd64"), 183: ("aarch64", "arm64")}
# systemd's own measure, from 0 (nothing may be done) to 10; times ten.
EXPOSURE_MAX = 20


class Released:
    """What `packaging/dist.py` made of the binary. `tree` is its tarball, unpacked."""

    def __init__(self, ctx):
        self.made = make(ctx, "made")
        assert self.made, "dist.py fails"
        folder = ctx.folder("unpacked")
        with tarfile.open(self.made["tarball"]) as tar:
            self.entries = tar.getmembers()
            tar.extractall(folder, filter="data")
        self.tree = folder / self.made["tarball"].name.removesuffix(".tar.gz")


@pytest.fixture(scope="module")
def released(suite):
    return Released(suite)


def make(ctx, name, *options):
    """{what: path} of what `packaging/dist.py` makes."""
    out = ctx.root / name
    command = [sys.executable, ctx.checkout / "packaging/dist.py", "--binary", ctx.binary, "--quick", "--out", out, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH)})
    if not ctx.report.check(f"dist.py makes what is released ({name})", done.returncode == 0, done.stderr[-2000:]):
        return None
    return found(out)


def found(out):
    """What was made for this machine, in a folder."""
    machine_name, debian = next(names for names in ARCHITECTURES.values() if names[0] == os.uname().machine)
    tarball, deb = next(out.glob(f"*-{machine_name}-linux.tar.gz")), next(out.glob(f"*_{debian}.deb"), None)
    return {"out": out, "tarball": tarball, "deb": deb, "context": out / "container"}


def test_tarball(ctx, released):
    report, entries, top = ctx.report, released.entries, released.tree.name
    report.equal("all is in one folder, named as the file", {entry.name.split("/")[0] for entry in entries}, {top})
    names = [entry.name.removeprefix(top + "/") for entry in entries]
    report.equal("files that belong into it are there", [name for name in IN_THE_TARBALL if name not in names], [])
    report.equal(
        "owners and times are fixed",
        {(entry.uid, entry.gid, entry.uname, entry.gname, entry.mtime) for entry in entries},
        {(0, 0, "root", "root", EPOCH)},
    )
    report.equal("modes are fixed", {entry.mode for entry in entries}, {0o755, 0o644})
    report.equal("names are sorted", names[1:], sorted(names[1:], key=lambda name: name.split("/")))
    sums = dict(reversed(line.split("  ")) for line in (released.made["out"] / "SHA256SUMS").read_text().splitlines())
    report.equal(
        "the sums are right",
        sums,
        {path.name: sha256(path) for path in released.made["out"].iterdir() if path.is_file() and path.name != "SHA256SUMS"},
    )
    licences = (released.tree / "share/doc/settee/THIRD-PARTY-LICENCES.txt").read_text(encoding="utf-8")
    lock = (ctx.checkout / "Cargo.lock").read_text(encoding="utf-8")
    for crate in ("rocksdb", "librocksdb-sys", "rquickjs-sys", "openssl-src", "rdkafka-sys", "tokio"):
        version = re.search(rf'name = "{crate}"\nversion = "(.*)"', lock)[1]
        report.check(f"the licence of {crate} is there", f"\n{crate} {version}: " in licences)
    alerts = (released.tree / "share/settee/monitoring/alerts.yml").read_text(encoding="utf-8")
    report.check("the alert rules are there", "alert:" in alerts)
    report.check(
        "the dashboard is JSON", json.loads((released.tree / "share/settee/monitoring/dashboard.json").read_text(encoding="utf-8"))["panels"]
    )


# In short, `test_names_of_another_architecture` compares what it makes again.
@pytest.mark.slow
def test_same_bytes_again(ctx, released):
    again = make(ctx, "again")
    if again:
        sums = [(folder["out"] / "SHA256SUMS").read_text().splitlines() for folder in (released.made, again)]
        ctx.report.equal("made again of the same binary, all has the same bytes", *sums)


def test_names_of_another_architecture(ctx, released):
    """A program for arm64, as its header says: what is made of it has the names of that architecture."""
    report, folder = ctx.report, ctx.folder("programs")
    # `make` finds what was made before.
    shutil.copytree(released.made["out"], ctx.root / "made")
    own = found(ctx.root / "made")
    [(number, (machine_name, debian))] = [(number, names) for number, names in ARCHITECTURES.items() if names[0] != os.uname().machine]
    for program in ("settee", "settee-bench"):
        contents = bytearray((released.tree / "bin" / program).read_bytes())
        contents[18:20] = number.to_bytes(2, "little")
        (folder / program).write_bytes(contents)
        (folder / program).chmod(0o755)
    made = make(ctx, "made", "--binary", folder / "settee", "--runs", released.tree / "bin/settee")
    if not made:
        return
    version = own["tarball"].name.split("-")[1]
    other = made["out"] / f"settee_{version}_{debian}.deb"
    files = {f"settee-{version}-{machine_name}-linux.tar.gz", other.name, own["tarball"].name, own["deb"].name}
    is_there = lambda: {path.name for path in own["out"].iterdir()}
    report.equal("its files are beside those of this machine", is_there(), files | {"SHA256SUMS", "container"})
    sums = [line.split("  ")[1] for line in (own["out"] / "SHA256SUMS").read_text().splitlines()]
    report.equal("the sums are of all files", sums, sorted(files))
    tarballs = {path.name for path in own["context"].glob("settee-*")}
    report.equal("the image can be built for both", tarballs, {name for name in files if name.endswith(".tar.gz")})
    with tarfile.open(made["out"] / f"settee-{version}-{machine_name}-linux.tar.gz") as tar:
        folder = f"settee-{version}-{machine_name}-linux"
        report.equal("the tarball's folder has the architecture's name", tar.getnames()[0], folder)
        steps = tar.extractfile(f"{folder}/INSTALL.md").read().decode()
        report.check("so have the steps in it", f"tar -xzf {folder}.tar.gz" in steps and os.uname().machine not in steps, steps)
    field = lambda deb, name: subprocess.run(["dpkg-deb", "--field", deb, name], capture_output=True, text=True, check=True).stdout.strip()
    report.equal("the package is for that architecture", field(other, "Architecture"), debian)
    report.equal("it depends on what debhelper finds for this machine's", *(sorted(field(deb, "Depends").split(", ")) for deb in (other, own["deb"])))
    before = sha256(own["tarball"]), sha256(own["deb"])
    make(ctx, "made")
    report.equal("when this machine's are made again, the others stay", is_there(), files | {"SHA256SUMS", "container"})
    report.equal("made again of the same binary, all has the same bytes", (sha256(own["tarball"]), sha256(own["deb"])), before)


def test_completions(ctx, released):
    scripts = {shell: released.tree / path for shell, path in COMPLETIONS.items()}
    said = shell(
        f'. {scripts["bash"]}; COMP_WORDS=(settee he); COMP_CWORD=1; COMP_LINE="settee he"; _settee settee he settee; echo "${{COMPREPLY[@]}}"'
    )
    ctx.report.equal("bash completes a command", set(said.stdout.split()), {"healthcheck", "help"})
    said = shell(f". {scripts['bash']}; complete -p settee")
    ctx.report.check("bash is told whom to ask", "_settee" in said.stdout, said)
    if has(ctx, "zsh"):
        script = f"autoload -Uz compinit; fpath=({scripts['zsh'].parent} $fpath); compinit -u -d {ctx.root}/zcompdump; echo $_comps[settee]"
        said = subprocess.run(["zsh", "-f", "-c", script], capture_output=True, text=True, check=False)
        ctx.report.equal("zsh takes the function as settee's", said.stdout.strip(), "_settee")
        said = subprocess.run(["zsh", "-f", "-n", scripts["zsh"]], capture_output=True, text=True, check=False)
        ctx.report.check("zsh reads it", said.returncode == 0, said)
    if has(ctx, "fish"):
        script = f"source {scripts['fish']}; complete -C 'settee he'"
        said = subprocess.run(
            ["fish", "--no-config", "-c", script], capture_output=True, text=True, check=False, env={**os.environ, "HOME": str(ctx.root)}
        )
        ctx.report.equal("fish completes a command", {line.split("\t")[0] for line in said.stdout.splitlines()}, {"healthcheck", "help"})


def test_manual_pages(ctx, released):
    pages = sorted((released.tree / "share/man/man1").iterdir())
    commands = set(re.findall(r"^  ([a-z]+) ", subprocess.run([ctx.binary, "help"], capture_output=True, text=True, check=True).stdout, re.MULTILINE))
    pages_of = {page.name.removeprefix("settee-").removesuffix(".1") for page in pages}
    ctx.report.equal("each command has a page", sorted(commands - pages_of - {"help"}), [])
    if not has(ctx, "mandoc"):
        return
    for page in pages:
        lint = subprocess.run(["mandoc", "-T", "lint", "-W", "error", page], capture_output=True, text=True, check=False)
        text = subprocess.run(["mandoc", "-T", "utf8", page], capture_output=True, text=True, check=False).stdout
        text = re.sub(".\b", "", text)
        ctx.report.check(
            f"{page.name} is without errors and has its parts", lint.returncode == 0 and "SYNOPSIS" in text, lint.stdout + text, quiet=True
        )
    whole = subprocess.run(["mandoc", "-T", "utf8", released.tree / "share/man/man1/settee.1"], capture_output=True, text=True, check=False).stdout
    ctx.report.check("examples keep their lines", re.search(r"^ +settee check \./data$", re.sub(".\b", "", whole), re.MULTILINE), whole)


def test_unit(ctx, released):
    if not has(ctx, "systemd-analyze"):
        return
    path = released.tree / "lib/systemd/system/settee.service"
    # Verified where the program is where it says.
    root = ctx.folder("unit")
    for place in ("usr/local/bin", "bin", "etc/systemd/system"):
        (root / place).mkdir(parents=True)
    shutil.copy(path, root / "etc/systemd/system/settee.service")
    for program in ("usr/local/bin/settee", "bin/sh"):
        (root / program).write_text("")
        (root / program).chmod(0o755)
    said = subprocess.run(["systemd-analyze", "verify", "--man=no", f"--root={root}", "settee.service"], capture_output=True, text=True, check=False)
    complaints = [line for line in said.stderr.splitlines() if "settee.service" in line and "not found" not in line]
    ctx.report.equal("systemd has nothing to say against the unit", complaints, [])
    command = ["systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE_MAX}", path]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    ctx.report.check("the unit may do little", said.returncode == 0, said.stdout[-300:] + said.stderr)


def test_debian_package(ctx, released):
    deb = released.made["deb"]
    if not ctx.report.check("there is a Debian package (scripts/setup.sh test installs debhelper)", deb):
        return
    field = lambda name: subprocess.run(["dpkg-deb", "--field", deb, name], capture_output=True, text=True, check=True).stdout.strip()
    version = subprocess.run([ctx.binary, "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]
    ctx.report.equal("its version is the program's", field("Version"), version)
    ctx.report.equal("its name says version and architecture", deb.name, f"settee_{version}_{field('Architecture')}.deb")
    for needed in ("libc6", "libstdc++6", "adduser"):
        ctx.report.check(f"it depends on {needed}", re.search(rf"(^|, ){re.escape(needed)}\b", field("Depends")), field("Depends"))
    control = ctx.root / "control"
    subprocess.run(["dpkg-deb", "--control", deb, control], check=True)
    ctx.report.equal("the configuration is a conffile", (control / "conffiles").read_text().split(), ["/etc/settee/settee.ini"])
    for script in ("config", "postinst", "prerm", "postrm"):
        ctx.report.check(f"{script} is a shell script", shell(f"sh -n {control / script}").returncode == 0)
    contents = subprocess.run(["dpkg-deb", "--contents", deb], capture_output=True, text=True, check=True).stdout
    wanted = [
        "-rwxr-xr-x root/root",
        "-rwxr-xr-x root/root",
        "-rw-r----- root/root",
        "-rw-r--r-- root/root",
        "-rw-r--r-- root/root",
        "-rw-r--r-- root/root",
    ]
    places = [
        "usr/bin/settee",
        "usr/bin/settee-bench",
        "etc/settee/settee.ini",
        "lib/systemd/system/settee.service",
        "usr/share/zsh/vendor-completions/_settee",
        "usr/share/man/man1/settee.1.gz",
    ]
    for mode, place in zip(wanted, places):
        ctx.report.check(f"/{place} is there: {mode}", re.search(rf"^{mode} .* \./{re.escape(place)}$", contents, re.MULTILINE), contents)
    if shutil.which("lintian"):
        said = subprocess.run(["lintian", "--allow-root", "--fail-on=error,warning", deb], capture_output=True, text=True, check=False)
        ctx.report.check("lintian finds nothing", said.returncode == 0, said.stdout)


def test_bench_is_a_program_of_its_own(ctx, released):
    report, listed = ctx.report, ["bench", "--list"]
    said = subprocess.run([released.tree / "bin/settee", *listed], capture_output=True, text=True, check=False)
    report.check("the tarball's settee starts the settee-bench beside it", said.returncode == 0 and "get_random" in said.stdout, said)
    alone = ctx.folder("alone")
    shutil.copy(released.tree / "bin/settee", alone)
    start = lambda path: subprocess.run([alone / "settee", *listed], capture_output=True, text=True, check=False, env={"PATH": path})
    said = start("/nowhere")
    report.check(
        "without it, the error says what is missing and where it is looked for",
        said.returncode == 1 and "settee-bench" in said.stderr and str(alone) in said.stderr and "PATH" in said.stderr,
        said,
    )
    said = start(f"/nowhere:{released.tree / 'bin'}")
    report.check("one in PATH is found", said.returncode == 0 and "get_random" in said.stdout, said)


def test_first_steps(ctx, released):
    """The steps of the manual, and how long a newcomer waits."""
    binary = released.tree / "bin/settee"
    with servers.Server(binary, ctx.root / "first", admin=None) as server:
        ctx.report.note(f"{server.start_seconds:.2f} s from the first start to the port")
        server.admin = "admin:" + (pathlib.Path(server.data) / "admin-password").read_text().strip()
        server.api().expect(201, "PUT", "/shop")
        health = lambda: subprocess.run([binary, "healthcheck", server.url], capture_output=True, text=True, check=False)
        ctx.report.equal("the health check of a server that serves", health().returncode, 0)
        server.api().expect(200, "PUT", "/_node/_local/_config/couchdb/maintenance_mode", "true")
        ctx.report.equal("of one in maintenance mode", health().returncode, 1)
        server.api().expect(200, "PUT", "/_node/_local/_config/couchdb/maintenance_mode", "false")
        server.api().expect(200, "PUT", "/_node/_local/_config/chttpd/require_valid_user", "true")
        said = health()
        ctx.report.check("of one that answers users only, with what to do", said.returncode == 1 and "SETTEE_CREDENTIALS" in said.stderr, said)
        os.environ["SETTEE_CREDENTIALS"] = server.admin
        try:
            ctx.report.equal("with a user", health().returncode, 0)
        finally:
            del os.environ["SETTEE_CREDENTIALS"]
        ctx.report.equal("SIGTERM ends it cleanly", server.stop(), 0)
        ctx.report.equal("the health check of none", health().returncode, 1)


def test_variables_of_couchdbs_image(ctx, released):
    binary, report = released.tree / "bin/settee", ctx.report
    start = [binary, "serve", "--data", ctx.root / "image-data", "--port", "0", "--couchdb-variables"]
    for variables, wanted in (
        ({}, "COUCHDB_USER=NAME"),
        ({"COUCHDB_USER": "alice"}, "COUCHDB_PASSWORD"),
        ({"COUCHDB_USER_FILE": "/nowhere"}, "/nowhere"),
    ):
        said = subprocess.run(start, capture_output=True, text=True, check=False, timeout=30, env={**os.environ, **variables})
        report.check(f"{variables or 'no variables'}: refused, with what is missing", said.returncode == 2 and wanted in said.stderr, said)
    report.check("nothing was made", not (ctx.root / "image-data").exists())
    secret = ctx.root / "password"
    secret.write_text("a secret\n")
    os.environ.update({"COUCHDB_USER": "Alice", "COUCHDB_PASSWORD_FILE": str(secret), "COUCHDB_SECRET": "of cookies"})
    try:
        with servers.Server(binary, ctx.root / "image-data", admin="other:x", options=["--couchdb-variables"]) as server:
            api = server.api(credentials="Alice:a secret")
            report.equal("the admin of the variables is one", api.expect(200, "GET", "/_session")["userCtx"], {"name": "Alice", "roles": ["_admin"]})
            report.equal("the secret is", api.expect(200, "GET", "/_node/_local/_config/chttpd_auth/secret"), "of cookies")
    finally:
        for name in ("COUCHDB_USER", "COUCHDB_PASSWORD_FILE", "COUCHDB_SECRET"):
            del os.environ[name]


# What an engine does with the image: read-only but for the volume and /tmp, a user without rights, process 1.
AS_IN_A_CONTAINER = """
set -e
root=$1 volume=$2; shift 2
mount --bind "$root" "$root"
mount --bind "$volume" "$root/var/lib/settee"
mount -o remount,ro,bind "$root"
mount -t tmpfs tmpfs "$root/tmp"
mount -t proc proc "$root/proc"
cd "$root"
exec chroot --userspec=5984:5984 "$root" /usr/bin/settee "$@"
"""


def test_image(ctx, released):
    report = ctx.report
    if os.geteuid() != 0:
        report.skip("the image's file system", "it needs root")
        return
    root, volume = ctx.root / "image", ctx.folder("volume")
    tarball = released.made["context"] / released.made["tarball"].name
    subprocess.run(["sh", released.made["context"] / "root.sh", tarball, root], check=True)
    os.chown(volume, 5984, 5984)
    volume.chmod(0o700)
    size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    report.note(f"the image's file system is {size / 1e6:.0f} MB")
    report.equal("there are two programs", sorted(path.name for path in (root / "usr/bin").iterdir()), ["settee", "settee-bench"])
    try_image(ctx, root, volume)


def try_image(ctx, root, volume):
    report = ctx.report
    port = free_port()
    inside = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", AS_IN_A_CONTAINER, "sh", root, volume]
    said = subprocess.run([*inside, "bench", "--list"], capture_output=True, text=True, check=False)
    report.check("the image's settee starts its settee-bench", said.returncode == 0 and "get_random" in said.stdout, said)
    command = [*inside, "serve", "--data", "/var/lib/settee", "--bind", "127.0.0.1", "--port", str(port), "--couchdb-variables"]
    log_path = ctx.root / "image.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={"PATH": os.environ["PATH"], "COUCHDB_USER": "alice", "COUCHDB_PASSWORD": "secret"},
        )
    servers.track(process)
    url = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + 60
    while subprocess.run([ctx.binary, "healthcheck", url], capture_output=True, check=False).returncode and time.monotonic() < deadline:
        time.sleep(0.05)
    api = Api(url, "alice:secret", 60)
    api.expect(201, "PUT", "/shop")
    api.expect(201, "PUT", "/shop/r1", {"n": 1})
    api.expect(201, "PUT", "/shop/_design/d", {"views": {"v": {"map": "function (doc) { emit(doc.n, 1); }"}}})
    report.equal("the image serves a view, read-only and as nobody in particular", api.expect(200, "GET", "/shop/_design/d/_view/v")["total_rows"], 1)
    children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    status = pathlib.Path(f"/proc/{children[0]}/status").read_text()
    report.equal("it runs as 5984", re.search(r"^Uid:\s+(\d+)", status, re.MULTILINE)[1], "5984")
    # Process 1 ignores signals that it has no handler for.
    os.kill(int(children[0]), signal.SIGTERM)
    try:
        code = process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        code = None
    servers.end(process)
    report.equal("SIGTERM ends it cleanly", code, 0)
    # The allocator's thread of a worker once complained without end where the user is not root.
    # On a busy machine requests may be slow.
    expected = ("INFO", "is listening", "WARN slow:")
    # The start prints where everything is.
    welcome = ("Settee ", "Interface ", "Admin ", "Data ", "Try ", "Check ")
    lines = [line.strip() for line in log_path.read_text(errors="replace").splitlines()]
    complaints = [line for line in lines if line and not line.startswith(welcome) and not any(part in line for part in expected)]
    report.equal("the log has no complaints", complaints[:5], [])


@pytest.mark.slow
def test_image_by_buildah(ctx, released):
    """The recipe itself, on the Debian of the tests, as there is no registry of images."""
    if not has(ctx, "buildah") or machine.missing():
        return
    environment = {**os.environ, "STORAGE_DRIVER": "vfs", "BUILDAH_ISOLATION": "chroot", "HOME": str(ctx.root)}
    storage = ["--root", ctx.root / "images", "--runroot", ctx.root / "images-run"]
    buildah = lambda *arguments: subprocess.run(
        ["buildah", *storage, *arguments], capture_output=True, text=True, check=True, env=environment, timeout=600
    ).stdout.strip()
    container = buildah("from", "scratch")
    base = machine.base(ctx)
    subprocess.run(["tar", "-xf", base, "-C", buildah("mount", container), "--exclude=./dev/*"], check=True)
    buildah("umount", container)
    buildah("commit", "--quiet", container, "debian-base")
    buildah("bud", "--pull-never", "--format=docker", "--build-arg=BASE=localhost/debian-base", "--tag=settee", released.made["context"])
    told = json.loads(buildah("inspect", "--type=image", "localhost/settee"))["Docker"]["config"]
    ctx.report.equal("the image's user", told["User"], "5984:5984")
    ctx.report.equal("its health check", told["Healthcheck"]["Test"], ["CMD", "/usr/bin/settee", "healthcheck"])
    container = buildah("from", "--pull-never", "localhost/settee")
    volume = ctx.folder("volume-of-buildah")
    os.chown(volume, 5984, 5984)
    volume.chmod(0o700)
    try_image(ctx, pathlib.Path(buildah("mount", container)), volume)
    buildah("rm", "--all")


# There is no pkill in a small Debian.
END_SERVERS = """
servers() { ls -l /proc/[0-9]*/exe 2>/dev/null | sed -n 's,.*/proc/\\([0-9]*\\)/exe -> .*/bin/settee$,\\1,p'; }
while [ -n "$(servers)" ]; do kill $(servers) 2>/dev/null; sleep 0.1; done
"""


@pytest.mark.slow
def test_steps_of_the_manual(ctx, released):
    """What stands in "Install", as pasted, in a Debian that has nothing of it."""
    report, missing = ctx.report, machine.missing()
    if missing or not released.made["deb"]:
        report.skip("the steps of Install", f"missing: {', '.join(missing) or 'the package'}")
        return
    page = (ctx.checkout / "docs/src/operations/install.md").read_text(encoding="utf-8")
    blocks = {
        title: re.findall(r"^```sh norun\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        for title, text in re.findall(r"^## (.*)\n((?s:.*?))(?=^## |\Z)", page, re.MULTILINE)
    }
    with machine.Machine(ctx, "by-package") as debian:
        shutil.copy(released.made["deb"], debian.root / "root")
        said = debian.run(f'cd; sudo() {{ "$@"; }}; set -e\n{blocks["Debian and Ubuntu"][0]}')
        report.check("the package, installed as the manual says, answers", '"vendor"' in said.stdout, said)
    with machine.Machine(ctx, "by-tarball") as debian:
        shutil.copy(released.made["tarball"], debian.root / "root")
        tried, asked, installed = blocks["The tarball"]
        debian.run(f"cd; set -e\n{tried.rstrip()} >/root/log 2>&1 &")
        debian.run("for i in $(seq 300); do [ -e /root/settee-*/data/admin-password ] && curl -s http://127.0.0.1:5984/_up && break; sleep 0.1; done")
        said = debian.run(f"cd /root/settee-*/; set -e\n{asked}")
        report.check("the tarball, tried as the manual says, makes a database", '"shop"' in said.stdout, said)
        debian.run(END_SERVERS)
        said = debian.run(f'cd /root/settee-*/; sudo() {{ "$@"; }}; set -e\n{installed}')
        report.check("it is installed for all as the manual says", said.returncode == 0 and len(said.stdout.strip()) > 10, said)
        active(report, debian, "installed of the tarball")
        said = debian.run("settee help serve | head -1; ls /usr/local/share/man/man1/settee.1 /usr/local/share/bash-completion/completions/settee")
        report.check("with pages and completions", said.returncode == 0, said)


@pytest.mark.slow
def test_life_of_a_package(ctx, released):
    """Installed, upgraded, removed, purged; a document is there all the time."""
    report, missing = ctx.report, machine.missing()
    older = make(ctx, "older", f"--version={OLDER}")
    if missing or not older or not released.made["deb"]:
        report.skip("a package's life", f"missing: {', '.join(missing) or 'the package'}")
        return
    with machine.Machine(ctx, "debian") as debian:
        debs = [shutil.copy(deb["deb"], debian.root / "root") for deb in (older, released.made)]
        old, new = (f"/root/{pathlib.Path(deb).name}" for deb in debs)
        said = debian.run(f"dpkg -i {old}")
        report.check("the older version is installed, and says where the password is", said.returncode == 0 and "admin-password" in said.stderr, said)
        active(report, debian, "installed")
        modes = debian.run("stat -c '%a %U %n' /var/lib/settee /var/lib/settee/admin-password /etc/settee/settee.ini").stdout.splitlines()
        report.equal(
            "who may read what", modes, ["700 settee /var/lib/settee", "600 settee /var/lib/settee/admin-password", "640 root /etc/settee/settee.ini"]
        )
        password = debian.run("cat /var/lib/settee/admin-password").stdout.strip()
        journal = debian.run("journalctl --unit settee").stdout
        report.check("the journal does not have the password", password and password not in journal, journal)
        ask(debian, "-X PUT", "shop")
        ask(debian, "-X PUT -d '{\"n\":1}'", "shop/r1")
        ask(debian, """-X PUT -d '{"views":{"v":{"map":"function(d){emit(d.n,1)}"}}}'""", "shop/_design/d")
        report.check("a view is built", '"total_rows":1' in ask(debian, "", "shop/_design/d/_view/v"))
        before = ask(debian, "", "shop/r1")
        report.check("a document is there", '"n":1' in before, before)
        debian.run("sed -i 's/^;port = .*/port = 5999/' /etc/settee/settee.ini; systemctl restart settee")
        active(report, debian, "with another port in settee.ini", port=5999)
        said = debian.run(f"dpkg -i {new}")
        report.check("the upgrade goes through, unasked", said.returncode == 0, said)
        active(report, debian, "upgraded, with its configuration", port=5999)
        report.equal("the document is there after the upgrade", ask(debian, "", "shop/r1", 5999), before)
        report.equal("the document is there after a reload", reloaded(debian), before)
        before_killed = debian.run("systemctl show --property=MainPID settee").stdout
        again = "for i in $(seq 100); do settee healthcheck http://127.0.0.1:5999 2>/dev/null && break; sleep 0.1; done"
        debian.run(f"systemctl kill --signal=KILL settee; while settee healthcheck http://127.0.0.1:5999 2>/dev/null; do sleep 0.1; done; {again}")
        active(report, debian, "killed, and started again", port=5999)
        report.check("it is another process", debian.run("systemctl show --property=MainPID settee").stdout != before_killed)
        restored(report, debian, before)
        journal = debian.run("journalctl --unit settee --boot").stdout
        report.check("the journal has no complaints of the allocator", "background thread" not in journal, journal[-2000:])
        said = debian.run("systemd-analyze verify --man=no settee.service && systemd-analyze security settee --no-pager | tail -1")
        report.check("systemd verifies the unit", said.returncode == 0 and not said.stderr, said)
        report.note(said.stdout.strip())
        report.check("it is removed", debian.run("dpkg --remove settee").returncode == 0)
        report.equal("removed, nothing runs", debian.run("ls -l /proc/[0-9]*/exe 2>/dev/null | grep -c bin/settee").stdout.strip(), "0")
        report.equal("and data and configuration stay", debian.run("ls -d /var/lib/settee/store /etc/settee/settee.ini | wc -l").stdout.strip(), "2")
        debian.run(f"dpkg -i {new}")
        active(report, debian, "installed again", port=5999)
        report.equal("the document is there when it is installed again", ask(debian, "", "shop/r1", 5999), before)
        said = debian.run("dpkg --purge settee")
        report.check("purged without an answer, it says that data stays", said.returncode == 0 and "stays in /var/lib/settee" in said.stderr, said)
        report.equal(
            "and so it does, without configuration",
            debian.run("ls -d /var/lib/settee/store /etc/settee 2>/dev/null").stdout.split(),
            ["/var/lib/settee/store"],
        )
        debian.run(f"dpkg -i {new}; echo settee settee/remove-data boolean true | debconf-set-selections")
        active(report, debian, "installed once more")
        said = debian.run("dpkg --purge settee")
        report.equal("purged with the answer, no data is left", debian.run("ls -d /var/lib/settee /etc/settee 2>/dev/null").stdout.split(), [])


def active(report, debian, when, port=5984):
    said = debian.run(f"systemctl is-active settee && settee healthcheck http://127.0.0.1:{port}")
    report.check(
        f"the service runs: {when}", said.returncode == 0, said.stdout + said.stderr + debian.run("journalctl --unit settee | tail -20").stdout
    )


def restored(report, debian, before):
    """Backed up to a folder that the unit names, and restored by root: the service has what it had."""
    backup = "settee backup http://admin:$(cat /var/lib/settee/admin-password)@127.0.0.1:5999 /backups"
    said = debian.run(f"install -d -o settee -m 0700 /backups; {backup}")
    report.check(
        "a backup to a folder that the unit does not name is refused, and it says why", said.returncode == 1 and "ReadWritePaths" in said.stderr, said
    )
    drop_in = "/etc/systemd/system/settee.service.d"
    debian.run(
        f"mkdir -p {drop_in}; printf '[Service]\nReadWritePaths=/backups\n' > {drop_in}/override.conf; systemctl daemon-reload; systemctl restart settee"
    )
    said = debian.run(f"{backup} && settee backup verify /backups")
    report.check("with the folder in the unit it is made", said.returncode == 0 and "whole" in said.stdout, said)
    said = debian.run("settee check /backups")
    report.check("a check of it says what to do", said.returncode == 2 and "settee backup verify" in said.stderr, said)
    ask(debian, "-X DELETE", "shop", 5999)
    said = debian.run(
        "systemctl stop settee && mv /var/lib/settee/store /var/lib/settee/store.before && settee restore /backups /var/lib/settee && systemctl start settee"
    )
    report.check("root restores it", said.returncode == 0, said)
    active(report, debian, "restored", port=5999)
    report.equal("what was deleted is there again", ask(debian, "", "shop/r1", 5999), before)


def ask(debian, options, path, port=5984):
    return debian.run(f"curl -s {options} http://admin:$(cat /var/lib/settee/admin-password)@127.0.0.1:{port}/{path}").stdout


def reloaded(debian):
    debian.run("systemctl reload settee")
    return ask(debian, "", "shop/r1", 5999)


def has(ctx, program):
    found = shutil.which(program)
    if not found:
        ctx.report.skip(program, "it is not installed (scripts/setup.sh test does)")
    return found


def shell(script):
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()
