"""Sources that answer oddly: nothing that they have is lost, and nothing that they have lost is waited for. And what a job tells
while it goes on, what it may read, and who may end it."""

import http.server
import json
import threading

import pytest

from harness.api import quote
from harness.odd_source import SECOND, OddSource
from harness.server import wait_until

pytestmark = pytest.mark.quick

OPTIONS = ["--set", "replicator/startup_jitter=0", "--set", "replicator/retries_per_request=1", "--set", "couchdb/users_db_security_editable=true"]


@pytest.fixture(scope="module")
def server(suite):
    with suite.server(options=OPTIONS) as server:
        yield server
        suite.report.check("no panic", "panicked" not in server.log())


@pytest.fixture
def api(server):
    return server.api()


def pull(api, source, target, **more):
    api.request("DELETE", f"/{target}")
    return api.post("/_replicate", {"source": source.url, "target": target, "create_target": True, **more})


def ids(api, db):
    return [row["id"] for row in api.expect(200, "GET", f"/{db}/_all_docs")["rows"]]


def checkpoints(api, db):
    return api.expect(200, "GET", f"/{db}/_local_docs")["rows"]


def test_refused_in_bulk(ctx, server, api):
    source = OddSource(bulk="error", single="ok")
    answer = pull(api, source, "bulk")
    ctx.report.equal("what _bulk_get refuses is read singly", (answer.status, ids(api, "bulk")), (200, ["d1", "d2", "d3"]))
    ctx.report.equal("once", source.singles, 1)
    source.close()


def test_refused_leaf(ctx, server, api):
    """Two leaves with attachments, of which the second is refused: it is the one to be read singly."""
    source = OddSource(bulk="leaves")
    answer = pull(api, source, "leaves")
    leaves = api.get("/leaves/d2?open_revs=all", headers={"Accept": "application/json"}).json
    found = sorted(leaf["ok"]["_rev"] for leaf in leaves) if isinstance(leaves, list) else leaves
    ctx.report.equal("of two leaves both come", (answer.status, found), (200, [rev2(), SECOND]))
    source.close()


def test_missing_singly(ctx, server, api):
    for how in ("missing", "gone"):
        source = OddSource(bulk="error", single=how)
        answer = pull(api, source, "lost")
        ctx.report.check(
            f"a revision that _changes names and that is {how} fails the replication", answer.status == 500 and rev2() in answer.raw.decode(), answer
        )
        ctx.report.equal("after a second look", source.singles, 2)
        ctx.report.equal("and nothing is recorded", (checkpoints(api, "lost"), source.checkpoints), ([], {}))
        source.single = "ok"
        answer = api.post("/_replicate", {"source": source.url, "target": "lost"})
        ctx.report.equal("once it is there it comes", (answer.status, ids(api, "lost")), (200, ["d1", "d2", "d3"]))
        source.close()


def rev2():
    return "1-" + "a" * 31 + "2"


def test_broken_singly(ctx, server, api):
    source = OddSource(bulk="error", single="broken")
    answer = pull(api, source, "broken")
    ctx.report.equal("a source that fails fails the replication", (answer.status, source.singles), (500, 2))
    ctx.report.equal("which records nothing", checkpoints(api, "broken"), [])
    source.close()


def test_purged_meanwhile(ctx, server, api):
    source = OddSource(bulk="error", single="gone", listed=False)
    answer = pull(api, source, "purged")
    entry = answer.json["history"][0] if answer.status == 200 else answer
    ctx.report.equal("what was purged meanwhile is left out", (answer.status, ids(api, "purged")), (200, ["d1", "d3"]))
    ctx.report.equal("and counted", (entry["docs_written"], entry["doc_write_failures"]), (2, 1))
    ctx.report.check("and logged", "were removed from the source" in server.log() and "d2" in server.log())
    source.close()


def test_large_attachments(ctx, server, api):
    source = OddSource(bulk="stub", single="gone")
    answer = pull(api, source, "large")
    ctx.report.equal("a document with attachments that is missing fails the replication, too", (answer.status, source.singles), (500, 2))
    source.close()
    source = OddSource(bulk="stub", single="gone", listed=False)
    answer = pull(api, source, "large2")
    ctx.report.equal(
        "unless it was purged", (answer.status, ids(api, "large2"), answer.json["history"][0]["doc_write_failures"]), (200, ["d1", "d3"], 1)
    )
    source.close()


