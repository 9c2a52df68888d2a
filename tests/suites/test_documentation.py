"""What the documents say of the code: routes, dependencies, links. The examples are the suite `manual_examples`."""

import datetime
import importlib
import pathlib
import re
import shutil
import subprocess
import sys
import tomllib
import urllib.parse

import pytest

from harness import endpoints, markdown

pytestmark = [pytest.mark.quick, pytest.mark.may_be_retried, pytest.mark.costly_hashes]

# Where a server looks for words; `matrix` is a database with a design document `d`.
PLACES_OF_WORDS = [
    "/{}",
    "/matrix/{}",
    "/matrix/_design/d/{}",
    "/matrix/_partition/p/{}",
    "/matrix/_index/{}",
    "/matrix/_all_docs/{}",
    "/matrix/_design/d/_view/v/{}",
    "/_node/_local/{}",
    "/_node/_local/_config/{}",
    "/_node/_local/_smoosh/{}",
    "/_scheduler/{}",
    "/_reshard/{}",
    "/_settee/{}",
    "/_node/_local/_settee/{}",
    "/matrix/_settee/{}",
]
UNKNOWN = "_nonsense"
# Paths in the repository: `tests/suites/test_views.py`, and `storage/src/row.rs` below crates/.
NAMED_PATH = r"`((?:crates|docs|scripts|tests|[a-z-]+/src)/[\w./-]+)`"
# System databases are databases, not routes.
# Where settings are read when the server starts, and those that are read at the start elsewhere, or there at every change.
READ_AT_START = ("crates/settee/src/serve/", "crates/node/src/memory.rs")
AT_START_ELSEWHERE = {"couchdb/uuid", "couchdb/node_name", "couchdb/single_node", "replicator/startup_jitter"}
FOLLOWED_THERE = {
    "config/auto_reload_secs",
    "global_changes/max_event_delay",
    "global_changes/max_write_delay",
    "log/level",
    "log/max_file_size",
    "log/max_old_files",
    "couchdb/os_process_timeout",
    "query_server_config/os_process_limit",
    "query_server_config/os_process_soft_limit",
    "query_server_config/os_process_idle_limit",
    "native_query_servers/enable_erlang_query_server",
}
# Taken for CouchDB's sake.
READ_BY_NOBODY = {"chttpd/socket_options"}
# Crates that read no running server's settings, or declare them.
OTHER_CRATES = {"bench", "command-line", "config", "load", "migrate"}
NO_ROUTES = {"/_users", "/_replicator", "/_global_changes"}
ARCHITECTURE_WORDS_MAX = 2500


def test_reference_has_the_servers_routes(ctx):
    routes, report = endpoints.reference(ctx.checkout), ctx.report
    report.check("the reference has routes", len(routes) > 80, len(routes))
    listed, more = endpoints.matrix(endpoints.ENDPOINTS), endpoints.matrix(endpoints.MORE)
    # Of Settee's own routes those that the reference has: the others are paths of all kinds.
    own = {path: methods for path, methods in more.items() if path in routes and path not in listed}
    for path, methods in sorted((listed | own).items()):
        said = routes.get(path, {})
        wrong = {method: [who, said.get(method, said.get("any"))] for method, who in methods.items() if who != said.get(method, said.get("any"))}
        report.equal(f"{path}: methods and who may, in the matrix and in the reference", wrong, {})
    report.equal("every route of the reference is in the matrix", sorted(set(routes) - set(listed) - set(more)), [])
    with ctx.server("reference") as server:
        api = server.api()
        api.expect(201, "PUT", "/matrix?partitioned=true")
        api.expect(201, "PUT", "/matrix/p:a", {})
        api.expect(201, "PUT", "/matrix/_design/d", {**endpoints.DESIGN, "options": {"partitioned": True}, "lists": {}, "rewrites": []})
        for path, methods in sorted(routes.items()):
            known_methods(report, api, path, methods)
        known_words(ctx, api, routes)


