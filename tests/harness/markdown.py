"""Markdown as the tests read it: fenced blocks, headings' anchors, links. No more of it than the project's pages use."""

import re
import unicodedata

FENCE = re.compile(r"^(?P<indent> *)(?P<fence>```+)(?P<info>[^`]*)$")
HEADING = re.compile(r"^#{1,6} +(?P<text>.*?)\s*#*$")
# [text](target), also of images; the text may hold code with brackets.
LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(<?(?P<target>[^()\s>]+(?:\([^()]*\))?)>?(?: \"[^\"]*\")?\)")
CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
HTML_TARGET = re.compile(r"""<(?:a|img)\b[^>]*?\b(?:href|src)=["'](?P<target>[^"']+)["']""")


class Block:
    """A fenced block: its words (```` ```sh run ```` has `sh` and `run`), its text, the line where it begins."""

    def __init__(self, words, text, line):
        self.words, self.text, self.line = words, text, line

    @property
    def language(self):
        return self.words[0] if self.words else ""

    def has(self, word):
        return word in self.words[1:]


def blocks(text):
    """The fenced blocks, in order."""
    return [block for block in _parts(text) if isinstance(block, Block)]


def prose(text):
    """(line number, line) of everything outside of fenced blocks."""
    return [part for part in _parts(text) if not isinstance(part, Block)]


def _parts(text):
    opened = None
    for number, line in enumerate(text.splitlines(), 1):
        match = FENCE.match(line)
        if opened is None and match:
            opened, words, begins, inside = match, re.split(r"[ ,]+", match["info"].strip()), number, []
        elif opened is not None and line.strip() == opened["fence"]:
            yield Block([word for word in words if word], "\n".join(inside) + "\n", begins)
            opened = None
        elif opened is not None:
            inside.append(line[len(opened["indent"]) :])
        else:
            yield number, line
    if opened is not None:
        raise ValueError(f"the block that begins in line {begins} has no end")


def links(text):
    """(line number, target) of every link and image."""
    for number, line in prose(text):
        for match in HTML_TARGET.finditer(line):
            yield number, match["target"]
        for match in LINK.finditer(CODE.sub("``", line)):
            yield number, match["target"]


def anchors(text):
    """The fragments that links may name: one for each heading, as GitHub and mdBook make them."""
    seen = {}
    for _, line in prose(text):
        match = HEADING.match(line)
        if not match:
            continue
        anchor = anchor_of(match["text"])
        count = seen.get(anchor, 0)
        seen[anchor] = count + 1
        yield f"{anchor}-{count}" if count else anchor


def anchor_of(heading):
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
    kept = [c for c in plain.lower() if c in " -_" or unicodedata.category(c)[0] in "LN"]
    return "".join(kept).replace(" ", "-")


def table_rows(text):
    """The cells of every row of every table, without the lines of dashes."""
    for number, line in prose(text):
        if line.startswith("|") and not re.fullmatch(r"[|\s:-]+", line):
            yield number, [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