def test_endless_attachments(ctx, server, api):
    """An attachment beyond `max_attachment_size` costs its document, and is not read to that length if it is announced to be longer."""
    # Sockets hold some of it.
    sent_max = 64 << 20
    setting = "/_node/_local/_config/couchdb/max_attachment_size"
    for name, length, max_bytes in (("announced", 1 << 40, 1 << 30), ("unannounced", None, 1 << 20)):
        api.expect(200, "PUT", setting, str(max_bytes))
        source = OddSource(bulk="stub", single="endless", length=length)
        answer = pull(api, source, name)
        history = answer.json["history"][0] if answer.status == 200 else answer
        ctx.report.equal(f"{name}: the document is refused", (answer.status, history["doc_write_failures"]), (200, 1))
        ctx.report.equal(f"{name}: the others come", ids(api, name), ["d1", "d3"])
        ctx.report.check(f"{name}: little of it is read", source.endless_bytes < sent_max, source.endless_bytes)
        source.close()
    api.expect(200, "DELETE", setting)


def test_odd_refusals(ctx, server, api):
    """A target that refuses as PouchDB's server does."""

    class Target(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, answer = 404, {"error": "not_found", "reason": "missing"}
            if self.path.rstrip("/") == "/t":
                status, answer = 200, {"db_name": "t", "update_seq": 1, "doc_count": 1, "doc_del_count": 0}
            elif self.path == "/t/_revs_diff":
                status, answer = 200, {id: {"missing": revs} for id, revs in json.loads(body).items()}
            elif self.path == "/t/_bulk_docs":
                row = {"error": True, "name": "forbidden", "status": 403, "message": "no", "reason": "no"}
                status, answer = 201, [{**row, "id": doc["_id"]} for doc in json.loads(body)["docs"]]
            elif self.command == "PUT":
                status, answer = 201, {"ok": True, "rev": "0-1"}
            text = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text if self.command != "HEAD" else b"")

        do_GET = do_POST = do_PUT = do_HEAD = answer
        log_message = lambda *_: None

    target = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Target)
    threading.Thread(target=target.serve_forever, daemon=True).start()
    source = OddSource(bulk="ok")
    answer = api.post("/_replicate", {"source": source.url, "target": f"http://127.0.0.1:{target.server_port}/t"})
    entry = answer.json["history"][0] if answer.status == 200 else answer
    ctx.report.equal("refusals in PouchDB's shape count", (entry["docs_written"], entry["doc_write_failures"]), (0, 3))
    target.shutdown()
    source.close()


def test_nothing_let_through(ctx, server, api):
    for db in ("from", "to"):
        api.expect(201, "PUT", f"/{db}")
    api.expect(201, "POST", "/from/_bulk_docs", {"docs": [{"_id": f"x{n}"} for n in range(10)]})
    for options in ({"doc_ids": ["nope"]}, {"doc_ids": []}, {"selector": {"no": "such"}}):
        for source in ("from", with_password(server.url) + "/from"):
            answer = api.post("/_replicate", {"source": source, "target": "to", **options})
            ctx.report.equal(f"nothing of it: {options}", (answer.status, answer.json), (200, {"ok": True, "no_changes": True}))
    ctx.report.equal("and nothing is recorded", (checkpoints(api, "from"), checkpoints(api, "to")), ([], []))


def with_password(url):
    return url.replace("http://", "http://admin:admin@")


def number(seq):
    """Of a job that has not begun, -1."""
    return -1 if seq is None else int(str(seq).split("-")[0])


