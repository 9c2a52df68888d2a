"""A table of requests of all kinds, in an order in which each has something to answer, and a form of their answers in which those of two
servers can be compared."""

import json
import re

# Method, path, body. {db} is a database of one shard, {part} a partitioned one, {copy} one that a replication creates; {url} is the address of
# the server that is asked, with an admin's name and password. {name} was the value of `name` in the answer before; `! name` after a request
# keeps a value of its answer, by a path of names and numbers.
REQUESTS = """
GET /
GET /_up
HEAD /
GET /_utils/
GET /favicon.ico
GET /_session
GET /_all_dbs?startkey="{db}"&endkey="{db}"
GET /{db}
HEAD /{db}
PUT /{db}?q=1
PUT /{db}?q=1
PUT /{part}?q=1&partitioned=true
PUT /Invalid
PUT /{db}x?q=0
PUT /{db}x?n=0
PUT /{db}x?n=3.5
PUT /{db}x?placement=odd
GET /{db}
HEAD /{db}
GET /{part}
POST /_dbs_info {"keys": ["{db}", "{part}", "none"]}
GET /_dbs_info?keys=["{db}"]
GET /_all_dbs?keys=["{db}"]
PUT /{db}/a {"n": 1}
PUT /{db}/a {"n": 1}
PUT /{db}/b {"n": 2, "text": "seven dwarfs"}
PUT /{db}/b?new_edits=false {"_rev": "2-abc", "n": 22}
PUT /{db}/_bad {"n": 1}
PUT /{db}/c not JSON
PUT /{db}/c []
PUT /{db}/c {"_odd": 1}
POST /{db} {"_id": "posted", "n": 3}
POST /{db} []
GET /{db}/a ! _rev
GET /{db}/a?rev={_rev}
GET /{db}/a?rev=1-none
GET /{db}/a?revs=true&revs_info=true&conflicts=true&local_seq=true
GET /{db}/a?meta=true
GET /{db}/a?open_revs=all
GET /{db}/b?open_revs=["2-abc","9-none"]
GET /{db}/b?conflicts=true
GET /{db}/a?r=3
GET /{db}/a?r=x
GET /{db}/none
GET /{db}/none?open_revs=all
HEAD /{db}/a
HEAD /{db}/none
PUT /{db}/a {"_rev": "{_rev}", "n": 11} ! rev
PUT /{db}/a?rev={rev} {"n": 12} ! rev
PUT /{db}/a?w=3 {"_rev": "{rev}", "n": 13} ! rev
PUT /{db}/batched?batch=ok {"n": 1}
COPY /{db}/a Destination: copied
COPY /{db}/a Destination: copied
COPY /{db}/a
PUT /{db}/a/file.txt?rev={rev} plain text ! rev
GET /{db}/a/file.txt
HEAD /{db}/a/file.txt
GET /{db}/a/none.txt
GET /{db}/a?attachments=true
GET /{db}/a?att_encoding_info=true
PUT /{db}/a {"_rev": "{rev}", "_attachments": {"file.txt": {"stub": true}, "more": {"data": "aGk="}}} ! rev
PUT /{db}/a {"_rev": "{rev}", "_attachments": {"none": {"stub": true}}}
DELETE /{db}/a/more?rev={rev} ! rev
DELETE /{db}/posted
DELETE /{db}/posted?rev=1-none
GET /{db}/posted ! _rev
DELETE /{db}/posted?rev={_rev} ! rev
GET /{db}/posted
GET /{db}/posted?rev={rev}
POST /{db}/_bulk_docs {"docs": [{"_id": "k1", "n": 1, "kind": "x"}, {"_id": "k2", "n": 2, "kind": "y"}, {"_id": "k3", "n": 3, "kind": "x"}]}
POST /{db}/_bulk_docs {"docs": [{"_id": "k1"}, {"_id": "k4", "n": 4, "kind": "y"}]}
POST /{db}/_bulk_docs {"docs": [{"_id": "k5", "_rev": "1-e"}], "new_edits": false}
POST /{db}/_bulk_docs {"docs": {}}
POST /{db}/_bulk_docs {}
POST /{db}/_bulk_get {"docs": [{"id": "k1"}, {"id": "none"}, {"id": "b", "rev": "2-abc"}]}
POST /{db}/_bulk_get?revs=true {"docs": [{"id": "a"}]}
POST /{db}/_revs_diff {"k1": ["1-none", "2-none"], "k5": ["1-e"]}
POST /{db}/_missing_revs {"k1": ["1-none"]}
GET /{db}/_all_docs
GET /{db}/_all_docs?include_docs=true&conflicts=true
GET /{db}/_all_docs?descending=true&limit=2&skip=1
GET /{db}/_all_docs?startkey="k"&endkey="l"
GET /{db}/_all_docs?key="none"
GET /{db}/_all_docs?limit=x
POST /{db}/_all_docs {"keys": ["k2", "none", "posted"]}
POST /{db}/_all_docs/queries {"queries": [{"keys": ["k1"]}, {"limit": 1}]}
GET /{db}/_design_docs
POST /{db}/_design_docs/queries {"queries": [{}]}
PUT /{db}/_local/l {"n": 1} ! rev
GET /{db}/_local/l
PUT /{db}/_local/l {"_rev": "{rev}", "n": 2} ! rev
GET /{db}/_local_docs
GET /{db}/_local_docs?include_docs=true
POST /{db}/_local_docs {"keys": ["_local/l"]}
COPY /{db}/_local/l Destination: _local/m
DELETE /{db}/_local/l?rev={rev}
GET /{db}/_local/l
PUT /{db}/_design/d {DESIGN} ! rev
PUT /{db}/_design/d {DESIGN}
GET /{db}/_design/d
HEAD /{db}/_design/d
GET /{db}/_design/d/_info
GET /{db}/_design/none/_info
GET /{db}/_design/d/_view/by_n
GET /{db}/_design/d/_view/by_n?reduce=false&include_docs=true
GET /{db}/_design/d/_view/by_n?group=true
GET /{db}/_design/d/_view/by_n?key=2&reduce=false
GET /{db}/_design/d/_view/by_n?startkey=2&endkey=4&reduce=false&descending=false
GET /{db}/_design/d/_view/by_n?update=false&reduce=false
GET /{db}/_design/d/_view/by_n?limit=-1
GET /{db}/_design/d/_view/none
POST /{db}/_design/d/_view/by_n {"keys": [1, 2], "reduce": false}
POST /{db}/_design/d/_view/by_n/queries {"queries": [{"key": 1, "reduce": false}, {"group": true}]}
GET /{db}/_design/d/_show/shown/a
GET /{db}/_design/d/_show/shown
GET /{db}/_design/d/_list/listed/by_n?reduce=false
POST /{db}/_design/d/_update/updated {}
PUT /{db}/_design/d/_update/updated/a {}
GET /{db}/_design/d/_rewrite/doc
PUT /{db}/bad {"bad": true}
POST /{db}/_bulk_docs {"docs": [{"_id": "bad", "bad": true}]}
PUT /{db}/_design/broken {"views": {"v": {"map": "function ("}}}
GET /{db}/_changes
GET /{db}/_changes?style=all_docs&include_docs=true
GET /{db}/_changes?descending=true&limit=2
GET /{db}/_changes?filter=_design
GET /{db}/_changes?filter=d/odd
GET /{db}/_changes?filter=_view&view=d/by_n
GET /{db}/_changes?since=now
GET /{db}/_changes?since=nonsense
GET /{db}/_changes?feed=longpoll&timeout=100
GET /{db}/_changes?feed=continuous&timeout=100
POST /{db}/_changes?filter=_doc_ids {"doc_ids": ["a"]}
POST /{db}/_changes?filter=_selector {"selector": {"kind": "x"}}
POST /{db}/_index {"index": {"fields": ["kind"]}, "name": "by-kind", "ddoc": "mango"}
POST /{db}/_index {"index": {"fields": ["kind"]}, "name": "by-kind", "ddoc": "mango"}
POST /{db}/_index {"index": {}}
GET /{db}/_index
POST /{db}/_find {"selector": {"kind": "x"}, "fields": ["_id", "n"]}
POST /{db}/_find {"selector": {"n": {"$gt": 1}}, "fields": ["_id"], "limit": 2}
POST /{db}/_find {"selector": {"kind": {"$odd": 1}}}
POST /{db}/_find {"selector": {"kind": "x"}, "use_index": "mango", "execution_stats": false}
POST /{db}/_explain {"selector": {"kind": "x"}}
DELETE /{db}/_index/mango/json/by-kind
DELETE /{db}/_index/mango/json/by-kind
GET /{db}/_design/d/_nouveau/texts?q=text:seven
GET /{db}/_design/d/_nouveau/texts?q=text:(
GET /{db}/_design/d/_search/words?q=text:seven
GET /{db}/_design/d/_search/none?q=a
POST /_search_analyze {"analyzer": "standard", "text": "seven dwarfs"}
POST /_nouveau_analyze {"analyzer": "standard", "text": "seven dwarfs"}
GET /{db}/_security
PUT /{db}/_security {"members": {"names": ["nobody"], "roles": []}}
PUT /{db}/_security []
GET /{db}/_security
GET /{db}/_revs_limit
PUT /{db}/_revs_limit 77
PUT /{db}/_revs_limit 0
GET /{db}/_revs_limit
GET /{db}/_purged_infos_limit
PUT /{db}/_purged_infos_limit 55
GET /{db}/_auto_purge
PUT /{db}/_auto_purge {"deleted_document_ttl": "3_days"}
GET /{db}/_auto_purge
GET /{db}/k3 ! _rev
POST /{db}/_purge {"k3": ["{_rev}"]}
POST /{db}/_purge {"none": ["1-a"]}
POST /{db}/_purge {"k1": []}
GET /{db}/_purged_infos
GET /{db}/k3
POST /{db}/_compact {}
POST /{db}/_compact/d {}
POST /{db}/_view_cleanup {}
POST /{db}/_search_cleanup {}
POST /{db}/_nouveau_cleanup {}
POST /{db}/_ensure_full_commit {}
POST /{db}/_sync_shards {}
GET /{db}/_time_seq
PUT /{part}/p:1 {"n": 1}
PUT /{part}/unpartitioned {"n": 1}
PUT /{part}/p:2 {"n": 2}
PUT /{part}/q:1 {"n": 3}
GET /{part}/_partition/p
GET /{part}/_partition/none
GET /{part}/_partition/p/_all_docs
POST /{part}/_partition/p/_find {"selector": {"n": {"$gt": 0}}, "fields": ["_id"]}
POST /{part}/_partition/p/_explain {"selector": {"n": 1}}
PUT /{part}/_design/d {"views": {"v": {"map": "function (doc) { emit(doc.n, 1); }"}}}
GET /{part}/_partition/p/_design/d/_view/v
GET /{part}/_design/d/_view/v
POST /_replicate {"source": "{url}/{db}", "target": "{url}/{copy}", "create_target": true}
GET /{copy}/_all_docs
POST /_replicate {"source": "none", "target": "{copy}"}
POST /_replicate {"source": 1}
POST /_replicate {"source": "{db}", "target": "{copy}", "cancel": true}
PUT /_replicator/{db} {"source": "{url}/{db}"}
PUT /_replicator/{db} {"source": "{url}/none-{db}", "target": "{url}/{copy}"} ! rev
DELETE /_replicator/{db}?rev={rev}
GET /_scheduler/docs/_replicator/none
GET /_scheduler/jobs/none
PUT /_users/org.couchdb.user:{db} {"_id": "org.couchdb.user:{db}", "name": "{db}", "password": "secret", "roles": ["r"], "type": "user"} ! rev
PUT /_users/org.couchdb.user:{db} {"_id": "org.couchdb.user:{db}", "name": "other", "roles": [], "type": "user"}
GET /_users/org.couchdb.user:{db}
GET /_users/_all_docs?key="org.couchdb.user:{db}"
POST /_session {"name": "{db}", "password": "wrong"}
POST /_session {"name": "{db}", "password": "secret"}
DELETE /_session
DELETE /_users/org.couchdb.user:{db}?rev={rev}
GET /_uuids?count=2
GET /_uuids?count=x
GET /_membership
GET /_cluster_setup
GET /_reshard
GET /_reshard/jobs
GET /_db_updates?since=now
GET /_node/_local
GET /_node/none@nowhere
GET /_node/_local/_versions
GET /_node/_local/_config/chttpd/bind_address
PUT /_node/_local/_config/table/key "value"
GET /_node/_local/_config/table
GET /_node/_local/_config/table/none
DELETE /_node/_local/_config/table/key
GET /_settee/none
GET /_none
PATCH /{db}
POST /{db}/a {}
GET /{db}/_shards
GET /{db}/_shards/a
DELETE /{copy}
DELETE /{part}
DELETE /{db}
DELETE /{db}
GET /{db}/a
PUT /{db}/a {}
"""
DESIGN = {
    "views": {"by_n": {"map": "function (doc) { if (doc.n) emit(doc.n, doc.n); }", "reduce": "_sum"}},
    "shows": {"shown": "function (doc, req) { return doc ? doc._id : 'none'; }"},
    "lists": {"listed": "function (head, req) { var row; while (row = getRow()) send(row.id + '\\n'); }"},
    "updates": {"updated": "function (doc, req) { return [null, doc ? doc._id : 'none']; }"},
    "filters": {"odd": "function (doc, req) { return doc.n % 2 === 1; }"},
    "rewrites": [{"from": "doc", "to": "../../a"}],
    "validate_doc_update": "function (doc) { if (doc.bad) throw({forbidden: 'bad'}); }",
    "nouveau": {"texts": {"index": "function (doc) { if (doc.text) index('text', 'text', doc.text); }"}},
    "indexes": {"words": {"index": "function (doc) { if (doc.text) index('text', doc.text); }"}},
}
# What is another value at each server, or at each time.
VOLATILE = {
    "_local_seq",
    "bookmark",
    # Of a database: the numbers of copies.
    "cluster",
    "compact_running",
    "end_last_seq",
    "end_time",
    "instance_start_time",
    "last_seq",
    "purge_seq",
    "recorded_seq",
    "seq",
    "session_id",
    "sizes",
    "source_last_seq",
    "start_last_seq",
    "start_time",
    "timestamp",
    "update_seq",
    "updater_running",
    "uuid",
    "uuids",
    # Of users' passwords.
    "derived_key",
    "salt",
}
HEADERS = ("Content-Type", "Location", "Allow", "Content-Encoding", "X-Couch-Update-NewRev")
LINE = re.compile(r"^(?P<method>[A-Z]+) (?P<path>\S+)(?: (?!! )(?P<body>.*?))?(?: ! (?P<kept>\w+))?$")
# Those of users depend on a salt.
HASH = re.compile(r"\b[0-9a-f]{32}\b")


