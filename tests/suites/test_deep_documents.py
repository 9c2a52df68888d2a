"""Documents that nest deeply, and too deeply for a function's language: refused with a clear error, or left out of indexes and feeds and counted."""

import pytest

ANSWER_TIMEOUT_S = 60
JSON = {"Content-Type": "application/json"}
#: Levels of the documents: what JavaScript in QuickJS gets, and what it does not.
FINE, TOO_DEEP = (100, 127, 130, 990), (1001, 1100, 4090)
ALL = FINE + TOO_DEEP
JAVASCRIPT = {
    "shows": {"type": "function (doc, req) { return 'show ' + doc.type; }", "json": "function (doc, req) { return {json: doc.v}; }"},
    "lists": {"count": "function (head, req) { var row, n = 0; while (row = getRow()) n++; return 'rows ' + n; }"},
    "updates": {"type": "function (doc, req) { return [null, 'update ' + doc.type]; }", "same": "function (doc, req) { return [doc, 'same']; }"},
    "filters": {"type": "function (doc, req) { return doc.type === 'x'; }"},
    "views": {
        "type": {"map": "function (doc) { if (doc.type) emit(doc.type, 1); }", "reduce": "function (keys, values) { return values.length; }"},
        "value": {"map": "function (doc) { if (doc.type) emit(doc.type, doc.v); }"},
        "reduced": {"map": "function (doc) { if (doc.type) emit(doc._id, doc.v); }", "reduce": "function (keys, values) { return 1; }"},
        "caught": {"map": "function (doc) { if (doc.type) { try { emit(0, doc.v); } catch (e) { emit(0, 'deep'); } } }"},
    },
    "autoupdate": False,
}
VALIDATE = "function (doc, old) { if (doc.type === 'bad') throw {forbidden: 'bad'}; }"
PYTHON = {
    "language": "python",
    "views": {
        "type": {"map": "def fun(doc):\n    if 'type' in doc:\n        yield doc['type'], 1"},
        "reduced": {
            "map": "def fun(doc):\n    if 'type' in doc:\n        yield doc['_id'], doc['v']",
            "reduce": "def fun(keys, values, rereduce):\n    return 1",
        },
    },
    "autoupdate": False,
}
ERLANG_MAP = 'fun({Doc}) -> case proplists:get_value(<<"type">>, Doc) of undefined -> ok; Type -> Emit(Type, 1) end end.'
ERLANG = {"language": "erlang", "views": {"type": {"map": ERLANG_MAP}}, "autoupdate": False}


def nested(depth):
    return f'{{"type":"x","v":{"[" * depth}1{"]" * depth}}}'.encode()


def name(depth):
    return f"d{depth:04d}"


def serve(ctx, *languages):
    return ctx.server(
        "-".join(["data", *languages]), options=[part for language in languages for part in ("--set", f"query_servers/{language}=builtin")]
    )


def fill(api, design):
    api.expect((201, 202), "PUT", "/db?q=1")
    for depth in ALL:
        assert api.put(f"/db/{name(depth)}", nested(depth), headers=JSON).status == 201
    api.expect(201, "PUT", "/db/_design/d", design)


def ids(answer, member):
    """The ids of rows whose values may nest deeper than Python's JSON reader goes."""
    found = answer.raw.decode().split('"id":"')[1:]
    return (
        [text.split('"')[0] for text in found if not text.startswith("_design")]
        if answer.status == 200
        else (member, answer.status, answer.raw[:200])
    )


def is_refused(answer):
    return answer.status == 400 and answer.json["error"] == "bad_request" and "nests too deeply" in answer.json["reason"]


def test_calls(ctx):
    """Functions of requests get documents of up to 1,000 levels, and return them."""
    report = ctx.report
    with serve(ctx) as server:
        api = server.api(ANSWER_TIMEOUT_S)
        fill(api, JAVASCRIPT)
        calls = {
            "a show": ("GET", "_show/type", b"show x"),
            "an update": ("POST", "_update/type", b"update x"),
            "an update that returns the document": ("POST", "_update/same", b"same"),
        }
        for depth in ALL:
            for what, (method, path, text) in calls.items():
                answer = api.request(method, f"/db/_design/d/{path}/{name(depth)}", {} if method == "POST" else None)
                good = answer.raw == text if depth in FINE else is_refused(answer)
                report.check(f"{what} of {depth} levels", good, (answer.status, answer.raw[:200]))
        for depth in FINE:
            shown = api.get(f"/db/_design/d/_show/json/{name(depth)}")
            report.check(f"a show returns {depth} levels", shown.raw.strip() == b"[" * depth + b"1" + b"]" * depth, shown.raw[:200])
        api.expect(201, "PUT", "/db/_design/v", {"validate_doc_update": VALIDATE})
        for depth in ALL:
            rev = api.request("HEAD", f"/db/{name(depth)}").headers["ETag"].strip('"')
            answers = {
                "a new document": api.put(f"/db/new{depth}", nested(depth), headers=JSON),
                "an old document": api.put(f"/db/{name(depth)}?rev={rev}", {"type": "y"}),
            }
            for what, answer in answers.items():
                good = answer.status == 201 if depth in FINE else is_refused(answer)
                report.check(f"validation of {what} of {depth} levels", good, (answer.status, answer.raw[:200]))
        docs = ",".join(f'{{"_id":"bulk{depth}",{nested(depth)[1:].decode()}' for depth in ALL)
        answer = api.post("/db/_bulk_docs", f'{{"docs":[{docs}]}}'.encode(), headers=JSON)
        found = [outcome.get("error", "ok") for outcome in answer.json]
        report.equal("of many documents, those are refused", found, ["ok"] * len(FINE) + ["bad_request"] * len(TOO_DEEP))
        report.check("no panic", "panicked" not in server.log(), server.log()[-1500:])


