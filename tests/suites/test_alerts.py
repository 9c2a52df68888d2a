"""The alert rules and the dashboard that are in the program, in a real Prometheus: each rule fires when its fault is there."""

import itertools
import json
import re
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

from harness.api import Disconnected, ask
from harness.faults import Faults
from harness.prometheus import Prometheus, tool
from harness.server import wait_until
from harness.small_disk import SmallDisk

pytestmark = [pytest.mark.on_disk, pytest.mark.may_be_retried]

FIRES_S = 60


def printed(ctx, what):
    return subprocess.run([ctx.binary, "monitoring", what], capture_output=True, text=True, check=True, timeout=30).stdout


def hasty_rules(ctx):
    """The rules, without waiting for minutes before they fire."""
    path = ctx.folder("rules") / "alerts.yml"
    path.write_text(re.sub(r"for: \d+m", "for: 1s", printed(ctx, "alerts")))
    return path


def test_rules_are_well_formed(ctx):
    path = ctx.folder("rules") / "whole.yml"
    path.write_text(printed(ctx, "alerts"))
    checked = subprocess.run([tool(ctx, "promtool"), "check", "rules", str(path)], capture_output=True, text=True, timeout=60)
    ctx.report.check("promtool check rules is content", checked.returncode == 0, checked.stdout + checked.stderr)


# Series by minutes: what raises an alert, and what does not. Here, where minutes are not waited for; the suites of the faults stage some.
HEALTHY_MINUTES, FAULTY_MINUTES = 10, 40
CONDITIONS = {
    # Per minute: it counts.
    "SetteeConnectionsDropped": ("settee_connections_dropped_total", 0, 1),
    "SetteeExpiryOverdue": ("settee_expiry_overdue_seconds", 599, 601),
    "SetteeBackupFailing": ("settee_backups_last_failure_unix_seconds", 0, 1.7e9),
    "SetteeClusterUnfit": ("settee_cluster_fit", 1, 0),
    "SetteeClusterNoLog": ("settee_cluster_log_up", 1, 0),
    "SetteeClusterNodeDown": ('settee_cluster_node_live{node="b"}', 1, 0),
    "SetteeClusterSlotsHalted": ("settee_cluster_slots_halted", 0, 1),
    "SetteeClusterSlotsRefusing": ("settee_cluster_slots_refusing", 0, 1),
    "SetteeClusterUnderReplicated": ("settee_cluster_slots_under_replicated", 0, 1),
    "SetteeClusterBehind": ("settee_cluster_lag_seconds", 60, 61),
    # Per minute: it counts.
    "SetteeClusterCopiesFailing": ("settee_cluster_copies_failures_total", 0, 1),
}
# A fault that is this short raises nothing, in minutes.
SHORT_MINUTES = 1


def minutes(series, healthy, faulty, faulty_minutes):
    """The values of a series: healthy, faulty, healthy."""
    values = [healthy] * HEALTHY_MINUTES + [faulty] * faulty_minutes + [healthy] * (2 * HEALTHY_MINUTES + 5)
    if series.split("{")[0].endswith("_total"):
        values = list(itertools.accumulate(values))
    return {"series": series, "values": " ".join(map(str, values))}


