"""`settee load` of CSV: the types of columns, ids, dialects, and what is shown before."""

import json
import os
import subprocess

import pytest

pytestmark = pytest.mark.quick

TIMEOUT_S = 120
BIG = 9223372036854775807


def settee(ctx, *words, **options):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SETTEE_CRED")}
    command = [ctx.binary, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, env=environment, **options)


def database(server, name):
    return server.url.replace("://", f"://{server.admin}@") + f"/{name}"


def documents(server, name):
    """{id: document without its revision}, and the text of all."""
    answer = server.api().get(f"/{name}/_all_docs?include_docs=true")
    found = {row["id"]: row["doc"] for row in answer.json["rows"]}
    for document in found.values():
        del document["_rev"]
    return found, answer.raw.decode()


def load(ctx, server, name, text, *options, file="data.csv"):
    path = ctx.folder(f"files-{name}") / file
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return settee(ctx, "load", path, database(server, name), *options)


def test_columns_have_types(ctx):
    text = (
        f'zip,n,big,price,sold,tags,name\r\n01234,1,{BIG},4.50,true,"[1,""a""]","Tea, ""green""\nand black"\r\n98765,,-1,3,false,{{}},\r\n,,,,,,\r\n'
    )
    with ctx.server() as server:
        done = load(ctx, server, "goods", text, "--id-field", "zip")
        ctx.report.check("it is loaded", done.returncode == 0 and "2 documents read, 2 written" in done.stdout, done)
        found, raw = documents(server, "goods")
        first = {
            "_id": "01234",
            "zip": "01234",
            "n": 1,
            "big": BIG,
            "price": 4.5,
            "sold": True,
            "tags": [1, "a"],
            "name": 'Tea, "green"\nand black',
        }
        ctx.report.equal("a row has values of its columns' types", found["01234"], first)
        second = {"_id": "98765", "zip": "98765", "big": -1, "price": 3, "sold": False, "tags": {}}
        ctx.report.equal("an empty cell is no member", found["98765"], second)
        ctx.report.check("an integer of 64 bits keeps its digits", f'"big":{BIG},' in raw, raw)


def test_a_member_loads_into_a_database_that_exists(ctx):
    with ctx.server() as server:
        admin = server.api()
        admin.expect(201, "PUT", "/notes")
        admin.expect(201, "PUT", "/_users/org.couchdb.user:anna", {"name": "anna", "password": "secret", "roles": [], "type": "user"})
        admin.expect(200, "PUT", "/notes/_security", {"members": {"names": ["anna"]}})
        path = ctx.folder("files-member") / "data.csv"
        path.write_text("name\nTea\n")
        anna = server.url.replace("://", "://anna:secret@")
        done = settee(ctx, "load", path, f"{anna}/notes", "--id-field", "name")
        ctx.report.check("no right to create databases is needed", done.returncode == 0 and "1 written" in done.stdout, done)
        ctx.report.equal("the document is there", admin.get("/notes/Tea").status, 200)
        done = settee(ctx, "load", path, f"{anna}/absent")
        ctx.report.check("a new database needs an admin", done.returncode == 1 and "an admin, who may create the database" in done.stderr, done)
        ctx.report.equal("and is not created", admin.get("/absent").status, 404)


def test_dialects(ctx):
    german = "\ufeffname;preis;ort.stadt\r\nTee;4,5;Graz\r\nMilch;1,25;\r\n"
    other = b"'a\\'b':7\n'c':8\n"
    with ctx.server() as server:
        done = load(ctx, server, "german", german, "--id-field", "name", "--decimal-comma", "--nested", "--empty", "null")
        ctx.report.equal("semicolons and a decimal comma", done.returncode, 0)
        found, _ = documents(server, "german")
        ctx.report.equal(
            "are numbers, and dots objects",
            found,
            {
                "Tee": {"_id": "Tee", "name": "Tee", "preis": 4.5, "ort": {"stadt": "Graz"}},
                "Milch": {"_id": "Milch", "name": "Milch", "preis": 1.25, "ort": {"stadt": None}},
            },
        )
        options = ["--no-header", "--quote", "'", "--escape", "\\", "--delimiter", ":", "--type", "column2=text", "--id-field", "column1"]
        done = load(ctx, server, "other", other, *options, "--format", "csv", file="data.txt")
        ctx.report.check("other quotes and no header", done.returncode == 0, done)
        found, _ = documents(server, "other")
        ctx.report.equal("a type can be given", found["a'b"], {"_id": "a'b", "column1": "a'b", "column2": "7"})
        done = load(ctx, server, "tabs", "_id\tn\n1\t2\n", file="data.tsv")
        found, _ = documents(server, "tabs")
        ctx.report.equal("tabs, and ids are texts", found, {"1": {"_id": "1", "n": 2}})


