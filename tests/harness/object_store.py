"""A server that speaks S3, for backups: SeaweedFS, which scripts/setup.sh installs from a Python package.

store = ObjectStore(ctx).start()     # or None, where it is not installed
store.url, store.environment         # what a client needs
store.stop()
"""

import json
import os
import subprocess
import urllib.error
import urllib.request

from harness.server import end, track, wait_until
from ports import free_ports

START_S = 60
KEY, SECRET = "settee-tests", "a-secret-of-the-tests"


class ObjectStore:
    def __init__(self, ctx, name="objects"):
        self.program = ctx.cache / "seaweedfs" / "bin" / "weed"
        self.folder = ctx.folder(name)
        self.process = None

    def is_installed(self):
        return os.access(self.program, os.X_OK)

    def start(self):
        keys = self.folder / "keys.json"
        identity = {
            "name": "tests",
            "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
        keys.write_text(json.dumps({"identities": [identity]}))
        (self.folder / "data").mkdir(exist_ok=True)
        names = ("master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc", "s3.port", "s3.port.grpc")
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))
        options = [f"-{name}={port}" for name, port in self.ports.items()]
        # Volumes are 30 GB large otherwise, as if they were there.
        options += ["-s3.port.iceberg=0", "-s3.port.lance=0", "-master.volumeSizeLimitMB=256", "-volume.max=100"]
        command = [self.program, "server", f"-dir={self.folder}/data", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3", f"-s3.config={keys}", *options]
        with open(self.folder / "log", "wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder)
        track(self.process)
        self.url = f"http://127.0.0.1:{self.ports['s3.port']}"
        if not wait_until(self._answers, START_S, 0.1):
            raise RuntimeError(f"no answer at {self.url}: {(self.folder / 'log').read_text()[-2000:]}")
        return self

    def environment(self, url=None, secret=SECRET):
        return {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": secret, "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": url or self.url}

    def bucket(self, name):
        """A new bucket, made by its shell."""
        place = {part: f"127.0.0.1:{self.ports[f'{part}.port']}.{self.ports[f'{part}.port.grpc']}" for part in ("master", "filer")}
        command = [self.program, "shell", f"-master={place['master']}", f"-filer={place['filer']}"]
        made = subprocess.run(command, input=f"s3.bucket.create -name {name}\n", capture_output=True, text=True, timeout=60, check=False)
        if "create bucket" not in made.stdout + made.stderr:
            raise RuntimeError(f"{made.stdout}{made.stderr}")

    def stop(self):
        end(self.process)

    def _answers(self):
        try:
            with urllib.request.urlopen(self.url, timeout=5) as answer:
                return answer.status < 500
        except urllib.error.HTTPError as error:
            return error.code == 403
        except OSError:
            return False
