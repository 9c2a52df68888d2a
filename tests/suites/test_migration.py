"""`settee migrate`: a Settee stands in for CouchDB. What was copied is looked at through the API, not through the command's
own comparison; that one is tested by tampering with the copy."""

import base64
import json
import os
import signal
import subprocess

import pytest

from harness.api import quote
from harness.files import files_below
from harness.ports import closed_port
from harness.proxy import Proxy
from harness.server import end, track, wait_until

pytestmark = pytest.mark.costly_hashes

TIMEOUT_S = 300
SECRET = "very-secret-9"


def command(ctx, *arguments):
    return [ctx.binary, "migrate", *map(str, arguments)]


def migrate(ctx, *arguments, **more):
    return subprocess.run(command(ctx, *arguments), capture_output=True, text=True, timeout=TIMEOUT_S, check=False, **more)


def url(server, credentials=None):
    return server.url.replace("://", f"://{credentials or server.admin}@")


def through(proxy, credentials="admin:admin"):
    return proxy.url.replace("://", f"://{credentials}@")


def succeeded(ctx, name, done, differences=0):
    wanted = "no difference" if not differences else f"{differences} difference{'s' * (differences > 1)}"
    ok = done.returncode == (3 if differences else 0) and done.stdout.rstrip().endswith(wanted)
    return ctx.report.check(name, ok, f"exit {done.returncode}\n{done.stdout[-2500:]}\n{done.stderr[-1000:]}")


# What a source holds.


def fill(api, documents=300):
    """Databases of all kinds; returns their names."""
    for name in ("plain", "parts?partitioned=true&q=3", "slash%2Fed-db", "empty?q=5"):
        api.expect(201, "PUT", "/" + name)
    docs = [{"_id": f"doc-{number:05d}", "number": number, "half": number + 0.5, "text": "ä" * (number % 50)} for number in range(documents)]
    api.expect(201, "POST", "/plain/_bulk_docs", {"docs": docs})
    api.expect(
        201, "POST", "/plain/_bulk_docs", {"docs": [{"_id": id_, "odd": True} for id_ in ("ümlaut/and slash", "plus+and&", "sp ace", "%25", "日本")]}
    )
    revs = {row["id"]: row["value"]["rev"] for row in api.expect(200, "GET", "/plain/_all_docs")["rows"]}
    gone = [{"_id": id_, "_rev": revs[id_], "_deleted": True, "why": "tombstones have bodies"} for id_ in list(revs)[:40]]
    api.expect(201, "POST", "/plain/_bulk_docs", {"docs": gone})
    conflicts = [
        {
            "_id": f"doc-{number:05d}",
            "_rev": f"2-{branch * 16:0>32}",
            "branch": branch,
            "_revisions": {"start": 2, "ids": [f"{branch * 16:0>32}", "a" * 32]},
        }
        for number in range(100, 110)
        for branch in "bc"
    ]
    conflicts.append({"_id": "doc-00110", "_rev": "9-" + "d" * 32, "_deleted": True})
    api.expect(201, "POST", "/plain/_bulk_docs", {"docs": conflicts, "new_edits": False})
    api.expect(201, "PUT", "/plain/_design/views", {"views": {"n": {"map": "function (doc) { emit(doc.number); }", "reduce": "_count"}}})
    api.expect(200, "PUT", "/plain/_security", {"admins": {"names": ["anna"], "roles": []}, "members": {"names": [], "roles": ["staff"]}})
    api.expect(200, "PUT", "/plain/_revs_limit", 77)
    api.expect(201, "PUT", "/plain/_auto_purge", {"deleted_document_ttl": "3_weeks", "expires_at": "until", "expired_documents": "purge"})
    for number in range(3):
        api.expect(201, "PUT", f"/plain/_local/checkpoint{number}", {"seq": number})
    inline = {
        "text.txt": ("text/plain", b"hello " * 3000),
        "noise.bin": ("application/octet-stream", bytes(range(256)) * 40),
        "empty": ("text/plain", b""),
    }
    api.expect(
        201,
        "PUT",
        "/plain/attached",
        {"_attachments": {name: {"content_type": kind, "data": base64.b64encode(data).decode()} for name, (kind, data) in inline.items()}},
    )
    api.expect(201, "POST", "/parts/_bulk_docs", {"docs": [{"_id": f"p{number % 7}:{number}"} for number in range(50)]})
    api.expect(201, "POST", "/slash%2Fed-db/_bulk_docs", {"docs": [{"n": number} for number in range(20)]})
    return ["plain", "parts", "slash/ed-db", "empty"]