def example_of(path):
    values = {**endpoints.VALUES, "docid": "p:a"}
    return re.sub(r"\{([^}]*)\}", lambda match: values[match[1]], path)


def known_methods(report, api, path, methods):
    """A method that no route knows is a 405 with those that this one knows."""
    answer = api.request("PATCH", example_of(path))
    if answer.status != 405:
        return  # functions take any method, others answer alike whatever was asked
    allowed = {word.strip() for word in answer.headers["Allow"].split(",")} - {"HEAD"}
    if path == "/{db}":
        allowed.add("PUT")  # known when there is no such database
    if path.endswith("/_local/{docid}"):
        allowed.discard("POST")  # local documents have no attachments
    report.equal(f"{path}: its methods", sorted(methods), sorted(allowed))


def known_words(ctx, api, routes):
    """Every word of the sources that the server knows at some place in a path is in the reference."""
    words = set()
    for source in sorted(ctx.checkout.glob("crates/*/src/**/*.rs")):
        if source.relative_to(ctx.checkout).parts[1] in ("http", "node", "routes"):
            words |= set(re.findall(r'"/?(_?[a-z][a-z_]+)', source.read_text(encoding="utf-8")))
    ctx.report.check("the sources have words", len(words) > 100, len(words))
    documented = [[None if "{" in part else part for part in path.split("/")] for path in routes]
    unknown = []
    for place in PLACES_OF_WORDS:
        nothing = looks(api, place, UNKNOWN)
        underscore = [word for word in words if word.startswith("_")] if place in PLACES_OF_WORDS[:3] else words
        for word in sorted(underscore):
            path = place.format(word)
            like_unknown = [(status, text.replace(UNKNOWN, word), allow) for status, text, allow in nothing]
            if looks(api, place, word) != like_unknown and path not in NO_ROUTES and not any(leads_to(path.split("/"), each) for each in documented):
                unknown.append(path)
    ctx.report.equal("every route that the server knows is in the reference", unknown, [])


def leads_to(path, documented):
    """Whether a documented path is this one, or begins with it."""
    return len(documented) >= len(path) and all(there in (None, here) for here, there in zip(path, documented))


def looks(api, place, word):
    """What tells a known word from an unknown one: statuses, texts and methods."""
    answers = [api.request(method, place.format(word)) for method in ("GET", "PATCH")]
    return [(a.status, a.raw.decode("utf-8", "replace"), a.headers.get("Allow")) for a in answers]


def test_parameters_are_read(ctx):
    """Every parameter and member that the reference names is a word of the sources."""
    text = (ctx.checkout / "docs/src/reference/api.md").read_text(encoding="utf-8")
    section = text.split("## Parameters")[1].split("## Headers")[0]
    named = {word for _, cells in markdown.table_rows(section) for cell in cells for word in re.findall(r"`([a-z][a-z_-]+)`", cell)}
    sources = "".join(path.read_text(encoding="utf-8") for path in ctx.checkout.glob("crates/*/src/**/*.rs"))
    ctx.report.check("the reference has parameters", len(named) > 50, len(named))
    ctx.report.equal("parameters that no code reads", sorted(word for word in named if f'"{word}"' not in sources), [])


def test_settings_say_when_they_count(ctx):
    """A setting that says that it counts at once is read elsewhere than at the start, and one that waits for a restart is read there."""
    start, later = "", ""
    for source in sorted(ctx.checkout.glob("crates/*/src/**/*.rs")):
        path = source.relative_to(ctx.checkout)
        if str(path).startswith(READ_AT_START):
            start += source.read_text(encoding="utf-8")
        elif path.parts[1] not in OTHER_CRATES:
            later += source.read_text(encoding="utf-8")
    with ctx.server("settings") as server:
        table = server.api().expect(200, "GET", "/_node/_local/_settee/settings")
    ctx.report.check("the table has settings", len(table) > 150, len(table))
    wrong = []
    for setting in table:
        name, field = f"{setting['section']}/{setting['key']}", setting["key"].replace("-", "_").lower()
        reads = re.compile(rf"\.{re.escape(field)}\b").search
        if name in READ_BY_NOBODY or not field.isidentifier():
            continue
        if setting["restart"]:
            fits = name in AT_START_ELSEWHERE or reads(start)
        else:
            fits = name in FOLLOWED_THERE or reads(later)
        if not fits:
            wrong.append(f"{name}: restart is {setting['restart']}")
    ctx.report.equal("settings that do not count when they say", wrong, [])


