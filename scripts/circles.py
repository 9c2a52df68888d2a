#!/usr/bin/env python3
"""Checks that circles between the files of a crate do not grow.

usage: circles.py [--record] [--show CRATE]

A file depends on another one of its crate when a path in it (`use` or inline) leads there, re-exports followed. A circle is a set of files
each of which depends on all others, directly or by way of others. The largest one of each crate, in files, is recorded in circles.txt; 0 is
none. `make lint` runs this. `--record` writes circles.txt, `--show` prints the files of the crate's circles and what each uses of them.

Paths are read from the text: methods whose type is not named are not seen. Modules `tests` within a file do not count.
"""

import argparse
import pathlib
import re
import sys

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent
RECORD = pathlib.Path(__file__).with_name("circles.txt")
# Comments, and what may look like one or like a brace: strings, characters.
QUIET = re.compile(
    r"""//[^\n]*|/\*.*?\*/|\bb?r(?P<hashes>\#*)".*?"(?P=hashes)|\bb?"(?:\\.|[^"\\])*"|"(?:\\.|[^"\\])*"|b?'(?:\\[^\n]{1,12}?|[^\\'\n])'""", re.DOTALL
)
TOKEN = re.compile(
    r"(?P<use>(?P<public>\bpub(?:\([^)]*\))?\s+)?\buse\s+(?P<tree>[^;]+);)"
    r"|\bmod\s+(?P<declared>\w+)\s*;|\bmod\s+(?P<inline>\w+)\s*\{|(?P<brace>[{}])"
    r"|(?<![\w:])(?P<path>(?:[A-Za-z_]\w*)(?:::[A-Za-z_]\w*)+)"
)


class Module:
    """A file of a crate: its place, children, what it imports, and the paths in it."""

    def __init__(self, name, path):
        self.name, self.path = name, path
        self.children = set()
        self.imports = {}  # a name here: path from the crate's root
        self.globs = []
        self.uses = []  # (inline modules around it, path as it is written)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", action="store_true", help="write the numbers of today")
    parser.add_argument("--show", metavar="CRATE", help="print the circles of a crate")
    options = parser.parse_args()
    folders = sorted(path.parent for pattern in ("crates", "bindings") for path in (CHECKOUT / pattern).glob("*/Cargo.toml"))
    if options.show:
        show(CHECKOUT / "crates" / options.show)
        return
    found = {str(folder.relative_to(CHECKOUT)): max(map(len, circles_of(folder)), default=0) for folder in folders}
    if options.record:
        RECORD.write_text("".join(f"{size:3} {name}\n" for name, size in found.items()), encoding="utf-8")
        return
    recorded = {name: int(size) for size, name in (line.split() for line in RECORD.read_text(encoding="utf-8").splitlines())}
    grown = [name for name, size in found.items() if size > recorded.get(name, 0)]
    shrunk = [name for name in recorded if found.get(name, 0) < recorded[name]]
    for name in grown:
        print(
            f"circles: {found[name]} files of {name} depend on each other, {recorded.get(name, 0)} did: move what two files share to a third "
            f"(python3 scripts/circles.py --show {pathlib.Path(name).name})"
        )
    for name in shrunk:
        print(f"circles: {recorded[name]} files of {name} depended on each other, now {found.get(name, 0)}: python3 scripts/circles.py --record")
    sys.exit(1 if grown else 0)


def circles_of(folder):
    return [circle for root in roots(folder) for circle in circles(graph(modules(root)))]


def show(folder):
    for root in roots(folder):
        edges = graph(modules(root))
        for circle in circles(edges):
            print(f"{len(circle)} files:")
            for name in sorted(circle):
                print(f"  {label(name)}: {', '.join(sorted(label(other) for other in edges[name] & set(circle)))}")


def label(name):
    return "::".join(name) or "(root)"


def roots(folder):
    """The root files of the library and the programs of a crate."""
    found = [folder / "src" / name for name in ("lib.rs", "main.rs")]
    found += [*(folder / "src/bin").glob("*.rs"), *(folder / "src/bin").glob("*/main.rs")]
    return [path for path in found if path.exists()]


def modules(root):
    """{name: Module} of all files below a root, by `mod` declarations."""
    found, to_read = {}, [((), root, root.parent)]
    while to_read:
        name, path, folder = to_read.pop()
        module = found[name] = read(name, path)
        for child in module.children:
            for candidate in (folder / f"{child}.rs", folder / child / "mod.rs"):
                if candidate.exists():
                    to_read.append(((*name, child), candidate, folder / child))
    return found


