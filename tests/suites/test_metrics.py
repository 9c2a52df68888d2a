"""Numbers of a server against a load that is known; the slow log; phases of requests. Prometheus itself reads them."""

import http.client
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import threading
import time
from pathlib import Path

import pytest

from harness.api import Api, ask, basic, exchange
from harness.files import files_below
from harness.prometheus import Metrics, Prometheus, metrics, tool
from harness.server import wait_until

pytestmark = [pytest.mark.may_be_retried, pytest.mark.costly_hashes]

DOCUMENTS = 3000
SECRET = "value-that-nobody-sees"


def test_a_known_load(ctx):
    """Each number grows by what was done, and by nothing else."""
    report = ctx.report
    with ctx.server("known") as server:
        api = server.api()
        api.expect(201, "PUT", "/db")
        settle(api)
        before = metrics(api)
        for n in range(40):
            api.expect(201, "PUT", f"/db/d{n}", {"n": n})
        for n in range(70):
            api.expect(200, "GET", f"/db/d{n % 40}")
        for n in range(11):
            api.expect(404, "GET", f"/db/none{n}")
        for _ in range(5):
            api.expect(409, "PUT", "/db/d1", {})
        api.expect(201, "POST", "/db/_bulk_docs", {"docs": [{"_id": f"b{n}"} for n in range(25)]})
        api.expect(200, "GET", "/db/_all_docs")
        api.expect(200, "POST", "/db/_find", {"selector": {"n": {"$gt": 3}}, "limit": 100})
        api.expect(201, "PUT", "/db/_local/x", {})
        api.request("PATCH", "/db/d1")
        api.request("BREW", "/")
        after = metrics(api)
        grown = lambda name, **labels: after(name, **labels) - before(name, **labels)
        expected = {
            ("couchdb_httpd_request_methods", "method", "PUT"): 46,
            ("couchdb_httpd_request_methods", "method", "GET"): 83,  # one is the reading of the numbers
            ("couchdb_httpd_request_methods", "method", "POST"): 2,
            ("couchdb_httpd_request_methods", "method", "other"): 2,
            ("couchdb_httpd_status_codes", "code", "201"): 42,
            ("couchdb_httpd_status_codes", "code", "404"): 11,
            ("couchdb_httpd_status_codes", "code", "409"): 5,
            ("settee_request_seconds_count", "route", "document_read"): 81,
            ("settee_request_seconds_count", "route", "bulk_docs"): 1,
            ("settee_request_seconds_count", "route", "find"): 1,
            ("settee_request_seconds_count", "route", "all_docs"): 1,
            ("settee_request_seconds_count", "route", "local_document"): 1,
        }
        for (name, label, value), wanted in expected.items():
            report.equal(f"{name} of {value}", grown(name, **{label: value}), wanted)
        for name, wanted in {
            "couchdb_httpd_requests_total": 133,
            "couchdb_httpd_bulk_requests_total": 1,
            "couchdb_httpd_bulk_docs_sum": 25,
            "couchdb_database_reads_total": 81,
            "couchdb_local_document_writes_total": 1,
            "couchdb_mango_results_returned_total": 36,
            "couchdb_mango_docs_examined_total": 65,
            "couchdb_mango_unindexed_queries_total": 1,
            "couchdb_httpd_aborted_requests_total": 0,
        }.items():
            report.equal(name, grown(name), wanted)
        # The refused ones were tried. What the server writes for itself counts too, and may come late on a busy machine.
        writes = grown("couchdb_document_writes_total")
        report.check("couchdb_document_writes_total", 71 <= writes <= 75, writes)
        report.check("writes were synced", grown("couchdb_fsync_count_total") >= 42, grown("couchdb_fsync_count_total"))
        report.equal("nobody else is asking", after("settee_requests_in_flight"), 1)
        stats = api.get("/_node/_local/_stats").json
        report.equal("_stats says the same", stats["couchdb"]["httpd"]["requests"]["value"], after("couchdb_httpd_requests_total") + 1)
        part = api.get("/_node/_local/_stats/couchdb/request_time").json["value"]
        report.equal("percentiles are named as in CouchDB", [p[0] for p in part["percentile"]], [50, 75, 90, 95, 99, 999])
        report.equal("no metric twice", after.doubled, [])
        named = {name for name, *_ in after.samples}
        bare = [n for n in named if not any(n == t or n.removesuffix(s) == t for t in after.types for s in ("_sum", "_count", "_bucket"))]
        report.equal("every sample has a type", bare, [])
        report.equal("every metric has help", set(after.types) - set(after.helps), set())


