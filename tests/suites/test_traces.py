"""OpenTelemetry: a receiver that decodes OTLP by its published protocol is told of requests, replications and index builds."""

import json
import re
import socket
import subprocess
import threading
import time

import pytest

from harness.packages import virtual_environment
from harness.server import end, track, wait_until

pytestmark = [pytest.mark.may_be_retried, pytest.mark.costly_hashes]

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PATIENCE_S = 30
# Of which the phases of at least one sum up to the whole.
BULKS = 4
# What takes longer is traced whatever the ratio.
SLOW_MS = 200
HEADER = re.compile(r"^00-([0-9a-f]{32})-([0-9a-f]{16})-0([01])$")


class Nobody:
    """A collector that takes connections and says nothing."""

    url = ""


class Nowhere:
    """A collector that is not there."""

    url = "http://127.0.0.1:9"


class Receiver:
    """The spans that came, in the order in which they did."""

    def __init__(self, ctx, *options):
        folder = ctx.checkout / "tests" / "clients" / "otlp"
        python = virtual_environment(ctx, folder) / "bin" / "python"
        self.process = subprocess.Popen([str(python), str(folder / "receiver.py"), *options], stdout=subprocess.PIPE, text=True)
        track(self.process)
        self.url = self.process.stdout.readline().strip()
        self.spans = []
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.spans.append(json.loads(line))

    def named(self, name):
        return [span for span in list(self.spans) if span.get("name") == name]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        end(self.process)


def traced(receiver, *others):
    return ["--set", f"tracing/otlp_endpoint={receiver.url}", "--set", "tracing/sample_ratio=1", *others]


def settled(receiver, name, count=1):
    wait_until(lambda: len(receiver.named(name)) >= count, PATIENCE_S)
    return receiver.named(name)


def test_requests_are_traced(ctx):
    report = ctx.report
    with Receiver(ctx) as receiver, ctx.server("traced", options=traced(receiver)) as server:
        api = server.api()
        api.expect(201, "PUT", "/db")
        docs = [{"_id": f"d{n}", "n": n, "secret": "body-of-a-document"} for n in range(300)]
        api.expect(201, "PUT", "/bulks")
        api.expect(201, "POST", "/db/_bulk_docs", {"docs": docs})
        headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "x-couch-request-id": "of-this-request"}
        got = api.request("GET", "/db/d7", headers=headers)
        said = HEADER.match(got.headers.get("traceresponse", ""))
        report.check("the answer names the client's trace", said and said[1] == TRACE and said[3] == "1", got.headers)
        api.request("POST", "/db/_find", {"selector": {"secret": "value-of-a-selector"}}, headers=headers)
        api.expect(404, "GET", "/db/none")
        whole = settled(receiver, "GET document_read", 2)
        mine = [span for span in whole if span["trace"] == TRACE]
        report.equal("the client's span is the parent", [(s["parent"], s["kind"], s["span"]) for s in mine], [(PARENT, "server", said and said[2])])
        about = mine[0]["attributes"] if mine else {}
        expected = {
            "http.request.method": "GET",
            "http.route": "document_read",
            "http.response.status_code": 200,
            "url.path": "/db/d7",
            "db.namespace": "db",
            "client.address": "127.0.0.1",
            "settee.request_id": "of-this-request",
            "http.response.body.size": len(got.raw),
        }
        report.equal("what is told of a request", {key: about.get(key) for key in expected}, expected)
        missing = [span for span in whole if span["attributes"]["url.path"] == "/db/none"]
        report.equal("a 404 is no failure of the server", [(s["error"], s["parent"]) for s in missing], [(None, "")])
        for _ in range(1, BULKS):
            api.expect(201, "POST", "/bulks/_bulk_docs", {"docs": [{"n": n} for n in range(300)]})
        bulks = settled(receiver, "POST bulk_docs", BULKS)
        report.equal("a bulk tells of its documents", [s["attributes"].get("settee.documents") for s in bulks], [300] * BULKS)
        parts_sum_up(report, receiver, bulks)
        found = settled(receiver, "POST find")
        report.equal("a scan tells what it examined", [s["attributes"].get("settee.docs_examined") for s in found], [300])
        report.equal("who tells", found[0]["service"]["service.name"], "settee")
        told = json.dumps(receiver.spans)
        report.check("neither documents, nor selectors' values, nor passwords", not re.search("body-of-a|value-of-a|admin:admin|YWRtaW46", told))
        report.equal("nothing came to another path", [span for span in receiver.spans if "wrong" in span], [])
        ids = [span["span"] for span in receiver.spans]
        report.equal("each span has an id of its own", len(set(ids)), len(ids))
        log = server.log()
        report.check("the log's line names the trace", re.search(rf"/db/d7.*trace={TRACE}", log), log[-2000:])


