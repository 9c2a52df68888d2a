#!/usr/bin/env python3
"""Searches the project's prose for the phrases of docs/prose_patterns.toml.

usage: prose_lint.py [--only KIND] [--all] [--record] [FILE...]

Kinds of text: `docs` (Markdown), `rustdoc`, `messages` (string literals of the Rust sources, help of the command line, settings) and
`web` (English texts of the web interface). docs/prose_counts.toml has the number of findings that each kind may still have: more are an
error, fewer can be recorded with --record. --all prints the findings of every kind; by default those of kinds with too many are printed.
With files, only these are searched, and any finding is an error.
"""

import argparse
import bisect
import collections
import os
import pathlib
import re
import subprocess
import sys
import tomllib

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent
PATTERNS = "docs/prose_patterns.toml"
COUNTS = "docs/prose_counts.toml"
KINDS = ("docs", "rustdoc", "messages", "web")
# Folders that hold nothing of ours, or nothing that was written by hand.
SKIPPED_FOLDERS = {".git", "node_modules", "target", "dist", "book", "data", "cluster-data", "__pycache__", "vectors"}
# Made from other sources, which are searched themselves; and a list of CouchDB's routes in its own words.
SKIPPED_FILES = {"docs/src/reference/configuration.md", "tests/api.md"}
# Doc comments that users read: help of the command line, and the settings, from which default.ini and a page are made.
DOC_COMMENTS_FOR_USERS = ("crates/settee/src/cli", "crates/command-line/src/bench.rs", "crates/config/src/settings/")
PRINTED_MAX = 40

Finding = collections.namedtuple("Finding", "path line kind name found use")
# A piece of prose: its text, and the line number at which each part of it begins.
Block = collections.namedtuple("Block", "text starts")

CODE_SPAN = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
LINK_TARGET = re.compile(r"\]\([^()\s]*(?:\([^()]*\))?[^()\s]*\)|<https?://[^>]*>|https?://\S+")
SENTENCE_END = re.compile(r"(?<=[.!?:;]) (?=[A-Z\[`*“\"])")
LETTERS = re.compile(r"[A-Za-z]+ [a-z]+ [a-z]+|^[A-Z][a-z]+ [a-z]+")
RUST_TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)|(?<![\w])b?r(?P<hashes>#*)"(?P<raw>.*?)"(?P=hashes)|"(?P<text>(?:[^"\\]|\\.)*)"|'(?:\\.[^']*|[^'\\\n])'""",
    re.DOTALL,
)
WEB_STRING = re.compile(r"""//[^\n]*|/\*.*?\*/|'((?:[^'\\\n]|\\.)*)'|"((?:[^"\\\n]|\\.)*)"|`((?:[^`\\]|\\.)*)`""", re.DOTALL)
DOC_COMMENT = re.compile(r"^\s*//[/!](?!/) ?(.*)$")
FENCE = re.compile(r"^\s*(`{3,}|~{3,})")
SWITCH = re.compile(r"<!-- prose-lint: (on|off, .+) -->$")
LIST_ITEM = re.compile(r"^\s*(?:[-*+]|\d+\.) ")


class Pattern:
    def __init__(self, table):
        self.name, self.use = table["name"], table["use"]
        self.kinds = set(table.get("only", KINDS))
        self.example, self.fine = table["example"], table.get("fine")
        self.expressions = [expression(source) for source in table["find"]]

    def hits(self, text):
        for found in self.expressions:
            for match in found.finditer(text):
                # A word boundary in front of the expression would keep `re` from searching for its first letters.
                if match.start() == 0 or not (text[match.start() - 1].isalnum() or text[match.start() - 1] in "_-") or text[match.start()] in "‹§":
                    yield match


def expression(source):
    return re.compile("‹" + source[1:] if source.startswith("^") else source)


def load_patterns():
    data = tomllib.loads((CHECKOUT / PATTERNS).read_text(encoding="utf-8"))
    return [Pattern(table) for table in data["pattern"]], data.get("allow", [])


def plain(line):
    """A line of Markdown without code and targets of links."""
    return LINK_TARGET.sub("]", CODE_SPAN.sub("`x`", line))


def block_of(lines):
    """One block of [(line number, text)]: lines joined by blanks, lower case, with marks where sentences begin."""
    parts, starts, length = [], [], 0
    for number, line in lines:
        line = line.strip()
        starts.append((length, number))
        parts.append(line)
        length += len(line) + 1
    return Block(" ".join(parts), starts)