def test_text_indexes(ctx):
    """What text indexes do is counted: documents, commits, searches by either interface and by Mango, merges."""
    report = ctx.report
    with ctx.server("texts", options=["--set", f"functions/time_limit_ms={ctx.size(250, 1000)}"]) as server:
        api = server.api()
        api.expect(201, "PUT", "/db?q=1")
        settle(api)
        before = metrics(api)
        function = 'function (doc) { if (doc.text) index("text", "text", doc.text); }'
        classic = 'function (doc) { if (doc.text) index("text", doc.text); }'
        indexes = {"indexes": {"words": {"index": classic}}, "nouveau": {"words": {"index": function}}}
        api.expect(201, "PUT", "/db/_design/d", {"autoupdate": False, **indexes})
        docs = [{"_id": f"{n:04}", "text": f"red {n}"} for n in range(120)] + [{"_id": f"none{n}"} for n in range(7)]
        api.expect(201, "POST", "/db/_bulk_docs", {"docs": docs})
        for n in range(4):
            api.expect(200, "GET", f"/db/_design/d/_search/words?q=text:{n}")
        for n in range(6):
            api.expect(200, "GET", f"/db/_design/d/_nouveau/words?q=text:{n}")
        api.expect(400, "GET", "/db/_design/d/_search/words?q=text:(")
        api.expect(404, "GET", "/db/_design/d/_search/nothing?q=text:a")
        after = metrics(api)
        grown = lambda name, **labels: after(name, **labels) - before(name, **labels)
        for name, wanted in {
            "settee_text_indexes_documents_total": 240,
            # Design documents are Clouseau's to index, and this one has no text.
            "settee_text_indexes_commits_total": 2,
            "settee_text_indexes_update_failures_total": 0,
            "settee_text_indexes_update_time_seconds_count": 2,
            "settee_text_indexes_wait_time_seconds_count": 2,
            "settee_text_indexes_merges_total": 0,
            "couchdb_dreyfus_httpd_search_seconds_count": 6,
            "couchdb_nouveau_search_latency_seconds_count": 6,
        }.items():
            report.equal(name, grown(name), wanted)
        removals = grown("settee_text_indexes_removals_total")
        report.check("documents that give nothing are counted", 14 <= removals <= 16, removals)
        searches = grown("settee_text_indexes_search_time_seconds_count")
        report.check("searches are timed", 10 <= searches <= 11, searches)
        report.equal("by route", [grown("settee_request_seconds_count", route=route) for route in ("search", "nouveau")], [6, 6])
        open_now = lambda: [metrics(api)(f"settee_text_indexes_{name}") for name in ("open", "segments")]
        report.check("open ones are told", wait_until(lambda: open_now() == [2, 2], 20), open_now())
        told = lambda: metrics(api)("settee_keyspace_bytes", keyspace="text_indexes")
        files = lambda: sum(stat.st_size for _, stat in files_below(Path(server.data, "store", "text")))
        report.check("so are the bytes of their files", wait_until(lambda: told() == files(), 20), (told(), files()))
        # Each update is a segment: enough of them are merged.
        for n in range(12):
            api.expect(201, "PUT", f"/db/more{n}", {"text": f"blue {n}"})
            api.expect(200, "GET", "/db/_design/d/_nouveau/words?q=text:blue")
        merged = lambda: metrics(api)("settee_text_indexes_merges_total") > 0
        report.check("merges are counted", wait_until(merged, 20), metrics(api)("settee_text_indexes_merges_total"))
        # More fields of one document than `[functions] emit_rows_limit`.
        flood = 'function (doc) { if (doc._id === "0007") for (var i = 0; i < 200000; i++) index("string", "x", "a"); }'
        api.expect(201, "PUT", "/db/_design/floods", {"nouveau": {"bad": {"index": flood}}})
        api.expect(200, "GET", "/db/_design/floods/_nouveau/bad?q=x:a")
        report.check("documents that are left out are counted", metrics(api)("settee_text_indexes_left_out_total") >= 1)
        endless = "function (doc) { while (true) {} }"
        api.expect(201, "PUT", "/db/_design/fails", {"nouveau": {"bad": {"index": endless}}})
        refused = api.get("/db/_design/fails/_nouveau/bad?q=x:a")
        report.check("an index that cannot be is refused", refused.status >= 400 and "time_limit_ms" in refused.raw.decode(), refused)
        report.check("and counted", metrics(api)("settee_text_indexes_update_failures_total") >= 1)