class Row:
    """A request of the table."""

    def __init__(self, line):
        parts = LINE.match(line)
        self.line = line
        self.method, self.path, self.body, self.kept = (parts[name] for name in ("method", "path", "body", "kept"))


ROWS = [Row(line) for line in REQUESTS.strip().splitlines()]


class Asked:
    """Sends the table to a server, or to several in turns. The databases have names of their own."""

    def __init__(self, apis, names, credentials):
        self.apis, self.names, self.credentials = apis, names, credentials
        self.kept = {}

    def answers(self):
        """[(line, form of the answer)]"""
        return [(row.line, self.answer(row, self.apis[at % len(self.apis)])) for at, row in enumerate(ROWS)]

    def answer(self, row, api):
        url = api.url.replace("//", f"//{self.credentials}@")
        body, headers = row.body, {}
        if body and body.startswith("Destination: "):
            body, headers = None, {"Destination": body.removeprefix("Destination: ")}
        elif body is not None:
            body = self.filled(body.replace("{DESIGN}", json.dumps(DESIGN)), url).encode()
            headers = {"Content-Type": "text/plain" if row.path.endswith(".txt?rev={rev}") else "application/json"}
        path = self.filled(row.path, url).replace('"', "%22").replace("[", "%5B").replace("]", "%5D").replace(" ", "%20")
        answer = api.request(row.method, path, body, headers=headers)
        found = parsed(answer.raw)
        if row.kept and isinstance(found, dict):
            self.kept[row.kept] = found.get(row.kept, self.kept.get(row.kept))
        shown = {name: self.named(answer.headers[name], url) for name in HEADERS if answer.headers[name]}
        return {"status": answer.status, "headers": shown, "body": self.form(found, url) if row.method != "HEAD" else None}

    def filled(self, text, url):
        for name, value in {**self.names, **self.kept, "url": url}.items():
            text = text.replace("{%s}" % name, str(value))
        return text

    def form(self, value, url):
        if isinstance(value, dict):
            return {self.named(name, url): "*" if name in VOLATILE else self.form(inner, url) for name, inner in value.items()}
        if isinstance(value, list):
            return [self.form(inner, url) for inner in value]
        return self.named(value, url) if isinstance(value, str) else value

    def named(self, text, url):
        """With the names of the table, so that those of two servers are equal."""
        text = text.replace(url, "{url}").replace(url.replace(f"{self.credentials}@", ""), "{url}")
        for name, value in sorted(self.names.items(), key=lambda pair: -len(pair[1])):
            text = text.replace(value, "{%s}" % name)
        return HASH.sub("*", text)


def parsed(raw):
    """JSON, lines of JSON, or text."""
    try:
        return json.loads(raw)
    except ValueError:
        pass
    lines = raw.decode("utf-8", "replace").splitlines()
    try:
        return [json.loads(line) for line in lines if line.strip()]
    except ValueError:
        return "\n".join(lines)