def test_indexes(ctx):
    """Documents that functions cannot read are left out of views, text indexes and feeds, and counted."""
    report = ctx.report
    fine = [name(depth) for depth in FINE]
    text = {
        "indexes": {"i": {"index": "function (doc) { if (doc.v) index('default', doc.type); }"}},
        "nouveau": {"i": {"index": "function (doc) { if (doc.v) index('text', 'default', doc.type); }"}},
    }
    with serve(ctx) as server:
        api = server.api(ANSWER_TIMEOUT_S)
        fill(api, {**JAVASCRIPT, **text})
        for view in ("value", "reduced"):
            report.equal(f"{view}: rows", ids(api.get(f"/db/_design/d/_view/{view}?reduce=false"), view), fine)
        all_names = [name(depth) for depth in ALL]
        for view in ("type", "caught"):
            found = ids(api.get(f"/db/_design/d/_view/{view}?reduce=false"), view)
            report.check(f"{view}: rows of documents whose deep part is not needed", found in (fine, all_names), found)
        reduced = api.get("/db/_design/d/_view/reduced?group=true")
        report.check("rows are reduced", reduced.status == 200 and reduced.raw.count(b'"value":1') == len(fine), reduced.raw[:300])
        listed = api.get("/db/_design/d/_list/count/value?reduce=false&include_docs=true")
        report.equal("a list gets the rows", listed.raw, f"rows {len(fine)}".encode())
        info = api.expect(200, "GET", "/db/_design/d/_info")["view_index"]
        report.equal("they are counted", info.get("num_left_out_docs", 0), len(TOO_DEEP))
        for feed in ("filter=d/type", "filter=_view&view=d/value"):
            report.equal(f"a feed with {feed}", ids(api.get(f"/db/_changes?{feed}"), feed), fine)
        for path in ("_search", "_nouveau"):
            answer = api.expect(200, "GET", f"/db/_design/d/{path}/i?q=x&limit=100")
            report.equal(f"{path}: hits", answer.get("total_rows", answer.get("total_hits")), len(ALL))
        report.check("no panic", "panicked" not in server.log(), server.log()[-1500:])


def test_other_languages(ctx):
    """Python, Node and Erlang read all documents that can be stored."""
    report = ctx.report
    nodejs = {**JAVASCRIPT, "language": "nodejs"}
    for language, design, reduced in (("python", PYTHON, True), ("nodejs", nodejs, True), ("erlang", ERLANG, False)):
        with serve(ctx, language) as server:
            api = server.api(ANSWER_TIMEOUT_S)
            fill(api, design)
            types = api.expect(200, "GET", "/db/_design/d/_view/type?reduce=false")
            report.equal(f"{language}: rows", sorted(row["id"] for row in types["rows"]), sorted(name(depth) for depth in ALL))
            if reduced:
                # The deepest value would nest too deeply among the rows of an answer.
                groups = api.get("/db/_design/d/_view/reduced?group=true")
                report.check(
                    f"{language}: rows are reduced", groups.status == 200 and groups.raw.count(b'"value":1') >= len(ALL) - 1, groups.raw[:300]
                )
                missing = len(ALL) - groups.raw.count(b'"value":1')
                info = api.expect(200, "GET", "/db/_design/d/_info")["view_index"]
                # Node may refuse to write the deepest value, which is an exception of the function like others: it is in the log.
                counted = (0, missing) if language == "nodejs" else (missing,)
                report.check(f"{language}: what is not in the view is counted", info.get("num_left_out_docs", 0) in counted, (info, missing))
            report.check(f"{language}: no panic", "panicked" not in server.log(), server.log()[-1500:])


@pytest.mark.parametrize("depth", [4096, 4097])
def test_the_deepest_document(ctx, depth):
    """The limit of all documents: whatever a function's language is, the rest is refused when it is written."""
    with serve(ctx) as server:
        api = server.api(ANSWER_TIMEOUT_S)
        api.expect((201, 202), "PUT", "/db")
        # The document itself is one level.
        answer = api.put("/db/doc", nested(depth - 1), headers=JSON)
        good = answer.status == 201 if depth == 4096 else answer.status == 400 and "nested more than 4096 levels" in answer.json["reason"]
        ctx.report.check(f"a document of {depth} levels", good, (answer.status, answer.raw[:200]))
