"""The same views in JavaScript in process, Node, Python (our own server and the real couchpy) and Erlang: the same rows."""

import os
import shutil
import signal

import pytest

from harness import naive_view as naive
from harness.bystander import children_ticks
from harness.packages import virtual_environment
from harness.server import wait_until

pytestmark = pytest.mark.may_be_retried

ERLANG_GET = "Get = fun(Name) -> proplists:get_value(Name, Doc, null) end,"

# Each view in each language; what it does is what its JavaScript says.
VIEWS = {
    "totals": {
        "javascript": "function (doc) { var sum = 0; doc.items.forEach(function (item) { if (item.open) sum += item.amount; });"
        " emit([doc.group, doc.items.length], sum); }",
        "python": "def fun(doc):\n    yield [doc['group'], len(doc['items'])], sum(item['amount'] for item in doc['items'] if item['open'])",
        "erlang": "fun({Doc}) -> "
        + ERLANG_GET
        + """
            Items = Get(<<"items">>),
            Amounts = [proplists:get_value(<<"amount">>, Item) || {Item} <- Items, proplists:get_value(<<"open">>, Item) =:= true],
            Emit([Get(<<"group">>), length(Items)], lists:sum(Amounts))
            end.""",
    },
    "each_item": {
        "javascript": "function (doc) { doc.items.forEach(function (item, at) { emit([item.code, at], {amount: item.amount, open: item.open}); }); }",
        "python": "def fun(doc):\n    for at, item in enumerate(doc['items']):\n        yield [item['code'], at], {'amount': item['amount'], 'open': item['open']}",
        "erlang": "fun({Doc}) -> "
        + ERLANG_GET
        + """
            lists:foldl(fun({Item}, At) ->
                Of = fun(Name) -> proplists:get_value(Name, Item) end,
                Emit([Of(<<"code">>), At], {[{<<"amount">>, Of(<<"amount">>)}, {<<"open">>, Of(<<"open">>)}]}),
                At + 1
            end, 0, Get(<<"items">>))
            end.""",
    },
    "texts": {
        "javascript": "function (doc) { if (doc.text) emit(doc.text, [null, true, false, doc.text, -0.5, 1e300, 9007199254740991]); }",
        "python": "def fun(doc):\n    if doc.get('text'):\n        yield doc['text'], [None, True, False, doc['text'], -0.5, 1e300, 9007199254740991]",
        "erlang": "fun({Doc}) -> "
        + ERLANG_GET
        + """
            case Get(<<"text">>) of
                null -> ok;
                <<>> -> ok;
                Text -> Emit(Text, [null, true, false, Text, -0.5, 1.0e300, 9007199254740991])
            end
            end.""",
    },
    "some_throw": {
        "javascript": "function (doc) { emit(doc._id, doc._rev); if (doc.items.length === 0) throw new Error('no items'); }",
        "python": "def fun(doc):\n    yield doc['_id'], doc['_rev']\n    if not doc['items']:\n        raise ValueError('no items')",
        "erlang": "fun({Doc}) -> "
        + ERLANG_GET
        + """
            Emit(Get(<<"_id">>), Get(<<"_rev">>)),
            case Get(<<"items">>) of [] -> throw(no_items); _ -> ok end
            end.""",
    },
    "whole": {
        "javascript": "function (doc) { emit(null, doc); }",
        "python": "def fun(doc):\n    yield None, doc",
        "erlang": "fun({Doc}) -> Emit(null, {Doc}) end.",
    },
}
REDUCES = {
    "javascript": "function (keys, values, rereduce) { return sum(values); }",
    "python": "def fun(keys, values, rereduce):\n    return sum(values)",
    "erlang": "fun(Keys, Values, ReReduce) -> lists:sum(Values) end.",
}
# A language of the configuration, and in which the sources are.
SERVERS = {"javascript": "javascript", "nodejs": "javascript", "python": "python", "couchpy": "python", "erlang": "erlang"}
# Our server for Python on another interpreter, where there is one.
PYPY = shutil.which("pypy3")
if PYPY:
    SERVERS["python3"] = "python"


def options(ctx):
    couchpy = virtual_environment(ctx, ctx.checkout / "tests" / "clients" / "python") / "bin" / "couchpy"
    settings = {"query_servers/couchpy": couchpy, **{f"query_servers/{name}": "builtin" for name in ("python", "nodejs", "erlang")}}
    # On a busy machine the first compilation of a function may take longer than usual.
    settings["couchdb/os_process_timeout"] = 60_000
    if PYPY:
        settings["query_servers/python3"] = f"builtin {PYPY}"
    return [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]