def leaves(api, db):
    """All leaf revisions, deleted ones included, of all documents, with what is in them."""
    path = "/" + quote(db)
    found = {}
    for row in api.expect(200, "GET", path + "/_changes?style=all_docs")["results"]:
        for change in row["changes"]:
            rev = change["rev"]
            answer = api.get(f"{path}/{document_path(row['id'])}?rev={rev}&revs=true&attachments=true", headers={"Accept": "application/json"})
            found[(row["id"], rev)] = answer.json
    return found


def document_path(id_):
    kind, slash, name = id_.partition("/")
    return f"{kind}/{quote(name)}" if slash and kind == "_design" else quote(id_)


def same_databases(ctx, name, there, here, databases):
    for db in databases:
        a, b = leaves(there, db), leaves(here, db)
        differing = [key for key in a.keys() | b.keys() if a.get(key) != b.get(key)]
        ctx.report.check(f"{name}: {db} has the same revisions with the same content", not differing and len(a) == len(b), differing[:5], quiet=True)
        for what in ("_security", "_revs_limit", "_auto_purge"):
            path = f"/{quote(db)}/{what}"
            ctx.report.equal(f"{name}: {db} has the same {what}", here.get(path).json, there.get(path).json, quiet=True)
        shape = [
            (info["props"], info["cluster"]["q"], info["doc_count"], info["doc_del_count"])
            for info in (api.expect(200, "GET", "/" + quote(db)) for api in (there, here))
        ]
        ctx.report.equal(f"{name}: {db} has the same shape and counts", shape[1], shape[0])


def test_everything(ctx):
    report = ctx.report
    with ctx.server("all-source") as source, ctx.server("all-target", admin="boss:boss") as target:
        there, here = source.api(), target.api()
        databases = fill(there)
        there.expect(201, "PUT", "/_users/org.couchdb.user:bob", {"name": "bob", "password": SECRET, "roles": ["staff"], "type": "user"})
        elsewhere = {"url": "http://127.0.0.1:1/none", "auth": {"basic": {"username": "u", "password": SECRET}}}
        there.expect(201, "PUT", "/_replicator/running", {"source": elsewhere, "target": "http://127.0.0.1:1/other", "continuous": True})
        there.expect(
            201, "PUT", "/_replicator/ended", {"source": "http://127.0.0.1:1/a", "target": "http://127.0.0.1:1/b", "_replication_state": "completed"}
        )
        for setting, value in {
            "cors/origins": "https://app.example",
            "couchdb/max_document_size": "123456",
            "smoosh/unknown": "1",
            "chttpd/backlog": "7",
        }.items():
            there.put(f"/_node/_local/_config/{setting}", value)
        there.put("/_node/_local/_config/admins/carl", SECRET)
        done = migrate(ctx, url(source), "--to", url(target), "--pause-replications", "--sample", "1000")
        succeeded(ctx, "everything is migrated", done)
        said = done.stdout + done.stderr
        report.check("no password is shown", SECRET not in said and "admin:admin" not in said and "boss:boss" not in said, said)
        report.check("nor logged", SECRET not in source.log() + target.log(), "found")
        same_databases(ctx, "everything", there, here, databases)
        bodies = [api.get("/plain/attached/text.txt") for api in (there, here)]
        report.check(
            "an attachment is the same, with the same digest",
            bodies[0].raw == bodies[1].raw == b"hello " * 3000 and bodies[0].headers["ETag"] == bodies[1].headers["ETag"],
            bodies,
        )
        report.equal("a view gives the same", here.get("/plain/_design/views/_view/n").json, there.get("/plain/_design/views/_view/n").json)
        for number in range(3):
            report.equal("local documents are there", here.get(f"/plain/_local/checkpoint{number}").json.get("seq"), number, quiet=True)
        report.equal(
            "settings are there",
            {name: here.get(f"/_node/_local/_config/{name}").json for name in ("cors/origins", "couchdb/max_document_size")},
            {"cors/origins": "https://app.example", "couchdb/max_document_size": "123456"},
        )
        report.check(
            "those of the machine are not, and are named",
            here.get("/_node/_local/_config/chttpd/backlog").status == 404 and "chttpd/backlog" in said,
            said,
        )
        report.check("those without a meaning are named", "smoosh/unknown" in said, said)
        report.equal(
            "an admin logs in with the old password", target.api(credentials=f"carl:{SECRET}").get("/_session").json["userCtx"]["roles"], ["_admin"]
        )
        report.equal("the target's admin stays", target.api(credentials="boss:boss").get("/_session").json["userCtx"]["roles"], ["_admin"])
        users = [api.expect(200, "GET", "/_users/org.couchdb.user:bob") for api in (there, here)]
        report.equal("a user has the same document", users[1], users[0])
        report.equal("and logs in", target.api(credentials=f"bob:{SECRET}").get("/_session").json["userCtx"], {"name": "bob", "roles": ["staff"]})
        running = here.expect(200, "GET", "/_replicator/running")
        report.equal(
            "a paused replication is not begun", (running["_replication_state"], running["source"]["auth"]["basic"]["password"]), ("failed", SECRET)
        )
        report.equal("one that had ended has ended", here.expect(200, "GET", "/_replicator/ended")["_replication_state"], "completed")
        again = migrate(ctx, url(source), "--to", url(target), "--continue")
        succeeded(ctx, "a second run finds nothing to do", again)
        only_compared = migrate(ctx, url(source), "--to", url(target), "--verify-only")
        succeeded(ctx, "and so does --verify-only", only_compared)
        report.check("a line tells of databases and documents", "compared 6 databases with" in only_compared.stdout, only_compared.stdout)