def settle(api):
    """Waits until the server has written what it writes when it starts."""
    written, since = None, time.monotonic()
    while time.monotonic() - since < 2:
        now = metrics(api)("couchdb_document_writes_total")
        if now != written:
            written, since = now, time.monotonic()
        time.sleep(0.1)


def fill(api, name="/db", documents=DOCUMENTS):
    api.expect(201, "PUT", name)
    for at in range(0, documents, 1000):
        docs = [{"_id": f"{n:07}", "text": "x" * 1000, "n": n} for n in range(at, min(at + 1000, documents))]
        api.expect(201, "POST", f"{name}/_bulk_docs", {"docs": docs})


def test_ends_of_answers(ctx):
    """A request is counted when its body has ended, however it ended."""
    report = ctx.report
    with ctx.server("ends") as server:
        api = server.api()
        fill(api)
        before = metrics(api)
        slow = ask(server, "/db/_all_docs?include_docs=true")
        slow.recv(100)
        time.sleep(1.2)
        meanwhile = metrics(api)
        report.equal("a listing that is read slowly is under way", meanwhile("settee_requests_in_flight"), 2)
        counted = lambda m, **labels: m("settee_request_seconds_count", **labels)
        report.equal("and counts nowhere yet", counted(meanwhile, route="all_docs") - counted(before, route="all_docs"), 0)
        while slow.recv(1 << 16):
            pass
        slow.close()
        done = lambda: counted(metrics(api), route="all_docs") - counted(before, route="all_docs")
        report.check("it counts when it has ended", wait_until(lambda: done() == 1, 10))
        after = metrics(api)
        spent = after("settee_request_seconds_sum", route="all_docs") - before("settee_request_seconds_sum", route="all_docs")
        report.check("with the time of its reader", 1.0 < spent < 30, spent)
        sent = after("settee_sent_bytes_total") - before("settee_sent_bytes_total")
        report.check("and with its bytes", sent > DOCUMENTS * 1000, sent)
        report.equal("it is not aborted", after("couchdb_httpd_aborted_requests_total"), 0)

        api.expect(201, "PUT", "/db/large", {"text": "x" * 7_000_000})
        reads = lambda m: counted(m, route="document_read")
        slow = ask(server, "/db/large")
        slow.recv(100)
        time.sleep(0.5)
        report.equal("nor does a large document that is read slowly", reads(metrics(api)), 0)
        while slow.recv(1 << 16):
            pass
        slow.close()
        report.check("until it is read", wait_until(lambda: reads(metrics(api)) == 1, 10))

        left = ask(server, "/db/_all_docs?include_docs=true")
        left.recv(100)
        left.close()
        report.check("a reader that leaves is", wait_until(lambda: metrics(api)("couchdb_httpd_aborted_requests_total") == 1, 10))
        feed = ask(server, "/db/_changes?feed=continuous&since=now&heartbeat=1000")
        feed.recv(100)
        feed.close()
        report.check("one that leaves a feed is not", wait_until(lambda: counted(metrics(api), route="feed") == 1, 10))
        report.equal("nor counted as such", metrics(api)("couchdb_httpd_aborted_requests_total"), 1)

        # Hung up on before there is an answer: the view is slow to build.
        slow_map = "function(doc) { var x = 0; for (var i = 0; i < 400000; i++) x += i; emit(x, 1); }"
        api.expect(201, "PUT", "/db/_design/d", {"views": {"v": {"map": slow_map}}})
        early = ask(server, "/db/_design/d/_view/v")
        time.sleep(0.3)
        early.close()
        report.check("one that leaves before the head is", wait_until(lambda: metrics(api)("couchdb_httpd_aborted_requests_total") == 2, 30))
        host, port = api.host, api.port
        head = f"HEAD /db/_all_docs HTTP/1.1\r\nHost: x\r\nAuthorization: {basic(server.admin)}\r\nConnection: close\r\n\r\n"
        answer = exchange(host, port, head.encode())
        report.equal("HEAD is answered", answer.status, 200)
        report.check("and is not aborted", wait_until(lambda: metrics(api)("settee_requests_in_flight") == 1, 10))
        report.equal("as the number says", metrics(api)("couchdb_httpd_aborted_requests_total"), 2)
        lines = [line for line in server.log().splitlines() if "/db/_all_docs" in line and "method=GET" in line.replace('"', "")]
        report.check("the log has the end of each", any("aborted" in line for line in lines) and any("aborted" not in line for line in lines), lines)
        report.check("no panic", "panicked" not in server.log())


