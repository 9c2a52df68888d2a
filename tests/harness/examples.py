"""Runs the examples of a page of Markdown, in order, in one shell, and compares what they print.

A block is run when its first line says so:

    ```sh run            run by bash; `python run` and `js run` by Python and Node, with S in the environment
    ```json output       what the block before it prints: JSON values, compared as JSON
    ```text output       the same as lines

In what is expected, `…` stands for any text within a string or a line; the string "…" alone for any value; a member "…" for any
further members; "…" at the end of an array for any further elements; a line `…` for any lines. A block without expected output
must end with status 0 and print no `"error"`.
"""

import json
import os
import pathlib
import re
import shlex
import signal
import subprocess

from harness import markdown
from harness.server import wait_until
from ports import free_ports

PAGE_TIMEOUT_S = 300
ENDING_TIMEOUT_S = 20
ADDRESS = "127.0.0.1:5984"
# Ports that pages name for servers of their own, which get free ones.
OTHER_PORTS = ("6011", "6984")
BEGIN = f"S=http://admin:$(cat data/admin-password)@{ADDRESS}\n"
COMMANDS = {"sh": None, "python": '"$EXAMPLE_PYTHON"', "js": "node"}
SUFFIXES = {"python": "py", "js": "cjs"}


class Example:
    """A block to run, and the block with what it should print."""

    def __init__(self, block, expected):
        self.block, self.expected = block, expected


def examples(text):
    """The examples of a page. Raises ValueError for output that follows nothing."""
    found = []
    last = None
    for block in markdown.blocks(text):
        if block.has("output"):
            if last is None or last.expected is not None:
                raise ValueError(f"line {block.line}: output of nothing")
            last.expected = block
        elif block.has("run"):
            if block.language not in COMMANDS:
                raise ValueError(f"line {block.line}: nothing runs {block.language}")
            last = Example(block, None)
            found.append(last)
        else:
            last = None
    return found


def starts_programs(found):
    """Whether examples start programs in the background."""
    return any(re.search(r"(?<!&)&$", example.block.text, re.MULTILINE) for example in found)


def endless(found):
    """Loops that wait for ever if what they wait for does not come."""
    return [line.strip() for example in found for line in example.block.text.splitlines() if re.match(r"\s*(until|while true|while :)", line)]


def unmarked(text):
    """Blocks that look as if they could be run, but say neither `run` nor `norun`."""
    return [b for b in markdown.blocks(text) if b.language in COMMANDS and not (b.has("run") or b.has("norun"))]


class Outcome:
    def __init__(self, example, printed, status):
        self.example, self.printed, self.status = example, printed, status

    @property
    def difference(self):
        """None, or what is wrong."""
        expected = self.example.expected
        if self.status is None:
            return "it was not reached, or did not end"
        if expected is None:
            return None if self.status == 0 and '"error"' not in self.printed else f"exit status {self.status}"
        if expected.language == "json":
            return json_difference(expected.text, self.printed)
        return None if lines_match(expected.text.splitlines(), self.printed.splitlines()) else "other lines"


def run(found, folder, address, environment):
    """Runs examples in `folder`, whose server listens on `address` instead of the one that pages name. Returns (outcomes, stderr, the programs
    that the page left running)."""
    (outcomes,), errors, left = run_pages([(found, folder, address)], environment)
    return outcomes, errors, left