def test_into_a_directory(ctx):
    report = ctx.report
    with ctx.server("dir-source") as source:
        there = source.api()
        databases = fill(there)
        data = ctx.root / "dir-target"
        done = migrate(ctx, url(source), "--data", data)
        succeeded(ctx, "everything is migrated into a directory", done)
        with ctx.server("dir-target", admin="boss:boss") as target:
            same_databases(ctx, "directory", there, target.api(), databases)
            report.equal(
                "the source's admin is admin here", target.api(credentials="admin:admin").get("/_session").json["userCtx"]["roles"], ["_admin"]
            )
            admins = target.api().expect(200, "GET", "/_node/_local/_config/admins")
            report.equal("and the command's own is not", sorted(admins), ["admin", "boss"])
            locked = migrate(ctx, url(source), "--data", data, "--continue")
            report.check("a directory that a server uses is refused", locked.returncode == 1 and locked.stderr.strip(), locked)


def test_chosen(ctx):
    report = ctx.report
    with ctx.server("some-source") as source, ctx.server("some-target") as target:
        there, here = source.api(), target.api()
        for name in ("log-1", "log-2", "log-old", "other"):
            there.expect(201, "PUT", "/" + name)
        there.put("/_node/_local/_config/cors/origins", "https://app.example")
        done = migrate(ctx, url(source), "--to", url(target), "--only", "log-*", "--except", "*-old", "--jobs", "1")
        succeeded(ctx, "chosen databases are migrated", done)
        mine = [name for name in here.expect(200, "GET", "/_all_dbs") if not name.startswith("_")]
        report.equal("those that match", mine, ["log-1", "log-2"])
        report.equal("and no settings", here.get("/_node/_local/_config/cors/origins").status, 404)
        typo = migrate(ctx, url(source), "--to", url(target), "--only", "other", "--only", "lgo-*")
        report.check("a pattern that matches nothing is refused", typo.returncode == 1 and "matches --only lgo-*" in typo.stderr, typo)
        report.equal("before anything is copied", here.get("/other").status, 404)


