"""nginx, HAProxy and Caddy with the files of examples/proxies, in which only ports, certificates, addresses of servers, and how often and how
patiently health checks ask are others."""

import os
import pathlib
import platform
import re
import socket
import subprocess
import tempfile

from harness.server import end, track, wait_until
from ports import free_port

READY_S = 20
# A server that a busy machine holds up is not down.
HEALTH_TIMEOUT = "20s"
KINDS = ("nginx", "haproxy", "caddy")
WHOLE, BELOW = "whole", "below"
# By kind and by what a file shows: its name, and how often it names a server.
FILES = {
    ("nginx", WHOLE): "nginx/settee.conf",
    ("nginx", BELOW): "nginx/below-a-path.conf",
    ("haproxy", WHOLE): "haproxy/haproxy.cfg",
    ("haproxy", BELOW): "haproxy/below-a-path.cfg",
    ("caddy", WHOLE): "caddy/Caddyfile",
    ("caddy", BELOW): "caddy/below-a-path.Caddyfile",
}
HOSTS = {WHOLE: "db.example", BELOW: "www.example"}
# What every machine knows stands for both: curl, browsers and replications look names up.
HOST = "localhost"
PREFIXES = {WHOLE: "", BELOW: "/db"}
# How long a server that failed is left alone, and how often it is looked at. nginx knows whole seconds only.
HASTE = {"nginx": "1s", "haproxy": "300ms", "caddy": "300ms"}
# nginx without a site: what Debian's file says, as far as it is about this, in one folder. Its temporary folders are taken away once it runs:
# what would be written to disk fails.
NGINX = """
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
worker_processes 1;
events {{ worker_connections 1024; }}
http {{
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    access_log off;
    gzip on;
    include {site};
}}
"""
CADDY = "{{\n\tadmin off\n\tauto_https disable_redirects\n\tstorage file_system {folder}/storage\n}}\n\n"


