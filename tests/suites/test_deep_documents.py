"""Documents that nest too deeply for a function's language: a clear error for what the client sent, and left out where they are stored."""

import json

ANSWER_TIMEOUT_S = 60
DEPTHS = (100, 125, 127, 130, 500, 990, 999, 1001, 1100, 3000, 4090)
JSON = {"Content-Type": "application/json"}


def nest(depth):
    return "[" * depth + "1" + "]" * depth


LANGUAGES = {
    "javascript": {
        "shows": {"s": "function (doc, req) { return 'show ' + doc.type; }", "json": "function (doc, req) { return {json: doc}; }"},
        "lists": {"l": "function (head, req) { var row, n = 0; while (row = getRow()) { n++; } return 'rows ' + n; }"},
        "updates": {"u": "function (doc, req) { return [null, 'update ' + doc.type]; }", "same": "function (doc, req) { return [doc, 'same']; }"},
        "filters": {"f": "function (doc, req) { return doc.type === 'x'; }"},
        "views": {
            "v": {"map": "function (doc) { if (doc.type) emit(doc.type, doc.v); }"},
            "type": {"map": "function (doc) { if (doc.type) emit(doc.type, 1); }", "reduce": "function (k, v, r) { return r ? sum(v) : v.length; }"},
            "r": {"map": "function (doc) { if (doc.type) emit(doc._id, doc.v); }", "reduce": "function (k, v, r) { return 1; }"},
            "whole": {"map": "function (doc) { emit(null, doc); }"},
        },
        "indexes": {"i": {"index": "function (doc) { if (doc.type) index('default', doc.type); }"}},
        "nouveau": {"i": {"index": "function (doc) { if (doc.type) index('text', 'default', doc.type); }"}},
    },
    "nodejs": {},
    "python": {
        "shows": {"s": "def show(doc, req):\n    return 'show ' + doc['type']"},
        "filters": {"f": "def f(doc, req):\n    return doc.get('type') == 'x'"},
        "updates": {"u": "def u(doc, req):\n    return [None, 'update ' + doc['type']]"},
        "views": {"v": {"map": "def fun(doc):\n    if 'type' in doc:\n        yield doc['type'], doc['v']"}, "type": {"map": "def fun(doc):\n    if 'type' in doc:\n        yield doc['type'], 1"}},
    },
    "erlang": {
        "views": {"type": {"map": "fun({Doc}) -> case proplists:get_value(<<\"type\">>, Doc) of undefined -> ok; Type -> Emit(Type, 1) end end."}},
    },
}
LANGUAGES["nodejs"] = {key: value for key, value in LANGUAGES["javascript"].items() if key not in ("indexes", "nouveau")}
VALIDATE = {
    "javascript": "function (doc, old) { if (doc.type === 'bad') throw {forbidden: 'bad'}; }",
    "nodejs": "function (doc, old) { if (doc.type === 'bad') throw {forbidden: 'bad'}; }",
    "python": "def validate(doc, old, ctx, sec):\n    if doc.get('type') == 'bad':\n        raise Forbidden('bad')",
}


def options():
    settings = {f"query_servers/{name}": "builtin" for name in ("python", "nodejs", "erlang")}
    return [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]


def test_explore(ctx):
    with ctx.server(options=options()) as server:
        for language, design in LANGUAGES.items():
            api = server.api(ANSWER_TIMEOUT_S)
            db = f"/{language}"
            api.expect((201, 202), "PUT", f"{db}?q=1")
            print("==", language, api.put(f"{db}/_design/d", {"language": language, **design, "autoupdate": False}))
            for depth in DEPTHS:
                text = f'{{"type":"x","v":{nest(depth)}}}'.encode()
                answer = api.put(f"{db}/d{depth:04d}", text, headers=JSON)
                assert answer.status == 201, answer

            def say(what, answer):
                print(f"{language} {what}: {answer.status} {answer.raw[:160]!r}")

            for depth in DEPTHS:
                name = f"d{depth:04d}"
                for show in design.get("shows", {}):
                    say(f"{depth} show {show}", api.get(f"{db}/_design/d/_show/{show}/{name}"))
                for update in design.get("updates", {}):
                    say(f"{depth} update {update}", api.post(f"{db}/_design/d/_update/{update}/{name}", {}))
            for view, of in design.get("views", {}).items():
                answer = api.get(f"{db}/_design/d/_view/{view}?reduce=false")
                say(f"view {view}: {[row['id'] for row in json_rows(answer)]}", answer)
                if "reduce" in of:
                    say(f"reduce {view}", api.get(f"{db}/_design/d/_view/{view}"))
                    say(f"reduce {view}", api.get(f"{db}/_design/d/_view/{view}?group=true"))
                for l in design.get("lists", {}):
                    say(f"list {view}", api.get(f"{db}/_design/d/_list/{l}/{view}?reduce=false"))
                    say(f"list {view} with docs", api.get(f"{db}/_design/d/_list/{l}/{view}?reduce=false&include_docs=true"))
            for f in design.get("filters", {}):
                answer = api.get(f"{db}/_changes?filter=d/f")
                say(f"filter {[row['id'] for row in json_rows(answer)]}", answer)
                answer = api.get(f"{db}/_changes?filter=_view&view=d/type")
                say(f"_view filter {[row['id'] for row in json_rows(answer)]}", answer)
                answer = api.get(f"{db}/_changes?filter=d/f&include_docs=true")
                say("filter with docs", answer)
            if "indexes" in design:
                for path in ("_search", "_nouveau"):
                    answer = api.get(f"{db}/_design/d/{path}/i?q=x&limit=100")
                    say(f"{path}", answer)
            say("info", api.get(f"{db}/_design/d/_info"))
            if language in VALIDATE:
                say("v", api.put(f"{db}/_design/v", {"language": language, "validate_doc_update": VALIDATE[language]}))
                for depth in DEPTHS:
                    text = f'{{"type":"x","v":{nest(depth)}}}'.encode()
                    say(f"{depth} validate new", api.put(f"{db}/n{depth:04d}", text, headers=JSON))
                    rev = api.get(f"{db}/d{depth:04d}").json_rev if False else api.request("HEAD", f"{db}/d{depth:04d}").headers["ETag"].strip('"')
                    say(f"{depth} validate old", api.put(f"{db}/d{depth:04d}?rev={rev}", {"type": "x"}))
                docs = ",".join(f'{{"_id":"b{depth}","v":{nest(depth)}}}' for depth in DEPTHS)
                say("bulk", api.post(f"{db}/_bulk_docs", f'{{"docs":[{docs}]}}'.encode(), headers=JSON))
            print("panicked" in server.log(), [line[:300] for line in server.log().splitlines() if "panic" in line][:3])


def json_rows(answer):
    try:
        parsed = json.loads(answer.raw)
    except RecursionError:
        return []
    return parsed.get("rows") or parsed.get("results") or []
