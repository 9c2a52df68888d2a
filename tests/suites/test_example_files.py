"""What is in examples/: each file of YAML is valid by its schema and names what is there, Prometheus runs with its configuration, and the
server runs as its containers have it: not as root, without capabilities, on a file system that it cannot write to. The suite `reverse_proxies` runs
the proxies' files."""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile

import pytest

from harness.prometheus import Prometheus, tool
from harness.server import Server, end_all, wait_until

pytestmark = [pytest.mark.on_disk, pytest.mark.may_be_retried]

COMPOSE, KUBERNETES, PROMETHEUS, GRAFANA = "compose/*/*.yaml", "kubernetes/*/*.yaml", "monitoring/*.yml", "monitoring/grafana/*/*.yml"
DASHBOARD = "crates/settee/monitoring/dashboard.json"
# Made by who runs the example, as it says.
MADE = {"./tls"}
READ_YAML = "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1])))))"
USER = 5984
# Only what is bound before can be written to then.
LOCKED = """
set -e
mount --make-rprivate /
mount --bind "$0" "$0"
mount -o remount,bind,ro /
for place in /tmp /var/tmp /dev/shm /root; do mountpoint -q $place && mount -o remount,bind,ro $place || true; done
cd /
exec setpriv --reuid {user} --regid {user} --clear-groups --no-new-privs --bounding-set -all --inh-caps -all "$@"
"""


def files(ctx, pattern):
    found = sorted((ctx.checkout / "examples").glob(pattern))
    assert found, f"no {pattern}"
    return found


def documents(ctx, path):
    """All documents of a file of YAML."""
    done = subprocess.run([schemas(ctx, "python"), "-c", READ_YAML, path], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise AssertionError(f"{path}: {done.stderr[-1000:]}")
    return json.loads(done.stdout)


def schemas(ctx, program):
    return ctx.cache / "schemas" / "bin" / program


def checked(ctx, what, command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120, check=False)
    ctx.report.check(what, done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:])


def name_of(ctx, path):
    return str(path.relative_to(ctx.checkout))


def test_every_file_is_of_a_kind(ctx):
    examples = ctx.checkout / "examples"
    there = {path for ending in ("yml", "yaml") for path in examples.rglob(f"*.{ending}")}
    known = {path for pattern in (COMPOSE, KUBERNETES, PROMETHEUS, GRAFANA) for path in files(ctx, pattern)}
    ctx.report.equal("there is no YAML that nothing looks at", there - known, set())


def test_compose_files(ctx):
    for path in files(ctx, COMPOSE):
        name = name_of(ctx, path)
        checked(ctx, f"{name} is of Compose's schema", [schemas(ctx, "check-jsonschema"), "--builtin-schema", "vendor.compose-spec", path])
        (file,) = documents(ctx, path)
        missing, unknown = [], []
        for service in file["services"].values():
            volumes = [volume.split(":")[0] for volume in service.get("volumes", [])]
            missing += [at for at in volumes if at.startswith(".") and at not in MADE and not (path.parent / at).exists()]
            unknown += [at for at in volumes if not at.startswith(".") and at not in file["volumes"]]
            unknown += [needed for needed in service.get("depends_on", {}) if needed not in file["services"]]
        ctx.report.equal(f"{name}: what it mounts and needs is there", (missing, unknown), ([], []))


