#!/usr/bin/env python3
"""Kafka brokers for tests and for trying a cluster: processes on this machine, on 127.0.0.1 alone. Not for anybody's data.

usage: brokers.py [--brokers N] [--port FIRST] [--data DIR] [--control PORT]

Runs until SIGINT or SIGTERM, and starts a broker again that died. What it needs (a Java runtime, Maven) is installed from
Debian's packages when it is missing; Kafka itself is fetched once, into $SETTEE_CACHE/kafka.
"""

import argparse
import concurrent.futures
import ctypes
import fcntl
import os
import pathlib
import shutil
import signal
import socketserver
import subprocess
import sys
import tempfile
import threading
import time

from ports import free_ports

KAFKA = "4.1.0"
LOGGER = "1.7.36"
CLUSTER_ID = "c2V0dGVlLWJyb2tlcnM0MQ"
READY_TIMEOUT_S = 90
STOP_TIMEOUT_S = 30
TOOL_TIMEOUT_S = 60
HEAP = "-Xmx256m"
PR_SET_PDEATHSIG = 1
# Said by a broker when it serves.
READY = "Kafka Server started"

POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>settee</groupId>
  <artifactId>brokers</artifactId>
  <version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{KAFKA}</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{KAFKA}</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>{LOGGER}</version></dependency>
  </dependencies>