def test_labels_are_bounded(ctx):
    """Databases, views, paths and methods that clients make up add no series."""
    with ctx.server("bounded") as server:
        api = server.api()
        api.expect(201, "PUT", "/db")
        api.get("/db/a")
        api.get("/nothing/a")
        api.request("X1", "/db/a")
        api.get("/db/_design/d0/_view/v")
        api.expect(201, "PUT", "/first")
        api.request("X1", "/db")
        metrics(api)
        before = set(metrics(api).samples)
        for n in range(ctx.size(300, 20_000)):
            api.expect(201, "PUT", f"/made{n}")
            api.get(f"/made{n}/x{n}")
            api.get(f"/nothing{n}/a")
            api.request(f"X{n}", f"/made{n}")
            api.get(f"/made{n}/_design/d{n}/_view/v{n}")
        after = set(metrics(api).samples)
        new = sorted(after - before)
        # Threads come when there is work for them: their names are those in the program.
        threads = {value for key in new for label, value in key[1:] if label == "threads"}
        others = [key for key in new if not any(label == "threads" for label, _ in key[1:])]
        ctx.report.equal("no series came", others, [])
        ctx.report.check("but those of a few threads", len(threads) <= 8 and not any(re.search(r"\d", name) for name in threads), threads)
        began = time.monotonic()
        metrics(api)
        ctx.report.note(f"numbers of {ctx.size(300, 20_000)} databases were told in {(time.monotonic() - began) * 1000:.1f} ms")


def test_threads_have_states(ctx):
    """What threads do sums up to the time that passed."""
    with ctx.server("states") as server:
        api = server.api()
        fill(api)
        stop = threading.Event()

        def load(path):
            mine = server.api()
            while not stop.is_set():
                mine.get(path)
            mine.close()

        clients = [threading.Thread(target=load, args=(path,)) for path in ("/db/0000001", "/db/_all_docs?limit=500", "/_all_dbs")]
        for client in clients:
            client.start()
        time.sleep(0.5)
        # What is told lies between asking and answer, which a busy machine draws apart.
        asked_first, first, told_first, between = time.monotonic(), metrics(api), time.monotonic(), []
        while time.monotonic() - told_first < ctx.size(3, 20):
            time.sleep(0.25)
            between.append(metrics(api))
        asked_last, last, told_last = time.monotonic(), metrics(api), time.monotonic()
        stop.set()
        for client in clients:
            client.join()
        least, passed = asked_last - told_first, told_last - asked_first
        for threads in ("serve", "commit"):
            names = [name for name in last.by("settee_threads", "threads") if name.startswith(threads)]
            ctx.report.check(f"there are threads named {threads}", names, sorted(last.by("settee_threads", "threads")))
            for name in names:
                spent = last("settee_thread_seconds_total", threads=name) - first("settee_thread_seconds_total", threads=name)
                # Threads that wait for work end after a while.
                threads_then = statistics.mean(each("settee_threads", threads=name) for each in between)
                shares = spent / passed / threads_then, spent / least / threads_then
                ctx.report.check(f"states of {name} sum up to the time", shares[0] < 1.03 and shares[1] > 0.97, shares)
        of = lambda state: last("settee_thread_seconds_total", state=state) - first("settee_thread_seconds_total", state=state)
        for state in ("read", "auth", "answer", "network", "idle"):
            ctx.report.check(f"some of it was {state}", of(state) > 0, of(state))
        cpu = last("settee_thread_cpu_seconds_total") - first("settee_thread_cpu_seconds_total")
        ctx.report.check("threads' CPU time is told", 0 < cpu <= passed * 4, cpu)