class Proxy:
    """One of them, before servers at these ports of 127.0.0.1; the first stands where the file names one."""

    def __init__(self, ctx, kind, form, certificate, ports):
        self.kind, self.form, self.certificate = kind, form, certificate
        self.host, self.prefix = HOSTS[form], PREFIXES[form]
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"{kind}-", dir=ctx.root))
        self.port = free_port()
        self.root = pathlib.Path(ctx.cache) / "proxies"
        text = (ctx.checkout / "examples" / "proxies" / FILES[kind, form]).read_text()
        self.config = self.folder / "config"
        # Servers that the file names and that do not run.
        self.absent = 0
        self.config.write_text(self.fitted(text, ports))
        self.log_path = self.folder / "log"

    @property
    def url(self):
        return f"https://{HOST}:{self.port}{self.prefix}"

    def fitted(self, text, ports):
        text = getattr(self, f"fitted_{self.kind}")(text, ports)
        # They look more often, for a test that does not wait long.
        return re.sub(r"(inter |fail_timeout=|health_interval |fail_duration )\d+s", lambda found: found.group(1) + HASTE[self.kind], text)

    def fitted_nginx(self, text, ports):
        cert, key = self.certificate
        text = replaced(text, f"server_name {self.host}", f"server_name {HOST}")
        text = replaced(text, "listen 443 ssl http2", f"listen 127.0.0.1:{self.port} ssl http2")
        text = replaced(text, f"/etc/nginx/tls/{self.host}.pem", str(cert))
        text = replaced(text, f"/etc/nginx/tls/{self.host}-key.pem", str(key))
        for number, port in enumerate(ports, 1):
            # The lines for a cluster's further nodes are comments.
            text = re.sub(rf"(?:# )?server 127\.0\.0\.{number}:5984", f"server 127.0.0.1:{port}", text)
        return text

    def fitted_haproxy(self, text, ports):
        # Certificate and key in one file.
        joint = self.folder / "joint.pem"
        joint.write_bytes(b"".join(path.read_bytes() for path in self.certificate))
        text = replaced(text, f"bind :443 ssl crt /etc/haproxy/tls/{self.host}.pem", f"bind 127.0.0.1:{self.port} ssl crt {joint}")
        text = replaced(text, "timeout connect 2s", f"timeout connect 2s\n    timeout check {HEALTH_TIMEOUT}")
        servers = iter([*ports, *[1] * 3])
        text = re.sub(r"(server \w+ )(?:10\.59\.84\.1|127\.0\.0\.)\d:5984", lambda found: f"{found.group(1)}127.0.0.1:{next(servers)}", text)
        self.absent = len(re.findall(r"server \w+ 127\.0\.0\.1:1\b", text))
        return text

    def fitted_caddy(self, text, ports):
        cert, key = self.certificate
        text = replaced(text, f"\n{self.host} {{", f"\nhttps://{HOST}:{self.port} {{\n\tbind 127.0.0.1")
        text = replaced(text, f"tls /etc/caddy/tls/{self.host}.pem /etc/caddy/tls/{self.host}-key.pem", f"tls {cert} {key}")
        text = replaced(text, "reverse_proxy 127.0.0.1:5984", f"reverse_proxy 127.0.0.1:{ports[0]}")
        text = replaced(text, "health_timeout 2s", f"health_timeout {HEALTH_TIMEOUT}")
        if len(ports) > 1:
            more = " ".join(f"127.0.0.1:{port}" for port in ports[1:])
            text = replaced(text, "# to 127.0.0.2:5984 127.0.0.3:5984", f"to {more}")
        return CADDY.format(folder=self.folder) + text

    def command(self):
        if self.kind == "nginx":
            main = self.folder / "nginx.conf"
            main.write_text(NGINX.format(folder=self.folder, site=self.config))
            return [self.root / "usr/sbin/nginx", "-c", main, "-p", self.folder, "-e", self.folder / "error.log"]
        if self.kind == "haproxy":
            return [self.root / "usr/sbin/haproxy", "-db", "-f", self.config]
        return [self.root / "usr/bin/caddy", "run", "--adapter", "caddyfile", "--config", self.config]

    def start(self):
        environment = {
            **os.environ,
            "LD_LIBRARY_PATH": str(self.root / f"usr/lib/{platform.machine()}-linux-gnu"),
            "HOME": str(self.folder),
            "XDG_CONFIG_HOME": str(self.folder),
        }
        with open(self.log_path, "ab") as log:
            command = [str(part) for part in self.command()]
            # In the foreground, and ended as a whole: nginx has a worker.
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, cwd=self.folder)
        track(self.process)
        if not wait_until(self.is_ready, READY_S):
            raise AssertionError(f"{self.kind} does not start: {self.log()}")
        if self.kind == "nginx":
            for name in ("body", "proxy"):
                (self.folder / name).rmdir()
        return self

    def is_ready(self):
        """HAProxy believes that all servers are there at first, and ends requests that wait for one when it notices that it is not."""
        down = set(re.findall(r"Server (\S+) is DOWN", self.log()))
        return self.is_listening() and len(down) >= self.absent

    def is_listening(self):
        if self.process.poll() is not None:
            raise AssertionError(f"{self.kind} ended with {self.process.returncode}: {self.log()}")
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def log(self):
        logs = [self.log_path, self.folder / "error.log"]
        return "".join(path.read_text(errors="replace")[-3000:] for path in logs if path.exists())

    def memory_mb(self, which):
        """Of all its processes: `VmRSS`, or at most, `VmHWM`."""
        return sum(memory_mb(pid, which) for pid in [self.process.pid, *children(self.process.pid)])

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            for pid in children(self.process.pid):
                os.kill(pid, 9)
        end(self.process)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()


def children(pid):
    return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def memory_mb(pid, which):
    fields = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(rf"{which}:\s+(\d+)", fields).group(1)) / 1024


def replaced(text, old, new):
    """An example that says something else than it did is noticed."""
    if old not in text:
        raise AssertionError(f"the example does not have {old!r} any more")
    return text.replace(old, new)