def test_progress_between_checkpoints(ctx, server, api):
    for source in ("from", with_password(server.url) + "/from"):
        api.request("DELETE", "/live")
        request = {"source": source, "target": "live", "create_target": True, "continuous": True}
        id = api.expect(202, "POST", "/_replicate", request)["_local_id"]
        # A job is no task before it knows how far it is.
        tasks = lambda: [t for t in api.expect(200, "GET", "/_active_tasks") if t["type"] == "replication"]
        ctx.report.check("a job becomes a task", wait_until(tasks, 20))
        task = lambda: tasks()[0]
        settled = lambda seq: lambda: number(task()["through_seq"]) == seq and task()["changes_pending"] == 0
        ctx.report.check("through_seq follows what is done", wait_until(settled(10), 20), task())
        api.expect((201, 202), "POST", "/from", {"more": True})
        api.expect(200, "DELETE", f"/from/{newest(api)}")
        last = number(api.expect(200, "GET", "/from")["update_seq"])
        ctx.report.check("and what comes", wait_until(lambda: number(task()["through_seq"]) == last, 20), task())
        ctx.report.check("the source is never behind", number(task()["source_seq"]) >= number(task()["through_seq"]), task())
        ctx.report.equal("all that before a checkpoint", (task()["checkpointed_source_seq"], checkpoints(api, "live")), (0, []))
        info = api.expect(200, "GET", f"/_scheduler/jobs/{id}")["info"]
        ctx.report.equal("the scheduler knows it, too", number(info["through_seq"]), last)
        api.expect(200, "POST", "/_replicate", {"replication_id": id, "cancel": True})
        api.expect(200, "DELETE", "/from")
        api.expect(201, "PUT", "/from")
        api.expect(201, "POST", "/from/_bulk_docs", {"docs": [{"_id": f"x{n}"} for n in range(10)]})


def newest(api):
    row = api.expect(200, "GET", "/from/_changes?descending=true&limit=1")["results"][0]
    return f"{quote(row['id'])}?rev={row['changes'][0]['rev']}"


def test_others_jobs(ctx, server, api):
    api.request("PUT", "/_users")
    api.expect(201, "PUT", "/_users/org.couchdb.user:anna", {"name": "anna", "password": "pw", "type": "user", "roles": []})
    anna = server.api(credentials="anna:pw")
    id = api.expect(202, "POST", "/_replicate", {"source": "from", "target": "to", "continuous": True})["_local_id"]
    answer = anna.post("/_replicate", {"replication_id": id, "cancel": True})
    ctx.report.equal(
        "others' jobs are not for ending", (answer.status, answer.json), (401, {"error": "unauthorized", "reason": "You are not a server admin."})
    )
    api.expect(200, "POST", "/_replicate", {"replication_id": id, "cancel": True})


def test_databases_for_admins(ctx, server, api):
    anna, open_to_all = server.api(credentials="anna:pw"), {"members": {"roles": []}, "admins": {"roles": []}}
    api.request("PUT", "/_replicator")
    for db in ("_users", "_replicator"):
        api.expect(200, "PUT", f"/{db}/_security", open_to_all)
    api.expect(201, "PUT", "/annas")
    api.expect(200, "PUT", "/annas/_security", open_to_all)
    for db in ("_users", "_replicator"):
        refused = anna.get(f"/{db}/_changes").status
        answers = [anna.post("/_replicate", {"source": db, "target": "annas"}), anna.post("/_replicate", {"source": "annas", "target": db})]
        ctx.report.equal(f"whom {db} does not show its changes does not replicate it", [refused, *(a.status for a in answers)], [401] * 3)
    ctx.report.equal("nothing came of it", ids(api, "annas"), [])
    ctx.report.equal("an admin may", api.post("/_replicate", {"source": "_users", "target": "annas"}).status, 200)


def test_spellings_of_urls(ctx, server, api):
    answers = []
    for text in ("http:///u:s3cret@127.0.0.1:9/db", "http:u:s3cret@127.0.0.1:9/db", "http:\\\\u:s3cret@127.0.0.1:9\\db"):
        for source in (text, {"url": text}):
            answers.append(api.post("/_replicate", {"source": source, "target": "to"}).raw)
            doc = {"source": source, "target": with_password(server.url) + "/to", "source_proxy": text}
            api.request("PUT", f"/_replicator/spelt{len(answers)}", doc)
    api.expect(200, "GET", "/_scheduler/docs")
    for path in ("/_scheduler/docs", "/_scheduler/jobs", "/_active_tasks"):
        answers.append(api.get(path).raw)
    anna = server.api(credentials="anna:pw")
    answers += [anna.get(f"/_replicator/spelt{n}").raw for n in range(1, 7)]
    ctx.report.check("no spelling of a URL shows its password", not any(b"s3cret" in a for a in answers), [a for a in answers if b"s3cret" in a])
    ctx.report.check("nor does the log", "s3cret" not in server.log())