def parts_sum_up(report, receiver, requests):
    apart = []
    for whole in requests:
        parts = [span for span in receiver.spans if span.get("parent") == whole["span"]]
        names = {span["name"] for span in parts}
        report.check("a bulk has its phases as children", {"parse", "commit"} <= names, names)
        took = whole["ended_ns"] - whole["began_ns"]
        apart.append(abs(took - sum(span["ended_ns"] - span["began_ns"] for span in parts)) / took)
        inside = all(whole["began_ns"] <= s["began_ns"] <= s["ended_ns"] <= whole["ended_ns"] + 1000 for s in parts)
        report.check("and lie within it", inside, parts)
    # Between two phases of one of them the machine may stand still.
    report.check("they sum up to the whole", min(apart) <= 0.05, apart)


def test_only_some_are_traced(ctx):
    report = ctx.report
    with Receiver(ctx) as receiver:
        options = traced(receiver, "--set", "tracing/sample_ratio=0", "--set", f"log/slow_time={SLOW_MS}")
        with ctx.server("some", options=options) as server:
            api = server.api()
            api.expect(201, "PUT", "/db")
            slow = {"views": {"v": {"map": "function (doc) { var t = Date.now(); while (Date.now() - t < 400); emit(1) }"}}}
            api.expect(201, "PUT", "/db/_design/d", slow)
            api.expect(201, "PUT", "/db/doc", {})
            for _ in range(50):
                plain = api.get("/db/doc")
                unsampled = api.request("GET", "/db/doc", headers={"traceparent": f"00-{TRACE}-{PARENT}-00"})
            sampled = api.request("GET", "/db/doc", headers={"traceparent": f"00-{TRACE}-{PARENT}-01"})
            broken = api.request("GET", "/db/doc", headers={"traceparent": "00-nonsense"})
            api.expect(200, "GET", "/db/_design/d/_view/v")
            answers = [r.headers.get("traceresponse", "") for r in (plain, broken, unsampled, sampled)]
            report.equal("requests of no trace are told of none", answers[:2], ["", ""])
            report.equal("those of a trace are, sampled or not", [a[:36] + a[-2:] for a in answers[2:]], [f"00-{TRACE}-0{n}" for n in (0, 1)])
            view = settled(receiver, "GET view")
            report.equal("what is slow is traced whatever the ratio", len(view), 1)
            # A read that the machine holds up is slow too.
            quick = lambda span: span["ended_ns"] - span["began_ns"] < SLOW_MS * 1e6
            documents = [span["trace"] for span in settled(receiver, "GET document_read") if span["trace"] == TRACE or quick(span)]
            report.equal("besides, only what is sampled", documents, [TRACE])
            built = settled(receiver, "index update")
            report.check("a long index build is told", built and built[0]["attributes"].get("settee.design_document") == "_design/d", built)
            api.expect(200, "PUT", "/_node/_local/_config/tracing/sample_ratio", "1")
            api.get("/db/doc")
            report.check("the ratio is in force at once", wait_until(lambda: len(receiver.named("GET document_read")) >= 2, PATIENCE_S))


