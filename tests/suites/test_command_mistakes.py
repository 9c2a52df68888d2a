"""What commands report of a URL, a port, a login or a file that they cannot use: the cause, in one line, without passwords, and an exit status
that is not 0. A table: each command with each mistake."""

import contextlib
import http.server
import os
import re
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.certificates import Authority
from harness.ports import closed_port

pytestmark = [pytest.mark.quick, pytest.mark.may_be_retried]

TIMEOUT_S = 120
SECRET = "geheim7c1"
# What no user should read: Rust's notation of errors, and how clients nest them.
NOT_FOR_PEOPLE = re.compile(r"Err\(|Error \{|Custom \{|Some\(|error sending request|client error|panicked|RUST_BACKTRACE")

# Commands for a server. URL is the one with a mistake, GOOD that of a server without, HERE a folder.
COMMANDS = {
    "doctor": "doctor URL",
    "top": "top --once URL",
    "top of all nodes": "top --once --json --all URL",
    "profile": "profile URL --seconds 1 -o HERE/out.svg",
    "healthcheck": "healthcheck URL",
    "check-functions": "check-functions URL",
    "load": "load HERE/docs.json URL/db",
    "load from a database": "load URL/db GOOD/db",
    "export": "export URL/db",
    "query": "query URL/db",
    "backup": "backup URL HERE/backups",
    "migrate from": "migrate URL --to GOOD",
    "migrate to": "migrate GOOD --to URL",
    "access merge": "access merge URL userdb-* --into app",
    "bench": "bench get --seconds 0.1 --scale 0.001 --url URL",
    "cluster status": "cluster status URL",
    "cluster token": "cluster token URL",
    "cluster leave": "cluster leave URL --node other",
    "cluster bench-network": "cluster bench-network URL",
    "cluster place": "cluster place URL",
    "cluster drain": "cluster drain URL --node other",
    "cluster undrain": "cluster undrain URL --node other",
    "cluster reseed": "cluster reseed URL",
    "cluster join": "cluster join --data HERE/node --through URL",
}
# Each mistake, and what the line must name. WHO is another name for each command: wrong passwords are counted by name.
MISTAKES = {
    "a closed port": ("http://admin:SECRET@127.0.0.1:CLOSED", r"127\.0\.0\.1:CLOSED.*[Cc]onnection refused"),
    "no scheme": ("127.0.0.1:PORT", r"no scheme.*http://"),
    "no scheme, but a login": ("WHO:SECRET@localhost:PORT", r"no scheme.*http://"),
    "another scheme": ("htp://WHO:SECRET@127.0.0.1:PORT", r"htp://.*write http://"),
    "a port that is none": ("http://127.0.0.1:99999", r"99999.*the port is not a number"),
    "an unknown host": ("http://no-such-host.invalid:5984", r"no-such-host\.invalid.*unknown"),
    "a wrong password": ("http://WHO:SECRET@127.0.0.1:PORT", r"127\.0\.0\.1:PORT.*name or password is wrong"),
    "no password": ("http://127.0.0.1:PORT", r"requires a login|name and password of a server admin"),
    "a page that is no CouchDB": ("http://127.0.0.1:PAGE", r"not a CouchDB|differs from CouchDB|not that of a CouchDB"),
    "HTTP at a port of HTTPS": ("http://admin:SECRET@127.0.0.1:SECURED", r"write https://127\.0\.0\.1:SECURED"),
    "HTTPS at a port of HTTP": ("https://admin:SECRET@127.0.0.1:PORT", r"write http://127\.0\.0\.1:PORT|only http://"),
    "a certificate of nobody": ("https://admin:SECRET@127.0.0.1:SECURED", r"certificate of 127\.0\.0\.1:SECURED|only http://"),
}
# `/_up` needs no login, a file without a scheme is a file, and the URL of a file has any server.
LEFT_OUT = {
    ("healthcheck", "a wrong password"),
    ("healthcheck", "no password"),
    ("load from a database", "no scheme"),
    ("load from a database", "no scheme, but a login"),
    ("load from a database", "a page that is no CouchDB"),
}


