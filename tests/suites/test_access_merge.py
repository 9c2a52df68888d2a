"""`settee access merge`: databases per user become one database with access by document, and the command can be repeated."""

import base64
import subprocess

import pytest

pytestmark = [pytest.mark.quick]

TIMEOUT_S = 120
USERS = ("ann", "bob")


def merge(ctx, server, *options):
    url = server.url.replace("://", f"://{server.admin}@")
    command = [ctx.binary, "access", "merge", url, "userdb-*", "--into", "app", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def database(name):
    return f"userdb-{name.encode().hex()}"


def start(server):
    admin = server.api()
    for name in USERS:
        admin.expect(201, "PUT", f"/_users/org.couchdb.user:{name}", {"name": name, "password": "pw", "roles": [], "type": "user"})
        admin.expect(201, "PUT", f"/{database(name)}")
        admin.expect(200, "PUT", f"/{database(name)}/_security", {"members": {"names": [name]}, "admins": {"names": [name]}})
    return admin, {name: server.api(credentials=f"{name}:pw") for name in USERS}


def listed(api):
    rows = api.expect(200, "GET", "/app/_all_docs?include_docs=true&conflicts=true")["rows"]
    return {row["id"]: row["doc"] for row in rows}


@pytest.mark.parametrize("rule", ["security", "name"])
def test_each_user_keeps_the_documents(ctx, rule):
    report = ctx.report
    with ctx.server(f"merge-{rule}") as server:
        admin, users = start(server)
        for name, api in users.items():
            api.expect(201, "PUT", f"/{database(name)}/{name}-1", {"n": 1})
            file = {"a.txt": {"content_type": "text/plain", "data": base64.b64encode(name.encode()).decode()}}
            api.expect(201, "PUT", f"/{database(name)}/{name}-2", {"n": 2, "_attachments": file})
            gone = api.expect(201, "PUT", f"/{database(name)}/{name}-gone", {})
            api.expect(200, "DELETE", f"/{database(name)}/{name}-gone?rev={gone['rev']}")
            admin.expect(201, "PUT", f"/{database(name)}/_design/d", {"views": {}})
        done = merge(ctx, server, "--by", rule)
        report.equal("merged", (done.returncode, done.stderr[-500:] if done.returncode else ""), (0, ""))
        admin.expect(200, "PUT", "/app/_security", {"members": {"names": list(USERS)}})
        for name, api in users.items():
            docs = listed(api)
            report.equal(f"{name} sees", sorted(docs), [f"{name}-1", f"{name}-2"])
            report.equal("the owner", docs[f"{name}-1"]["_access"], [name])
            report.check("the next revision", docs[f"{name}-1"]["_rev"].startswith("2-"), docs)
            report.equal("the file", api.get(f"/app/{name}-2/a.txt").raw, name.encode())
            api.expect(201, "PUT", f"/app/{name}-2", {**docs[f"{name}-2"], "n": 3})
        # Again: later edits come, nothing else changes, and no conflict is made.
        before = listed(admin)
        rev = users["ann"].expect(200, "GET", f"/{database('ann')}/ann-1")["_rev"]
        users["ann"].expect(201, "PUT", f"/{database('ann')}/ann-1", {"_rev": rev, "n": 5})
        done = merge(ctx, server, "--by", rule)
        report.equal("merged again", (done.returncode, done.stderr[-500:] if done.returncode else ""), (0, ""))
        after = listed(admin)
        report.equal("the edit", after["ann-1"]["n"], 5)
        report.equal("no conflicts", [doc["_id"] for doc in after.values() if "_conflicts" in doc], [])
        others = [{doc_id: doc for doc_id, doc in docs.items() if doc_id != "ann-1"} for docs in (before, after)]
        report.equal("others stay", others[1], others[0])
        report.equal("compared", merge(ctx, server, "--by", rule, "--verify-only").returncode, 0)


def test_equal_ids_are_not_mixed(ctx):
    report = ctx.report
    with ctx.server("equal") as server:
        admin, users = start(server)
        for name, api in users.items():
            api.expect(201, "PUT", f"/{database(name)}/settings", {"of": name})
        done = merge(ctx, server)
        report.equal("refused", done.returncode, 1)
        report.check("the reason", "--prefix-ids" in done.stdout + done.stderr, done.stdout)
        kept = admin.expect(200, "GET", "/app/settings")
        report.equal("the first stays alone", (kept["of"], kept["_access"]), ("ann", ["ann"]))
        admin.expect(200, "DELETE", "/app")
        report.equal("with prefixes", merge(ctx, server, "--prefix-ids").returncode, 0)
        report.equal("both", {doc_id: doc["of"] for doc_id, doc in listed(admin).items()}, {f"{database(name)}:settings": name for name in USERS})


def test_what_cannot_be_merged_is_refused(ctx):
    report = ctx.report
    with ctx.server("refused") as server:
        admin, _ = start(server)
        admin.expect(201, "PUT", "/app")
        done = merge(ctx, server)
        report.check("a database without access", done.returncode == 1 and "no access by document" in done.stderr, done.stderr)
        admin.expect(200, "DELETE", "/app")
        for name in USERS:
            admin.expect(200, "DELETE", f"/{database(name)}")
        done = merge(ctx, server)
        report.check("no databases", done.returncode == 1 and "matches userdb-*" in done.stderr, done.stderr)
        report.equal("nothing is created", admin.get("/app").status, 404)
