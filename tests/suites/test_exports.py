"""`settee export` and `settee query`: documents, views and queries as JSON, JSON Lines, CSV and CSV for spreadsheets."""

import csv
import gzip
import io
import json
import os
import pathlib
import subprocess

import pytest

pytestmark = pytest.mark.quick

TIMEOUT_S = 120
BIG = 9223372036854775807
DOCS = [
    {"_id": "a", "n": 1, "text": "=1+1", "zip": "007", "big": BIG, "nested": {"x": 1.5, "y": [1, "z"]}},
    {"_id": "b", "n": -2, "text": 'a "b", c\nd', "zip": "98765", "other": None},
    {"_id": "c", "n": 3, "text": "@SUM(A1)", "ok": True},
]
DESIGN = {"views": {"n": {"map": "function (doc) { emit([doc._id, doc.n], doc.n); }", "reduce": "_sum"}}}


@pytest.fixture(scope="module")
def server(suite):
    with suite.server() as server:
        api = server.api()
        api.expect(201, "PUT", "/db")
        api.expect(201, "POST", "/db/_bulk_docs", {"docs": DOCS})
        api.expect(201, "PUT", "/db/_design/d", DESIGN)
        api.expect(200, "POST", "/db/_index", {"index": {"fields": ["n"]}, "ddoc": "by-n"})
        yield server
        suite.report.check("no panic", "panicked" not in server.log(), server.log()[-1500:])


def settee(ctx, *words, **options):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SETTEE_CRED")}
    command = [ctx.binary, *map(str, words)]
    return subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=False, env={**environment, "NO_COLOR": "1"}, **options)


def database(server, name="db"):
    return server.url.replace("://", f"://{server.admin}@") + f"/{name}"


def exported(ctx, server, *options, command="export", name="db"):
    done = settee(ctx, command, database(server, name), *options)
    ctx.report.equal(f"{command} {' '.join(map(str, options))}: the exit status", done.returncode, 0, quiet=True)
    return done.stdout.decode()


def without_revisions(documents):
    return [{name: value for name, value in document.items() if name != "_rev"} for document in documents]


def rows_of(text):
    return list(csv.reader(io.StringIO(text)))


def test_documents_as_json(ctx, server):
    lines = exported(ctx, server)
    found = [json.loads(line) for line in lines.splitlines()]
    ctx.report.equal("a line for each document, without design documents", without_revisions(found), DOCS)
    ctx.report.check("numbers keep their digits", f'"big":{BIG}' in lines, lines)
    ctx.report.equal("one array", without_revisions(json.loads(exported(ctx, server, "--format", "json"))), DOCS)
    everything = exported(ctx, server, "--design").splitlines()
    ctx.report.equal("design documents are asked for", len(everything), len(DOCS) + 2)
    ctx.report.equal("a limit", len(exported(ctx, server, "--limit", "2").splitlines()), 2)
    ctx.report.equal("an array of nothing", json.loads(exported(ctx, server, "--format", "json", "--limit", "0")), [])


def test_csv(ctx, server):
    rows = rows_of(exported(ctx, server, "--format", "csv"))
    columns = ["_id", "n", "text", "zip", "big", "nested", "other", "ok"]
    ctx.report.equal("all members are columns", rows[0], columns)
    ctx.report.equal("values are as they were", rows[1], ["a", "1", "=1+1", "007", str(BIG), '{"x":1.5,"y":[1,"z"]}', "", ""])
    ctx.report.equal("a text of any characters", rows[2][2], DOCS[1]["text"])
    rows = rows_of(exported(ctx, server, "--format", "csv", "--flatten", "--fields", "_id,nested.x,ok"))
    ctx.report.equal("columns are chosen", rows, [["_id", "nested.x", "ok"], ["a", "1.5", ""], ["b", "", ""], ["c", "", "true"]])
    flat = rows_of(exported(ctx, server, "--format", "csv", "--flatten", "--delimiter", ";").replace(";", ","))
    ctx.report.check("objects become columns", {"nested.x", "nested.y"} <= set(flat[0]), flat[0])