def test_examples_of_code_are_run(ctx):
    """Crates without examples are left out of `cargo test --doc`, which takes about a second for each."""
    for manifest in sorted(ctx.checkout.glob("crates/*/Cargo.toml")):
        library = tomllib.loads(manifest.read_text(encoding="utf-8")).get("lib", {})
        sources = "".join(path.read_text(encoding="utf-8") for path in manifest.parent.glob("src/**/*.rs"))
        has_examples = re.search(r"^\s*//[/!] ?(```|~~~|    +\S.*;$)", sources, re.MULTILINE) is not None
        is_run = library.get("doctest", True)
        ctx.report.check(f"{manifest.parent.name}: `doctest = false` only without examples", is_run or not has_examples, quiet=True)


def test_generated_pages_are_current(ctx):
    for script in ("configuration.py", "figures.py"):
        done = subprocess.run([sys.executable, ctx.checkout / "docs" / script, "--check"], capture_output=True, text=True, check=False)
        ctx.report.check(f"what docs/{script} makes is current", done.returncode == 0, done.stderr)


def test_the_table_of_a_run_is_that_of_the_manual(ctx):
    """`make bench-all`: the rows that the chart draws are made of a run, the others of the run too, and the rest of the page stays."""
    sys.path.insert(0, str(ctx.checkout / "scripts" / "bench"))
    manual = importlib.import_module("manual")
    rates = {part: (60_000.0 * units, 2_500.0 * units) for _, _, part, _, units in manual.ROWS}
    sides = lambda both: [{"rate": {"value": rate}} for rate in both]
    run = {"servers": [{}, {}], "lines": [{"name": part, "sides": sides(both)} for part, both in rates.items()]}
    lines = manual.table(run)
    ctx.report.equal("each row is there", len(lines), len(manual.ROWS) + 2)
    ctx.report.check("with three digits and a ratio", all("| 60,000 " in line and "| 2,500 | 24 |" in line for line in lines[2:]), lines)
    page = manual.PAGE.read_text(encoding="utf-8")
    written = manual.written(page, lines, datetime.date(2026, 12, 1))
    before, after = page.split("\n## "), written.split("\n## ")
    ctx.report.equal("one section changes", sum(old != new for old, new in zip(before, after, strict=True)), 1)
    ctx.report.check("it has the day, and the table", "interleaved (1 December 2026)" in written and "\n".join(lines) in written, written[:2000])
    old = {line.split(" | ")[0] for line in page.split("## Comparison with CouchDB")[1].split("\n\n## ")[0].splitlines() if line.startswith("| ")}
    new = {line.split(" | ")[0] for line in lines}
    ctx.report.equal("the rows are the manual's, but for wrk", old - new, {"| GET with wrk"})
    run["lines"][0]["sides"][1] = None
    ctx.report.equal("one that CouchDB has not is left out", len(manual.table(run)), len(lines) - 1)


