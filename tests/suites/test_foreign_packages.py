"""The package for another architecture than this machine's, cross-built: read, installed in a small Debian of that architecture, and run
by qemu-user, which the kernel starts for its programs (binfmt_misc).

`make release-check ARCH=arm64` runs it, with the program for that architecture as the binary. qemu-user has neither seccomp nor Landlock.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from harness import machine
from harness import server as servers

pytestmark = [pytest.mark.on_disk, pytest.mark.slow]

EPOCH = 1_700_000_000
# By ELF's number of the machine: the kernel's name, Debian's name, the C library's loader.
ARCHITECTURES = {62: ("x86_64", "amd64", "/lib64/ld-linux-x86-64.so.2"), 183: ("aarch64", "arm64", "/lib/ld-linux-aarch64.so.1")}
# Of Debian 12.
GLIBC_MAX = (2, 36)
# Kernels for arm64 have pages of up to this size.
PAGE_BYTES_MAX = 64 << 10
DOCUMENTS = 200
ATTACHMENT = bytes(range(256)) * 1024
# Starts a program in the Debian. The process stays the same, so that it can be killed.
INSIDE = """#!/bin/sh
exec unshare --mount sh -c 'root=$1; shift; mount -t proc proc "$root/proc"; mount --bind /dev "$root/dev"; exec chroot "$root" "$@"' sh {root} {program} "$@"
"""


class Emulated:
    """The package, and a Debian with it installed."""

    def __init__(self, ctx):
        header = pathlib.Path(ctx.binary).read_bytes()[:20]
        self.machine, self.architecture, self.loader = ARCHITECTURES[int.from_bytes(header[18:20], "little")]
        self.reason = self.missing()
        if self.reason:
            return
        self.deb = self.package(ctx)
        self.root = ctx.folder("debian")
        subprocess.run(["tar", "-xf", machine.base(ctx, self.architecture), "-C", self.root, "--exclude=./dev/*"], check=True)
        shutil.copy(self.deb, self.root / "root")
        (self.root / "srv").mkdir(exist_ok=True)
        self.settee = self.program(ctx, "/usr/bin/settee")
        self.shell = self.program(ctx, "/bin/sh")

    def missing(self):
        """Why the program cannot be run, if it cannot."""
        if self.machine == os.uname().machine:
            return "the program is for this machine: `make release-check ARCH=arm64` builds and tests another"
        wanted = [name for name in ("mmdebstrap", "arch-test", "unshare") if not shutil.which(name)]
        if os.geteuid() != 0 or wanted:
            return f"it needs root, and: {', '.join(wanted)}"
        if subprocess.run(["arch-test", self.architecture], capture_output=True, check=False).returncode:
            return f"the kernel starts no qemu-user for {self.architecture} (Debian's qemu-user-static, binfmt_misc)"
        return None

    def package(self, ctx):
        out = ctx.root / "made"
        command = [sys.executable, ctx.checkout / "packaging/dist.py", "--binary", ctx.binary, "--quick", "--out", out]
        subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH)})
        return next(out.glob(f"*_{self.architecture}.deb"))

    def program(self, ctx, path):
        """A program inside, as one outside."""
        script = ctx.root / f"run-{path.rpartition('/')[2]}"
        script.write_text(INSIDE.format(root=self.root, program=path))
        script.chmod(0o755)
        return script

    def run(self, *command):
        return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)

    def server(self, ctx):
        return servers.Server(self.settee, "/srv/data", log_path=ctx.root / "server.log")


@pytest.fixture(scope="module")
def emulated(suite):
    return Emulated(suite)


def is_left_out(ctx, emulated):
    if emulated.reason:
        ctx.report.skip("a package for another architecture", emulated.reason)
    return emulated.reason is not None


def test_program_and_package(ctx, emulated):
    if is_left_out(ctx, emulated):
        return
    report, readelf = ctx.report, lambda *options: emulated.run("readelf", "--wide", *options, ctx.binary).stdout
    report.check("it is linked with that architecture's loader", f"[Requesting program interpreter: {emulated.loader}]" in readelf("-l"))
    versions = [tuple(map(int, version.split("."))) for version in re.findall(r"GLIBC_(2\.\d+)", readelf("--version-info"))]
    report.check("Debian 12's C library has all that it needs", versions and max(versions) <= GLIBC_MAX, max(versions, default=None))
    alignments = {int(line.split()[-1], 16) for line in readelf("-l").splitlines() if line.split()[:1] == ["LOAD"]}
    if emulated.architecture == "arm64":
        report.check("it can be loaded where pages are large", min(alignments) >= PAGE_BYTES_MAX, alignments)
    fields = emulated.run("dpkg-deb", "--field", emulated.deb, "Architecture", "Depends").stdout
    report.check("the package is for that architecture", f"Architecture: {emulated.architecture}\n" in fields, fields)
    folder = ctx.folder("extracted")
    emulated.run("dpkg-deb", "--extract", emulated.deb, folder)
    service = (folder / "lib/systemd/system/settee.service").read_text()
    report.check("its unit starts the program", "ExecStart=/usr/bin/settee serve" in service, service)
    report.equal(
        "the program in it is the one that was built", (folder / "usr/bin/settee").read_bytes() == pathlib.Path(ctx.binary).read_bytes(), True
    )


def test_life_of_a_server(ctx, emulated):
    """Installed, used, restarted, killed, checked."""
    if is_left_out(ctx, emulated):
        return
    report = ctx.report
    said = emulated.run(emulated.shell, "-c", f"DEBIAN_FRONTEND=noninteractive dpkg -i /root/{emulated.deb.name}")
    if not report.check("the package can be installed", said.returncode == 0, said):
        return
    with emulated.server(ctx) as server:
        use(report, server)
        report.equal("SIGTERM ends it cleanly", server.stop(), 0)
    confinement = re.findall(r"run without (.*?), which the kernel", server.log())
    report.equal("what qemu-user lacks is a warning", confinement, ["Landlock and seccomp"])
    with emulated.server(ctx) as server:
        report.equal("all is there after a restart", contents(server), expected())
        server.api().expect(201, "PUT", "/copy/last", {"n": -1})
        server.kill()
    with emulated.server(ctx) as server:
        report.equal("and after kill -9", contents(server), expected())
        report.equal("with what was acknowledged before it", server.api().expect(200, "GET", "/copy/last")["n"], -1)
        said = emulated.run(emulated.settee, "bench", "get_random", "single", "--url", authorized(server), "--scale", 0.01, "--seconds", 1)
        report.check("settee-bench measures it", said.returncode == 0 and "get_random" in said.stdout, said)
    said = emulated.run(emulated.settee, "check", "/srv/data")
    report.check("`settee check` finds nothing", said.returncode == 0, said)


def use(report, server):
    api = server.api()
    api.expect(201, "PUT", "/db")
    rows = api.expect(201, "POST", "/db/_bulk_docs", {"docs": documents()})
    report.equal("documents are written", [row.get("ok") for row in rows], [True] * DOCUMENTS)
    design = {
        "views": {"by": {"map": "function (doc) { emit([doc.kind, Math.sqrt(doc.n)], doc.n * 1.1); }", "reduce": "_stats"}},
        "nouveau": {"text": {"index": "function (doc) { index('text', 'words', doc.text); }"}},
    }
    api.expect(201, "PUT", "/db/_design/d", design)
    sent = api.request("PUT", "/db/d1/file?rev=" + rows[1]["rev"], ATTACHMENT, {"Content-Type": "application/octet-stream"})
    report.equal("an attachment is written", sent.status, 201)
    report.equal("all can be read", contents(server), expected())
    api.expect(201, "PUT", "/copy")
    replicated = api.expect(200, "POST", "/_replicate", {"source": authorized(server) + "/db", "target": authorized(server) + "/copy"})
    report.equal("documents are replicated", replicated["history"][0]["docs_written"], DOCUMENTS + 1)
    revs = [{row["id"]: row["value"]["rev"] for row in api.expect(200, "GET", f"/{name}/_all_docs")["rows"]} for name in ("db", "copy")]
    report.equal("the copy has the same revisions", *revs)


def documents():
    return [{"_id": f"d{n}", "n": n, "kind": n % 3, "text": f"{'even' if n % 2 == 0 else 'odd'} words", "double": n / 7} for n in range(DOCUMENTS)]


def contents(server):
    """What the server answers in each way of reading."""
    api = server.api()
    found = api.expect(200, "POST", "/db/_find", {"selector": {"n": {"$gte": 0}, "kind": 1}, "limit": DOCUMENTS})["docs"]
    return {
        "document": api.expect(200, "GET", "/db/d5")["double"],
        "rev": api.expect(200, "GET", "/db/d5")["_rev"],
        "view": api.expect(200, "GET", "/db/_design/d/_view/by?group_level=1")["rows"][2]["value"],
        "key": api.expect(200, "GET", "/db/_design/d/_view/by?reduce=false&limit=2")["rows"][1]["key"],
        "find": len(found),
        "search": api.expect(200, "GET", "/db/_design/d/_nouveau/text?q=words:odd")["total_hits"],
        "attachment": api.get("/db/d1/file").raw == ATTACHMENT,
    }


def expected():
    """As recorded of a server for amd64: the same revision, and the same numbers to the last digit."""
    return {
        "document": 0.7142857142857143,
        "rev": "1-cdb72ef6bb52e53217a6bccb5a5053f4",
        "view": {"sum": 7223.700000000001, "count": 66, "min": 2.2, "max": 216.70000000000002, "sumsqr": 1051476.6900000002},
        "key": [0, 1.7320508075688772],
        "find": len(range(1, DOCUMENTS, 3)),
        "search": DOCUMENTS // 2,
        "attachment": True,
    }


def authorized(server):
    return server.url.replace("http://", f"http://{server.admin}@")