STANDS_STILL_S = 0.6


def test_waits_before_requests(ctx):
    """A server stands still while a request comes on an open connection and another on a new one: what they waited is in no time of a request."""
    report = ctx.report
    with ctx.server("arrival") as server:
        host, port = server.api().host, server.api().port
        request = b"GET /_up HTTP/1.1\r\nHost: x\r\n\r\n"
        with socket.create_connection((host, port), timeout=60) as kept:
            kept.sendall(request)
            report.equal("a first request is answered", answered(kept).status, 200)
            before = metrics(server.api())
            server.process.send_signal(signal.SIGSTOP)
            try:
                kept.sendall(request)
                # The kernel makes the connection; nobody accepts it.
                new = socket.create_connection((host, port), timeout=60)
                new.sendall(request)
                time.sleep(STANDS_STILL_S)
            finally:
                server.process.send_signal(signal.SIGCONT)
            timings = [timing(answered(connection)) for connection in (kept, new)]
            new.close()
        after = metrics(server.api())
        for name in ("accept_wait", "socket_wait", "event_loop_lag"):
            late = [told(f"settee_{name}_seconds_count") - told(f"settee_{name}_seconds_bucket", le="0.25") for told in (before, after)]
            report.check(f"{name} has it", late[1] > late[0], late)
        # Of two that are read within 10 ms by one thread, one is measured.
        waits = [parts.get("socket", 0) for parts in timings]
        report.check("Server-Timing has it", max(waits) > 250, timings)
        report.check("and not in its total", all(parts["total"] < max(waits) for parts in timings), timings)
        top = server.api().expect(200, "GET", "/_settee/top")["waits"]
        longest = {name: max((us for us, _ in times), default=0) for name, times in top.items()}
        report.check("top has all of them", set(longest) == {"accept", "socket", "event_loop"} and min(longest.values()) > 250_000, longest)


def answered(connection):
    answer = http.client.HTTPResponse(connection)
    answer.begin()
    answer.read()
    return answer


def timing(answer):
    """The phases of `Server-Timing`, in milliseconds."""
    return {name: float(ms) for name, ms in (part.strip().split(";dur=") for part in answer.headers["Server-Timing"].split(","))}


def run_queue_s(server):
    """How long the threads that serve have waited for a processor, by the kernel."""
    waited = 0
    for task in Path(f"/proc/{server.process.pid}/task").iterdir():
        if (task / "comm").read_text().strip() == "serve":
            waited += int((task / "schedstat").read_text().split()[1])
    return waited / 1e9


def test_run_queues(ctx):
    """What threads waited for a processor lies between what the kernel says before and after."""
    with ctx.server("run-queue") as server:
        api = server.api()
        api.expect(201, "PUT", "/db")
        for n in range(50):
            api.expect(201, "PUT", f"/db/{n}", {})
        told = lambda: metrics(api)("settee_thread_run_queue_seconds_total", threads="serve")
        told()
        before, now, after = run_queue_s(server), told(), run_queue_s(server)
        ctx.report.check("the metric is the kernel's", before - 1e-6 <= now <= after + 1e-6, (before, now, after))
        top = api.expect(200, "GET", "/_settee/top")["threads"]
        serving = {each["id"] for each in top["each"] if each["name"] == "serve"}
        tasks = {int(task.name) for task in Path(f"/proc/{server.process.pid}/task").iterdir()}
        ctx.report.check("top has the threads one by one", serving and serving <= tasks, serving)


QUERY_SERVER = """
import json, sys
room = bytearray(int(sys.argv[1]) << 20)
room[::4096] = b"x" * len(room[::4096])
for line in sys.stdin:
    command = json.loads(line)
    if command[0] == "map_doc":
        for n in range(int(sys.argv[2])):
            n * n
        print(json.dumps([[[None, None]]]))
    else:
        print("true")
    sys.stdout.flush()
"""