def test_dependencies_are_described(ctx):
    """docs/src/developers/dependencies.md has a line for each crate that a Cargo.toml names, and for no others."""
    workspace = tomllib.loads((ctx.checkout / "Cargo.toml").read_text(encoding="utf-8"))["workspace"]
    ours = {name for name, value in workspace["dependencies"].items() if isinstance(value, dict) and "path" in value}
    used = set(workspace["dependencies"])
    for manifest in ctx.checkout.glob("crates/*/Cargo.toml"):
        package = tomllib.loads(manifest.read_text(encoding="utf-8"))
        for table in [package, *package.get("target", {}).values()]:
            for kind in ("dependencies", "dev-dependencies", "build-dependencies"):
                used |= set(table.get(kind, {}))
    text = (ctx.checkout / "docs/src/developers/dependencies.md").read_text(encoding="utf-8")
    described = set()
    for _, cells in markdown.table_rows(text):
        # "(feature `x`)" are features; the rest of the first cell are crates.
        described |= set(re.findall(r"`([a-z0-9_-]+)`", re.sub(r"\([^)]*\)", "", cells[0])))
    ctx.report.equal("dependencies without a line", sorted(used - ours - described), [])
    ctx.report.equal("lines without a dependency", sorted(described - used), [])


def test_the_map_is_true(ctx):
    """The list of crates in ARCHITECTURE.md, `folder  what it is:  crates that it depends on`, is that of the Cargo files."""
    packages = {path.parent.name: tomllib.loads(path.read_text(encoding="utf-8")) for path in ctx.checkout.glob("crates/*/Cargo.toml")}
    folders = {package["package"]["name"]: folder for folder, package in packages.items()}
    wanted = {folder: sorted(folders[name] for name in package.get("dependencies", {}) if name in folders) for folder, package in packages.items()}
    text = (ctx.checkout / "ARCHITECTURE.md").read_text(encoding="utf-8")
    (block,) = [block for block in markdown.blocks(text) if block.language == "text"]
    found = {}
    for line in block.text.splitlines():
        crate, _, others = line.partition(":")
        found[crate.split()[0]] = sorted(name for name in others.strip().split(", ") if name != "none")
    for folder in sorted(set(wanted) | set(found)):
        ctx.report.equal(f"the crates that {folder} depends on", found.get(folder), wanted.get(folder))
    words = len(text.split())
    ctx.report.check(f"ARCHITECTURE.md has at most {ARCHITECTURE_WORDS_MAX} words", words <= ARCHITECTURE_WORDS_MAX, words)


def test_the_source_map_has_files_that_exist(ctx):
    """The first cells of docs/src/developers/source-map.md name files and folders of the crates that their section's heading names."""
    text = (ctx.checkout / "docs/src/developers/source-map.md").read_text(encoding="utf-8")
    named, missing = 0, []
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        heading, _, body = section.partition("\n")
        sources = [ctx.checkout / crate / "src" for crate in re.findall(r"`(crates/[a-z-]+)`", heading)]
        for _, cells in markdown.table_rows(body):
            for path in re.findall(r"`([^`]+)`", cells[0]):
                named += 1
                missing += [] if any((source / path).exists() for source in sources) else [f"{heading}: {path}"]
    ctx.report.check("the source map has paths", named > 150, named)
    ctx.report.equal("paths of the source map that do not exist", missing, [])


