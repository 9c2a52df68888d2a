"""The examples of the README and of the manual, as they stand there: each page in one shell, against a server of its own.

How a page says what is run and what comes of it: harness/examples.py.
"""

import contextlib
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


def environment_of(ctx):
    clients = ctx.checkout / "tests" / "clients"
    program = ctx.folder("programs") / "settee"
    program.unlink(missing_ok=True)
    program.symlink_to(pathlib.Path(ctx.binary).resolve())
    programs = [ctx.folder("programs"), ctx.cache / "couchpy" / "bin"]
    return {
        "PATH": ":".join([*map(str, programs), os.environ["PATH"]]),
        "NODE_PATH": str(node_modules(ctx, clients / "js")),
        "EXAMPLE_PYTHON": str(virtual_environment(ctx, clients / "python") / "bin" / "python"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_examples_of(ctx, page):
    run_page(ctx, name_of(page), page.read_text(encoding="utf-8"), environment_of(ctx))


def run_page(ctx, name, text, environment):
    doubtful = [f"line {block.line}" for block in examples.unmarked(text)]
    ctx.report.equal(f"{name}: every example says whether it is run", doubtful, [])
    found = examples.examples(text)
    if not found:
        return
    ctx.report.equal(f"{name}: no loop waits for ever", examples.endless(found), [])
    folder = folder_of(ctx, name)
    server = ctx.server(f"{folder.name}/data", admin=None)
    with server:
        address = server.url.removeprefix("http://")
        outcomes, errors, running = examples.run(found, folder, address, environment)
        check(ctx, name, outcomes, errors)
        ctx.report.equal(f"{name}: the page ends what it starts", running, [])
        ctx.report.check(f"{name}: no panic", "panicked" not in server.log(), server.log()[-SHOWN:])
    left = sorted(path.name for path in folder.iterdir() if not path.name.startswith(("data", "page.", "example", ".curlrc")))
    if name == "README.md":
        ctx.report.equal("README.md: the tour leaves no files behind", left, [])


def folder_of(ctx, name):
    return ctx.folder(name.replace("/", "-").removesuffix(".md"))


def check(ctx, name, outcomes, errors):
    for outcome in outcomes:
        difference = outcome.difference
        detail = f"{difference}\n{outcome.example.block.text}\nprinted:\n{outcome.printed[:SHOWN]}\n{errors[-SHOWN:]}"
        ctx.report.check(f"{name}, line {outcome.example.block.line}", difference is None, detail)


def test_pages_that_start_servers_one_after_the_other(ctx):
    """A reader pastes them into one shell: all name the same ports, and nothing but the pages themselves ends what they started."""
    found = {name_of(page): examples.examples(page.read_text(encoding="utf-8")) for page in PAGES}
    pages = [name for name, of_page in found.items() if of_page and examples.starts_programs(of_page)]
    ctx.report.check("pages start servers", len(pages) >= 4, pages)
    with contextlib.ExitStack() as servers:
        started = [servers.enter_context(ctx.server(f"{folder_of(ctx, name).name}/data", admin=None)) for name in pages]
        tasks = [(found[name], folder_of(ctx, name), server.url.removeprefix("http://")) for name, server in zip(pages, started)]
        outcomes, errors, running = examples.run_pages(tasks, environment_of(ctx))
    for name, of_page in zip(pages, outcomes):
        check(ctx, name, of_page, errors)
    ctx.report.equal("nothing is left running", running, [])