def run_pages(pages, environment):
    """Runs the examples of pages, each [examples, folder, address], one page after the other in one shell, as a reader pastes them. Returns
    (outcomes of each page, stderr, the programs that are left running)."""
    others = dict(zip(OTHER_PORTS, map(str, free_ports(len(OTHER_PORTS)))))
    first, script, everything = pages[0][1], [], []
    for found, folder, address in pages:
        places = {ADDRESS: address, **others}
        script.append(f"cd {shlex.quote(str(folder))}\n")
        script += [] if any(re.search(r"^S=", e.block.text, re.M) for e in found) else [_placed(BEGIN, places)]
        for example in found:
            number = len(everything)
            everything.append(example)
            script.append(_shell(example.block.language, _placed(example.block.text, places), number, folder))
            script.append(f"printf '\\036{number} %s\\036' $?\n")
    (first / ".curlrc").write_text("silent\nshow-error\n", encoding="utf-8")  # as on a terminal, where curl shows no progress
    (first / "page.sh").write_text("".join(script), encoding="utf-8")
    with open(first / "page.err", "wb") as errors:
        shell = subprocess.Popen(
            ["bash", "page.sh"],
            cwd=first,
            env={**os.environ, **environment, "CURL_HOME": str(first)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
        left = []
        try:
            printed = shell.communicate(timeout=PAGE_TIMEOUT_S * len(pages))[0]
            left = _left_running(shell.pid)
        except subprocess.TimeoutExpired:
            left = _running_in(shell.pid)
            _end_group(shell)
            printed = shell.communicate()[0]
        finally:
            _end_group(shell)
    outcomes = _outcomes(everything, printed.decode("utf-8", "replace"))
    per_page = [[outcomes.pop(0) for _ in found] for found, _, _ in pages]
    return per_page, (first / "page.err").read_text(encoding="utf-8", errors="replace"), left


def _left_running(group):
    """The programs of a process group that do not end by themselves: the workers of a server that has ended take a moment."""
    wait_until(lambda: not _running_in(group), ENDING_TIMEOUT_S)
    return _running_in(group)


def _running_in(group):
    """The programs that live in a process group."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = path.read_text(encoding="utf-8", errors="replace").rpartition(")")
        except OSError:
            continue  # it ended meanwhile
        state, _, its_group = rest.split()[:3]
        if int(its_group) == group and state != "Z":
            found.append(name.partition("(")[2])
    return sorted(found)


def _placed(text, places):
    for named, real in places.items():
        text = text.replace(named, real)
    return text


def _shell(language, text, number, folder):
    if language == "sh":
        return text
    path = f"example{number}.{SUFFIXES[language]}"
    (folder / path).write_text(text, encoding="utf-8")
    return f"S=$S {COMMANDS[language]} {path}\n"


def _end_group(shell):
    """Ends what an example left in the background: its shell leads a process group of its own."""
    try:
        os.killpg(shell.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # the usual case


def _outcomes(found, printed):
    # What is printed between the marks: text, "number status", text, …
    parts = printed.split("\036")
    outcomes = []
    for number, example in enumerate(found):
        at = 2 * number
        ended = at + 1 < len(parts) and parts[at + 1].startswith(f"{number} ")
        status = int(parts[at + 1].split()[1]) if ended else None
        outcomes.append(Outcome(example, parts[at] if at < len(parts) else "", status))
    return outcomes


def json_values(text):
    """All JSON values of a text, one after another."""
    decoder, at, values = json.JSONDecoder(), 0, []
    while True:
        while at < len(text) and text[at].isspace():
            at += 1
        if at == len(text):
            return values
        value, at = decoder.raw_decode(text, at)
        values.append(value)


def json_difference(expected, printed):
    try:
        wanted = json_values(expected)
    except ValueError as error:
        return f"the page's output is no JSON: {error}"
    try:
        found = json_values(printed)
    except ValueError as error:
        return f"what it prints is no JSON: {error}"
    if len(wanted) != len(found):
        return f"{len(found)} values, not {len(wanted)}"
    for number, (one, other) in enumerate(zip(wanted, found)):
        if not same(one, other):
            return f"value {number + 1} differs: {json.dumps(other, ensure_ascii=False)}, expected {json.dumps(one, ensure_ascii=False)}"
    return None


def same(wanted, found):
    """Whether a JSON value is the expected one, which may hold `…`."""
    if wanted == "…":
        return True
    if isinstance(wanted, dict) and isinstance(found, dict):
        more = "…" in wanted
        names = set(wanted) - {"…"}
        return (names <= set(found) if more else names == set(found)) and all(same(wanted[name], found[name]) for name in names)
    if isinstance(wanted, list) and isinstance(found, list):
        more = bool(wanted) and wanted[-1] == "…"
        head = wanted[:-1] if more else wanted
        return (len(head) <= len(found) if more else len(head) == len(found)) and all(map(same, head, found))
    if isinstance(wanted, str) and isinstance(found, str):
        return line_matches(wanted, found)
    return type(wanted) is type(found) and wanted == found


def line_matches(wanted, found):
    return re.fullmatch(".*".join(re.escape(part) for part in wanted.split("…")), found, re.S) is not None


def lines_match(wanted, found):
    """Whether lines are the expected ones, where a line `…` stands for any number of lines."""
    if not wanted:
        return not found
    if wanted[0] == "…":
        return any(lines_match(wanted[1:], found[at:]) for at in range(len(found) + 1))
    return bool(found) and line_matches(wanted[0], found[0].rstrip("\r")) and lines_match(wanted[1:], found[1:])