def test_rules_fire_and_stop(ctx):
    """By promtool: after the time of the rule, not before, and not longer than the fault is there."""
    rules = ctx.folder("units") / "alerts.yml"
    rules.write_text(printed(ctx, "alerts"))
    after_for = {}
    for rule in re.split(r"- alert: ", rules.read_text())[1:]:
        after_for[rule.split()[0]] = int(re.search(r"for: (\d+)m", rule).group(1))
    tests = []
    for alert, (series, healthy, faulty) in CONDITIONS.items():
        wait = after_for[alert]
        long = max(FAULTY_MINUTES, wait + 10)
        firing = {"expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) or vector(0)'}
        looks = lambda *at, firing=firing: [{**firing, "eval_time": f"{minute}m", "exp_samples": [{"labels": "{}", "value": n}]} for minute, n in at]
        # A rate is seen for as long as its range.
        over = HEALTHY_MINUTES + long + 14
        tests.append(
            {
                "name": alert,
                "interval": "1m",
                "input_series": [minutes(series, healthy, faulty, long)],
                "promql_expr_test": looks((HEALTHY_MINUTES - 1, 0), (HEALTHY_MINUTES + wait - 1, 0), (HEALTHY_MINUTES + wait + 1, 1), (over, 0)),
            }
        )
        if wait > SHORT_MINUTES and not series.endswith("_total"):
            at = [(HEALTHY_MINUTES + minute, 0) for minute in range(wait + 2)]
            short = minutes(series, healthy, faulty, SHORT_MINUTES)
            tests.append({"name": f"{alert}: short", "interval": "1m", "input_series": [short], "promql_expr_test": looks(*at)})
    units = ctx.root / "units" / "units.yml"
    units.write_text(json.dumps({"rule_files": ["alerts.yml"], "evaluation_interval": "1m", "tests": tests}))
    done = subprocess.run([tool(ctx, "promtool"), "test", "rules", str(units)], capture_output=True, text=True, timeout=120)
    ctx.report.check("each alert fires and stops", done.returncode == 0, done.stdout + done.stderr)


def firing(prometheus):
    return {labels["alertname"] for labels, _ in prometheus.query('ALERTS{alertstate="firing"}')}


def fires(ctx, prometheus, name):
    ctx.report.check(f"{name} fires", wait_until(lambda: name in firing(prometheus), FIRES_S), firing(prometheus))


def test_faults_fire(ctx):
    with ctx.server("faults", options=["--set", "functions/time_limit_ms=1000"]) as server:
        api = server.api()
        api.expect(201, "PUT", "/db")
        throws = {"shows": {"s": "function(doc, req) { throw new Error('planted'); }"}}
        api.expect(201, "PUT", "/db/_design/d", throws)
        for at in range(3):
            api.expect(201, "POST", "/db/_bulk_docs", {"docs": [{"n": n + at * 1000, "text": "x" * 500} for n in range(1000)]})
        prometheus = Prometheus(ctx, server, hasty_rules(ctx))
        for _ in range(200):
            api.get("/db/nothing")
        scrapes = lambda: [value for _, value in prometheus.query("count_over_time(up[1m])")]
        ctx.report.check("a healthy server is scraped a few times", wait_until(lambda: scrapes() and scrapes()[0] >= 4, FIRES_S), scrapes())
        # The disk is the machine's, which may be full.
        ctx.report.equal("a healthy server fires nothing", firing(prometheus) - {"SetteeDiskFilling"}, set())

        stop = threading.Event()
        faults = [threading.Thread(target=keep_on, args=(server, stop, fault)) for fault in (fail, scan, leave)]
        for fault in faults:
            fault.start()
        itself = f"http://{server.admin}@{server.url.removeprefix('http://')}/db"
        api.expect(201, "PUT", "/_replicator/r", {"source": "http://127.0.0.1:1/nothing", "target": itself, "continuous": True})
        # A failure before Prometheus has looked for the first time is none that it sees.
        seen = wait_until(lambda: prometheus.query("settee_text_indexes_update_failures_total"), FIRES_S)
        ctx.report.check("failures of text indexes are told from the start", seen)
        endless = {"index": "function (doc) { while (true) {} }"}
        api.expect(201, "PUT", "/db/_design/endless", {"nouveau": {"endless": endless}})
        ctx.report.check("an index function without an end is stopped", api.get("/db/_design/endless/_nouveau/endless?q=x:a").status >= 400)
        fires(ctx, prometheus, "SetteeTextIndexesFailing")
        limit = int(re.search(r"Max open files\s+(\d+)", Path(f"/proc/{server.process.pid}/limits").read_text()).group(1))
        subprocess.run(["prlimit", f"--pid={server.process.pid}", "--nofile=200:" + str(limit)], check=True)
        host, port = api.host, api.port
        held = [socket.create_connection((host, port)) for _ in range(140)]
        for name in ("SetteeServerErrors", "SetteeQueriesWithoutIndex", "SetteeClientsGiveUp", "SetteeReplicationCrashing", "SetteeOpenFiles"):
            fires(ctx, prometheus, name)
        for connection in held:
            connection.close()
        stop.set()
        for fault in faults:
            fault.join()
        server.configure("backup", "target", "/dev/null/nowhere")
        fires(ctx, prometheus, "SetteeBackupFailing")
        # Reads that are slow because of their reader: the answer ends when it has been taken.
        api.expect(201, "PUT", "/db/large", {"text": "x" * 7_000_000})
        stop = threading.Event()
        slow = threading.Thread(target=keep_on, args=(server, stop, read_slowly))
        slow.start()
        fires(ctx, prometheus, "SetteeSlowReads")
        stop.set()
        slow.join()
        # The thread that writes stands still while it has a batch, as it is with what takes it long.
        stop = threading.Event()
        held = [threading.Thread(target=keep_on, args=(server, stop, fault)) for fault in (write_bulk, stand_still)]
        for fault in held:
            fault.start()
        fires(ctx, prometheus, "SetteeCommitThreadHeld")
        stop.set()
        for fault in held:
            fault.join()
        # A client connects while nothing is accepted.
        stop = threading.Event()
        still = threading.Thread(target=keep_on, args=(server, stop, let_a_client_wait))
        still.start()
        for name in ("SetteeConnectionsWait", "SetteeEventLoopLate"):
            fires(ctx, prometheus, name)
        stop.set()
        still.join()
        prometheus.end()


def keep_on(server, stop, fault):
    api = server.api()
    while not stop.is_set():
        try:
            fault(server, api)
        except (OSError, Disconnected):
            time.sleep(0.05)
    api.close()


def fail(_, api):
    api.get("/db/_design/d/_show/s")
    time.sleep(0.02)


def scan(_, api):
    api.post("/db/_find", {"selector": {"n": 1500}, "limit": 1})
    time.sleep(0.05)


def leave(server, _):
    connection = ask(server, "/db/_all_docs?include_docs=true")
    connection.recv(10)
    connection.close()
    time.sleep(0.05)


def write_bulk(_, api):
    api.post("/db/_bulk_docs", {"docs": [{"n": 0} for _ in range(5000)]})


def stand_still(server, _):
    server.process.send_signal(signal.SIGSTOP)
    time.sleep(0.1)
    server.process.send_signal(signal.SIGCONT)
    time.sleep(0.05)


def let_a_client_wait(server, _):
    server.process.send_signal(signal.SIGSTOP)
    try:
        connection = ask(server, "/_up")
        time.sleep(0.3)
    finally:
        server.process.send_signal(signal.SIGCONT)
    while connection.recv(1 << 16):
        pass
    connection.close()


def read_slowly(server, _):
    connection = ask(server, "/db/large")
    connection.recv(10)
    time.sleep(0.3)
    while connection.recv(1 << 16):
        pass
    connection.close()


def test_a_disk_that_fills(ctx):
    with SmallDisk(ctx.folder("disk")) as disk:
        if disk.refused:
            ctx.report.skip("SetteeDiskFilling fires", disk.refused)
            return
        with ctx.server("disk/data", log_path=str(ctx.root / "disk.log")) as server:
            prometheus = Prometheus(ctx, server, hasty_rules(ctx))
            ctx.report.check("the server is scraped", wait_until(lambda: prometheus.query("settee_disk_size_bytes"), 30))
            api = server.api()
            api.expect(201, "PUT", "/db")
            size = prometheus.query("settee_disk_size_bytes")[0][1]
            free = prometheus.query("settee_disk_free_bytes")[0][1]
            with open(disk.path / "ballast", "wb") as file:
                file.write(b"x" * int(free - size * 0.05))
            fires(ctx, prometheus, "SetteeDiskFilling")
            # A store that can write no memtables to files any more takes none.
            fires(ctx, prometheus, "SetteeWritesFail")
            prometheus.end()


def test_connections_and_storage_errors(ctx):
    faults = Faults(ctx.folder("faults"))
    if faults.refused:
        ctx.report.skip("SetteeStorageErrors fires", faults.refused)
        return
    with faults.preloaded(), ctx.server("errors", options=["--set", "chttpd/server_options=[{max, 5}]"]) as server:
        api = server.api()
        api.expect(201, "PUT", "/db")
        prometheus = Prometheus(ctx, server, hasty_rules(ctx))
        # An error before Prometheus has looked for the first time is none that it sees.
        seen = wait_until(lambda: prometheus.query("settee_storage_engine_errors_total"), FIRES_S)
        ctx.report.check("errors of the storage engine are counted from the start", seen)
        held = [ask(server, "/db/_changes?feed=continuous") for _ in range(3)]
        faults.begin(("fdatasync", "*/store/*.log", "EIO", 0))
        ctx.report.equal("a write whose sync fails is refused", api.put("/db/a", {}).status, 500)
        faults.end()
        fires(ctx, prometheus, "SetteeStorageErrors")
        fires(ctx, prometheus, "SetteeConnectionsFull")
        for connection in held:
            connection.close()
        prometheus.end()


def test_a_server_that_is_down(ctx):
    with ctx.server("down") as server:
        prometheus = Prometheus(ctx, server, hasty_rules(ctx))
        ctx.report.check("the server is scraped", wait_until(lambda: [v for _, v in prometheus.query("up")] == [1.0], 30))
        server.kill()
        fires(ctx, prometheus, "SetteeDown")
        prometheus.end()


def test_the_dashboard_asks_for_what_is_there(ctx):
    dashboard = json.loads(printed(ctx, "dashboard"))
    with ctx.server("dashboard") as server:
        api = server.api()
        api.expect(201, "PUT", "/db")
        words = {"index": 'function (doc) { index("double", "n", doc.n); }'}
        api.expect(201, "PUT", "/db/_design/d", {"nouveau": {"words": words}})
        prometheus = Prometheus(ctx, server)
        stop = threading.Event()
        load = threading.Thread(target=keep_on, args=(server, stop, some_of_everything))
        load.start()
        # Only nodes of a cluster have the values of a row: the suite `cluster_monitoring` looks at them.
        panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
        ctx.report.check("there are panels", len(panels) >= 12, len(panels))
        for panel in panels:
            for target in panel["targets"]:
                asked = target["expr"].replace("$__rate_interval", "5s").replace("$instance", ".*")
                has_value = lambda asked=asked: any(value == value for _, value in prometheus.query(asked))
                ctx.report.check(f"{panel['title']}: {target['legendFormat']}", wait_until(has_value, 30, 0.5), asked)
        stop.set()
        load.join()
        prometheus.end()


def some_of_everything(_, api):
    api.post("/db", {"n": 1})
    api.get("/db/nothing")
    api.get("/db/_all_docs?limit=1")
    api.post("/db/_find", {"selector": {"n": 1}, "limit": 3})
    api.get("/db/_design/d/_nouveau/words?q=n:1")
    time.sleep(0.02)
