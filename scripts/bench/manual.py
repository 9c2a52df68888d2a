"""The table and the chart of the manual's page on performance: all workloads of the table in one run.

Without `--couchdb` the table has Settee alone. With the URL of a CouchDB, http://NAME:PASSWORD@HOST:PORT, both are measured interleaved, and
the table has CouchDB's figures and the ratio. `--write` puts that table into docs/src/reference/performance.md, with today's date, and draws
the chart again. Figures of a busy machine are not for the manual: the warnings of the run are printed.
"""

import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from instances import Failed, Settee

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "src" / "reference" / "performance.md"
# The version of the text around the table, and of the chart.
COUCHDB = "3.5.0"
# A row: its first cell, the workload, the part of the run, the unit, and how many of the part's units are one of the row's.
ROWS = [
    ("`_bulk_docs` of 1,000, one client", "bulk_doc_1000", "bulk_doc_1000", "docs/s", 1),
    ("`_bulk_docs` of 1,000, 10 clients", "bulk_parallel", "bulk_parallel", "docs/s", 1),
    ("`_bulk_docs` of 1,000 documents of 300 bytes", "bulk_300", "bulk_300", "docs/s", 1),
    ("PUT, one client, on disk", "single", "single", "/s", 1),
    ("PUT, 32 clients, on disk", "writers_32", "writers_32", "/s", 1),
    ("PUT with `batch=ok`", "batch_ok", "batch_ok", "/s", 1),
    ("GET, 64 connections", "get", "get", "/s", 1),
    ("GET of random documents", "get_random", "get_random", "/s", 1),
    ("`_changes`", "changes", "changes", "rows/s", 1),
    ("`_changes` with documents", "changes_include_docs", "changes_include_docs", "rows/s", 1),
    ("`_all_docs`", "all_docs", "all_docs", "rows/s", 1),
    ("first build of a view, 50,000 documents, map and `_sum`", "views_first_build", "first_build javascript", "docs/s", 1),
    ("first build of that view without projection", "views_first_build", "first_build_unprojected", "docs/s", 1),
    ("view, `limit=1`", "views_read", "view_limit_1", "/s", 1),
    ("view, whole reduce", "views_read", "view_whole_reduce", "/s", 1),
    ("view, range of 100 rows", "views_read", "view_range_100", "/s", 100),
    ("view, `group_level`", "views_read", "view_group_level", "/s", 1),
    ("`_find`, indexed range of 10 documents", "find", "find_range_10", "/s", 1),
    ("`_find`, covered range of 100 rows", "find", "find_covered_100", "/s", 1),
    ("`_find` without an index", "find", "find_scan_two_fields", "docs/s", 1),
    ("building a json index on two fields", "find", "find_build_two_fields", "docs/s", 1),
    ("`_config`, idle", "saturated", "config_idle", "/s", 1),
    ("`_config` under 1,000 connections", "saturated", "config_saturated", "/s", 1),
    ("`_dbs_info`, idle", "saturated", "dbs_info_idle", "/s", 1),
    ("`_dbs_info` under 1,000 connections", "saturated", "dbs_info_saturated", "/s", 1),
]


def add_options(parser):
    parser.add_argument("--couchdb", metavar="URL", help="a CouchDB to measure interleaved")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--write", action="store_true", help="put the table into the manual, and draw its chart")


def run(options, _):
    if options.write and not options.couchdb:
        raise Failed("--write needs --couchdb: the manual's table compares the two")
    measured = measure(options)
    options.keep(measured)
    for warning in measured["warnings"]:
        print(f"warning: {warning}", file=sys.stderr)
    lines = table(measured)
    print("\n".join(lines))
    if options.write:
        product = measured["servers"][1]["product"]
        if COUCHDB not in product:
            raise Failed(f"the text and the chart of the manual are about CouchDB {COUCHDB}, and this was {product}")
        page = written(PAGE.read_text(encoding="utf-8"), lines, datetime.date.today())
        PAGE.write_text(page, encoding="utf-8")
        subprocess.run([sys.executable, DOCS / "figures.py"], check=True)
    return 0


def measure(options):
    """The run as `settee bench --json` prints it."""
    workloads = list(dict.fromkeys(workload for _, workload, *_ in ROWS))
    amounts = ["--repeats", options.repeats, "--seconds", options.seconds, "--scale", options.scale, "--small-docs", 50_000]
    with tempfile.TemporaryDirectory(prefix="settee-bench-all-") as folder, Settee(folder, pathlib.Path(options.binary).resolve()) as server:
        urls = ["--url", f"http://127.0.0.1:{server.port}"]
        urls += ["--url", options.couchdb] if options.couchdb else []
        # The password is no part of a command line, which everybody can read.
        environment = {**os.environ, "SETTEE_CREDENTIALS": f"{server.user}:{server.password}"}
        command = [options.binary, "bench", *workloads, *urls, *map(str, amounts), "--json"]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
        if done.returncode:
            raise Failed(f"settee bench ended with {done.returncode}")
        return json.loads(done.stdout)


def table(measured):
    """Lines of Markdown. A row that was not measured is left out."""
    parts = {line["name"]: line["sides"] for line in measured["lines"]}
    is_compared = len(measured["servers"]) == 2
    columns = ["work", "Settee", f"CouchDB {COUCHDB}", "ratio", "workload"] if is_compared else ["work", "Settee", "workload"]
    lines = [row(columns), "|" + "---|" * len(columns)]
    for work, workload, part, unit, units in ROWS:
        rates = [side["rate"]["value"] / units for side in parts.get(part, []) if side]
        if len(rates) != len(measured["servers"]):
            continue
        cells = [work, f"{rounded(rates[0])} {unit}"]
        if is_compared:
            cells += [rounded(rates[1]), ratio(rates[0] / rates[1])]
        lines.append(row([*cells, f"`{workload}`"]))
    return lines


def row(cells):
    return "| " + " | ".join(cells) + " |"


def rounded(number):
    """Three digits that count, with commas."""
    digits = max(len(str(int(number))) - 3, 0)
    return f"{round(number, -digits):,.0f}"


def ratio(number):
    return f"{number:.0f}" if number >= 10 else f"{number:.2g}"


def written(page, lines, day):
    """The page with the table in place of its first one of the comparison, and the day."""
    head, section = page.split("## Comparison with CouchDB\n", 1)
    section, count = re.subn(r"^\| work \|.*?\n(?=\n)", "\n".join(lines) + "\n", section, count=1, flags=re.DOTALL | re.MULTILINE)
    section, dates = re.subn(r"interleaved \([^)]*\)", f"interleaved ({day.day} {day:%B %Y})", section, count=1)
    if (count, dates) != (1, 1):
        raise Failed(f"{PAGE.name} has no table of the comparison, or no date before it")
    return f"{head}## Comparison with CouchDB\n{section}"