def paragraphs(lines):
    """The blocks of Markdown given as [(line number, text)]: paragraphs, items, headings, cells of tables."""
    held, fence = [], None
    lines = list(lines)

    def flush():
        nonlocal held
        if held:
            yield block_of(held)
        held = []

    for index, (number, line) in enumerate(lines):
        match = FENCE.match(line)
        if fence:
            fence = None if match and line.strip().startswith(fence) else fence
            continue
        stripped = line.strip()
        if match:
            yield from flush()
            fence = match[1]
        elif not stripped or stripped.startswith("<!--"):
            yield from flush()
        elif stripped.startswith("|"):
            yield from flush()
            following = lines[index + 1][1].strip() if index + 1 < len(lines) else ""
            yield from cells(number, stripped, header=bool(re.fullmatch(r"\|[|\s:-]+", following)))
        elif stripped.startswith("#"):
            yield from flush()
            yield block_of([(number, plain(stripped.lstrip("# ")))])
        else:
            if LIST_ITEM.match(line):
                yield from flush()
                stripped = LIST_ITEM.sub("", line)
            held.append((number, plain(stripped)))
    yield from flush()


def cells(number, row, header):
    if re.fullmatch(r"[|\s:-]+", row):
        return
    for cell in re.split(r"(?<!\\)\|", plain(row.strip("|"))):
        cell = cell.strip()
        yield block_of([(number, f"§{cell.lower()}§" if header else cell)])


def markdown_blocks(text):
    yield from paragraphs(prose_lines(text))


def prose_lines(text):
    """The numbered lines of a page, without those between `<!-- prose-lint: off, REASON -->` and `<!-- prose-lint: on -->`."""
    is_on = True
    for number, line in enumerate(text.splitlines(), 1):
        if match := SWITCH.match(line):
            is_on = match[1] == "on"
        elif is_on:
            yield number, line


def doc_comments(text):
    """The doc comments of a Rust source, as lists of (line number, text)."""
    held = []
    for number, line in enumerate(text.splitlines(), 1):
        match = DOC_COMMENT.match(line)
        if match:
            held.append((number, match[1]))
        elif held:
            yield held
            held = []
    if held:
        yield held


def rustdoc_blocks(text):
    for lines in doc_comments(text):
        yield from paragraphs(lines)


def string_blocks(text):
    """The string literals of a Rust source that are sentences, without those of its tests."""
    code = re.split(r"^\s*#\[cfg\(test\)\]\s*\n\s*mod \w+ \{", text, maxsplit=1, flags=re.MULTILINE)[0]
    for match in RUST_TOKEN.finditer(code):
        literal = match["text"] if match["text"] is not None else match["raw"]
        if literal and LETTERS.search(literal):
            yield from literal_blocks(re.sub(r"\\\n\s*", " ", literal), code.count("\n", 0, match.start()) + 1)


def literal_blocks(literal, number):
    for line in re.split(r"\\n|\n", literal):
        yield Block(CODE_SPAN.sub("`x`", line.strip()), [(0, number)])


def web_blocks(text):
    """The English texts: the first of the two objects of a call of `texts`."""
    english = re.split(r"^  \},\n  \{$", text, maxsplit=1, flags=re.MULTILINE)[0]
    for match in WEB_STRING.finditer(english):
        literal = match[1] or match[2] or match[3]
        if literal:
            yield from literal_blocks(re.sub(r"\$\{[^}]*\}", "x", literal), english.count("\n", 0, match.start()) + 1)


def is_test(path):
    parts = pathlib.PurePosixPath(path).parts
    return any(part in ("tests", "benches", "examples", "fuzz") for part in parts) or parts[-1] in ("tests.rs", "golden.rs")


def blocks_of(path, text):
    """(kind, blocks) of a file, by its path below the checkout."""
    if path.endswith(".md"):
        yield "docs", markdown_blocks(text)
    elif path.endswith(".rs"):
        yield "messages" if path.startswith(DOC_COMMENTS_FOR_USERS) else "rustdoc", rustdoc_blocks(text)
        if not is_test(path):
            yield "messages", string_blocks(text)
    elif path.startswith("web/src/") and re.search(r"/texts?(?:-en)?\.ts$", path):
        yield "web", web_blocks(text)


def files():
    for folder, folders, names in os.walk(CHECKOUT):
        folders[:] = sorted(name for name in folders if name not in SKIPPED_FOLDERS)
        for name in sorted(names):
            if name.endswith((".md", ".rs", ".ts")):
                path = pathlib.Path(folder, name).relative_to(CHECKOUT).as_posix()
                if path not in SKIPPED_FILES:
                    yield path