def document(random, number):
    text = "".join(random.choice('aéß漢🙂"\\\n\u2028z') for _ in range(random.randint(0, 8)))
    items = [
        {
            "code": f"c{random.randint(0, 20):02d}",
            "amount": random.choice([random.randint(-999, 999), random.randint(-99, 99) / 4]),
            "open": random.random() < 0.5,
        }
        for _ in range(random.randint(0, 4))
    ]
    return {
        "_id": f"doc-{number:04d}",
        "group": random.choice("abc"),
        "text": text,
        "items": items,
        "nested": {"empty": {}, "list": [[], [None, {"ж": 1.5}]]},
    }


def design(language):
    sources = SERVERS[language]
    views = {name: {"map": maps[sources]} for name, maps in VIEWS.items()}
    views["totals"]["reduce"] = "_sum"
    views["custom"] = {"map": VIEWS["totals"][sources], "reduce": REDUCES[sources]}
    return {"language": language, "views": views}


def test_same_rows(ctx):
    count = ctx.size(200, 500)
    with ctx.server(options=options(ctx)) as server:
        report, api = ctx.report, server.api(timeout=180)
        api.expect((201, 202), "PUT", "/languages?q=2")
        docs = [document(ctx.random, number) for number in range(count)]
        written = api.expect((201, 202), "POST", "/languages/_bulk_docs", {"docs": docs})
        for language in SERVERS:
            api.expect((201, 202), "PUT", f"/languages/_design/{language}", design(language))
        agree(report, api, "first build")
        edits = [{**document(ctx.random, at), "_rev": written[at]["rev"], "_deleted": at % 3 == 0} for at in range(0, count, 7)]
        api.expect((201, 202), "POST", "/languages/_bulk_docs", {"docs": edits})
        agree(report, api, "after edits and deletions")
        api.expect((201, 202), "PUT", "/languages/_design/nobody", {"language": "klingon", "views": {"v": {"map": "x"}}})
        answer = api.get("/languages/_design/nobody/_view/v")
        report.check(
            "a language without a server is an unknown_query_language",
            answer.status >= 400 and answer.is_error_shape and answer.json["error"] == "unknown_query_language",
            repr(answer),
        )
        broken = {
            "python": "def fun(doc:\n    yield 1, 2",
            "couchpy": "def fun(doc:\n    yield 1, 2",
            "erlang": "fun({Doc}) -> Emit(",
            "nodejs": "function (doc) { emit(",
        }
        for language, source in broken.items():
            path = f"/languages/_design/broken-{language}"
            written = api.put(path, {"language": language, "views": {"v": {"map": source}}})
            answer = api.get(f"{path}/_view/v") if written.status in (201, 202) else written
            report.check(
                f"{language}: a source that does not compile is an error in CouchDB's shape",
                answer.status >= 400 and answer.is_error_shape,
                repr(answer),
            )
        report.check("no panic", "panicked" not in server.log(), server.log()[-1500:])


def agree(report, api, when):
    queries = [(name, "?reduce=false" if name == "totals" else "") for name in VIEWS]
    queries += [("totals", "?group=true"), ("totals", ""), ("custom", "?group_level=1"), ("custom", "")]
    for language in SERVERS:
        wrong = []
        for view, query in queries:
            expected = api.expect(200, "GET", f"/languages/_design/javascript/_view/{view}{query}")["rows"]
            answer = api.get(f"/languages/_design/{language}/_view/{view}{query}")
            if answer.status != 200:
                wrong.append(f"{view}{query}: {answer!r}")
                continue
            if not expected:
                wrong.append(f"{view}{query}: JavaScript has no rows")
            different = [(one, two) for one, two in zip(answer.json["rows"], expected) if naive.canonical(one) != naive.canonical(two)]
            if different or len(answer.json["rows"]) != len(expected):
                wrong.append(f"{view}{query}: {len(answer.json['rows'])} rows, {len(expected)} in JavaScript; first different: {different[:1]}")
        report.check(f"{when}: {language} has JavaScript's rows", not wrong, "\n".join(wrong))


def test_lost_servers(ctx):
    """Query servers that are killed are started again: at rest, and under a build."""
    with ctx.server("lost", options=options(ctx)) as server:
        report, api = ctx.report, server.api(timeout=180)
        api.expect((201, 202), "PUT", "/languages")
        api.expect((201, 202), "POST", "/languages/_bulk_docs", {"docs": [document(ctx.random, number) for number in range(ctx.size(100, 500))]})
        for language in SERVERS:
            api.expect((201, 202), "PUT", f"/languages/_design/{language}", design(language))
        agree(report, api, "before")
        killed = 0
        for child in children_ticks(server.process.pid):
            try:
                os.kill(child, signal.SIGKILL)
                killed += 1
            except ProcessLookupError:
                pass  # it has ended by itself
        report.check("there were query servers to kill", killed >= 3, killed)
        wait_until(lambda: api.get("/_up").status == 200)
        for number in range(30):
            api.expect((201, 202), "PUT", f"/languages/more-{number}", {**document(ctx.random, 9000 + number), "_id": f"more-{number}"})
        agree(report, api, "after all query servers were killed")
    report.check("they end with the server", not server.alive())
