"""The databases in Python's and Node's own processes: packages are built, installed where nothing else is, and used there.

Scripts print `ok NAME` or `not ok NAME: why` for each thing that they try, and `done`.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import time

import pytest

from harness import examples, markdown
from harness.packages import node_modules, virtual_environment

# Cargo may have everything to compile; after the program there is little left.
BUILD_TIMEOUT_S = 1800
SCRIPT_TIMEOUT_S = 300


@pytest.fixture(scope="module")
def packages(suite):
    return built(suite)


def built(ctx):
    """The wheel and the tarball."""
    out = ctx.folder("packages")
    began = time.monotonic()
    done = command(["bash", ctx.checkout / "scripts" / "bindings.sh", out], timeout=BUILD_TIMEOUT_S)
    ctx.report.note(f"built in {time.monotonic() - began:.1f} s")
    ctx.report.check("the packages are built", done.returncode == 0, done.stderr[-3000:])
    found = {"python": list(out.glob("*.whl")), "node": list(out.glob("*.tgz"))}
    for language, files in found.items():
        ctx.report.equal(f"there is one package for {language}", len(files), 1)
    (wheel,) = found["python"]
    ctx.report.check("one wheel is for every Python from 3.10 on", "-cp310-abi3-linux_" in wheel.name, wheel.name)
    return {language: files[0] for language, files in found.items()}


def test_python_package(ctx, packages):
    folder = ctx.checkout / "tests" / "bindings"
    tools = virtual_environment(ctx, folder) / "bin" / "python"
    python = fresh_python(ctx, tools, packages["python"], "python")
    script(ctx, "python", [python, folder / "check_python.py"], ctx.folder("python"))
    manual(ctx, "python", [python], "examples.py", ctx.folder("python-manual"))
    mypy = [tools, "-m", "mypy", "--strict", "--python-executable", python, "--cache-dir", ctx.folder("mypy-cache")]
    checked(ctx, "mypy accepts the examples of types, and refuses what it must", [*mypy, folder / "types_python.py"])
    checked(ctx, "mypy accepts the package", [*mypy, "-p", "settee"])
    size = ctx.size(300, 20_000)
    script(ctx, "python, over and over", [python, folder / "soak_python.py", size], ctx.folder("python"))


def test_node_package(ctx, packages):
    folder = ctx.checkout / "tests" / "bindings"
    modules = node_modules(ctx, folder)
    place = fresh_node(ctx, packages["node"])
    script(ctx, "node", ["node", folder / "check_node.mjs"], place)
    manual(ctx, "node", ["node"], "examples.mjs", place)
    for name in ("tsconfig.json", "types_node.ts"):
        shutil.copy(folder / name, place / name)
    tsc = ["node", modules / "typescript" / "bin" / "tsc", "-p", place / "tsconfig.json", "--typeRoots", modules / "@types"]
    checked(ctx, "tsc accepts the examples of types, and refuses what it must", tsc)
    size = ctx.size(300, 20_000)
    script(ctx, "node, over and over", ["node", "--expose-gc", folder / "soak_node.mjs", size], place)


def manual(ctx, page, interpreter, name, place):
    """The examples of a page of the manual that are marked `packaged`, one after another in one process."""
    text = (ctx.checkout / "docs" / "src" / "guide" / f"{page}.md").read_text(encoding="utf-8")
    blocks = [block for block in markdown.blocks(text) if block.has("packaged")]
    sources = [block for block in blocks if block.language != "text"]
    ends = {"python": 'print("\\x1e", end="")\n', "js": 'process.stdout.write("\\x1e");\n'}
    (place / name).write_text("".join(block.text + ends[block.language] for block in sources), encoding="utf-8")
    done = command([*interpreter, name], cwd=place)
    printed = done.stdout.split("\x1e")
    ctx.report.check(f"{page}.md: its examples run to their end", done.returncode == 0 and len(printed) == len(sources) + 1, done.stderr[-3000:])
    for source, found in zip(sources, printed):
        # What a block prints follows it.
        after = blocks[blocks.index(source) + 1 :][:1]
        expected = after[0].text if after and after[0].language == "text" else ""
        ctx.report.check(
            f"{page}.md, line {source.line}",
            examples.lines_match(expected.splitlines(), found.splitlines()),
            f"expected:\n{expected}\nprinted:\n{found}",
        )


def test_kills_lose_nothing(ctx, packages):
    """Kills a process while it loads: what it was told is written is there."""
    folder = ctx.checkout / "tests" / "bindings"
    tools = virtual_environment(ctx, folder) / "bin" / "python"
    python = fresh_python(ctx, tools, packages["python"], "killed")
    data = ctx.root / "killed-data"
    load = (
        "import settee, sys\n"
        "db = settee.open(sys.argv[1]).create('a', exist_ok=True)\n"
        "n = len(db)\n"
        "while True:\n"
        "    db.bulk([{'_id': f'{i:09}'} for i in range(n, n + 50)])\n"
        "    n += 50\n"
        "    print(n, flush=True)\n"
    )
    count = "import settee, sys\nwith settee.open(sys.argv[1]) as d:\n    print(len(d['a']), sum(1 for _ in d['a'].all_docs()))\n"
    for kill in range(ctx.size(2, 40)):
        process = subprocess.Popen([python, "-c", load, data], stdout=subprocess.PIPE, text=True)
        told = "0"
        for _ in range(ctx.random.randrange(1, 40)):
            told = process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        told = int((process.stdout.read().splitlines() or [told])[-1])
        process.wait()
        counted, listed = (int(n) for n in command([python, "-c", count, data]).stdout.split())
        ctx.report.check(
            f"kill {kill} loses nothing, and leaves no half of a bulk",
            counted == listed >= told and listed % 50 == 0,
            f"{counted}, {listed}, {told}",
        )


def fresh_python(ctx, tools, wheel, name):
    """An interpreter that has the wheel and nothing else."""
    place = ctx.root / f"venv-{name}"
    command(["python3", "-m", "venv", "--without-pip", place], check=True)
    python = place / "bin" / "python"
    command(
        [tools, "-m", "pip", "--disable-pip-version-check", "--python", python, "install", "--quiet", "--no-index", "--no-deps", wheel], check=True
    )
    return python


def fresh_node(ctx, tarball):
    """A folder that has the package and nothing else."""
    place = ctx.folder("node")
    (place / "package.json").write_text('{"private": true}\n', encoding="utf-8")
    command(["npm", "install", "--offline", "--no-audit", "--no-fund", "--loglevel=error", tarball], cwd=place, check=True)
    return place


def script(ctx, name, line, cwd):
    """Runs a script that says what is ok."""
    began = time.monotonic()
    done = command(
        line, cwd=cwd, timeout=SCRIPT_TIMEOUT_S if not ctx.soak else BUILD_TIMEOUT_S, env={"SETTEE_BINARY": str(pathlib.Path(ctx.binary).resolve())}
    )
    ctx.report.note(f"{name}: {time.monotonic() - began:.1f} s")
    lines = done.stdout.splitlines()
    for said in lines:
        if said.startswith("ok "):
            ctx.report.check(f"{name}: {said[3:]}", True)
        elif said.startswith("not ok "):
            what, _, why = said[7:].partition(": ")
            ctx.report.check(f"{name}: {what}", False, why)
    ended = done.returncode == 0 and "done" in lines
    ctx.report.check(f"{name}: runs to its end", ended, f"exit code {done.returncode}\n{done.stdout[-1000:]}\n{done.stderr[-3000:]}")


def checked(ctx, name, line):
    done = command(line)
    ctx.report.check(name, done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:])


def command(line, cwd=None, timeout=SCRIPT_TIMEOUT_S, env=None, check=False):
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **(env or {})}
    line = [str(part) for part in line]
    return subprocess.run(line, cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, check=check)