def test_csv_for_spreadsheets(ctx, server):
    text = exported(ctx, server, "--format", "spreadsheet")
    ctx.report.check("it has a byte order mark", text.startswith("\ufeff_id,"), text[:20])
    rows = rows_of(text.removeprefix("\ufeff"))
    cells = dict(zip(rows[0], rows[1]))
    ctx.report.equal("no formula is run", (cells["text"], rows[3][2]), ("'=1+1", "'@SUM(A1)"))
    ctx.report.equal("zeros and digits are kept", (cells["zip"], cells["big"]), ('="007"', f'="{BIG}"'))
    ctx.report.equal("numbers are numbers", [row[1] for row in rows[1:]], ["1", "-2", "3"])
    dangerous = [cell for row in rows for cell in row if cell[:1] in "=+-@\t\r" and cell != "" and not cell.startswith('="') and cell != "-2"]
    ctx.report.equal("no cell begins like a formula", dangerous, [])


def test_views_and_queries(ctx, server):
    rows = [json.loads(line) for line in exported(ctx, server, "--view", "d/n", "--parameter", "reduce=false").splitlines()]
    ctx.report.equal("rows of a view", rows[0], {"id": "a", "key": ["a", 1], "value": 1})
    grouped = rows_of(exported(ctx, server, "--view", "d/n", "--parameter", "group_level=1", "--format", "csv"))
    ctx.report.equal("a reduced view as CSV", grouped, [["key", "value"], ['["a"]', "1"], ['["b"]', "-2"], ['["c"]', "3"]])
    found = exported(ctx, server, "--query", '{"selector":{"n":{"$gt":0}},"fields":["_id","n"]}')
    ctx.report.equal("a query", [json.loads(line) for line in found.splitlines()], [{"_id": "a", "n": 1}, {"_id": "c", "n": 3}])
    groups = exported(ctx, server, "--query", '{"selector":{},"aggregate":{"compute":{"all":{"$sum":"n"}}}}')
    ctx.report.equal("groups of an aggregate", json.loads(groups)["value"], {"all": 2})


def test_files(ctx, server):
    folder = ctx.folder("files")
    for name, read in (("a.csv", open), ("b.json", open), ("c.jsonl.gz", gzip.open)):
        done = settee(ctx, "export", database(server), "-o", folder / name)
        ctx.report.check(f"{name} is written", done.returncode == 0 and done.stdout == b"" and b"exported 3 documents" in done.stderr, done)
        with read(folder / name, "rt", encoding="utf-8") as file:
            text = file.read()
        ctx.report.check(f"{name} has its name's format", text.startswith({"a": "_id,", "b": "[", "c": "{"}[name[0]]), text[:50])
    settee(ctx, "export", database(server), "-o", folder / "d.tsv.gz")
    with gzip.open(folder / "d.tsv.gz", "rt", encoding="utf-8") as file:
        ctx.report.equal("tabs divide cells of .tsv", file.readline().split("\t")[:2], ["_id", "n"])
    done = settee(ctx, "load", folder / "a.csv", database(server, "again"))
    ctx.report.check("what is exported can be loaded", done.returncode == 0, done)
    again = server.api().expect(200, "GET", "/again/a")
    ctx.report.equal("and is the same", without_revisions([again]), [DOCS[0]])
    done = settee(ctx, "export", database(server, "absent"), "-o", folder / "a.csv")
    ctx.report.check("a database that does not exist", done.returncode == 1 and b"404" in done.stderr, done)
    kept = (folder / "a.csv").read_text(encoding="utf-8").startswith("_id,")
    ctx.report.check("leaves an earlier file, and no others", kept and not list(folder.glob("*.partial")), list(folder.iterdir()))
    done = settee(ctx, "export", database(server), "-o", "/dev/null")
    ctx.report.check("a device is written to, not replaced", done.returncode == 0 and not pathlib.Path("/dev/null").is_file(), done)


def test_attachments(ctx, server):
    api = server.api()
    api.expect(201, "PUT", "/with")
    api.expect(201, "PUT", "/with/a", {"n": 1, "_attachments": {"x.txt": {"content_type": "text/plain", "data": "aGVsbG8="}}})
    done = settee(ctx, "export", database(server, "with"))
    plain = json.loads(done.stdout)
    ctx.report.check("attachments are left out, and that is said", "_attachments" not in plain and b"--attachments" in done.stderr, done)
    done = settee(ctx, "export", database(server, "with"), "--attachments")
    ctx.report.equal("or exported", json.loads(done.stdout)["_attachments"]["x.txt"]["data"], "aGVsbG8=")
    loaded = settee(ctx, "load", "-", database(server, "with-again"), input=done.stdout)
    ctx.report.check("and loaded", loaded.returncode == 0 and api.get("/with-again/a/x.txt").raw == b"hello", loaded)