def search(path, kind, blocks, patterns, allowed=(), used=None):
    """The findings in the blocks of one file. All blocks are searched as one text: this is what makes the lint quick."""
    texts, offsets, offset, kept = [], [], 0, []
    for block in blocks:
        lowered = SENTENCE_END.sub("‹", block.text).lower()
        text = lowered if lowered.startswith("§") else "‹" + lowered
        kept.append((block, text))
        texts.append(text)
        offsets.append(offset)
        offset += len(text) + 1
    whole = "¶".join(texts)
    for pattern in patterns:
        if kind not in pattern.kinds:
            continue
        for match in pattern.hits(whole):
            block, text = kept[bisect.bisect_right(offsets, match.start()) - 1]
            found = match[0].strip("‹¶§ ")
            if excepted(path, block.text, found, allowed, used):
                continue
            at = match.start() - offsets[bisect.bisect_right(offsets, match.start()) - 1] - 1
            line = block.starts[max(bisect.bisect_right([start for start, _ in block.starts], at) - 1, 0)][1]
            yield Finding(path, line, kind, pattern.name, found[:60], pattern.use)


def excepted(path, text, found, allowed, used):
    for index, entry in enumerate(allowed):
        if path == entry["path"] and entry["text"] in text and found in entry["text"].lower():
            if used is not None:
                used.add(index)
            return True
    return False


def findings(paths, kinds):
    patterns, allowed = load_patterns()
    used, found = set(), []
    for path in paths:
        text = (CHECKOUT / path).read_text(encoding="utf-8")
        for kind, blocks in blocks_of(path, text):
            if kind in kinds:
                found += search(path, kind, blocks, patterns, allowed, used)
    unused = [entry for index, entry in enumerate(allowed) if index not in used]
    return sorted(found), unused


def load_counts():
    path = CHECKOUT / COUNTS
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def changed_files():
    """Sets of files where a new finding probably is: those with uncommitted changes, then those of the last commit."""
    for arguments in (["diff", "--name-only", "HEAD"], ["diff", "--name-only", "HEAD~1"]):
        done = subprocess.run(["git", "-C", CHECKOUT, *arguments], capture_output=True, text=True, check=False)
        yield set(done.stdout.splitlines())


def show(found):
    candidates = ([finding for finding in found if finding.path in changed] for changed in changed_files())
    first = next(filter(None, candidates), found)
    for finding in first[:PRINTED_MAX]:
        print(f"{finding.path}:{finding.line}: {finding.name}: “{finding.found}”: {finding.use}")
    if len(first) > PRINTED_MAX:
        print(f"… and {len(first) - PRINTED_MAX} more (scripts/prose_lint.py --all)")


def record(counts, found_by_kind, kinds):
    lowered = {
        kind: min(len(found_by_kind[kind]), counts.get(kind, len(found_by_kind[kind]))) if kind in kinds else counts.get(kind, 0) for kind in KINDS
    }
    lines = [
        "# Findings of scripts/prose_lint.py that each kind of text still has. They may only fall; the aim is zero.",
        "# `scripts/prose_lint.py --record` lowers them.",
    ]
    (CHECKOUT / COUNTS).write_text("\n".join([*lines, *(f"{kind} = {count}" for kind, count in lowered.items())]) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description="Searches the project's prose for the phrases of docs/prose_patterns.toml.")
    parser.add_argument("--only", choices=KINDS, help="one kind of text")
    parser.add_argument("--all", action="store_true", help="print all findings")
    parser.add_argument("--record", action="store_true", help="lower the recorded numbers of findings to the present ones")
    parser.add_argument("files", nargs="*", help="files to search; any finding is an error")
    options = parser.parse_args()
    kinds = {options.only} if options.only else set(KINDS)
    paths = [pathlib.Path(name).resolve().relative_to(CHECKOUT).as_posix() for name in options.files]
    found, unused = findings(paths or files(), kinds)
    if paths:
        for finding in found:
            print(f"{finding.path}:{finding.line}: {finding.name}: “{finding.found}”: {finding.use}")
        sys.exit(1 if found else 0)
    by_kind = {kind: [finding for finding in found if finding.kind == kind] for kind in KINDS}
    counts, failed = load_counts(), False
    if options.record:
        record(counts, by_kind, kinds)
        counts = load_counts()
    for kind in KINDS:
        if kind not in kinds:
            continue
        count, allowed = len(by_kind[kind]), counts.get(kind, 0)
        if options.all:
            for finding in by_kind[kind]:
                print(f"{finding.path}:{finding.line}: {finding.name}: “{finding.found}”: {finding.use}")
        if count > allowed:
            failed = True
            if not options.all:
                show(by_kind[kind])
            print(f"prose: {kind}: {count} findings, at most {allowed} are recorded in {COUNTS}")
        elif count < allowed:
            print(f"prose: {kind}: {count} findings, fewer than the {allowed} in {COUNTS}: run scripts/prose_lint.py --record")
    if unused and not options.only:
        failed = True
        for entry in unused:
            print(f"{PATTERNS}: an exception without a finding: {entry['path']}: {entry['text']}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
