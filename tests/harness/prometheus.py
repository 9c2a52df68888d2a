"""Prometheus' text form, and Debian's Prometheus itself, which scrapes a server."""

import json
import pathlib
import re
import subprocess
import tempfile
import urllib.parse
import urllib.request

from harness.server import end, track, wait_until
from ports import free_port

SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Metrics:
    """What a server tells: `types` and `helps` by metric, `samples` by name and labels."""

    def __init__(self, text):
        self.text, self.types, self.helps, self.samples, self.doubled = text, {}, {}, {}, []
        for line in text.splitlines():
            if line.startswith("# "):
                _, kind, name, rest = line.split(" ", 3)
                table = self.types if kind == "TYPE" else self.helps
                if name in table:
                    self.doubled.append(line)
                table[name] = rest
                continue
            name, labels, value = SAMPLE.match(line).groups()
            key = (name, *sorted(LABEL.findall(labels or "")))
            if key in self.samples:
                self.doubled.append(line)
            self.samples[key] = float(value)

    def __call__(self, name, **labels):
        """The sum of the samples that have these labels."""
        wanted = set(labels.items())
        return sum(value for key, value in self.samples.items() if key[0] == name and wanted <= set(key[1:]))

    def by(self, name, label):
        found = {}
        for key, value in self.samples.items():
            if key[0] == name:
                of = dict(key[1:])[label]
                found[of] = found.get(of, 0) + value
        return found


def metrics(api):
    return Metrics(api.get("/_node/_local/_prometheus").raw.decode())


def tool(ctx, name):
    return str(pathlib.Path(ctx.cache) / "prometheus" / "usr" / "bin" / name)


class Prometheus:
    """Debian's Prometheus, that scrapes one server each second, or does what the text of a configuration says."""

    def __init__(self, ctx, server, rules=None, text=None):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="prometheus-", dir=ctx.root))
        # JSON is YAML.
        (folder / "prometheus.yml").write_text(text or json.dumps(self._config(server, rules)))
        self._start(ctx, folder)

    def _config(self, server, rules):
        host = server.url.removeprefix("http://")
        name, password = server.admin.split(":", 1)
        return {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "scrape_configs": [
                {
                    "job_name": "settee",
                    "metrics_path": "/_node/_local/_prometheus",
                    "basic_auth": {"username": name, "password": password},
                    "static_configs": [{"targets": [host]}],
                }
            ],
            "rule_files": [str(rules)] if rules else [],
        }

    def _start(self, ctx, folder):
        log_path = folder / "log"
        port = free_port()
        command = [
            tool(ctx, "prometheus"),
            f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        with open(log_path, "wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        track(self.process)
        self.url = f"http://127.0.0.1:{port}"
        if not wait_until(self._is_ready, 30):
            raise AssertionError(log_path.read_text()[-2000:])

    def _is_ready(self):
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    def rules(self):
        """The names of the rules that it evaluates."""
        with urllib.request.urlopen(f"{self.url}/api/v1/rules", timeout=10) as answer:
            groups = json.load(answer)["data"]["groups"]
        return [rule["name"] for group in groups for rule in group["rules"]]

    def query(self, expression):
        """Values by labels, now."""
        url = f"{self.url}/api/v1/query?query={urllib.parse.quote(expression)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                found = json.load(answer)["data"]["result"]
        except OSError:
            return []
        return [(of["metric"], float(of["value"][1])) for of in found]

    def end(self):
        end(self.process)