</project>
"""


def cache():
    return pathlib.Path(os.environ.get("SETTEE_CACHE") or pathlib.Path.home() / ".cache" / "settee")


def ensure_packages():
    """Installs what is missing of a Java runtime and Maven, as scripts/setup.sh does for other things."""
    missing = [package for program, package in (("java", "default-jre-headless"), ("mvn", "maven")) if not shutil.which(program)]
    if not missing:
        return
    if not shutil.which("apt-get"):
        sys.exit(f"brokers: please install: {' '.join(missing)}")
    root = [] if os.geteuid() == 0 else ["sudo"]
    print(f"brokers: installing {' '.join(missing)}", file=sys.stderr, flush=True)
    quiet = {"stdin": subprocess.DEVNULL, "stdout": sys.stderr, "check": True}
    subprocess.run([*root, "apt-get", "update", "-qq"], **quiet)
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing]
    subprocess.run([*root, "env", "DEBIAN_FRONTEND=noninteractive", *install], **quiet)


def ensure_kafka():
    """The folder with Kafka's jars; fetched when it is not there."""
    home = cache() / "kafka" / KAFKA
    if home.is_dir():
        return home
    home.parent.mkdir(parents=True, exist_ok=True)
    # Two runs of Maven at the same time damage its repository.
    with open(home.parent / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not home.is_dir():
            ensure_packages()
            fetch(home)
    return home


def fetch(home):
    with tempfile.TemporaryDirectory(dir=home.parent) as work:
        print(f"brokers: fetching Kafka {KAFKA} into {home}, once for this machine (54 MB)", file=sys.stderr, flush=True)
        pathlib.Path(work, "pom.xml").write_text(POM, encoding="utf-8")
        subprocess.run(
            ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=jars"],
            cwd=work,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            check=True,
        )
        # Renamed last, so that an interrupted run leaves nothing that looks finished.
        os.rename(pathlib.Path(work, "jars"), home)


def java(main, *arguments, options=()):
    jars = ensure_kafka()
    return ["java", *options, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{jars}/*", main, *map(str, arguments)]


# The kernel ends a broker with the thread that started it: so it is one that lives as long as this process.
_spawner = concurrent.futures.ThreadPoolExecutor(1)


def die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Process:
    """A process of one's own with a log beside its folder, which is ready once it says so there."""

    KIND, READY, READY_TIMEOUT_S = "", "", 60

    def __init__(self, number, folder):
        self.number, self.folder = number, folder
        self.log_path = folder.with_suffix(".log")
        self.process = None
        self.is_wanted = False
        self.log_start = 0

    def log(self):
        """What this start has written."""
        with open(self.log_path, "rb") as log:
            log.seek(self.log_start)
            return log.read().decode("utf-8", "replace")

    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def wait_until_ready(self):
        deadline = time.monotonic() + self.READY_TIMEOUT_S
        while self.READY not in self.log():
            if not self.is_running():
                raise RuntimeError(f"{self.KIND} {self.number} ended with {self.process.returncode}:\n{self.log()[-2000:]}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.KIND} {self.number} is not ready within {self.READY_TIMEOUT_S} s:\n{self.log()[-2000:]}")
            time.sleep(0.02)

    def end(self, how):
        """Returns the exit code."""
        self.is_wanted = False
        if self.is_running():
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(how)
            try:
                self.process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
        return self.process.wait() if self.process is not None else None


class Broker(Process):
    """One broker, which is a controller too."""

    KIND, READY, READY_TIMEOUT_S = "broker", READY, READY_TIMEOUT_S

    def __init__(self, number, port, folder, door=None):
        super().__init__(number, folder)
        self.port, self.door = port, door

    def start(self):
        options = [
            HEAP,
            "-Xms64m",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
        ]
        with open(self.log_path, "ab") as log:
            self.log_start = log.tell()
            self.process = _spawner.submit(
                subprocess.Popen,
                java("kafka.Kafka", self.folder.with_suffix(".properties"), options=options),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent,
            ).result()
        self.is_wanted = True


class Brokers:
    """`count` brokers with their data below `directory`, which outlives them. Numbers of brokers begin at 1, as their ids do.

    `doors` are ports of proxies, one a broker: a broker has one more listener then, at its `behind_door`, which says that it is
    to be found at its door. So clients that begin at `door_addresses` always come through the proxies.
    """

    def __init__(self, count, directory, first_port=None, doors=None):
        self.directory = pathlib.Path(directory).resolve()
        if count:
            self.directory.mkdir(parents=True, exist_ok=True)
        ports = list(range(first_port, first_port + 2 * count)) if first_port else free_ports(2 * count)
        self.controllers = ports[count:]
        doors = doors or [None] * count
        self.brokers = {at + 1: Broker(at + 1, ports[at], self.directory / f"broker-{at + 1}", doors[at]) for at in range(count)}
        for broker, behind in zip(self.brokers.values(), free_ports(count)):
            broker.behind_door = behind
        for broker in self.brokers.values():
            self._prepare(broker)

    @property
    def addresses(self):
        return ",".join(f"127.0.0.1:{broker.port}" for broker in self.brokers.values())

    @property
    def door_addresses(self):
        return ",".join(f"127.0.0.1:{broker.door}" for broker in self.brokers.values())

    def start(self):
        if self.brokers:
            ensure_packages()
            ensure_kafka()
        for broker in self.brokers.values():
            broker.start()
        for broker in self.brokers.values():
            broker.wait_until_ready()
        return self

    def stop(self):
        """SIGTERM to all at once: a broker that is the last controller alone would wait for the others."""
        for broker in self.brokers.values():
            broker.is_wanted = False
            if broker.is_running():
                broker.process.send_signal(signal.SIGCONT)
                broker.process.send_signal(signal.SIGTERM)
        for broker in self.brokers.values():
            broker.end(signal.SIGTERM)

    def kill(self, number):
        self.brokers[number].end(signal.SIGKILL)

    def pause(self, number):
        self.brokers[number].process.send_signal(signal.SIGSTOP)

    def resume(self, number):
        self.brokers[number].process.send_signal(signal.SIGCONT)

    def restart(self, number):
        """Starts a broker again, wherever it is now, with the data that it has."""
        broker = self.brokers[number]
        broker.end(signal.SIGTERM)
        broker.start()
        broker.wait_until_ready()

    def revive(self):
        """Starts again what died without being told to."""
        for broker in self.brokers.values():
            if broker.is_wanted and not broker.is_running():
                print(f"brokers: broker {broker.number} ended with {broker.process.returncode}; starting it again", file=sys.stderr, flush=True)
                broker.start()

    def delete_topic(self, topic):
        self._tool("org.apache.kafka.tools.TopicCommand", "--delete", "--topic", topic)

    def truncate_topic(self, topic, partition, before):
        """Removes the records before this offset, as retention does."""
        text = '{"version":1,"partitions":[{"topic":"%s","partition":%d,"offset":%d}]}' % (topic, partition, before)
        path = self.directory / "delete-records.json"
        path.write_text(text, encoding="utf-8")
        self._tool("org.apache.kafka.tools.DeleteRecordsCommand", "--offset-json-file", path)

    def cut_tail(self, topic, partition, size):
        """Cuts that many bytes off a partition's end while its only broker is stopped: what a crash does to what was not synced."""
        assert len(self.brokers) == 1 and not self.brokers[1].is_running(), "only for one broker, which is stopped"
        folder = self.brokers[1].folder / f"{topic}-{partition}"
        last = max(folder.glob("*.log"))
        os.truncate(last, max(0, last.stat().st_size - size))
        # These say that there is more. The broker makes them anew.
        for pattern in ("*.index", "*.timeindex", "*.snapshot"):
            for path in folder.glob(pattern):
                path.unlink()
        for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
            (self.brokers[1].folder / name).unlink(missing_ok=True)

    def _tool(self, main, *arguments):
        command = java(main, "--bootstrap-server", self.addresses, *arguments, options=["-Xmx128m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"])
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False)
        if done.returncode:
            raise RuntimeError(f"{main} ended with {done.returncode}:\n{done.stdout}{done.stderr}")

    def _prepare(self, broker):
        broker.folder.mkdir(exist_ok=True)
        meta = broker.folder / "meta.properties"
        if not meta.exists():
            meta.write_text(f"version=1\ncluster.id={CLUSTER_ID}\nnode.id={broker.number}\n", encoding="utf-8")
        lines = [f"{name}={value}\n" for name, value in self._properties(broker).items()]
        broker.folder.with_suffix(".properties").write_text("".join(lines), encoding="utf-8")

    def _properties(self, broker):
        replicas = min(3, len(self.brokers))
        in_sync = 2 if replicas == 3 else 1
        voters = ",".join(f"{at + 1}@127.0.0.1:{port}" for at, port in enumerate(self.controllers))
        listeners = f"PLAINTEXT://127.0.0.1:{broker.port},CONTROLLER://127.0.0.1:{self.controllers[broker.number - 1]}"
        advertised = f"PLAINTEXT://127.0.0.1:{broker.port}"
        if broker.door:
            listeners += f",DOOR://127.0.0.1:{broker.behind_door}"
            advertised += f",DOOR://127.0.0.1:{broker.door}"
        return {
            "process.roles": "broker,controller",
            "node.id": broker.number,
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "listeners": listeners,
            "advertised.listeners": advertised,
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,DOOR:PLAINTEXT",
            "log.dirs": broker.folder,
            # A broker that is gone is noticed soon.
            "broker.session.timeout.ms": 2000,
            "broker.heartbeat.interval.ms": 500,
            "auto.create.topics.enable": "false",
            "unclean.leader.election.enable": "false",
            "offsets.topic.replication.factor": replicas,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": in_sync,
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": in_sync,
            # Small: several of them share a machine.
            "num.network.threads": 2,
            "num.io.threads": 4,
            "background.threads": 2,
            "log.cleaner.threads": 1,
            "log.cleaner.dedupe.buffer.size": 2 << 20,
        }


class Control(socketserver.StreamRequestHandler):
    """A line is a command and its arguments; the answer is `ok` or what went wrong."""

    def handle(self):
        for line in self.rfile:
            try:
                self.command(*line.decode().split())
                answer = "ok"
            except Exception as error:
                answer = f"error {type(error).__name__}: {error}".replace("\n", " ")
            self.wfile.write(answer.encode() + b"\n")

    def command(self, name, *arguments):
        brokers = self.server.brokers
        if name in ("kill", "pause", "resume", "restart"):
            return getattr(brokers, name)(int(arguments[0]))
        if name == "delete_topic":
            return brokers.delete_topic(arguments[0])
        if name in ("truncate_topic", "cut_tail"):
            topic, partition, number = arguments
            return getattr(brokers, name)(topic, int(partition), int(number))
        raise ValueError(f"no command {name}")


def serve_control(brokers, port=0):
    """Takes commands on a port of 127.0.0.1, for tests that are other processes; answers its address."""
    server = socketserver.ThreadingTCPServer(("127.0.0.1", port), Control)
    server.daemon_threads = True
    server.brokers = brokers
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return "127.0.0.1:%d" % server.server_address[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--port", type=int, default=9092, help="of the first; they take twice as many ports as there are brokers")
    parser.add_argument("--data", default="kafka-data")
    parser.add_argument("--control", type=int, default=None, help="a port for commands, such as `kill 1`")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    brokers = Brokers(options.brokers, options.data, options.port)
    try:
        brokers.start()
        print(f"brokers: {brokers.addresses}", flush=True)
        if options.control is not None:
            print(f"brokers: control {serve_control(brokers, options.control)}", flush=True)
        while True:
            time.sleep(0.5)
            brokers.revive()
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        brokers.stop()


if __name__ == "__main__":
    main()
