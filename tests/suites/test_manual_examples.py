"""The examples of the README and of the manual, as they stand there: each page in one shell, against a server of its own.

How a page says what is run and what comes of it: harness/examples.py.
"""

import os
import pathlib

import pytest

from harness import examples
from harness.packages import node_modules, virtual_environment

pytestmark = [pytest.mark.may_be_retried, pytest.mark.costly_hashes]

SHOWN = 1500
CHECKOUT = pathlib.Path(__file__).resolve().parent.parent.parent


BOOK = CHECKOUT / "docs" / "src"
PAGES = [CHECKOUT / "README.md", *sorted(BOOK.rglob("*.md"))]


def name_of(page):
    return str(page.relative_to(BOOK if page.is_relative_to(BOOK) else CHECKOUT))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_examples_of(ctx, page):
    clients = ctx.checkout / "tests" / "clients"
    (ctx.folder("programs") / "settee").symlink_to(pathlib.Path(ctx.binary).resolve())
    programs = [ctx.folder("programs"), ctx.cache / "couchpy" / "bin"]
    environment = {
        "PATH": ":".join([*map(str, programs), os.environ["PATH"]]),
        "NODE_PATH": str(node_modules(ctx, clients / "js")),
        "EXAMPLE_PYTHON": str(virtual_environment(ctx, clients / "python") / "bin" / "python"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    run_page(ctx, name_of(page), page.read_text(encoding="utf-8"), environment)


def run_page(ctx, name, text, environment):
    doubtful = [f"line {block.line}" for block in examples.unmarked(text)]
    ctx.report.equal(f"{name}: every example says whether it is run", doubtful, [])
    found = examples.examples(text)
    if not found:
        return
    folder = ctx.folder(name.replace("/", "-").removesuffix(".md"))
    server = ctx.server(f"{folder.name}/data", admin=None)
    with server:
        address = server.url.removeprefix("http://")
        outcomes, errors = examples.run(found, folder, address, environment)
        for outcome in outcomes:
            difference = outcome.difference
            detail = f"{difference}\n{outcome.example.block.text}\nprinted:\n{outcome.printed[:SHOWN]}\n{errors[-SHOWN:]}"
            ctx.report.check(f"{name}, line {outcome.example.block.line}", difference is None, detail)
        ctx.report.check(f"{name}: no panic", "panicked" not in server.log(), server.log()[-SHOWN:])
    left = sorted(path.name for path in folder.iterdir() if not path.name.startswith(("data", "page.", "example", ".curlrc")))
    if name == "README.md":
        ctx.report.equal("README.md: the tour leaves no files behind", left, [])
