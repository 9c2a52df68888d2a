#!/usr/bin/env python3
"""Writes docs/src/reference/configuration.md from default.ini, which is made from the declarations in crates/config/src/settings/.

usage: docs/configuration.py [--check]    --check changes nothing and exits 1 when the page is not that of default.ini
"""

import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
PAGE = HERE / "src" / "reference" / "configuration.md"
HEAD = """# Configuration

<!-- Made from default.ini by docs/configuration.py -->

This page lists every setting with its default. Sections and keys are CouchDB's, if CouchDB has them.
[Run in production](../operations/deployment.md#configuration) describes the sources of settings, their precedence, and the settings that need a restart.
An empty default means that the setting is not set.
"""


def sections(text):
    """[(name, what it is about, [(key, default, what it does)])] of an ini file in the form of default.ini."""
    found, comment = [], []
    # What stands before the first section is about the file.
    for line in text.partition("\n\n")[2].splitlines():
        if line.startswith("; "):
            comment.append(line[2:])
            continue
        if line.startswith("["):
            found.append((line.strip("[]"), " ".join(comment), []))
        elif setting := re.fullmatch(r";?([^\s=;][^=]*?) = ?(.*)", line):
            found[-1][2].append((setting[1], setting[2], " ".join(comment)))
        elif line:
            sys.exit(f"configuration: what is {line!r}?")
        comment = []
    return found


def cell(text):
    return text.replace("|", "\\|")


def code(text):
    return f"`{cell(text)}`" if text else ""


def page(text):
    out = [HEAD]
    for name, about, settings in sections(text):
        out.append(f"## \\[{name}\\]\n\n{plain(about)}\n")
        if settings:
            rows = [f"| {code(key)} | {code(default)} | {plain(cell(what))} |" for key, default, what in settings]
            out.append("\n".join(["| key | default | description |", "|---|---|---|", *rows]) + "\n")
    return "\n".join(out)


def plain(text):
    """Text in which Markdown sees no links, code or emphasis: names of sections, patterns with stars, placeholders."""
    text = re.sub(r"(\[[a-z_]+\](?: [a-z_]+)?)(?!\()", r"`\1`", text)
    return re.sub(r"(?<!`)([*<>])", r"\\\1", text)


def main():
    wanted = page((HERE.parent / "default.ini").read_text(encoding="utf-8"))
    if sys.argv[1:] == ["--check"]:
        sys.exit(0 if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == wanted else "configuration: the page is old: run docs/configuration.py")
    PAGE.write_text(wanted, encoding="utf-8")


if __name__ == "__main__":
    main()