def test_old_source(ctx):
    """A proxy makes of the source a CouchDB that knows neither `_bulk_get` nor `_local_docs` nor nodes."""

    def hook(_method, path):
        if any(word in path for word in ("/_bulk_get", "/_local_docs", "/_node/")):
            return 404, [("Content-Type", "application/json")], b'{"error":"not_found","reason":"missing"}\n'
        return None

    def rewrite(_method, path, raw):
        if path.strip("/").count("/") == 0 and raw.startswith(b'{"instance_start_time"'):
            info = json.loads(raw)
            for member in ("cluster", "props", "sizes"):
                del info[member]
            return json.dumps(info).encode()
        return raw

    with ctx.server("old-source") as source, ctx.server("old-target") as target:
        databases = fill(source.api())
        with Proxy(source.url, hook, rewrite) as proxy:
            done = migrate(ctx, through(proxy), "--to", url(target), "--except", "parts")
            succeeded(ctx, "an old CouchDB is migrated", done)
            ctx.report.check("it was asked for _bulk_get and had none", any("/_bulk_get" in path for _, path in proxy.seen), proxy.seen[:20])
        a, b = leaves(source.api(), "plain"), leaves(target.api(), "plain")
        ctx.report.equal("all revisions came one by one", b == a, True)
        ctx.report.check("the other databases too", all(target.api().get("/" + quote(db)).status == 200 for db in databases if db != "parts"))


# Where a copy is interrupted: in the middle of the first feed, which brings documents with it, or while a target that has
# some fetches the others.
FEED = "_changes?style=all_docs&since"
MOMENTS = [
    [{"word": FEED, "sent": 300_000}],
    [{"word": FEED, "sent": 900_000}, {"word": "_bulk_get", "requests": 1}],
    [{"word": FEED, "sent": 1_300_000}, {"word": "_bulk_get", "requests": 4}],
]


def many(api, databases, documents):
    for db in databases:
        api.expect(201, "PUT", "/" + db)
        for first in range(0, documents, 1000):
            docs = [{"_id": f"{number:06d}", "n": number, "pad": "x" * 200} for number in range(first, min(first + 1000, documents))]
            api.expect(201, "POST", f"/{db}/_bulk_docs", {"docs": docs})