def test_the_program_gets_onto_the_path(ctx):
    """`make serve` prints how, `make install` does it, and README and Getting started name it."""
    built, prefix = ctx.folder("built"), ctx.folder("home") / ".local"
    for name in ("settee", "settee-bench"):
        (built / name).write_text(f"#!/bin/sh\necho this is {name}\n")
        (built / name).chmod(0o755)
    script, bare = ctx.checkout / "scripts" / "install.sh", "/usr/bin:/bin"

    def run(*words, path=bare):
        done = subprocess.run(["bash", script, *map(str, words)], capture_output=True, text=True, check=False, env={"PATH": path})
        ctx.report.equal(f"{words[:1]}: it ends well", (done.returncode, done.stderr), (0, ""), quiet=True)
        return done.stdout

    hint = run("--hint", built, prefix)
    ctx.report.check("it is said where the program is, and how to get it", str(built / "settee") in hint and "make install" in hint, hint)
    ctx.report.check("a hint installs nothing", not prefix.exists())
    said = run(built, prefix)
    ctx.report.check("a folder that is not on the PATH is named", f'export PATH="{prefix}/bin:$PATH"' in said, said)
    with_it = f"{prefix}/bin:{bare}"
    for name in ("settee", "settee-bench"):
        found = subprocess.run([name], capture_output=True, text=True, check=False, env={"PATH": with_it}, executable=prefix / "bin" / name)
        ctx.report.equal(f"{name} is there", found.stdout, f"this is {name}\n")
    ctx.report.check("one that is on it is not", "export" not in run(built, prefix, path=with_it))
    ctx.report.equal("nor is there a hint then", run("--hint", built, prefix, path=with_it), "")
    (built / "settee").write_text("#!/bin/sh\necho a later one\n")
    ctx.report.check("another settee on the PATH is named", "another one" in run("--hint", built, prefix, path=with_it))
    for target, words in (("serve", "install.sh --hint"), ("install", "scripts/install.sh")):
        done = subprocess.run(["make", "--dry-run", target], cwd=ctx.checkout, capture_output=True, text=True, check=False)
        ctx.report.check(f"make {target} calls it", done.returncode == 0 and words in done.stdout, done.stdout[-2000:])
    for page in ("README.md", "docs/src/guide/getting-started.md"):
        ctx.report.check(f"{page} names it", "make install" in (ctx.checkout / page).read_text(encoding="utf-8"))


def test_circles_between_files_are_seen(ctx):
    """`make lint` fails when more files of a crate than recorded depend on each other."""
    root = ctx.folder("circles")
    (root / "scripts").mkdir()
    (root / "crates/x/src").mkdir(parents=True)
    shutil.copy(ctx.checkout / "scripts/circles.py", root / "scripts")
    (root / "crates/x/Cargo.toml").touch()
    circles = lambda *options: subprocess.run([sys.executable, root / "scripts/circles.py", *options], capture_output=True, text=True, check=False)
    files = {
        "lib": "mod a;\nmod b;\npub use a::A;\n",
        "a": "use crate::b::{self, B as Other};\npub struct A(Other);\n",
        # A comment, a text, a module of tests and a path through an export that is another crate's are no uses.
        "b": '//! [`A`](crate::a::A)\npub struct B;\nconst S: &str = "crate::a::A";\nuse std::fmt as a;\nmod tests { use crate::A; }\n',
    }
    for name, text in files.items():
        (root / f"crates/x/src/{name}.rs").write_text(text, encoding="utf-8")
    ctx.report.equal("the numbers are recorded", circles("--record").returncode, 0)
    ctx.report.equal("files without a circle", (root / "scripts/circles.txt").read_text(), "  0 crates/x\n")
    ctx.report.equal("nothing has grown", (circles().returncode, circles().stdout), (0, ""))
    for use in ("use crate::A;", "fn f(_: &super::a::A) {}", "use crate::{a::A as Z};", "mod inner { use super::super::A; }"):
        (root / "crates/x/src/b.rs").write_text(f"{files['b']}{use}\n", encoding="utf-8")
        said = circles()
        ctx.report.check(f"a circle by `{use}` fails", said.returncode == 1 and "2 files of crates/x" in said.stdout, said)


def pages(ctx):
    book = ctx.checkout / "docs" / "src"
    return [*sorted(ctx.checkout.glob("*.md")), *sorted(book.rglob("*.md"))]