def test_replications_join_both_servers(ctx):
    report = ctx.report
    with (
        Receiver(ctx) as receiver,
        ctx.server("source", options=traced(receiver)) as source,
        ctx.server("target", options=traced(receiver, "--set", "tracing/service_name=target")) as target,
    ):
        at = source.api()
        at.expect(201, "PUT", "/db")
        at.expect(201, "POST", "/db/_bulk_docs", {"docs": [{"n": n} for n in range(500)]})
        url = target.url.replace("http://", f"http://{target.admin}@")
        target.api().expect(201, "PUT", "/copy")
        at.expect(200, "POST", "/_replicate", {"source": "db", "target": f"{url}/copy"})
        batches = settled(receiver, "replication batch")
        report.check("batches are told", sum(s["attributes"]["settee.changes"] for s in batches) == 500, batches)
        ids = {span["span"]: span for span in batches}

        def joined():
            asked = {s["span"] for s in receiver.spans if s.get("kind") == "client" and s["parent"] in ids}
            return [s for s in receiver.named("POST bulk_docs") if s["parent"] in asked and s["service"]["service.name"] == "target"]

        report.check("the target's spans are children of the source's requests", wait_until(joined, PATIENCE_S), receiver.spans[-20:])
        traces = {span["trace"] for span in joined()}
        report.check("in the same trace", traces and traces <= {span["trace"] for span in batches}, traces)
        told = json.dumps(receiver.spans)
        report.check("no credentials in them", "admin:admin" not in told)


def test_a_collector_that_is_away(ctx):
    report = ctx.report
    with ctx.server("away", options=traced(Nowhere)) as server:
        api = server.api()
        api.expect(201, "PUT", "/db")
        for n in range(3000):
            api.expect(201, "PUT", f"/db/{n}", {})
        told = wait_until(lambda: "traces were not sent" in server.log(), PATIENCE_S)
        report.check("the log says that nobody takes them", told, server.log()[-500:])
        numbers = api.get("/_node/_local/_stats/settee/trace_spans").json
        counts = {name: numbers[name]["value"] for name in ("made", "sent", "failed")}
        report.check("so do the numbers", counts["made"] > 3000 and counts["sent"] == 0 and counts["failed"] > 0, counts)
        waiting = counts["made"] - counts["failed"]
        report.check("all but those that wait are told to be lost", 0 <= waiting <= 2048, counts)


def test_a_collector_that_hangs(ctx):
    """Requests do not wait for it, and neither does the server's end for long."""
    report = ctx.report
    with socket.create_server(("127.0.0.1", 0)) as silent:
        Nobody.url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with ctx.server("hangs", options=traced(Nobody)) as server:
            api = server.api()
            api.expect(201, "PUT", "/db")
            for n in range(1500):
                api.expect(201, "PUT", f"/db/{n}", {})
            numbers = api.get("/_node/_local/_stats/settee/trace_spans").json
            counts = {name: numbers[name]["value"] for name in ("made", "sent", "failed")}
            report.check("spans are dropped, requests answered", counts["failed"] > 0 and counts["made"] > 3000, counts)
            api.close()
            began = time.monotonic()
            server.stop()
            report.note(f"the server ended after {time.monotonic() - began:.1f} s")


def test_the_last_spans_are_sent(ctx):
    """When the server stops, and when the collector was busy for a moment."""
    report = ctx.report
    with Receiver(ctx, "--refuse", "1") as receiver, ctx.server("last", options=traced(receiver)) as server:
        api = server.api()
        api.get("/_up")
        numbers = api.get("/_node/_local/_stats/settee/trace_spans").json
        api.close()
        server.stop()
        report.check("what was left is there", wait_until(lambda: receiver.named("GET welcome"), PATIENCE_S), (numbers, receiver.spans))


def test_without_a_collector(ctx):
    report = ctx.report
    with ctx.server("without") as server:
        api = server.api()
        got = api.request("GET", "/", headers={"traceparent": f"00-{TRACE}-{PARENT}-01"})
        report.equal("nobody is told of a span that nobody is told of", got.headers.get("traceresponse"), None)
        api.get("/_up")
        wait_until(lambda: "/_up" in server.log())
        log = server.log()
        report.check("the log names the trace, and none for requests without one", len(re.findall(r"trace=", log)) == 1 and TRACE in log, log[-900:])


def test_wrong_settings(ctx):
    for name, value in (
        ("otlp_endpoint", "localhost:4318"),
        ("otlp_endpoint", "http://a:secret@h:4318"),
        ("sample_ratio", "2"),
        ("sample_ratio", "often"),
    ):
        command = [ctx.binary, "serve", "--data", str(ctx.folder("wrong")), "--port", "0", "--admin", "a:b", "--set", f"tracing/{name}={value}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        is_refused = done.returncode == 2 and name in done.stderr and "secret" not in done.stderr
        ctx.report.check(f"{name} = {value} is refused", is_refused, (done.returncode, done.stderr))
