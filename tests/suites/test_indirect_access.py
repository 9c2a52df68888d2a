"""Nobody sees or changes by an indirect way what the direct request would be refused.

The ways are rewrites (rules and functions), lists, shows, updates, filters, replications, `_bulk_get`, documents that views
link, COPY, and documents with attachments. Requests are made up at random, of the names and tricks below, by everybody. Every
text in a database says which it is of, so that a look at an answer tells whether its reader may see that database; and what
nobody may change is compared before and after. In the database `personal`, each document says who may read it.
"""

import base64
import hashlib
import json
import re
import urllib.parse

from harness.api import Disconnected, exchange

REQUESTS, SOAK_REQUESTS = 1500, 40_000
MORE_REQUESTS = 2000
LOOK_EVERY = 150

ADMINS_OF_DBS = {"admins": {"names": ["dbadmin"], "roles": []}}
DATABASES = {
    "open": {**ADMINS_OF_DBS, "members": {"names": [], "roles": []}},
    "team": {**ADMINS_OF_DBS, "members": {"names": [], "roles": ["readers"]}},
    "secret": {"admins": {"names": [], "roles": ["_admin"]}, "members": {"names": [], "roles": ["_admin"]}},
}
# Documents of the database `personal`, which has access by document: `_access`, by the mark of the text.
PERSONAL = {
    "of_all": {"read": ["*"]},
    "of_users": {"read": ["role:_users"]},
    "of_outsider": ["outsider"],
    "of_readers": {"read": ["role:readers"]},
    "of_admins": None,
}
# Who, with which password, reads which databases, and which documents of `personal`.
ACTORS = {
    "anonymous": ("", {"open", "of_all"}),
    "outsider": ("outsider:pw", {"open", "of_all", "of_users", "of_outsider"}),
    "member": ("member:pw", {"open", "team", "of_all", "of_users", "of_readers"}),
    "dbadmin": ("dbadmin:pw", {"open", "team", *PERSONAL}),
    "admin": (None, {"open", "team", "secret", "_users", "_replicator", "config", *PERSONAL}),
}
MARK = re.compile(rb"MARK-([a-z_]+)-")

PUPPET = "function (req) { return JSON.parse(req.query.as); }"
NAMES = [
    "open",
    "team",
    "secret",
    "_users",
    "_replicator",
    "_node",
    "_local",
    "_config",
    "admins",
    "_all_dbs",
    "_all_docs",
    "_session",
    "_replicate",
    "_security",
    "_design",
    "d",
    "doc",
    "doc1",
    "_local_docs",
    "_changes",
    "_bulk_get",
    "_find",
    "_active_tasks",
    "_up",
    "org.couchdb.user:member",
    "_scheduler",
    "docs",
    "jobs",
    "_dbs_info",
    "_show",
    "told",
    "_list",
    "_view",
    "v",
    "linked",
    "_rewrite",
    "_update",
    "made",
    "_bulk_docs",
    "_purge",
    "_revs_limit",
    "_compact",
    "_index",
    "_design_docs",
    "file.txt",
    "_settee",
    "backup",
]
STEPS = ["..", "..", "..", ".", "", "%2e%2e", "%2E.", "..%2f", "%252e%252e", "..%5c", "..\\", "..;", ".. ", "..%00", "%c0%ae%c0%ae", "+", "*"]
LINKS = [
    "doc1",
    "../secret/doc1",
    "secret/doc1",
    "/secret/doc1",
    "..%2Fsecret%2Fdoc1",
    "_design/d",
    "_local/doc1",
    "_security",
    "",
    "../../secret/doc1",
    "\u0000",
    "doc1?rev=x",
    "org.couchdb.user:member",
    "of_admins",
    "of_outsider",
    "taken",
    "branched",
]
SOURCES = [
    "secret",
    "team",
    "/secret",
    "./secret",
    "open/../secret",
    "secret/",
    "%73ecret",
    "{url}/secret",
    "{url}/team",
    "{url}/open/../secret",
    "{url}/%73ecret",
    "_users",
    "{url}/_users",
    "_replicator",
    "../data",
    "personal",
    "{url}/personal",
    "file:///etc/passwd",
    "{url}/_node/_local/_config",
    {"url": "{url}/secret", "headers": {"X-Auth-CouchDB-UserName": "admin", "X-Auth-CouchDB-Roles": "_admin"}},
    {"url": "{url}/team", "auth": {"basic": {"username": "", "password": ""}}},
]
METHODS = ["GET", "GET", "GET", "GET", "PUT", "POST", "DELETE", "COPY", "HEAD"]
# What somebody would want who writes a rewrite function, if an admin called it.
WANTED = [
    ("_node/_local/_config/admins/evil", "PUT", '"pw"'),
    ("_node/_local/_config/marks/key", "DELETE", ""),
    ("secret/new", "PUT", "{}"),
    ("secret/_bulk_docs", "POST", '{"docs":[{}]}'),
    ("secret", "DELETE", ""),
    ("made-by-rewrite", "PUT", ""),
    ("_users/org.couchdb.user:evil", "PUT", '{"name":"evil","password":"x","roles":[],"type":"user"}'),
    ("_replicate", "POST", '{"source":"secret","target":"open"}'),
    ("_replicator/evil", "PUT", '{"source":"secret","target":"open"}'),
    ("open/_security", "PUT", '{"admins":{"names":["outsider"]}}'),
    ("team/_revs_limit", "PUT", "7"),
    ("open", "DELETE", ""),
    ("team/_design/evil", "PUT", "{}"),
]
BODIES = [
    '"pw"',
    "{}",
    '{"docs":[{"_id":"_design/evil"},{"id":"doc1","_id":"made"}]}',
    '{"selector":{}}',
    '{"admins":{"names":["outsider"]}}',
    "1",
    '{"keys":["doc1","secret"]}',
    '{"source":"secret","target":"open"}',
    '{"name":"evil","password":"x","roles":["_admin"],"type":"user"}',
]