def test_links_lead_somewhere(ctx):
    book = ctx.checkout / "docs" / "src"
    summary = (book / "SUMMARY.md").read_text(encoding="utf-8")
    listed = {target for _, target in markdown.links(summary)}
    there = {str(page.relative_to(book)) for page in book.rglob("*.md")} - {"SUMMARY.md"}
    ctx.report.equal("pages that are not in the summary", sorted(there - listed), [])
    count, broken = 0, []
    for page in pages(ctx):
        for line, target in markdown.links(page.read_text(encoding="utf-8")):
            if re.match(r"[a-z]+:", target):
                continue
            count += 1
            why = what_is_wrong(ctx, page, target)
            if why:
                broken.append(f"{page.relative_to(ctx.checkout)}:{line}: {target}: {why}")
    ctx.report.check("links were found", count > 50, count)
    ctx.report.equal("links lead somewhere", broken, [])
    missing = []
    for page in pages(ctx):
        for line, text in markdown.prose(page.read_text(encoding="utf-8")):
            missing += [f"{page.relative_to(ctx.checkout)}:{line}: {path}" for path in re.findall(NAMED_PATH, text) if not is_there(ctx, path)]
    ctx.report.equal("files of the repository that pages name", missing, [])
    beside = [
        str(page.relative_to(ctx.checkout)) for page in pages(ctx) if re.search(r"\.\./shared|shared/\w+\.md", page.read_text(encoding="utf-8"))
    ]
    ctx.report.equal("nothing beside the repository is referred to", beside, [])


def is_there(ctx, path):
    return (ctx.checkout / path).exists() or (ctx.checkout / "crates" / path).exists()


def what_is_wrong(ctx, page, target):
    path, _, fragment = urllib.parse.unquote(target).partition("#")
    to = (page.parent / path).resolve() if path else page
    book = ctx.checkout / "docs" / "src"
    if not to.exists():
        return "no such file"
    if page.is_relative_to(book) and not to.is_relative_to(book):
        return "outside of the book"
    if fragment and (to.suffix != ".md" or fragment not in set(markdown.anchors(to.read_text(encoding="utf-8")))):
        return "no such heading"
    return None


def test_the_book_is_built(ctx):
    mdbook = ctx.cache / "tools" / "bin" / "mdbook"
    if not mdbook.exists():
        ctx.report.check("mdbook is there", False, f"no {mdbook}: run `make docs`")
        return
    out = ctx.folder("book")
    done = subprocess.run([mdbook, "build", "--dest-dir", out, ctx.checkout / "docs"], capture_output=True, text=True, check=False, timeout=120)
    ctx.report.check("mdbook builds the manual", done.returncode == 0 and "WARN" not in done.stderr, done.stderr[-2000:])
    if done.returncode:
        return
    html = {path.relative_to(out).as_posix(): path.read_text(encoding="utf-8") for path in out.rglob("*.html")}
    ids = {name: set(re.findall(r'\bid="([^"]+)"', text)) for name, text in html.items()}
    ctx.report.check("the search index is there", any(out.glob("searchindex*.js")), sorted(path.name for path in out.iterdir()))
    broken = []
    for name, text in html.items():
        main = text.split("<main>")[-1].split("</main>")[0]
        for target in re.findall(r'<a [^>]*?href="([^"]+)"', main):
            if re.match(r"[a-z]+:", target) or name in ("print.html", "404.html", "toc.html"):
                continue
            path, _, fragment = urllib.parse.unquote(target).partition("#")
            to = pathlib.PurePosixPath(name).parent / path if path else pathlib.PurePosixPath(name)
            to = (out / to).resolve().relative_to(out.resolve()).as_posix()
            if to not in html and not (out / to).is_file():
                broken.append(f"{name}: {target}")
            elif fragment and fragment not in ids.get(to, ()):
                broken.append(f"{name}: {target}: no such id")
    ctx.report.equal("links of the built book lead somewhere", broken, [])


def test_every_suite_is_in_one_part_of_the_soak(ctx):
    makefile = (ctx.checkout / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    parts = re.findall(r"^SOAK_PARTS = (.*)$", makefile, re.MULTILINE)[0].split()
    listed = [suite for part in parts for suite in re.findall(rf"^SOAK_{part} = (.*)$", makefile, re.MULTILINE)[0].split()]
    suites = sorted(path.stem.removeprefix("test_") for path in (ctx.checkout / "tests" / "suites").glob("test_*.py"))
    ctx.report.equal("each suite is in one part of `make soak`", sorted(listed), suites)