def test_manifests(ctx):
    for path in files(ctx, KUBERNETES):
        name = name_of(ctx, path)
        checked(ctx, f"{name} is of Kubernetes' schemas", [schemas(ctx, "kubernetes-validate"), "--strict", path])
        every = documents(ctx, path)
        of_kind = lambda kind: [one for one in every if one["kind"] == kind]
        maps, services = ({one["metadata"]["name"] for one in of_kind(kind)} for kind in ("ConfigMap", "Service"))
        for one in of_kind("StatefulSet"):
            spec, pod = one["spec"], one["spec"]["template"]["spec"]
            labels = one["spec"]["template"]["metadata"]["labels"]
            volumes = {volume["name"] for volume in pod["volumes"] + [claim | claim["metadata"] for claim in spec["volumeClaimTemplates"]]}
            containers = pod["containers"] + pod.get("initContainers", [])
            mounted = {mount["name"] for container in containers for mount in container["volumeMounts"]}
            ports = {port["name"] for port in pod["containers"][0]["ports"]}
            probes = [pod["containers"][0][f"{which}Probe"] for which in ("startup", "readiness", "liveness")]
            probed = {(probe.get("httpGet") or probe["tcpSocket"])["port"] for probe in probes}
            locked = [container["securityContext"] for container in containers]
            sound = {
                "its service": spec["serviceName"] in services,
                "its labels": spec["selector"]["matchLabels"].items() <= labels.items(),
                "its volumes": mounted == volumes,
                "its settings": all(volume["configMap"]["name"] in maps for volume in pod["volumes"]),
                "its probes": probed <= ports,
                "not root": pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] == USER,
                "locked": all(
                    each["readOnlyRootFilesystem"] and not each["allowPrivilegeEscalation"] and each["capabilities"] == {"drop": ["ALL"]}
                    for each in locked
                ),
            }
            ctx.report.equal(f"{name}: {one['metadata']['name']} is whole", [what for what, right in sound.items() if not right], [])


def test_grafana(ctx):
    """Grafana itself is not among Debian's packages: what it is told is only compared with where things are."""
    report = ctx.report
    (compose,) = documents(ctx, ctx.checkout / "examples" / "compose" / "monitoring" / "compose.yaml")
    mounts = dict(volume.split(":")[:2] for volume in compose["services"]["grafana"]["volumes"])
    (source,), (provider,) = (documents(ctx, path)[0][key] for path, key in zip(files(ctx, GRAFANA)[::-1], ("datasources", "providers"), strict=True))
    dashboard = next(inside for outside, inside in mounts.items() if outside.endswith(DASHBOARD))
    report.equal("Grafana looks for dashboards where the dashboard is", os.path.dirname(dashboard), provider["options"]["path"])
    variables = json.loads((ctx.checkout / DASHBOARD).read_text())["templating"]["list"]
    report.check("the data source is of the kind that the dashboard wants", source["type"] in [each.get("query") for each in variables], source)
    report.check("and is a service", source["url"].split("//")[1].split(":")[0] in compose["services"], source["url"])


def test_settings_exist(ctx):
    known, section = set(), None
    for line in (ctx.checkout / "default.ini").read_text().splitlines():
        if begin := re.fullmatch(r"\[(\w+)\]", line):
            section = begin.group(1)
        elif key := re.match(r";?([\w.|*-]+) =", line):
            known.add((section, key.group(1)))
    text = {path: path.read_text() for pattern in (COMPOSE, KUBERNETES) for path in files(ctx, pattern)}
    named = {name for each in text.values() for name in re.findall(r"\bSETTEE_([A-Z_]+):", each)} - {"CREDENTIALS", "IMAGE"}
    variables = {f"{section}_{key}".upper() for section, key in known}
    ctx.report.check("variables of the environment are settings", named and named <= variables, named - variables)
    for path in files(ctx, KUBERNETES):
        (settings,) = (one["data"]["settings.ini"] for one in documents(ctx, path) if one["kind"] == "ConfigMap")
        section, unknown = None, []
        for line in settings.splitlines():
            if begin := re.fullmatch(r"\[(\w+)\]", line):
                section = begin.group(1)
            elif (key := re.match(r";?(\w+) =", line)) and (section, key.group(1)) not in known:
                unknown.append((section, key.group(1)))
        ctx.report.equal(f"{name_of(ctx, path)}: so are those of its ConfigMap", unknown, [])


