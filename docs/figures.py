#!/usr/bin/env python3
"""Draws docs/src/reference/couchdb.svg from the first table of performance.md: how many times CouchDB's figure Settee's is.

usage: docs/figures.py [--check]    --check changes nothing and exits 1 when the picture is not that of the table
"""

import math
import pathlib
import sys
from xml.sax.saxutils import escape

HERE = pathlib.Path(__file__).resolve().parent / "src" / "reference"
# The rows that are drawn, by their first cell, with the words of the picture.
ROWS = {
    "`_bulk_docs` of 1,000, one client": "bulk writes, one client",
    "PUT, one client, on disk": "single durable writes",
    "PUT, 32 clients, on disk": "durable writes, 32 clients",
    "GET, 64 connections": "reads, 64 connections",
    "`_changes`": "changes feed",
    "`_all_docs`": "listing all documents",
    "first build of a view, 50,000 documents, map and `_sum`": "building a view in JavaScript",
    "view, `limit=1`": "reading a view",
    "`_find`, indexed range of 10 documents": "Mango, with an index",
    "`_find` without an index": "Mango, without an index",
}
WIDTH, ROW, TOP, LEFT, RIGHT = 760, 30, 64, 230, 250
TICKS = (1, 2, 5, 10, 20, 50, 100)
FONT = "font-family='system-ui, sans-serif'"


def figures():
    """[(words, Settee's figure, CouchDB's, ratio)] of the table, in its order."""
    found = []
    for line in (HERE / "performance.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 5 and cells[0] in ROWS:
            found.append((ROWS[cells[0]], cells[1], cells[2], float(cells[3])))
    missing = set(ROWS.values()) - {words for words, *_ in found}
    if missing:
        sys.exit(f"figures: no row for {', '.join(sorted(missing))}")
    return found


def svg(rows):
    span = WIDTH - LEFT - RIGHT
    height = TOP + ROW * len(rows) + 34

    def at(ratio):
        return LEFT + span * math.log(ratio) / math.log(TICKS[-1])

    out = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' width='{WIDTH}' height='{height}' role='img'>",
        "<title>Settee compared with CouchDB 3.5.0, as a ratio</title>",
        f"<rect width='{WIDTH}' height='{height}' fill='#ffffff'/>",
        f"<text x='16' y='26' {FONT} font-size='16' font-weight='600' fill='#222222'>Settee’s rate as a multiple of CouchDB 3.5.0’s</text>",
        f"<text x='16' y='46' {FONT} font-size='12' fill='#555555'>settee bench, interleaved on one 2-core machine, client on the same cores; logarithmic scale</text>",
    ]
    for tick in TICKS:
        x = at(tick)
        out.append(f"<line x1='{x:.1f}' y1='{TOP - 6}' x2='{x:.1f}' y2='{height - 28}' stroke='#dddddd'/>")
        out.append(f"<text x='{x:.1f}' y='{height - 12}' {FONT} font-size='11' fill='#555555' text-anchor='middle'>{tick}×</text>")
    for number, (words, settee, couchdb, ratio) in enumerate(rows):
        y = TOP + ROW * number
        rate, unit = settee.split(maxsplit=1)
        beside = f"{rate} against {couchdb} {unit.replace('/s', 'a second') if unit == '/s' else unit}"
        out.append(f"<text x='{LEFT - 10}' y='{y + 15}' {FONT} font-size='13' fill='#222222' text-anchor='end'>{escape(words)}</text>")
        out.append(f"<rect x='{LEFT}' y='{y}' width='{at(ratio) - LEFT:.1f}' height='20' rx='2' fill='#2f6f8f'/>")
        out.append(f"<text x='{LEFT + 6}' y='{y + 15}' {FONT} font-size='12' font-weight='600' fill='#ffffff'>{ratio:g}×</text>")
        out.append(f"<text x='{WIDTH - RIGHT + 16}' y='{y + 15}' {FONT} font-size='12' fill='#555555'>{escape(beside)}</text>")
    out.append("</svg>")
    return "\n".join(out) + "\n"


def main():
    picture, wanted = HERE / "couchdb.svg", svg(figures())
    if sys.argv[1:] == ["--check"]:
        sys.exit(0 if picture.is_file() and picture.read_text(encoding="utf-8") == wanted else "figures: couchdb.svg is old: run docs/figures.py")
    picture.write_text(wanted, encoding="utf-8")


if __name__ == "__main__":
    main()