def test_many_documents_come_in_pages(ctx, server):
    api, count = server.api(), 1_234
    api.expect(201, "PUT", "/many")
    api.expect(201, "POST", "/many/_bulk_docs", {"docs": [{"_id": f"{n:05}", "n": n} for n in range(count)]})
    done = settee(ctx, "export", database(server, "many"), "--query", '{"n":{"$gte":0}}')
    found = [json.loads(line)["n"] for line in done.stdout.splitlines()]
    ctx.report.equal("each document once", found, list(range(count)))
    done = settee(ctx, "export", database(server, "many"), "--query", '{"selector":{"n":{"$gte":0}},"skip":1000}')
    ctx.report.equal("and skipped ones only once", len(done.stdout.splitlines()), count - 1000)
    with subprocess.Popen([ctx.binary, "export", database(server, "many")], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        process.stdout.close()
        error = process.stderr.read()
        ctx.report.equal("a reader that wants no more ends it", (process.wait(TIMEOUT_S), b"settee:" in error), (0, False))


def test_query(ctx, server):
    table = exported(ctx, server, '{"n":{"$gt":0}}', "--fields", "_id,n", "--sort=-n", command="query").splitlines()
    ctx.report.equal("a table", [line.split() for line in table], [["_id", "n"], ["c", "3"], ["a", "1"]])
    lines = exported(ctx, server, '{"n":3}', "--format", "jsonl", command="query")
    ctx.report.equal("JSON Lines", json.loads(lines)["_id"], "c")
    done = settee(ctx, "query", database(server), "-", "--format", "json", "--limit", "1", input=b'{"selector":{"n":{"$gt":-9}}}')
    ctx.report.check("a body from standard input, and a limit", len(json.loads(done.stdout)) == 1 and b"--limit" in done.stderr, done)
    rows = rows_of(exported(ctx, server, '{"ok":true}', "--format", "csv", command="query"))
    ctx.report.equal("CSV", rows, [["_id", "n", "text", "ok"], ["c", "3", "@SUM(A1)", "true"]])
    plan = json.loads(exported(ctx, server, '{"n":3}', "--explain", command="query"))
    ctx.report.equal("which index is used", plan["index"]["ddoc"], "_design/by-n")
    done = settee(ctx, "query", database(server), '{"other":1}')
    ctx.report.check("a query without an index is warned of", b"index" in done.stderr, done)
    done = settee(ctx, "query", database(server), "tea")
    ctx.report.check("a text that is not JSON", done.returncode == 2 and b"not a JSON object" in done.stderr, done)
    done = settee(ctx, "query", database(server), '{"n":{"$nonsense":1}}')
    ctx.report.check("a selector that is wrong", done.returncode == 1 and b"nonsense" in done.stderr, done)


def test_cells_that_other_spreadsheets_divide(ctx, server):
    api = server.api()
    api.expect(201, "PUT", "/divided")
    docs = [{"_id": "a", "t": "x;=1+1", "l": ["y;=2+2", -3]}, {"_id": "b", "t": "x\n@SUM(A1)\t-1+1", "l": []}, {"_id": "c", "t": " =1+1", "l": []}]
    api.expect(201, "POST", "/divided/_bulk_docs", {"docs": docs})
    for delimiter, others in ((",", ";\t\n"), (";", ",\t\n")):
        text = exported(ctx, server, "--format", "spreadsheet", "--delimiter", delimiter, name="divided").removeprefix("\ufeff")
        cells = [cell for row in csv.reader(io.StringIO(text), delimiter=delimiter) for cell in row]
        for other in others:
            cells = [part for cell in cells for part in cell.split(other)]
        formulas = [cell for cell in cells if cell.strip(" ")[:1] in tuple("=+-@") and not cell.rstrip("]").lstrip("-").isdigit()]
        ctx.report.equal(f"no part of a cell is a formula, delimiter {delimiter}", formulas, [])
    plain = exported(ctx, server, "--format", "csv", name="divided")
    ctx.report.equal("other formats keep texts as they are", rows_of(plain)[1][1], "x;=1+1")


def test_names_with_slashes_and_dots(ctx, server):
    source = ctx.folder("names") / "docs.jsonl"
    source.write_text('{"_id":"x/y","a.b":{"c":1}}\n', encoding="utf-8")
    done = settee(ctx, "load", source, database(server, "one%2Ftwo"))
    ctx.report.equal("a database with a slash in its name is loaded", done.returncode, 0)
    text = exported(ctx, server, "--format", "csv", "--fields", r"_id,a\.b.c", name="one%2Ftwo")
    ctx.report.equal("and exported, with a member with a dot in its name", rows_of(text)[1], ["x/y", "1"])
