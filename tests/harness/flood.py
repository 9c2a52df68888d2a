"""Many clients that send one request again and again, in a process of their own: those of a test are not slowed by them.

Time is what the server says that it took (`Server-Timing`): a client's own says more about how busy the machine is.
"""

import http.client
import json
import pathlib
import statistics
import subprocess
import sys
import threading

from harness.api import basic


def server_ms(header):
    """How long the server took until the head of its answer was made."""
    total = next(part for part in header.split(",") if part.strip().startswith("total"))
    return float(total.split("dur=")[1])


class Flood:
    """So many clients of a server, from when each has had an answer until the block ends."""

    def __init__(self, server, path, body, clients):
        self.request = {
            "port": int(server.url.rsplit(":", 1)[1]),
            "headers": {"Authorization": basic(server.admin), "Content-Type": "application/json"},
        }
        self.request |= {"path": path, "body": json.dumps(body), "clients": clients}

    def __enter__(self):
        tests = pathlib.Path(__file__).parents[1]
        command = [sys.executable, "-m", "harness.flood"]
        self.process = subprocess.Popen(command, cwd=tests, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process.stdin.write(json.dumps(self.request) + "\n")
        self.process.stdin.flush()
        if self.process.stdout.readline() != "begun\n":
            self.process.kill()
            raise RuntimeError("the flood did not begin")
        return self

    def __exit__(self, *_):
        said, _ = self.process.communicate()
        answered = json.loads(said)
        self.statuses, self.median_ms, self.answers = set(answered["statuses"]), answered["median_ms"], answered["answers"]


def main():
    request = json.loads(sys.stdin.readline())
    stop, answered, times = threading.Event(), [], []
    begun = [threading.Event() for _ in range(request["clients"])]

    def client(has_begun):
        connection = http.client.HTTPConnection("127.0.0.1", request["port"])
        while not stop.is_set():
            connection.request("POST", request["path"], request["body"], request["headers"])
            answer = connection.getresponse()
            answer.read()
            answered.append(answer.status)
            times.append(server_ms(answer.headers["Server-Timing"]))
            has_begun.set()

    threads = [threading.Thread(target=client, args=(event,)) for event in begun]
    for thread in threads:
        thread.start()
    for event in begun:
        event.wait()
    print("begun", flush=True)
    # Until the test closes its end.
    sys.stdin.read()
    stop.set()
    for thread in threads:
        thread.join()
    print(json.dumps({"statuses": sorted(set(answered)), "median_ms": statistics.median(times), "answers": len(answered)}))


if __name__ == "__main__":
    main()