def design(links):
    emits = " ".join(f"emit({json.dumps(link)}, {{_id: {json.dumps(link)}}});" for link in links)
    return {
        "rewrites": PUPPET,
        "views": {
            "v": {"map": "function (doc) { emit(doc._id, doc.text); }"},
            "linked": {"map": f"function (doc) {{ if (doc._id === 'doc1') {{ {emits} }} }}"},
        },
        "shows": {"told": "function (doc, req) { return {json: {doc: doc, req: req}}; }"},
        "lists": {"told": "function (head, req) { var row; send(JSON.stringify(req)); while ((row = getRow())) send(JSON.stringify(row)); }"},
        "filters": {"told": "function (doc, req) { return true; }"},
        "updates": {"made": "function (doc, req) { return [JSON.parse(req.body), JSON.stringify([doc, req])]; }"},
    }


def test_random_requests(ctx):
    report = ctx.report
    options = [
        "--set",
        "chttpd_auth/iterations=10",
        "--set",
        "chttpd_auth_lockout/mode=off",
        "--set",
        "functions/time_limit_ms=2000",
        "--set",
        "replicator/retries_per_request=0",
        "--set",
        "replicator/connection_timeout=2000",
    ]
    with ctx.server("indirect", options=options) as server:
        world = World(ctx, server)
        world.prepare()
        before, seen, statuses = world.protected(), [], {}
        number, requests = 0, ctx.size(REQUESTS, SOAK_REQUESTS)
        while number < requests or (unanswered(statuses) and number < requests + MORE_REQUESTS):
            actor = ctx.random.choice(list(ACTORS))
            # A way whose requests are seldom granted goes on until one was: what is always refused shows nothing.
            way = ctx.random.choice(WAYS if number < requests else unanswered(statuses))
            number += 1
            try:
                request, answer = way(world, actor)
            except Disconnected as error:
                report.check("every request is answered", False, f"{actor} {way.__name__}: {error}")
                continue
            key = (way.__name__, answer.status // 100)
            statuses[key] = statuses.get(key, 0) + 1
            shown = marks(answer.raw) - ACTORS[actor][1]
            if shown:
                seen.append(f"{actor} saw {shown} by {way.__name__}: {request}: {answer!r}")
            if actor == "admin" or number % LOOK_EVERY == 0:
                after = world.protected()
                if after != before:
                    changed = [name for name in before if before[name] != after[name]]
                    report.check("nothing is changed by who may not", False, f"{changed} after {actor} {way.__name__}: {request}: {answer!r}")
                    before = after
            if number % LOOK_EVERY == 0:
                seen += world.leaked()
        seen += world.leaked()
        report.equal("nobody sees what he may not", seen, [])
        report.equal("nothing is changed by who may not", world.protected(), before)
        report.check("every way is also answered well", not unanswered(statuses), statuses)
        report.check("no panic", "panicked" not in server.log(), server.log()[-1500:])


def marks(raw):
    """The marks of a text, and of attachments in it."""
    inner = b"".join(base64.b64decode(data) for data in re.findall(rb'"data": ?"([A-Za-z0-9+/=]+)"', raw))
    return {found.decode() for found in MARK.findall(raw + inner)}


def readers_of(doc):
    """The actors that may read a document of `personal` by its member `_access`."""
    access = doc.get("_access", [])
    named = set(access) if isinstance(access, list) else {name for names in access.values() for name in names}
    mine = {"anonymous": {"*"}, "outsider": {"*", "role:_users", "outsider"}, "member": {"*", "role:_users", "role:readers", "member"}}
    return [name for name, principals in mine.items() if principals & named]


def unanswered(statuses):
    return [way for way in WAYS if not statuses.get((way.__name__, 2))]


class World:
    def __init__(self, ctx, server):
        self.random, self.server, self.api = ctx.random, server, server.api()
        self.apis = {name: server.api(credentials=credentials) for name, (credentials, _) in ACTORS.items()}

    def prepare(self):
        api = self.api
        for name, roles in (("outsider", []), ("member", ["readers"]), ("dbadmin", [])):
            user = {"name": name, "password": "pw", "type": "user", "roles": roles, "note": "MARK-_users-note"}
            api.expect(201, "PUT", f"/_users/org.couchdb.user:{name}", user)
        api.expect(200, "PUT", "/_node/_local/_config/marks/key", "MARK-config-value")
        api.expect(201, "PUT", "/_replicator/job", {"source": "http://MARK-_replicator-user:pw@127.0.0.1:1/a", "target": "http://127.0.0.1:1/b"})
        for name, security in DATABASES.items():
            api.expect(201, "PUT", "/" + name)
            author = self.apis["admin" if name == "secret" else "dbadmin"]
            api.expect(200, "PUT", f"/{name}/_security", security)
            author.expect(201, "PUT", f"/{name}/_design/d", design(LINKS))
            for number in range(3):
                api.expect(201, "PUT", f"/{name}/doc{number}", {"text": f"MARK-{name}-{number}"})
            api.expect(201, "PUT", f"/{name}/_local/doc1", {"text": f"MARK-{name}-local"})
        self.prepare_personal()

    def prepare_personal(self):
        """Documents of which one was taken away from all users, and one has a conflict that they may not read."""
        api, everybody = self.api, {"read": ["*"]}
        api.expect(201, "PUT", "/personal?access=true")
        api.expect(200, "PUT", "/personal/_security", DATABASES["open"])
        self.apis["dbadmin"].expect(201, "PUT", "/personal/_design/d", design([*LINKS, *PERSONAL]))
        self.revs = {}
        for name, access in PERSONAL.items():
            text = f"MARK-{name}-text"
            attached = {"file.txt": {"content_type": "text/plain", "data": base64.b64encode(text.encode()).decode()}}
            doc = {"text": text, "_attachments": attached, **({"_access": access} if access else {})}
            self.revs[name] = api.expect(201, "PUT", f"/personal/{name}", doc)["rev"]
        hidden = {"text": "MARK-of_admins-text"}
        first = api.expect(201, "PUT", "/personal/taken", {"_access": everybody})["rev"]
        self.revs["taken"] = api.expect(201, "PUT", "/personal/taken", {"_rev": first, **hidden})["rev"]
        self.revs["branched"] = "1-" + "a" * 32
        leaves = [{"_id": "branched", "_rev": "2-" + "b" * 32, "_access": everybody}, {"_id": "branched", "_rev": self.revs["branched"], **hidden}]
        api.expect(201, "POST", "/personal/_bulk_docs", {"new_edits": False, "docs": leaves})
        self.apis["outsider"].expect(201, "PUT", "/personal/_local/doc1", {"text": "MARK-of_outsider-local"})

    def protected(self):
        """What none of the requests may change; of `open` and `team` only what an admin of theirs may."""
        get = lambda path: hashlib.sha256(self.api.get(path).raw).hexdigest()
        state = {
            "admins": get("/_node/_local/_config/admins"),
            "config": get("/_node/_local/_config/marks"),
            "databases": get("/_all_dbs"),
            "users": get("/_users/_all_docs"),
            "secret": get("/secret/_all_docs"),
            "secret's local": get("/secret/_local_docs?include_docs=true"),
        }
        state["personal's security"] = get("/personal/_security")
        for name in (*PERSONAL, "taken", "branched"):
            state[f"personal/{name}"] = get(f"/personal/{name}?conflicts=true") if name != "of_outsider" else ""
        jobs = self.api.get("/_replicator/_all_docs?include_docs=true").json["rows"]
        state["replications"] = str(sorted((row["id"], row["doc"].get("source"), str(row["doc"].get("user_ctx"))) for row in jobs))
        for name in DATABASES:
            state[f"{name}'s security"] = get(f"/{name}/_security")
            state[f"{name} is there"] = self.api.get(f"/{name}/doc0").status
            state[f"{name}'s limit"] = get(f"/{name}/_revs_limit")
            designs = self.api.get(f"/{name}/_design_docs").json["rows"]
            state[f"{name}'s designs"] = str([row["id"] for row in designs if not row["id"].startswith("_design/rules")])
        return state

    def leaked(self):
        """Texts in a database that are another's which not everybody reads who reads this one."""
        found = []
        never = {"secret", "_users", "_replicator", "config"}
        for name, above in (("open", never | {"team", *PERSONAL} - {"of_all"}), ("team", never | {"of_outsider", "of_admins"})):
            raw = self.api.get(f"/{name}/_all_docs?include_docs=true&attachments=true").raw
            foreign = marks(raw) & above
            if foreign:
                found.append(f"{name} holds {foreign}")
        for row in self.api.expect(200, "GET", "/personal/_all_docs?include_docs=true&attachments=true")["rows"]:
            readers = readers_of(row["doc"])
            foreign = {mark for mark in marks(json.dumps(row["doc"]).encode()) if any(mark not in ACTORS[name][1] for name in readers)}
            if foreign:
                found.append(f"{row['doc']} shows {foreign} to {readers}")
        return found

    def choice(self, *items):
        return self.random.choice(items)

    def path(self):
        """A path as somebody writes one who wants to get out, not always."""
        if self.random.random() < 0.3:
            return "../../" + self.choice("doc1", "_all_docs?include_docs=true", "_design/d/_show/told/doc1", "_design/d/_view/v")
        parts = [self.random.choice(STEPS if self.random.random() < 0.5 else NAMES) for _ in range(self.random.randint(1, 8))]
        tail = [self.random.choice(NAMES) for _ in range(self.random.randint(0, 3))]
        path = "/".join(["..", "..", ".."][: self.random.randint(0, 3)] + parts + tail)
        return self.choice("", "", "/", "//", "http://127.0.0.1/") + path + self.choice("", "", "?include_docs=true", "#x", "?x=y&include_docs=true")

    def db(self):
        return self.choice("open", "open", "team", "personal")

    def ask(self, actor, method, path, body=None, headers=None):
        # Python's client refuses some characters before they are sent.
        path = urllib.parse.quote(path, safe="/%?=&#;+*\\:.,~")
        answer = self.apis[actor].request(method, path, body, headers=headers)
        return f"{method} {path} {body!r}", answer


def by_function(world, actor):
    """A server admin only looks: whatever the function makes of it."""
    rewrite = {"path": world.path()}
    if actor != "dbadmin" and world.random.random() < 0.4:
        return wanted_by_function(world, actor)
    if world.random.random() < 0.5:
        rewrite["method"] = world.random.choice(METHODS)
        rewrite["headers"] = world.choice({}, {"Content-Type": "application/json"}, {"Destination": "../secret/new"}, {"Authorization": "Basic eA=="})
    if world.random.random() < 0.4:
        rewrite["body"] = world.random.choice(BODIES)
    if actor == "dbadmin" and rewrite.get("method", "GET") not in ("GET", "HEAD"):
        # May change its databases' properties: that would not be told from a leak.
        rewrite["method"] = "GET"
    path = f"/{world.db()}/_design/d/_rewrite/{world.choice('x', '', '../..', 'secret')}?as=" + urllib.parse.quote(json.dumps(rewrite))
    return world.ask(actor, "GET", path)


def wanted_by_function(world, actor):
    path, method, body = world.random.choice(WANTED)
    up = [world.choice("..", "..", "..", "%2e%2e", ".%2E", "x/../..", "./..") for _ in range(world.choice(2, 3, 3, 3, 4))]
    if path.split("/")[0] in ("open", "team") and world.random.random() < 0.5:
        up, path = ["..", ".."], path.partition("/")[2]
    rewrite = {"path": "/".join([*up, path]), "method": method, "body": body, "headers": {"Content-Type": "application/json"}}
    return world.ask(actor, "GET", f"/{world.db()}/_design/d/_rewrite/x?as=" + urllib.parse.quote(json.dumps(rewrite)))


def by_odd_path(world, actor):
    """The way straight ahead, in odd letters; as it is, since clients of HTTP tidy paths up."""
    target = world.choice(
        "secret/doc1",
        "_users/_all_docs?include_docs=true",
        "_node/_local/_config",
        "_replicator/job",
        "team/_all_docs?include_docs=true",
        "secret/_changes?include_docs=true",
        "_users/org.couchdb.user:member",
        "team/_local/doc1",
        "_node/_local/_config/marks/key",
    )
    before = world.choice(
        "",
        "",
        "/",
        "//",
        "./",
        "../",
        "open/../",
        "open/%2e%2e/",
        "open/..%2f",
        "%2f",
        "_session/../",
        "open;/../",
        "http://127.0.0.1/",
        "open/_design/d/../../../",
        "?/",
        "#/",
        "_up/..;/",
    )
    if world.random.random() < 0.5:
        at = world.random.randrange(len(target.split("?")[0]))
        odd = world.choice(
            f"%{ord(target[at]):02x}",
            f"%{ord(target[at]):02X}",
            f"%25{ord(target[at]):02x}",
            target[at].upper(),
            target[at] + "%00",
            target[at] + "/",
            target[at] + "\\",
            f"%u00{ord(target[at]):02x}",
            target[at] + "%20",
            target[at] + ";x",
        )
        target = target[:at] + odd + target[at + 1 :]
    api = world.apis[actor]
    headers = "".join(f"{name}: {value}\r\n" for name, value in api.authorization.items())
    method = world.choice("GET", "GET", "GET", "POST", "OPTIONS", "HEAD")
    length = "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}" if method == "POST" else "\r\n"
    sent = f"{method} /{before}{target} HTTP/1.1\r\nHost: {api.host}:{api.port}\r\nConnection: close\r\n{headers}{length}"
    answer = exchange(api.host, api.port, sent.encode())
    if answer is None:
        raise Disconnected(sent)
    return f"{method} /{before}{target}", answer


def by_rule(world, actor):
    db = world.db()
    rule = {"from": world.choice("/*", "/:a/*", "/a", ""), "to": world.choice(world.path(), "../../*", "../../:a/*", "../../:b", "*")}
    if world.random.random() < 0.3:
        rule["query"] = world.choice({"include_docs": "true"}, {"key": ":a"}, {"b": "../../secret"})
    name = f"rules{world.random.randint(0, 3)}"
    rev = world.api.get(f"/{db}/_design/{name}")
    world.apis["dbadmin"].put(f"/{db}/_design/{name}" + (f"?rev={rev.json['_rev']}" if rev.status == 200 else ""), {"rewrites": [rule]})
    tail = world.choice("a", "doc1", world.path().lstrip("/"), "..%2f..%2f_users", "%2e%2e/%2e%2e/secret/doc1", "_all_docs?include_docs=true")
    asked, answer = world.ask(actor, "GET", f"/{db}/_design/{name}/_rewrite/{tail}")
    return f"{asked} with {rule}", answer


def by_list(world, actor):
    of = world.choice("", "d/", "..%2f..%2fsecret%2f_design%2fd/", "%2e%2e/", "../../secret/_design/d/")
    view = world.choice("v", "linked", "_all_docs", "..%2f_all_docs", "_changes", "_local_docs")
    return world.ask(actor, "GET", f"/{world.db()}/_design/d/_list/told/{of}{view}?include_docs=true")


def by_show(world, actor):
    tail = world.choice("doc1", "..%2f..%2fsecret%2fdoc1", "_local/doc1", "_design/d", "_security", *LINKS)
    tail = urllib.parse.quote(tail, safe="/%")
    return world.ask(actor, "GET", f"/{world.db()}/_design/d/_show/told/{tail}")


def by_update(world, actor):
    db, doc_id = world.db(), world.choice("made", "_design/made", "_local/made", "../secret/doc1", "_security", "doc1", "org.couchdb.user:member")
    if actor in ("dbadmin", "admin"):
        doc_id = "made"
    doc = {
        "_id": doc_id,
        **world.choice({}, {"_rev": "1-967a00dff5e02add41819138abb3284d"}, {"roles": ["_admin"]}, {"_attachments": {"a": {"stub": True}}}),
    }
    target = urllib.parse.quote(world.choice("made", "doc1", "_design/d", "_local/doc1", "../secret/doc1"), safe="/")
    return world.ask(actor, "PUT", f"/{db}/_design/d/_update/made/{target}", doc)


def by_filter(world, actor):
    name = world.choice("d/told", "_view&view=d/v", "secret/told", "..%2f..%2fsecret/told", "_doc_ids&doc_ids=%5B%22doc1%22%5D", "_design")
    return world.ask(actor, "GET", f"/{world.choice('open', 'team', 'secret', 'personal')}/_changes?include_docs=true&filter={name}")


def by_bulk_get(world, actor):
    docs = [{"id": world.random.choice(LINKS) or "x", **world.choice({}, {"rev": "1-x"}, {"atts_since": ["1-x"]})} for _ in range(4)]
    return world.ask(actor, "POST", f"/{world.choice('open', 'team', 'secret', 'personal')}/_bulk_get?attachments=true", {"docs": docs})


def by_linked_documents(world, actor):
    return world.ask(
        actor, "GET", f"/{world.choice('open', 'team', 'secret', 'personal')}/_design/d/_view/{world.choice('linked', 'v')}?include_docs=true"
    )


def by_listing(world, actor):
    keys = [world.random.choice(LINKS) for _ in range(5)]
    path = f"/{world.choice('open', 'team', 'secret', 'personal', '_users', '_replicator')}/{world.choice('_all_docs', '_local_docs', '_design_docs')}?include_docs=true"
    return world.ask(actor, "POST", path, {"keys": keys})


def by_copy(world, actor):
    db = world.db()
    destination = world.choice(
        "copied",
        "../secret/copied",
        "/secret/copied",
        f"{world.server.url}/secret/copied",
        "_local/copied",
        "..%2fsecret%2fcopied",
        "_design%2Fcopied" if actor not in ("admin", "dbadmin") else "copied",
    )
    return world.ask(
        actor, "COPY", f"/{db}/{world.choice('doc1', '..%2fsecret%2fdoc1', '_local/doc1', '_design/d')}", headers={"Destination": destination}
    )


def by_replication(world, actor):
    def filled(end):
        if isinstance(end, dict):
            return {**end, "url": end["url"].replace("{url}", world.server.url)}
        return end.replace("{url}", world.server.url)

    source, target = filled(world.random.choice(SOURCES)), filled(world.choice("open", "{url}/open", "team", "secret", "new", "../open"))
    if actor == "admin":
        # It may read the one and write the other: that would not be told from a leak.
        source = "open"
        target = "team"
    elif actor in ("member", "dbadmin") and ("team" in str(source) or "personal" in str(source)):
        source = "secret"
    elif actor == "dbadmin" and "secret" in str(target):
        target = "open"
    body = {
        "source": source,
        "target": target,
        **world.choice(
            {},
            {"create_target": True},
            {"doc_ids": ["doc1", "../secret/doc1"]},
            {"filter": "d/told"},
            {"user_ctx": {"name": "admin", "roles": ["_admin"]}},
            {"selector": {}},
        ),
    }
    return world.ask(actor, "POST", "/_replicate", body)


def by_revision(world, actor):
    """A replicated edit that names revisions of others as its ancestors, or their attachments as its own."""
    name = world.random.choice(list(world.revs))
    if actor in ("admin", "dbadmin"):
        return world.ask(actor, "GET", f"/personal/{name}?rev={world.revs[name]}")
    generation, _, digest = world.revs[name].partition("-")
    between = [f"{world.random.getrandbits(128):032x}" for _ in range(world.choice(1, 1, 2))]
    revisions = {"start": int(generation) + len(between), "ids": [*between, *world.choice([digest], [digest], [])]}
    stub = world.choice({"stub": True}, {"stub": True, "revpos": 1, "digest": "md5-x"}, {"stub": True, "revpos": int(generation)})
    me = actor if actor != "anonymous" else "*"
    doc = {
        "_id": world.choice(name, name, f"copy-of-{name}"),
        "_revisions": revisions,
        "_access": [me],
        **world.choice({}, {"_attachments": {"file.txt": stub}}),
    }
    if world.random.random() < 0.5:
        request, answer = world.ask(actor, "PUT", f"/personal/{doc['_id']}?new_edits=false", doc)
    else:
        request, answer = world.ask(actor, "POST", "/personal/_bulk_docs", {"new_edits": False, "docs": [doc]})
    _, got = world.ask(actor, "GET", f"/personal/{doc['_id']}?open_revs=all&attachments=true", headers={"Accept": "application/json"})
    answer.raw += got.raw
    return request, answer


def by_personal_reads(world, actor):
    """Documents of others among one's own, by the options of reads."""
    name = world.random.choice([*world.revs, "_local/doc1", "_local/@8:outsider/doc1", "copied", "made"])
    rev = world.revs.get(name, "1-a")
    tail = world.choice(
        f"{name}?rev={rev}&attachments=true",
        f"{name}?open_revs=[%22{rev}%22]&latest=true&attachments=true",
        f"{name}?meta=true&revs=true&attachments=true",
        f"{name}/file.txt",
        f"{name}/file.txt?rev={rev}",
        "_all_docs?include_docs=true&attachments=true&conflicts=true",
        f"_all_docs?include_docs=true&startkey=%22{name}%22&descending={world.choice('true', 'false')}",
        "_changes?style=all_docs&include_docs=true&attachments=true&conflicts=true",
        f"_changes?style=all_docs&include_docs=true&since={world.random.randint(0, 30)}-x",
        f"_changes?filter=_doc_ids&doc_ids=[%22{name}%22]&include_docs=true",
        f"_bulk_get?docs=[%22{name}%22]",
        f"_design/d/_show/told/{name}",
        "_design/d/_view/v?include_docs=true",
        "_design/d/_list/told/_all_docs?include_docs=true",
        f"_design/d/_rewrite/{name}",
    )
    return world.ask(actor, "GET", f"/personal/{tail}")


def by_attachments(world, actor):
    """A document whose attachments follow it: stubs and contents that are others'."""
    stub = world.choice(
        {"stub": True},
        {"stub": True, "digest": "md5-x", "revpos": 1},
        {"follows": True, "length": 4, "content_type": "text/plain"},
        {"data": "TUFSSw==", "content_type": "text/plain"},
        {"follows": True, "length": 4, "encoding": "gzip"},
    )
    doc = {"_attachments": {world.choice("file.txt", "../../secret/doc1/file.txt", "_x"): stub}}
    parts = b"--b\r\nContent-Type: application/json\r\n\r\n" + json.dumps(doc).encode() + b"\r\n--b\r\n\r\ntext\r\n--b--"
    doc_id = urllib.parse.quote(world.choice("attached", "_local/attached", "..%2fsecret", "../secret/x", "secret%2Fdoc1"), safe="/%")
    return world.ask(
        actor,
        "PUT",
        f"/{world.choice('open', 'team', 'secret', 'personal') if actor != 'admin' else 'open'}/{doc_id}",
        parts,
        {"Content-Type": 'multipart/related; boundary="b"'},
    )


WAYS = [
    by_function,
    by_function,
    by_function,
    by_odd_path,
    by_odd_path,
    by_rule,
    by_list,
    by_show,
    by_update,
    by_filter,
    by_bulk_get,
    by_linked_documents,
    by_listing,
    by_copy,
    by_replication,
    by_attachments,
    by_revision,
    by_personal_reads,
]