def test_processes_by_language(ctx):
    """A query server that takes memory and one that takes time: each language has its own, in metrics and in top."""
    report = ctx.report
    program = ctx.folder("languages") / "server.py"
    program.write_text(QUERY_SERVER, encoding="utf-8")
    # The busy one is started by a shell, which waits for it.
    shell = f"sh -c 'python3 {program} 1 100000; true'"
    commands = {"large": f"python3 {program} 64 0", "busy": shell}
    options = [word for name, command in commands.items() for word in ("--set", f"query_servers/{name}={command}")]
    with ctx.server("by-language", options=options) as server:
        api = server.api()
        api.expect(201, "PUT", "/db?q=1")
        api.expect(201, "POST", "/db/_bulk_docs", {"docs": [{"n": n} for n in range(200)]})
        for name in commands:
            api.expect(201, "PUT", f"/db/_design/{name}", {"language": name, "autoupdate": False, "views": {"v": {"map": name}}})
            api.expect(200, "GET", f"/db/_design/{name}/_view/v?limit=1")
        told = metrics(api)
        of = lambda name, language: told(f"settee_function_{name}", language=language)
        report.check("both run", all(of("processes", name) >= 1 for name in commands), told.by("settee_function_processes", "language"))
        room = {name: of("private_bytes", name) / of("processes", name) for name in commands}
        report.check("each process of the large one has its 64 MiB, and none of the other", room["large"] > 64 << 20 > room["busy"], room)
        cpu = {name: of("cpu_seconds_total", name) for name in commands}
        report.check("the time is that of the busy one, which a shell has started", cpu["busy"] > cpu["large"], cpu)
        top = api.expect(200, "GET", "/_settee/top")
        languages = {each["language"]: each for each in top["languages"]}
        report.check("top has the same languages", set(commands) <= set(languages), languages)
        for name in commands:
            report.equal(f"top has the processes of {name}", len(languages[name]["process_ids"]), of("processes", name))
        text = subprocess.run(
            [ctx.binary, "top", server.url.replace("http://", f"http://{server.admin}@"), "--once"],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        report.check("and so has the screen", all(f"(functions in {name})" in text for name in commands), text)
        for process in languages["busy"]["process_ids"]:
            os.killpg(process, signal.SIGKILL)
        api.expect(201, "PUT", "/db/_design/again", {"language": "busy", "autoupdate": False, "views": {"v": {"map": "again"}}})
        api.expect(200, "GET", "/db/_design/again/_view/v?limit=1")
        told = metrics(api)
        report.check(
            "the time of processes that have ended stays", of("cpu_seconds_total", "busy") >= cpu["busy"], (cpu, of("cpu_seconds_total", "busy"))
        )


def test_slow_log(ctx):
    """What is slow is told in a line of JSON, without values."""
    path = ctx.folder("slow_log") / "slow.jsonl"
    options = ["--set", "log/slow_time=1", "--set", f"log/slow_file={path}"]
    with ctx.server("slow", options=options) as server:
        api = server.api()
        fill(api)
        api.expect(201, "PUT", "/db/_design/d", {"views": {"v": {"map": "function(doc) { emit(doc.n, 1); }", "reduce": "_sum"}}})
        api.expect(200, "GET", "/db/_design/d/_view/v?reduce=false&limit=1234")
        api.expect(200, "POST", "/db/_design/d/_view/v", {"keys": [1, 2, 3], "reduce": False})
        selector = {"$or": [{"text": SECRET}, {"n": {"$gt": DOCUMENTS - 10}}]}
        api.expect(200, "POST", "/db/_find", {"selector": selector, "limit": 5})
        api.expect(200, "GET", "/db/_all_docs?include_docs=true")
        asked = lambda: api.expect(200, "GET", "/_settee/slow")
        listed = lambda: any(line["path"] == "/db/_all_docs" for line in asked()["requests"])
        ctx.report.check("the listing is among the last lines", wait_until(listed), asked())
        recent = asked()
        refused = [server.api(credentials="").get("/_settee/slow").status, api.post("/_settee/slow", {}).status]
        server.stop()
        text = path.read_text()
        lines = [json.loads(line) for line in text.splitlines()]
        ctx.report.equal("the server names the limit and the file", (recent["slow_time"], recent["slow_file"]), (1, str(path)))
        told = [line for line in lines if line["id"] in {of["id"] for of in recent["requests"]}]
        ctx.report.equal("and has the last lines, the latest first", recent["requests"], told[::-1])
        ctx.report.check("at most 100", 0 < len(recent["requests"]) <= 100, len(recent["requests"]))
        ctx.report.equal("for admins, who may only read them", refused, [401, 405])
        of = lambda route: [line for line in lines if line["route"] == route]
        report = ctx.report
        report.check("no value of a selector is in it", SECRET not in text)
        report.check("no password is in it", "admin:admin" not in text and basic(server.admin) not in text)
        view = of("view")
        report.check("views are in it", view and view[0]["view"] == "db/_design/d/_view/v", view)
        report.check("with their rows", view and view[0]["rows"] == 1234, view)
        find = of("find")
        report.check("queries are in it", find and find[0]["docs_examined"] > DOCUMENTS - 10 and find[0]["rows"] == 5 if find else False, find)
        report.check("with the fields of their selectors", find and sorted(find[0].get("selector_fields", [])) == ["n", "text"], find)
        bulk = of("bulk_docs")
        report.check("bulks are in it with their documents", bulk and bulk[0]["documents"] == 1000, bulk)
        for line in lines:
            total = sum(line["phases"].values())
            report.check("phases sum up to the whole", abs(total - line["ms"]) <= 0.05 * line["ms"] + 0.01, line, quiet=True)
            report.check(
                "each has what every line has",
                {"time", "id", "ms", "route", "method", "path", "status", "end", "bytes_sent"} <= set(line),
                line,
                quiet=True,
            )
    with ctx.server("not_slow", options=["--set", "log/slow_time=0"]) as server:
        server.api().get("/_all_dbs")
        ctx.report.check("0 tells nothing", "slow" not in server.log())
        ctx.report.equal("and keeps nothing", server.api().expect(200, "GET", "/_settee/slow"), {"slow_time": 0, "slow_file": "", "requests": []})
    with ctx.server("in_the_log", options=["--set", "log/slow_time=1"]) as server:
        fill(server.api())
        ids = [line["id"] for line in server.api().expect(200, "GET", "/_settee/slow")["requests"]]
        in_log = lambda: [of for of in ids if re.search(rf'slow.*"id":"{of}"', server.log())]
        ctx.report.check("without a file the lines are in the log", ids and wait_until(lambda: in_log() == ids), server.log()[-2000:])


def test_phases(ctx):
    """`Server-Timing` sums up to its total."""
    with ctx.server("phases") as server:
        api = server.api()
        api.expect(201, "PUT", "/db")
        for method, path, body in (
            ("PUT", "/db/a", {"x": "y" * 100_000}),
            ("GET", "/db/a", None),
            ("POST", "/db/_bulk_docs", {"docs": [{"n": n} for n in range(2000)]}),
            ("POST", "/db/_find", {"selector": {"n": {"$gt": 0}}}),
            ("GET", "/db/_all_docs", None),
        ):
            parts = timing(api.request(method, path, body))
            # What was before it is not in the total.
            parts.pop("socket", None)
            total = parts.pop("total")
            spent = sum(parts.values())
            ctx.report.check(f"{method} {path}", abs(spent - total) <= 0.05 * total + 0.002, parts)
            wanted = {"PUT": "commit", "POST": "parse", "GET": "auth"}[method]
            ctx.report.check(f"{method} {path} has {wanted}", wanted in parts, parts)


def test_rights(ctx):
    """Numbers are for admins, and for those with the role `_metrics` (the suite `authentication` has those)."""
    with ctx.server("rights") as server:
        api, nobody = server.api(), server.api(credentials="")
        for path in ("/_node/_local/_stats", "/_node/_local/_prometheus", "/_node/_local/_system", "/_settee/top"):
            answers = [who.get(path).status for who in (api, nobody)]
            ctx.report.equal(f"{path} is for admins", answers, [200, 401])


def test_nothing_falls(ctx):
    """Counters never fall, whatever ends or fails in between: Prometheus would take that for a restart."""
    with ctx.server("monotone") as server:
        api, wrong = server.api(), server.api(credentials="admin:wrong")
        fill(api)
        itself = server.url.replace("http://", f"http://{server.admin}@")
        api.expect(201, "PUT", "/db/_design/d", {"views": {"v": {"map": "function(doc) { emit(doc.n, 1); }"}}})
        api.put("/_replicator/gone", {"source": "http://127.0.0.1:1/x", "target": f"{itself}/db", "continuous": True})
        before, fallen, threads = {}, [], []

        def read():
            told = metrics(api)
            threads.append(told("settee_threads"))
            for key, value in told.samples.items():
                name = key[0]
                is_counter = told.types.get(name) == "counter" or name.endswith(("_bucket", "_count"))
                if is_counter and value < before.get(key, 0):
                    fallen.append((key, before[key], value))
                before[key] = value

        # Not more often: who is wrong five times is locked out.
        for round_ in range(3):
            wrong.get("/db")
            api.get("/db/_design/d/_view/v?update=true&limit=1")
            api.put("/db/x", {"round": round_})
            api.post("/db/_find", {"selector": {"text": {"$regex": "y"}}})
            api.post("/_replicate", {"source": f"{itself}/db", "target": f"{itself}/copy{round_}", "create_target": True})
            api.post("/db/_purge", {f"{round_:07}": ["1-x"]})
            read()

        def threads_ended():
            read()
            return threads[-1] < max(threads)

        # Threads for blocking work end after ten seconds without any, if there were more than are always there.
        ended = wait_until(threads_ended, ctx.size(14, 60), ctx.size(0.5, 1))
        ctx.report.note(f"threads {'have' if ended else 'have not'} ended meanwhile: {threads[0]:.0f} at first, {threads[-1]:.0f} at last")
        for _ in range(ctx.size(3, 40)):
            read()
            time.sleep(ctx.size(0.1, 1))
        ctx.report.check("no counter falls", not fallen, fallen[:10])


def test_a_port_of_its_own(ctx):
    """CouchDB's additional port tells numbers without a login, and nothing else."""
    with ctx.server("port", options=["--set", "prometheus/additional_port=true", "--set", "prometheus/port=0"]) as server:
        api = server.api()
        api.expect(201, "PUT", "/db")
        said = [line for line in server.log().splitlines() if line.startswith("Prometheus finds numbers on http://")]
        ctx.report.check("the server says where", said, server.log())
        port = Api(said[0].split(" on ")[1].split("/_node")[0], credentials="")
        told = Metrics(port.get("/_node/_local/_prometheus").raw.decode())
        ctx.report.equal("it tells numbers", told("couchdb_httpd_request_methods", method="PUT"), 1)
        ctx.report.equal("and nothing else", [port.get(path).status for path in ("/", "/db", "/_node/_local/_stats", "/_all_dbs")], [404] * 4)
        ctx.report.equal("to who reads", port.post("/_node/_local/_prometheus").status, 405)


def test_prometheus_reads(ctx):
    """promtool finds nothing wrong, and a real Prometheus counts what was done."""
    with ctx.server("scraped") as server:
        api = server.api()
        fill(api)
        api.expect(200, "POST", "/db/_find", {"selector": {"n": 1}})
        text = api.get("/_node/_local/_prometheus").raw
        checked = subprocess.run([tool(ctx, "promtool"), "check", "metrics"], input=text, capture_output=True, timeout=60)
        # CouchDB has gauges with such names.
        of_couchdb = re.compile(r"couchdb_\w+_count non-histogram and non-summary metrics should not have \"_count\" suffix")
        said = [line for line in (checked.stdout + checked.stderr).decode().splitlines() if not of_couchdb.fullmatch(line)]
        ctx.report.check("promtool check metrics is content", not said, said)
        prometheus = Prometheus(ctx, server)
        ctx.report.check("Prometheus scrapes it", wait_until(lambda: [v for _, v in prometheus.query('up{job="settee"}')] == [1.0], 30))
        for n in range(500):
            api.expect(200, "GET", f"/db/{n:07}")
        counted = lambda: [v for _, v in prometheus.query('settee_request_seconds_count{route="document_read"}')]
        ctx.report.check("and counts what was done", wait_until(lambda: counted() == [500.0], 30), counted())
        quantile = 'histogram_quantile(0.99, sum by (le) (settee_request_seconds_bucket{route="document_read"}))'
        found = [v for _, v in prometheus.query(quantile)]
        ctx.report.check("its percentiles can be asked for", found and 0 < found[0] < 60, found)
        prometheus.end()