def test_target_is_killed(ctx):
    """The target dies in the middle and comes back: the command goes on by itself."""
    report = ctx.report
    databases, documents = ["k1", "k2", "k3"], ctx.size(6000, 100_000)
    with ctx.server("kill-source") as source:
        many(source.api(), databases, documents)
        with Proxy(source.url) as proxy:
            target = ctx.server("kill-target").start()
            process = None
            for moment in MOMENTS:
                proxy.hold(*moment)
                process = process or subprocess.Popen(
                    command(ctx, through(proxy), "--to", url(target)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
                )
                held = wait_until(lambda: proxy.held > 0 or process.poll() is not None, 120)
                report.check(f"the copy is under way at {moment[-1]}", held and proxy.held > 0, proxy.seen[-5:], quiet=True)
                target.kill()
                proxy.release()
                target.restart()
            out, err = process.communicate(timeout=TIMEOUT_S)
            succeeded(ctx, "a target that is killed three times gets everything", subprocess.CompletedProcess([], process.returncode, out, err))
            report.check("the command said that it tried again", "tried again" in err, err[-500:])
        counts = [api.expect(200, "GET", f"/{db}")["doc_count"] for api in (source.api(), target.api()) for db in databases]
        report.equal("the counts agree", counts, [documents] * 6)
        target.stop()


def wait_until_written(data):
    """Waits until a directory's files stay as they are for a moment."""
    sizes = [None]

    def is_written():
        sizes.append([(path, stat.st_size, stat.st_mtime_ns) for path, stat in files_below(data)])
        return sizes[-1] == sizes[-2]

    wait_until(is_written, step_s=0.2)


def test_command_is_killed(ctx):
    """kill -9 of the command, which holds the directory's server too."""
    report = ctx.report
    databases, documents = ["c1", "c2"], ctx.size(6000, 100_000)
    with ctx.server("cmd-source") as source:
        many(source.api(), databases, documents)
        data = ctx.root / "cmd-target"
        arguments = ["--data", data, "--jobs", "2"]
        for round_, moment in enumerate(MOMENTS):
            with Proxy(source.url) as proxy:
                proxy.hold(*moment)
                process = subprocess.Popen(
                    command(ctx, through(proxy), *arguments, *(["--continue"] if round_ else [])),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
                wait_until(lambda: proxy.held > 0 or process.poll() is not None, 120)
                report.check(f"round {round_}: killed on its way", proxy.held > 0, proxy.seen[-3:], quiet=True)
                # What came before the moment is written meanwhile, and nothing more comes.
                wait_until_written(data)
                process.send_signal(signal.SIGKILL)
                process.communicate(timeout=60)
        refused = migrate(ctx, url(source), *arguments)
        report.check(
            "without --continue the half-filled databases are refused",
            refused.returncode == 1 and "--continue" in refused.stdout + refused.stderr,
            refused,
        )
        succeeded(ctx, "with --continue it ends", migrate(ctx, url(source), *arguments, "--continue"))
        with ctx.server("cmd-target") as target:
            api = target.api()
            report.equal("the counts agree", [api.expect(200, "GET", f"/{db}")["doc_count"] for db in databases], [documents] * 2)
            rows = api.expect(200, "GET", "/c2/_all_docs")["rows"]
            report.equal("and all revisions", rows, source.api().expect(200, "GET", "/c2/_all_docs")["rows"])


def test_continued(ctx):
    """What changes at the source after a migration comes with --continue, and only that."""
    report = ctx.report
    with ctx.server("on-source") as source, ctx.server("on-target") as target:
        there = source.api()
        many(there, ["going"], 3000)
        with Proxy(source.url) as proxy:
            succeeded(ctx, "the first part", migrate(ctx, through(proxy), "--to", url(target)))
            rev = there.expect(200, "GET", "/going/000007")["_rev"]
            there.expect(200, "DELETE", f"/going/000007?rev={rev}")
            there.expect(201, "PUT", "/going/new", {"late": True})
            proxy.seen.clear()
            stale = migrate(ctx, through(proxy), "--to", url(target), "--verify-only")
            report.check(
                "--verify-only tells what is missing",
                stale.returncode == 3 and "going: new: 1-" in stale.stdout and "going: 000007:" in stale.stdout,
                stale,
            )
            proxy.seen.clear()
            succeeded(ctx, "the rest", migrate(ctx, through(proxy), "--to", url(target), "--continue"))
            asked = [path for _, path in proxy.seen if "/going/_changes" in path and "style=all_docs" in path]
            report.check("the replication goes on from its checkpoint", any("since=" in path and "since=0&" not in path for path in asked), asked)
        report.equal("a deletion comes", target.api().get("/going/000007").json["reason"], "deleted")


def test_tampered(ctx):
    report = ctx.report
    with ctx.server("t-source") as source, ctx.server("t-target") as target:
        there, here = source.api(), target.api()
        fill(there)
        succeeded(ctx, "before anybody tampers", migrate(ctx, url(source), "--to", url(target)))
        rev = here.expect(200, "GET", "/plain/doc-00150")["_rev"]
        here.expect(201, "PUT", f"/plain/doc-00150?rev={rev}", {"edited": True})
        rev = here.expect(200, "GET", "/plain/doc-00151")["_rev"]
        here.expect(200, "DELETE", f"/plain/doc-00151?rev={rev}")
        here.expect(201, "PUT", "/plain/extra", {})
        here.expect(200, "DELETE", f"/plain/doc-00105?rev={here.expect(200, 'GET', '/plain/doc-00105')['_rev']}")
        here.expect(200, "PUT", "/empty/_security", {"admins": {"names": ["eve"]}})
        here.expect(200, "DELETE", "/slash%2Fed-db")
        here.put("/_node/_local/_config/cors/max_age", "1")
        there.put("/_node/_local/_config/cors/max_age", "2")
        # The same revision with other content: what a broken copy would be.
        here.expect(200, "DELETE", "/parts")
        here.expect(201, "PUT", "/parts?partitioned=true&q=3")
        docs = [
            {"_id": row["id"], "_rev": row["value"]["rev"], **({"forged": 1} if number == 20 else {})}
            for number, row in enumerate(there.expect(200, "GET", "/parts/_all_docs")["rows"])
        ]
        here.expect(201, "POST", "/parts/_bulk_docs", {"docs": docs, "new_edits": False})
        done = migrate(ctx, url(source), "--to", url(target), "--verify-only", "--sample", "100")
        report.equal("tampering is noticed by the exit status", done.returncode, 3)
        for what, words in {
            "an edit": ["plain: doc-00150: ", "at the source"],
            "a deletion": ["plain: doc-00151: ", "deleted"],
            "an addition": ["plain: extra: ", "target only"],
            "a branch": ["plain: doc-00105: "],
            "a count": ["plain: ", "deleted documents at the source"],
            "a security object": ["empty: _security", "eve"],
            "a missing database": ["slash/ed-db: it is missing"],
            "content": ["parts: ", "has other content in forged"],
            "a setting": ["setting cors/max_age"],
        }.items():
            line = [text for text in done.stdout.splitlines() if all(word in text for word in words)]
            report.check(f"{what} is named", line and line[0].startswith("difference: "), done.stdout)
        many_more = migrate(ctx, url(source), "--to", url(target), "--verify-only", "--only", "slash*")
        succeeded(ctx, "chosen databases alone are compared", many_more, 1)
        here.expect(200, "DELETE", "/plain")
        here.expect(201, "PUT", "/plain")
        lost = migrate(ctx, url(source), "--to", url(target), "--verify-only", "--only", "plain")
        report.check(
            "of many differences some are named and the rest counted",
            lost.returncode == 3 and "differing documents more" in lost.stdout and len(lost.stdout) < 20_000,
            lost.stdout[-1000:],
        )


def test_refusals(ctx):
    report = ctx.report
    with ctx.server("r-source") as source, ctx.server("r-target") as target, closed_port() as closed:
        there, here = source.api(), target.api()
        for api in (there, here):
            api.expect(201, "PUT", "/both")
            api.expect(201, "PUT", "/both/doc", {"of": api.url})
        there.expect(201, "PUT", "/only-there")
        to = ["--to", url(target)]
        nowhere = f"http://admin:{SECRET}@127.0.0.1:{closed}"
        gone = subprocess.Popen(command(ctx, nowhere, *to), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        track(gone)
        for name, arguments, status, words in [
            ("a wrong password", [url(source, f"admin:{SECRET}"), *to], 1, ["401"]),
            ("no password", [source.url, *to], 1, ["name and password of a server admin"]),
            ("a wrong password at the target", [url(source), "--to", url(target, f"admin:{SECRET}")], 1, ["401"]),
            ("a server with itself", [url(source), "--to", url(source)], 1, ["same server"]),
            ("a URL that is none", [f"ftp://admin:{SECRET}@x", *to], 2, ["http"]),
            ("no target", [url(source)], 2, ["--to"]),
            ("two targets", [url(source), *to, "--data", ctx.root / "x"], 2, ["--data"]),
            ("a page that is no CouchDB", [f"{url(source)}/_up", *to], 1, ["not a CouchDB"]),
        ]:
            done = migrate(ctx, *arguments)
            report.check(
                f"refused: {name}",
                done.returncode == status and all(word in done.stderr for word in words) and SECRET not in done.stdout + done.stderr,
                done,
            )
        done = migrate(ctx, url(source), *to)
        said = done.stdout + done.stderr
        report.check(
            "a database with documents is left alone without --continue",
            done.returncode == 1 and "not migrated: both:" in said and "--continue" in said,
            said,
        )
        report.equal("and the others are migrated all the same", here.get("/only-there").status, 200)
        report.equal("it is as it was", here.get("/both/doc").json["of"], here.url)
        merged = migrate(ctx, url(source), *to, "--continue")
        report.check(
            "with --continue both revisions are kept, and the difference is told", merged.returncode == 3 and "both: doc: " in merged.stdout, merged
        )
        secret = {**os.environ, "SETTEE_MIGRATE_TO": url(target)}
        done = migrate(ctx, url(source), "--only", "only-there", "--continue", env=secret)
        succeeded(ctx, "the target may be named in the environment", done)
        _, said = gone.communicate(timeout=TIMEOUT_S)
        end(gone)
        report.check("refused: a source that is not there", gone.returncode == 1 and "127.0.0.1" in said and SECRET not in said, said)