def read(name, path):
    module = Module(name, path)
    text = QUIET.sub(" ", path.read_text(encoding="utf-8"))
    inline, depth = [], 0  # names of inline modules around, with the depth of each
    for token in TOKEN.finditer(text):
        within = tuple(each for each, _ in inline)
        if token["use"]:
            for written, alias in leaves(token["tree"]):
                add_use(module, within, written, alias, token["public"])
        elif token["declared"]:
            if not within:
                module.children.add(token["declared"])
        elif token["inline"]:
            depth += 1
            inline.append((token["inline"], depth))
        elif token["brace"] == "{":
            depth += 1
        elif token["brace"]:
            if inline and inline[-1][1] == depth:
                inline.pop()
            depth -= 1
        elif "tests" not in within:
            module.uses.append((within, token["path"].split("::")))
    return module


def leaves(tree):
    """(path, name here) of each leaf of a `use` tree. The name is None for a glob."""
    words, found = re.findall(r"[\w*]+|::|[{},]", tree), []
    stack, path, alias, is_alias = [], [], None, False

    def end():
        nonlocal path, alias
        if path and path != (stack[-1] if stack else []):
            last = path[:-1] if path[-1] in ("self", "*") and len(path) > 1 else path
            found.append((last, None if path[-1] == "*" else alias or last[-1]))
        path, alias = list(stack[-1]) if stack else [], None

    for word in words:
        if word == "{":
            stack.append(list(path))
        elif word == "}":
            end()
            stack.pop()
            path = []
        elif word == ",":
            end()
        elif word == "as":
            is_alias = True
        elif is_alias:
            alias, is_alias = word, False
        elif word != "::":
            path.append(word)
    end()
    return found


def add_use(module, within, written, alias, public):
    # A re-export is followed by those who use it; it is no use of its own.
    if not public and "tests" not in within:
        module.uses.append((within, written))
    if not within:
        if alias is None:
            module.globs.append(written)
        elif alias != "_":
            module.imports[alias] = written


def graph(found):
    """{name: names of the files that it uses}"""
    edges = {name: set() for name in found}
    for name, module in found.items():
        for within, written in module.uses:
            target = resolve(found, (*name, *within), written)
            if target is not None and target != name:
                edges[name].add(target)
    return edges


def resolve(found, place, written, depth=0):
    """The file that a path leads to when it is written at a place, or None when that is another crate's."""
    first, *rest = written
    if first == "crate":
        place = ()
    elif first == "self":
        pass
    elif first == "super":
        place = place[:-1]
        while rest and rest[0] == "super":
            place, rest = place[:-1], rest[1:]
    else:
        rest = written
        while place and place not in found:
            place = place[:-1]
        if first not in found[place].children and first not in found[place].imports:
            return None
    return walk(found, place, rest, depth)


def walk(found, place, rest, depth):
    # Inline modules are of the file around them.
    while place not in found:
        place, rest = place[:-1], []
    for at, word in enumerate(rest):
        module = found[place]
        if (*place, word) in found:
            place = (*place, word)
            continue
        if depth < 8:
            if word in module.imports and module.imports[word] != rest[at:]:
                target = resolve(found, place, module.imports[word], depth + 1)
                # A name of another crate, when there is none.
                return target and walk(found, target, rest[at + 1 :] if target[-1:] == (word,) else [], depth + 1)
            elif word not in module.imports:
                for glob in module.globs:
                    if glob[0] in ("crate", "self", "super") or glob[0] in module.children:
                        target = resolve(found, place, glob, depth + 1)
                        if target is not None and target != place and exports(found[target], word):
                            return target
        break
    return place


def exports(module, word):
    return (
        re.search(rf"\bpub(?:\([^)]*\))?\s+(?:const |async |unsafe )*(?:fn|struct|enum|trait|type|const|static)\s+{word}\b", module.path.read_text())
        is not None
    )


def circles(edges):
    """The strongly connected sets of more than one file (Tarjan)."""
    index, low, stack, found = {}, {}, [], []
    for start in edges:
        if start in index:
            continue
        work = [(start, iter(edges[start]))]
        index[start] = low[start] = len(index)
        stack.append(start)
        while work:
            name, others = work[-1]
            for other in others:
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    work.append((other, iter(edges[other])))
                    break
                if other in stack:
                    low[name] = min(low[name], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[name])
                if low[name] == index[name]:
                    circle = stack[stack.index(name) :]
                    del stack[-len(circle) :]
                    if len(circle) > 1:
                        found.append(circle)
    return found


if __name__ == "__main__":
    main()
