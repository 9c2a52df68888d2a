"""`settee bench`: whether its figures can be trusted. A server beside itself, one that was slowed down, one that stops or dies meanwhile,
and a run that is interrupted while it has changed a setting."""

import html.parser
import json
import pathlib
import signal
import statistics
import subprocess
import tempfile
import time

import pytest

from harness.held_server import Held
from harness.prometheus import metrics
from harness.server import track, wait_until

pytestmark = pytest.mark.may_be_retried

VOID = {"meta"}
# Comparisons that say what it costs to be held back.
CALIBRATIONS = 6
STOPS_MAX = 5


def url(server):
    return server.url.replace("http://", f"http://{server.admin}@")


def command(ctx, servers, *options):
    urls = [word for server in servers for word in ("--url", url(server))]
    return [ctx.binary, "bench", *urls, "--scale", "0.01", *map(str, options)]


def measured(ctx, servers, *options):
    done = subprocess.run(command(ctx, servers, "--json", *options), capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise AssertionError(f"exit status {done.returncode}\n{done.stdout[-1000:]}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def started(ctx, servers, *options):
    process = subprocess.Popen(command(ctx, servers, *options), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    track(process)
    return process


def databases(server):
    return [name for name in server.api().get("/_all_dbs").json if name.startswith("settee-bench-")]


def has_documents(server, count):
    api = server.api()
    return any(api.get(f"/{name}").json.get("doc_count", 0) >= count for name in databases(server))


def test_a_stopped_server_is_seen_at_a_rate(ctx):
    report = ctx.report
    with ctx.server("stopped") as server:
        for attempt in range(STOPS_MAX):
            begun = reads(server)
            process = started(ctx, [server], "get_random", "--rate", 1000, "--seconds", 3, "--json")
            report.check("the run begins", wait_until(lambda: has_documents(server, 2000)), quiet=attempt > 0)
            report.check("and measures", wait_until(lambda begun=begun: reads(server) - begun >= 500), quiet=attempt > 0)
            server.process.send_signal(signal.SIGSTOP)
            time.sleep(0.5)
            server.process.send_signal(signal.SIGCONT)
            is_in_time = reads(server) - begun < 2800
            out, error = process.communicate(timeout=120)
            report.equal("it ends well", process.returncode, 0, quiet=attempt > 0)
            # On a busy machine the stop may come after the last request.
            if is_in_time:
                break
        side = json.loads(out)["lines"][0]["sides"][0]
        p99 = side["latency_ms_p99"]
        report.check("p99 is at least 0.4 s when the server stood still for 0.5 s of 3", p99 >= 400, f"{side}\n{error}")
        report.equal("all requests of 3 s were due", side["open"]["due"], 3000)
        report.note(f"at a rate of 1000/s, server stopped for 0.5 s of 3: p99 {p99:.0f} ms, {side['open']}")


def reads(server):
    return server.api().expect(200, "GET", "/_node/_local/_stats/couchdb/database_reads")["value"]


def test_requests_by_count(ctx):
    with ctx.server("count") as server:
        lines = measured(ctx, [server], "get_random", "--connections", 120, "--requests", 100)["lines"]
        ctx.report.equal("120 clients send 100 requests each", lines[0]["sides"][0]["count"], 12_000)


def test_an_interrupted_sweep_puts_back(ctx):
    report = ctx.report
    path = "/_node/_local/_config/log/level"
    with ctx.server("sweep") as server:
        api = server.api()
        before = api.get(path).json
        process = started(ctx, [server], "get_random", "--sweep", "log/level=error,critical", "--seconds", 60)
        report.check("the sweep changes the setting", wait_until(lambda: api.get(path).json == "error"))
        report.check("and measures", wait_until(lambda: bool(databases(server))))
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
        report.equal("it says that it was interrupted", (process.returncode, "interrupted" in error), (1, True))
        report.equal("the setting is put back", api.get(path).json, before)
        report.equal("the databases are gone", databases(server), [])
        swept = measured(ctx, [server], "get_random", "--sweep", "log/level=error,critical", "--seconds", 0.2)["sweep"]
        report.equal("a whole sweep has its values", (swept["what"], swept["values"]), ("log/level", ["error", "critical"]))
        report.equal("and puts the setting back", api.get(path).json, before)


def test_a_sweep_makes_new_databases(ctx):
    """A planted number of shards, by the request and by the setting, is that of the databases which are measured."""
    for sweep in ("q=3,7", "cluster/q=3,7"):
        with ctx.server(sweep.replace("/", "-")) as server:
            api, seen = server.api(), set()
            process = started(ctx, [server], "get_random", "--sweep", sweep, "--seconds", 1, "--json")

            def has_ended(process=process, api=api, seen=seen, server=server):
                for name in databases(server):
                    seen.add(api.get(f"/{name}").json.get("cluster", {}).get("q"))
                return process.poll() is not None

            ctx.report.check(f"{sweep} ends", wait_until(has_ended, 300, 0.05))
            out, error = process.communicate(timeout=60)
            ctx.report.check(f"{sweep} ends well", process.returncode == 0, error)
            # A database may be gone between the list and the question.
            ctx.report.equal(f"{sweep} makes databases of both kinds", seen - {None}, {3, 7})
            points = json.loads(out)["sweep"]["lines"][0]["points"]
            ctx.report.check(f"{sweep} measures both", all(point["count"] > 0 for point in points), points)


def servers_with(argument, but=None):
    """Whether a process has this argument, other than the one that is not to count."""
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.parent.name != str(but) and argument.encode() in path.read_bytes().split(b"\0"):
                return True
        except OSError:
            continue
    return False


def test_a_sweep_of_a_setting_that_needs_a_restart(ctx):
    report = ctx.report
    with ctx.server("refused") as server:
        for sweep, said in (
            ("chttpd/backlog=16,64", "only when it starts"),
            ("chttpd/back_log=16,64", "no such setting"),
            ("threads=1,2", "neither connections, q"),
            ("q=0,1", "whole numbers from 1"),
            ("bulk_docs=10,20", "does not change get_random"),
        ):
            done = subprocess.run(command(ctx, [server], "get_random", "--sweep", sweep), capture_output=True, text=True, timeout=60)
            lines = [line for line in done.stderr.splitlines() if line.strip()]
            report.check(f"{sweep} is refused in a line", done.returncode == 1 and len(lines) == 1 and said in lines[0], done.stderr)
        report.equal("and nothing was created", databases(server), [])
    # Without a URL the bench has a server of its own, and starts others with each value.
    options = ("get_random", "--scale", 0.01, "--seconds", 1, "--json", "--sweep", "chttpd/backlog=16,64")
    process = subprocess.Popen([ctx.binary, "bench", *map(str, options)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    track(process)
    seen = set()

    def has_ended():
        seen.update(value for value in ("16", "64") if servers_with(f"chttpd/backlog={value}"))
        return process.poll() is not None

    report.check("the sweep ends", wait_until(has_ended, 300, 0.05))
    out, error = process.communicate(timeout=60)
    report.check("it ends well", process.returncode == 0, error)
    report.equal("a server is started with each value", seen, {"16", "64"})
    run = json.loads(out)
    report.check("both are measured", all(point["count"] > 0 for point in run["sweep"]["lines"][0]["points"]), run["sweep"])
    report.check("and the report says how", any("takes effect when a server starts" in note for note in run["notes"]), run["notes"])
    report.check("none of them is left", not servers_with("chttpd/backlog=16") and not servers_with("chttpd/backlog=64"))


def test_settings_of_the_server_that_is_started(ctx):
    report = ctx.report
    planted = "chttpd/backlog=77"
    options = ("get_random", "--scale", 0.01, "--seconds", 5, "--json", "--set", planted)
    process = subprocess.Popen([ctx.binary, "bench", *map(str, options)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    track(process)
    report.check("the server has the setting", wait_until(lambda: servers_with(planted, but=process.pid) or process.poll() is not None, 60, 0.05))
    out, error = process.communicate(timeout=120)
    report.check("the run ends well", process.returncode == 0, error)
    report.check("the report says so", any(planted in note for note in json.loads(out)["notes"]))
    with ctx.server("set") as server:
        refused = subprocess.run(command(ctx, [server], "get", "--set", planted), capture_output=True, text=True, timeout=60)
        report.check("another's server has its own", refused.returncode == 2 and "omit --url" in refused.stderr, refused.stderr)


def test_each_repeat_has_a_server_of_its_own(ctx):
    report = ctx.report
    options = ("get_random", "--scale", 0.01, "--seconds", 1, "--repeats", 3, "--restart", "--json")
    process = subprocess.Popen([ctx.binary, "bench", *map(str, options)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    track(process)
    seen = set()

    def has_ended():
        seen.update(folder.name for folder in pathlib.Path(tempfile.gettempdir()).glob(f"settee-bench-{process.pid}/settee-faults-*"))
        return process.poll() is not None

    # The bench is a program of its own, whose process the command becomes.
    report.check("the run ends", wait_until(has_ended, 300, 0.02))
    out, error = process.communicate(timeout=60)
    report.check("it ends well", process.returncode == 0, error)
    report.equal("three servers had data of their own", len(seen), 3)
    run = json.loads(out)
    report.check("the report says so", any("a server that bench started for it" in note for note in run["notes"]), run["notes"])
    with ctx.server("restart") as server:
        refused = subprocess.run(command(ctx, [server], "get", "--restart"), capture_output=True, text=True, timeout=60)
        report.check("another's server is not restarted", refused.returncode == 1 and "omit --url" in refused.stderr, refused.stderr)


def test_new_connections_are_new(ctx):
    """The server counts as many connections as the bench counts requests, and without the option far fewer."""
    options = ("get", "--connections", 4, "--requests", 100)
    for more, is_new in ((("--new-connections",), True), ((), False)):
        with ctx.server(f"new-{is_new}") as server:
            run = measured(ctx, [server], *options, *more)
            requests = sum(line["sides"][0]["count"] for line in run["lines"])
            accepted = metrics(server.api())("settee_connections_accepted_total")
            ctx.report.check(f"connections are new: {is_new}", (accepted >= requests) == is_new, (accepted, requests))
    with ctx.server("flooded") as server:
        run = measured(ctx, [server], "flooded", "--seconds", 2)
        lines = {line["name"]: line["sides"][0] for line in run["lines"]}
        ctx.report.equal("a flood has its parts", set(lines), {"config_before_flood", "flooded_get", "config_flooded"})
        ctx.report.check(
            "a client of a flood waits longer", lines["config_flooded"]["latency_ms_p50"] > lines["config_before_flood"]["latency_ms_p50"], lines
        )
        refused = subprocess.run(command(ctx, [server], "faults", "--new-connections"), capture_output=True, text=True, timeout=60)
        ctx.report.check("faults refuse the option", refused.returncode != 0 and "--new-connections" in refused.stderr, refused.stderr)


def test_a_server_that_dies(ctx):
    report = ctx.report
    page = ctx.folder("dies") / "report.html"
    with ctx.server("dying") as server:
        process = started(ctx, [server], "get_random", "--seconds", 60, "--repeats", 2, "--report", page)
        report.check("the run begins", wait_until(lambda: has_documents(server, 2000)))
        server.kill()
        out, error = process.communicate(timeout=60)
        report.equal("it fails, soon", process.returncode, 1)
        report.check("and says of what", "failed: get_random: in repeat 1 of 2" in out, out + error)
        report.check("the report is written all the same", page.exists() and "Failed" in page.read_text())


class Tags(html.parser.HTMLParser):
    """Tags that are open, and addresses that lead elsewhere."""

    def __init__(self):
        super().__init__()
        self.open, self.outside, self.wrong = [], [], []

    def handle_starttag(self, tag, attributes):
        if tag not in VOID:
            self.open.append(tag)
        self.outside += [value for name, value in attributes if name in ("src", "href") and not value.startswith("data:")]

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


def test_saved_and_reported(ctx):
    report = ctx.report
    folder = ctx.folder("files")
    run_file, page = folder / "run.json", folder / "report.html"
    with ctx.server("saved") as server:
        options = ("get_random", "--seconds", 0.1, "--repeats", 5)
        measured(ctx, [server], *options, "--save", run_file)
        report.equal("only the owner reads a saved run", run_file.stat().st_mode & 0o077, 0)
        again = measured(ctx, [server], *options, "--compare", run_file, "--report", page)
        report.equal("a run is compared with a saved one", again["against"]["file"], "run.json")
        report.equal("on the same machine nothing else differs", again["against"]["differences"], [])
        tags = Tags()
        tags.feed(page.read_text(encoding="utf-8"))
        report.equal("the report's tags are closed", (tags.open, tags.wrong), ([], []))
        report.equal("and it needs nothing else", tags.outside, [])
        text = run_file.read_bytes()
        run_file.write_bytes(text[:-100])
        done = subprocess.run(command(ctx, [server], *options, "--compare", run_file), capture_output=True, text=True, timeout=60)
        report.check("a damaged file is told", done.returncode == 1 and "damaged" in done.stderr, done.stderr)


def verdicts(ctx, servers):
    """Of a short comparison: every figure that is called different, and by how much the rate differed, for people."""
    found = measured(ctx, servers, "get_random", "--seconds", ctx.size(0.2, 1), "--repeats", ctx.size(6, 10))
    rate = next(each for each in found["comparisons"] if each["figure"] == "rate")["ratio"]
    others = (found["busy_during"] or {}).get("others_cpu", 0)
    said = f"rate {rate['value']:.3f} ({rate['low']:.3f}..{rate['high']:.3f}), others used {others:.2f} processors"
    return [each for each in found["comparisons"] if each["significant"]], said, rate["value"]


def test_the_same_server_twice(ctx):
    """A new pair each time: two starts of one program differ a little, and the same pair would do so every time."""
    flags = []
    for number in range(ctx.size(2, 20)):
        with ctx.server(f"same-{number}-a") as a, ctx.server(f"same-{number}-b") as b:
            shown, said, _ = verdicts(ctx, [a, b])
        flags += [(each["figure"], each["ratio"]["value"]) for each in shown[:1]]
        ctx.report.note(f"equal servers, comparison {number + 1}: {said}, {len(shown)} called different")
    ctx.report.check("two equal servers are called different at most once", len(flags) <= 1, flags)


def compared(ctx, name, share):
    """Two servers, of which the second is held back by a share of the time: what is called different, for people, the rates' ratio, the true share."""
    with ctx.server(f"fast-{name}") as fast, ctx.server(f"slow-{name}") as slow:
        held = Held(slow, share)
        try:
            shown, said, ratio = verdicts(ctx, [fast, slow])
        finally:
            really = held.end()
    return shown, said, ratio, really


def share_that_costs(ctx, loss):
    """A share of the time such that a server which is held back by it loses so much of its rate, in comparisons like those that follow."""
    lost_by_share = []
    for number in range(CALIBRATIONS):
        share = loss / statistics.mean(lost_by_share) if lost_by_share else loss
        _, _, ratio, really = compared(ctx, f"calibration-{number}", min(share, 3 * loss))
        lost_by_share.append(max(1 - 1 / ratio, loss / 10) / really)
    share = loss / statistics.mean(lost_by_share)
    ctx.report.note(f"a server loses {loss:.0%} of its rate when it is held back {share:.1%} of the time, by {CALIBRATIONS} comparisons")
    return share


def test_a_planted_slow_down(ctx):
    """10 % of the rate at full length. On a busy machine a short run could miss that, so that it plants more there."""
    share = share_that_costs(ctx, 0.1) if ctx.soak else 0.5
    found, wanted = 0, ctx.size(1, 10)
    for number in range(wanted):
        # What the machine does meanwhile may hide it from a short run.
        for attempt in range(ctx.size(3, 1)):
            shown, said, _, really = compared(ctx, f"{number}-{attempt}", share)
            is_found = any(each["figure"] == "rate" and each["a_is_better"] for each in shown)
            if ctx.soak:
                ctx.report.check(f"comparison {number + 1}: the server is held back {share:.1%}", abs(really - share) < 0.01, f"{really:.4f}")
            ctx.report.note(f"held back {really:.1%}, comparison {number + 1}: {said}, {'found' if is_found else 'missed'}")
            if is_found:
                break
        found += is_found
    ctx.report.check("a server that is held back is found", found * 10 >= wanted * 9, f"{found} of {wanted}")