def test_rows_that_do_not_fit(ctx):
    with ctx.server() as server:
        text = "_id,n\n" + "".join(f"{n:05},{n}\n" for n in range(12_000)) + "late,007\nlong,1,2\n"
        done = load(ctx, server, "long", text, "--batch", "500")
        ctx.report.equal("documents that are refused are another exit status", done.returncode, 3)
        ctx.report.check("a row of too many cells is refused", "the row has 3 cells, the header 2" in done.stdout, done.stdout)
        ctx.report.check("a cell of another type is noted", 'column "n": 1 cell not of the type integer' in done.stdout, done.stdout)
        found, _ = documents(server, "long")
        ctx.report.equal("and kept as text", (len(found), found["late"]["n"], found["00007"]["n"]), (12_001, "007", 7))
        done = load(ctx, server, "latin", "a\nMünchen\n".encode("latin-1"))
        ctx.report.check("another encoding is named", done.returncode == 1 and "not UTF-8" in done.stderr and "iconv" in done.stderr, done)
        done = load(ctx, server, "columns", "a,b\n1,2\n", "--id-field", "code")
        ctx.report.check("a column that is not there is named", done.returncode == 1 and 'no column "code"' in done.stderr, done)


def test_dry_run(ctx):
    folder = ctx.folder("dry")
    (folder / "zip.csv").write_text("zip,name\n" + "".join(f"{n:05},place {n}\n" for n in range(100)))
    (folder / "docs.jsonl").write_text("".join(json.dumps({"_id": str(n)}) + "\n" for n in range(100)))
    done = settee(ctx, "load", folder / "zip.csv", "--dry-run", "--id-field", "zip")
    lines = done.stdout.splitlines()
    ctx.report.check("columns are shown with their types", any("zip" in line and "text (leading zeros are kept)" in line for line in lines), lines)
    shown = [json.loads(line) for line in lines if line.startswith("{")]
    ctx.report.equal("ten documents are shown", (len(shown), shown[3]), (10, {"_id": "00003", "zip": "00003", "name": "place 3"}))
    (folder / "prices.csv").write_text("_id,price\na,4.50\nb,1e+3\n")
    done = settee(ctx, "load", folder / "prices.csv", "--dry-run")
    shown = [line for line in done.stdout.splitlines() if line.startswith("{")]
    with ctx.server() as server:
        settee(ctx, "load", folder / "prices.csv", database(server, "prices"))
        _, raw = documents(server, "prices")
    ctx.report.check(
        "numbers are shown as they are stored", all(line[line.index('"price"') :] in raw for line in shown) and len(shown) == 2, (shown, raw)
    )
    done = settee(ctx, "load", folder / "docs.jsonl", "--dry-run")
    ctx.report.check("also those of JSON", done.returncode == 0 and done.stdout.count('{"_id"') == 10, done)
    with ctx.server() as server:
        done = settee(ctx, "load", folder / "zip.csv", database(server, "never"), "--dry-run")
        ctx.report.equal("nothing is written", (done.returncode, server.api().get("/never").status), (0, 404))


def test_the_sample_shop(ctx):
    done = subprocess.run(["python3", ctx.checkout / "scripts" / "sample_shop.py", "--check"], capture_output=True, text=True, check=False)
    ctx.report.check("the file is what its program writes", done.returncode == 0, done.stderr)
    with ctx.server() as server:
        for _ in range(2):
            done = settee(ctx, "load", "sample:shop", database(server, "shop"))
            ctx.report.check("it is loaded, also twice", done.returncode == 0, done)
        api = server.api()
        served = server.api(credentials="").get("/_utils/shop.json")
        ctx.report.equal("the interface has it too", (served.status, served.json["new_edits"]), (200, False))
        sales = api.expect(200, "GET", "/shop/_design/shop/_view/sales_by_month?group_level=1")["rows"]
        ctx.report.check("its views have rows", len(sales) == 1 and sales[0]["key"] == [2026] and sales[0]["value"] > 1000, sales)
        hits = api.expect(200, "GET", "/shop/_design/shop/_nouveau/products?q=ginger")["total_hits"]
        ctx.report.equal("its text index finds words", hits, 2)
        plan = api.expect(200, "POST", "/shop/_explain", {"selector": {"type": "product", "price": {"$gt": 5}}})
        ctx.report.equal("its Mango index is used", plan["index"]["ddoc"], "_design/by-price")
        conflicts = api.expect(200, "GET", "/shop/product%3Akettle?conflicts=true")["_conflicts"]
        ctx.report.equal("its documents have conflicts", len(conflicts), 1)