def test_prometheus(ctx):
    (path,) = files(ctx, PROMETHEUS)
    checked(ctx, "promtool check config is content", [tool(ctx, "promtool"), "check", "config", "--syntax-only", path])
    options = ["--set", "prometheus/additional_port=true", "--set", "prometheus/port=0"]
    with ctx.server("scraped", options=options) as server:
        host = re.search(r"Prometheus finds numbers on http://([\d.]+:\d+)/", server.log())
        text = path.read_text().replace("15s", "1s").replace("settee:17986", host.group(1))
        text = text.replace("/etc/prometheus/settee-alerts.yml", str(ctx.checkout / "crates/settee/monitoring/alerts.yml"))
        running = Prometheus(ctx, server, text=text)
        up = wait_until(lambda: [value for _, value in running.query('up{job="settee"}')] == [1.0], 30)
        ctx.report.check("Prometheus scrapes the server by the example", up, running.query("up"))
        ctx.report.check("with the rules of the program", "SetteeDown" in running.rules(), running.rules())
        running.end()


class Locked(Server):
    """A server as its containers have it: a user without rights, and one folder that can be written to."""

    def start(self):
        os.makedirs(self.data)
        os.chown(self.data, USER, USER)
        os.chmod(self.data, 0o700)
        self.binary = str(self.wrapper(["unshare", "--mount", "bash", "-c", LOCKED.format(user=USER), self.data, self.binary]))
        return super().start()

    def wrapper(self, command):
        """A script that starts the server so, and becomes it."""
        path = pathlib.Path(self.data + ".sh")
        path.write_text("#!/bin/sh\nexec " + " ".join(shlex.quote(part) for part in command) + ' "$@"\n')
        path.chmod(0o755)
        return path


def test_locked_in(ctx):
    """What `read_only`, `cap_drop`, `no-new-privileges` and a user id do, and Kubernetes' securityContext."""
    report = ctx.report
    if os.geteuid() != 0:
        report.skip("the server as containers have it", "needs root")
        return
    # Where a user without rights can come.
    with tempfile.TemporaryDirectory(prefix="settee-locked-") as folder:
        os.chmod(folder, 0o755)
        program = shutil.copy(ctx.binary, folder)
        server = Locked(program, pathlib.Path(folder) / "data")
        try:
            api = server.start().api()
            status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
            held = {name: re.search(rf"{name}:\t(\S+)", status).group(1) for name in ("Uid", "CapEff", "CapBnd", "NoNewPrivs")}
            report.equal("it has no rights", held, {"Uid": str(USER), "CapEff": "0" * 16, "CapBnd": "0" * 16, "NoNewPrivs": "1"})
            mounts = pathlib.Path(f"/proc/{server.process.pid}/mountinfo").read_text().splitlines()
            root = next(line.split()[5] for line in mounts if line.split()[4] == "/")
            report.check("its root cannot be written to", "ro" in root.split(","), root)
            api.expect(201, "PUT", "/db")
            api.expect(201, "POST", "/db/_bulk_docs", {"docs": [{"_id": str(number), "n": number} for number in range(200)]})
            attached = api.put("/db/attached/file", b"x" * 5_000_000, headers={"Content-Type": "application/octet-stream"})
            views = {"v": {"map": "function (doc) { if (doc.n) emit(doc.n, 1); }", "reduce": "_count"}}
            api.expect(201, "PUT", "/db/_design/d", {"views": views, "shows": {"s": "function () { return 'shown'; }"}})
            api.expect(200, "POST", "/db/_index", {"index": {"fields": ["n"]}})
            found = (
                attached.status,
                api.get("/db/_design/d/_view/v").json["rows"],
                api.get("/db/_design/d/_show/s").raw,
                len(api.post("/db/_find", {"selector": {"n": {"$gt": 100}}, "limit": 500}).json["docs"]),
                api.request("PUT", "/_node/_local/_config/log/level", "warn").status,
                api.post("/_replicate", {"source": "db", "target": "copy", "create_target": True}).json.get("ok"),
                api.post("/db/_compact").status,
            )
            report.equal("and it does all that it does elsewhere", found, (201, [{"key": None, "value": 199}], b"shown", 99, 200, True, 202))
            report.equal("it stops cleanly", server.stop(), 0)
            problems = [line for line in server.log().splitlines() if "ERROR" in line or "Read-only" in line or "denied" in line]
            report.equal("without complaints in its log", problems, [])
        finally:
            end_all()