class Page(http.server.BaseHTTPRequestHandler):
    """A web server that answers everything with a page."""

    status = 200
    location = None
    body = b"<!DOCTYPE html>\n<title>A shop</title>\n<p>Welcome!\n"
    # Bytes that are announced and not sent.
    missing = 0

    def answer(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(self.status)
        if self.location:
            self.send_header("Location", self.location)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(self.body) + self.missing))
        self.end_headers()
        self.wfile.write(self.body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = answer

    def log_message(self, *_):
        pass


class Gateway(Page):
    """A proxy whose server is down."""

    status = 502


class Moved(Page):
    """A web server that redirects to HTTPS."""

    status = 301
    location = "https://couch.invalid/"


class Short(Page):
    """A server that closes its connections in the middle of a response."""

    body = b'{"couchdb":"Welcome",'
    missing = 100


@contextlib.contextmanager
def page(handler=Page):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def run(ctx, words):
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy") and not name.startswith("SETTEE_CRED")}
    return subprocess.run([ctx.binary, *map(str, words)], capture_output=True, text=True, timeout=TIMEOUT_S, check=False, env=environment)


def is_one_line(ctx, name, done, wanted):
    line = done.stderr.removesuffix("\n")
    parts = [part for part in line.split(": ") if len(part) > 3]
    for what, is_well in {
        "the exit status": done.returncode > 0,
        "one line": line.startswith("settee: ") and "\n" not in line and done.stdout == "",
        "the cause": re.search(wanted, line),
        "nothing twice": len(parts) == len(set(parts)),
        "for people": not NOT_FOR_PEOPLE.search(line),
        "no password": SECRET not in done.stdout + done.stderr,
    }.items():
        ctx.report.check(f"{name}: {what}", is_well, (done.returncode, wanted, done.stderr, done.stdout[-500:]), quiet=True)


def test_each_command_names_the_mistake_in_its_url(ctx):
    cert, key = Authority(ctx.folder("certificates")).issue("server")
    secured = ["--set", "ssl/enable=true", "--set", "ssl/port=0", "--set", f"ssl/cert_file={cert}", "--set", f"ssl/key_file={key}"]
    with ctx.server("good", options=secured) as server, closed_port() as closed, page() as html:
        good = server.url.replace("://", f"://{server.admin}@")
        server.api().expect(201, "PUT", "/db")
        ports = {
            "CLOSED": str(closed),
            "PORT": server.url.rsplit(":", 1)[1],
            "PAGE": str(html),
            "SECURED": re.search(r"listening on https://127\.0\.0\.1:(\d+)", server.log())[1],
            "SECRET": SECRET,
        }
        cases = [(command, mistake) for command in COMMANDS for mistake in MISTAKES if (command, mistake) not in LEFT_OUT]

        def outcome(at):
            command, mistake = cases[at]
            here = ctx.folder(f"case-{at}")
            (here / "docs.json").write_text('[{"_id": "a"}]')
            url, wanted = MISTAKES[mistake]
            for name, value in {**ports, "WHO": f"who{at}"}.items():
                url, wanted = url.replace(name, value), wanted.replace(name, value)
            words = [word.replace("URL", url).replace("GOOD", good).replace("HERE", str(here)) for word in COMMANDS[command].split()]
            return run(ctx, words), wanted, sorted(path.name for path in here.iterdir())

        with ThreadPoolExecutor(4) as pool:
            for (command, mistake), (done, wanted, left) in zip(cases, pool.map(outcome, range(len(cases)))):
                is_one_line(ctx, f"{command}, {mistake}", done, wanted)
                ctx.report.equal(f"{command}, {mistake}: nothing was made", left, ["docs.json"], quiet=True)
        ctx.report.check("the table has commands and mistakes", len(cases) > 200, len(cases))
        ctx.report.equal("the server has what it had", server.api().expect(200, "GET", "/db")["doc_count"], 0)


# Responses that are not those of another server, and logins that only some commands read from the environment.
A_PROXY = r"127\.0\.0\.1:GATEWAY: a proxy responded for the server \(502\)"
A_REDIRECT = r"127\.0\.0\.1:MOVED redirects to https://couch\.invalid \(301\): write https://couch\.invalid"
A_BREAK = r"127\.0\.0\.1:SHORT closed the connection in the middle of a response"
RESPONSES = {
    "migrate from: a proxy": ("migrate http://a:SECRET@127.0.0.1:GATEWAY --to GOOD", A_PROXY),
    "migrate to: a proxy": ("migrate GOOD --to http://a:SECRET@127.0.0.1:GATEWAY", A_PROXY),
    "check-functions: a proxy": ("check-functions http://a:SECRET@127.0.0.1:GATEWAY", A_PROXY),
    "load: a proxy": ("load HERE/docs.json http://a:SECRET@127.0.0.1:GATEWAY/db", A_PROXY),
    "backup: a proxy": ("backup http://a:SECRET@127.0.0.1:GATEWAY HERE/backups", A_PROXY),
    "healthcheck: a proxy": ("healthcheck http://127.0.0.1:GATEWAY", A_PROXY),
    "migrate from: a redirect": ("migrate http://a:SECRET@127.0.0.1:MOVED --to GOOD", A_REDIRECT),
    "check-functions: a redirect": ("check-functions http://a:SECRET@127.0.0.1:MOVED", A_REDIRECT),
    "migrate from: a break": ("migrate http://a:SECRET@127.0.0.1:SHORT --to GOOD", A_BREAK),
    "check-functions: a break": ("check-functions http://a:SECRET@127.0.0.1:SHORT", A_BREAK),
    "load: a break": ("load HERE/docs.json http://a:SECRET@127.0.0.1:SHORT/db", A_BREAK),
    "load from a database: a break": ("load http://a:SECRET@127.0.0.1:SHORT/db GOOD/db", A_BREAK),
    "doctor: a break": ("doctor http://a:SECRET@127.0.0.1:SHORT", A_BREAK),
    "export: a proxy": ("export http://a:SECRET@127.0.0.1:GATEWAY/db", A_PROXY),
    "query: a proxy": ("query http://a:SECRET@127.0.0.1:GATEWAY/db", A_PROXY),
    "export: a break": ("export http://a:SECRET@127.0.0.1:SHORT/db", A_BREAK),
    "query: a break": ("query http://a:SECRET@127.0.0.1:SHORT/db", A_BREAK),
    "migrate from: a login": (
        "migrate http://from:SECRET@127.0.0.1:PORT --to GOOD",
        r"is wrong \(401\).* in the URL, which SETTEE_MIGRATE_SOURCE may hold$",
    ),
    "migrate to: a login": ("migrate GOOD --to http://to:SECRET@127.0.0.1:PORT", r"is wrong \(401\).* in the URL, which SETTEE_MIGRATE_TO may hold$"),
    "load from a database: a login": ("load http://source:SECRET@127.0.0.1:PORT/db GOOD/db", r"is wrong \(401\).* may read the database in the URL$"),
    "load: a login": ("load HERE/docs.json http://target:SECRET@127.0.0.1:PORT/db", r"is wrong \(401\).* in the URL or in SETTEE_CREDENTIALS$"),
}


def test_each_command_names_what_a_response_means(ctx):
    with ctx.server("good") as server, page(Gateway) as gateway, page(Moved) as moved, page(Short) as short:
        good = server.url.replace("://", f"://{server.admin}@")
        server.api().expect(201, "PUT", "/db")
        ports = {"GATEWAY": gateway, "MOVED": moved, "SHORT": short, "PORT": server.url.rsplit(":", 1)[1]}

        def outcome(at):
            words, wanted = list(RESPONSES.values())[at]
            here = ctx.folder(f"response-{at}")
            (here / "docs.json").write_text('[{"_id": "a"}]')
            for name, value in {**ports, "SECRET": SECRET, "GOOD": good, "HERE": here}.items():
                words, wanted = words.replace(name, str(value)), wanted.replace(name, str(value))
            return run(ctx, words.split()), wanted, sorted(path.name for path in here.iterdir())

        with ThreadPoolExecutor(4) as pool:
            for name, (done, wanted, left) in zip(RESPONSES, pool.map(outcome, range(len(RESPONSES)))):
                is_one_line(ctx, name, done, wanted)
                ctx.report.equal(f"{name}: nothing was made", left, ["docs.json"], quiet=True)
        ctx.report.equal("the server has what it had", server.api().expect(200, "GET", "/db")["doc_count"], 0)


# Commands with a file or directory that they cannot use, and what the line must name.
FILES = {
    "load: a file that does not exist": ("load HERE/absent.json GOOD/new", r"absent\.json.*No such file"),
    "load: a sample that does not exist": ("load sample:foo GOOD/new", r"no sample foo: the only one is sample:shop"),
    "load: a file that is not JSON": ("load HERE/file GOOD/db", r"file.*line 1"),
    "load: no database": ("load HERE/docs.json GOOD", r"the database is given as http://"),
    "export: no database": ("export GOOD", r"the database is given as http://"),
    "export: a file of Excel": ("export GOOD/db -o HERE/out.xlsx", r"out\.xlsx: .*--format spreadsheet"),
    "export: a directory as the output": ("export GOOD/db -o HERE/empty", r"empty: this is a directory"),
    "export: no directory for the output": ("export GOOD/db -o HERE/absent/out.csv", r"out\.csv: its directory does not exist"),
    "export: a view without a name": ("export GOOD/db --view sales", r"a view is given as DESIGN/VIEW"),
    "export: columns of JSON": ("export GOOD/db --fields a,b", r"--fields names columns of CSV: add --format csv"),
    "export: a delimiter of JSON": ("export GOOD/db --delimiter ;", r"are for CSV: add --format csv"),
    "export: attachments in CSV": ("export GOOD/db --format csv --attachments", r"CSV has no attachments"),
    "query: a text that is not JSON": ("query GOOD/db tea", r"the query is not a JSON object"),
    "check: a directory that does not exist": ("check HERE/absent", r"absent: this directory does not exist"),
    "check: a file": ("check HERE/file", r"file: this is a file"),
    "check: no store": ("check HERE/empty", r"empty.*no store"),
    "repair: a directory that does not exist": ("repair HERE/absent HERE/new", r"absent: this directory does not exist"),
    "repair: a file": ("repair HERE/file HERE/new", r"file: this is a file"),
    "restore: a directory that does not exist": ("restore HERE/absent HERE/new", r"absent: this directory does not exist"),
    "restore: a file": ("restore HERE/file HERE/new", r"file: this is a file"),
    "restore: no backup": ("restore HERE/empty HERE/new", r"empty is not a backup"),
    "backup: a database": ("backup GOOD/db HERE/new", r"a backup is one of the whole server: leave out /db in its URL"),
    "backup: a password with a slash": ("backup http://admin:12/34@127.0.0.1:1 HERE/new", r"^[^4]*write / \? and # in a name or password as %2F"),
    "backup: a file": ("backup GOOD HERE/file", r"file: this is a file"),
    "backup list: a directory that does not exist": ("backup list HERE/absent", r"absent: this directory does not exist"),
    "backup list: a file": ("backup list HERE/file", r"file: this is a file"),
    "backup list: no backups": ("backup list HERE/empty", r"empty holds no backups"),
    "backup prune: a directory that does not exist": ("backup prune HERE/absent --keep-last 1", r"absent: this directory does not exist"),
    "backup verify: a file": ("backup verify HERE/file", r"file: this is a file"),
    "profile: a directory as the output": ("profile GOOD -o HERE/empty", r"empty: this is a directory"),
    "profile: no directory for the output": ("profile GOOD -o HERE/absent/out.svg", r"out\.svg: its directory does not exist"),
    "profile: an earlier one that does not exist": ("profile GOOD --diff HERE/absent -o HERE/out.svg", r"absent: No such file"),
    "serve: a file as the data directory": ("serve --port 0 --admin a:b --data HERE/file", r"file: this is a file"),
    "serve: a configuration that does not exist": (
        "serve --port 0 --data HERE/new --admin a:b --config HERE/absent.ini",
        r"absent\.ini.*No such file",
    ),
    "serve: no file of admins": ("serve --port 0 --data HERE/new --admin-file HERE/absent", r"--admin-file .*absent: No such file"),
    "serve: an admin without a password": ("serve --port 0 --data HERE/new --admin anna", r"--admin wants NAME:PASSWORD"),
    "serve: a port that is taken": ("serve --port PORT --data HERE/new --admin a:b", r"127\.0\.0\.1:PORT: Address already in use"),
    "man: a file": ("man HERE/file", r"file: "),
    "bench: a saved run that does not exist": ("bench get --url GOOD --compare HERE/absent", r"absent"),
    "bench: no directory for the output": ("bench get --url GOOD --save HERE/absent/run", r"absent/run"),
    "bench replay: a recording that does not exist": ("bench replay HERE/absent --url GOOD", r"absent"),
    "cluster init: the data of a server that runs": ("cluster init --data DATA", r"a server is running with"),
    "cluster join: the data of a server that runs": ("cluster join --data DATA --through GOOD", r"a server is running with"),
    "cluster recover: no store": ("cluster recover --data HERE/empty --cluster x --accept-loss", r"empty"),
}


def test_each_command_names_the_mistake_in_its_files(ctx):
    with ctx.server("good") as server:
        good = server.url.replace("://", f"://{server.admin}@")
        server.api().expect(201, "PUT", "/db")

        def outcome(at):
            words, wanted = list(FILES.values())[at]
            here = ctx.folder(f"files-{at}")
            (here / "docs.json").write_text('[{"_id": "a"}]')
            (here / "file").write_text("some text\n")
            (here / "empty").mkdir()
            values = {"GOOD": good, "HERE": str(here), "PORT": server.url.rsplit(":", 1)[1], "DATA": server.data}
            for name, value in values.items():
                words, wanted = words.replace(name, value), wanted.replace(name, value)
            return run(ctx, words.split()), wanted, sorted(path.name for path in here.iterdir())

        with ThreadPoolExecutor(4) as pool:
            for name, (done, wanted, left) in zip(FILES, pool.map(outcome, range(len(FILES)))):
                is_one_line(ctx, name, done, wanted)
                ctx.report.equal(f"{name}: nothing was made", left, ["docs.json", "empty", "file"], quiet=True)
        ctx.report.equal("no database was made", server.api().get("/new").status, 404)


def test_a_new_node_needs_a_directory_without_databases(ctx):
    with ctx.server("single") as server:
        server.api().expect(201, "PUT", "/db")
    for words in ("cluster init --data DATA", "cluster join --data DATA --token nonsense"):
        done = run(ctx, words.replace("DATA", server.data).split())
        is_one_line(ctx, words, done, r"has databases \(.*db.*init --adopt")
    ctx.report.check("nothing was made", not os.path.exists(os.path.join(server.data, "cluster")))
    with ctx.server("single") as server:
        ctx.report.equal("the server starts again", server.api().get("/db").status, 200)
