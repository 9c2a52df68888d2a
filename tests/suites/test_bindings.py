"""The databases in Python's, Node's and Erlang's own processes: packages are built, installed where nothing else is, and used there.

Scripts print `ok NAME` or `not ok NAME: why` for each thing that they try, and `done`.
"""

import concurrent.futures
import contextlib
import os
import pathlib
import poplib
import shutil
import signal
import smtplib
import subprocess
import tarfile
import time
import tomllib

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
    """The wheel and the tarballs."""
    out = ctx.folder("packages")
    began = time.monotonic()
    done = command(["bash", ctx.checkout / "scripts" / "bindings.sh", out], timeout=BUILD_TIMEOUT_S)
    ctx.report.note(f"built in {time.monotonic() - began:.1f} s")
    ctx.report.check("the packages are built", done.returncode == 0, done.stderr[-3000:])
    found = {"python": list(out.glob("*.whl")), "node": list(out.glob("*.tgz")), "erlang": list(out.glob("*.tar.gz"))}
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
    mypy = [tools, "-m", "mypy", "--strict", "--python-executable", python, "--cache-dir", ctx.cache / "mypy"]
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


# Not run yet on a machine that could build it in time.
@pytest.mark.slow
def test_erlang_package(ctx, packages):
    libraries, env = fresh_erlang(ctx, packages["erlang"])
    version = tomllib.loads((ctx.checkout / "Cargo.toml").read_text(encoding="utf-8"))["workspace"]["package"]["version"]
    asked = 'ok = application:load(settee), {ok, V} = application:get_key(settee, vsn), io:format("~s ~s", [V, settee:version()]), halt().'
    found = command(["erl", "-noshell", "-eval", asked], env=env)
    ctx.report.equal("the library has the version of the workspace", found.stdout, f"{version} {version}")
    folder = ctx.checkout / "tests" / "bindings" / "erlang"
    compiled = ctx.folder("erlang-tests")
    checked(ctx, "the tests in Erlang compile", ["erlc", "-Werror", "-o", compiled, *sorted(folder.glob("*.erl"))], env)
    env["SETTEE_TIMES"] = str(ctx.size(300, 20_000))
    script(ctx, "erlang", erl(compiled, "check_erlang", "main"), libraries, env)
    script(ctx, "erlang, processes", erl(compiled, "check_processes", "main"), libraries, env)
    # With one scheduler of each kind, a function that holds it up is seen.
    few = ["+S", "1:1", "+SDcpu", "1:1", "+SDio", "1"]
    script(ctx, "erlang, processes on one scheduler", erl(compiled, "check_processes", "main", emulator=few), libraries, env)
    place = ctx.folder("erlang-manual")
    shutil.copy(folder / "evaluate.erl", place / "evaluate.erl")
    checked(ctx, "the evaluator compiles", ["erlc", "-o", place, place / "evaluate.erl"], env)
    manual(ctx, "erlang", [*erl(place, "evaluate", "file")], "examples.erl-shell", place, "erlang", env)


# Not run yet on a machine that could build it in time.
@pytest.mark.slow
def test_elixir_package(ctx, packages):
    libraries, env = fresh_erlang(ctx, packages["erlang"])
    script(ctx, "elixir", ["elixir", ctx.checkout / "tests" / "bindings" / "check_elixir.exs"], libraries, env)
    manual(ctx, "erlang", ["elixir"], "examples.exs", ctx.folder("elixir-manual"), "elixir", env)
    # A project of mix that has the package as a folder, and no other package.
    project = ctx.folder("mix")
    (project / "lib").mkdir()
    (project / "mix.exs").write_text(
        "defmodule Notes.MixProject do\n  use Mix.Project\n"
        f'  def project, do: [app: :notes, version: "1.0.0", deps: [{{:settee, path: "{next(libraries.glob("settee-*"))}"}}]]\nend\n',
        encoding="utf-8",
    )
    source = "defmodule Notes do\n  def names(path), do: path |> Settee.open!() |> Settee.names()\nend\n"
    (project / "lib" / "notes.ex").write_text(source, encoding="utf-8")
    alone = {**env, "ERL_LIBS": "", "HEX_OFFLINE": "1", "MIX_HOME": str(project / "home"), "MIX_ENV": "prod"}
    done = command(["mix", "run", "-e", 'IO.inspect(Notes.names("data"))'], cwd=project, env=alone)
    ctx.report.check("mix builds the package without Hex", done.stdout.endswith("{:ok, []}\n"), done.stdout[-2000:] + done.stderr[-2000:])


MAILS = 40


# Not run yet on a machine that could build it in time.
@pytest.mark.slow
def test_mail_server(ctx, packages):
    """The example in Erlang: real clients send and collect mails, and what was accepted survives a kill."""
    libraries, env = fresh_erlang(ctx, packages["erlang"])
    (source,) = libraries.glob("settee-*/examples/mail_server.erl")
    place = ctx.folder("mail-server")
    checked(ctx, "the mail server compiles", ["erlc", "-Werror", "-o", place, source], env)
    # Lines that begin with points, long ones, and bytes that are not ASCII come through.
    text = ".\r\n..two\r\n" + "x" * 900 + "\r\n" + "grüße\r\n.\r\n"

    def send(port, number, to):
        with smtplib.SMTP("127.0.0.1", port, timeout=30) as client:
            message = f"Subject: mail {number}\r\n\r\n{text}".encode()
            client.sendmail("sender@example.com", to, message)
        return number

    def collect(port, user, delete=False):
        client = poplib.POP3("127.0.0.1", port, timeout=30)
        client.user(user)
        client.pass_("secret")
        count = client.stat()[0]
        mails = [b"\r\n".join(client.retr(n + 1)[1]) + b"\r\n" for n in range(count)]
        for n in range(count if delete else 0):
            client.dele(n + 1)
        client.quit()
        return mails

    with mail_server(place, env) as (server, smtp, pop3):
        with concurrent.futures.ThreadPoolExecutor(8) as senders:
            sent = list(senders.map(lambda n: send(smtp, n, ["alice@example.com", "bob@example.com"]), range(MAILS)))
        refused = None
        try:
            send(smtp, 0, ["nobody@example.com"])
        except smtplib.SMTPRecipientsRefused as error:
            refused = error.recipients["nobody@example.com"][0]
        ctx.report.equal("a user who does not exist has no mails", refused, 550)
        wrong = poplib.POP3("127.0.0.1", pop3, timeout=30)
        wrong.user("alice")
        try:
            wrong.pass_("wrong")
            ctx.report.check("a wrong password is refused", False)
        except poplib.error_proto:
            ctx.report.check("a wrong password is refused", True)
        wrong.close()
        server.send_signal(signal.SIGKILL)
        server.wait()
    with mail_server(place, env) as (server, smtp, pop3):
        mails = collect(pop3, "alice", delete=True)
        expected = sorted(f"Subject: mail {number}\r\n\r\n{text}".encode() for number in sent)
        ctx.report.check("mails that were accepted survive a kill, as they were sent", sorted(mails) == expected, f"{len(mails)} of {len(expected)}")
        ctx.report.equal("collected mails are gone", collect(pop3, "alice"), [])
        ctx.report.equal("those of others are not", len(collect(pop3, "bob")), MAILS)
        send(smtp, "new", ["alice@example.com"])
        ctx.report.equal("a restarted server takes mails", len(collect(pop3, "alice")), 1)


@contextlib.contextmanager
def mail_server(place, env):
    """The example as a process of its own: the process, and its ports."""
    line = erl(place, "mail_server", "main", "data", "0", "0", "alice:secret", "bob:secret")
    env = {**os.environ, **env}
    with subprocess.Popen(line, cwd=place, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as server:
        try:
            smtp, pop3 = (int(port) for port in server.stdout.readline().split())
            yield server, smtp, pop3
        finally:
            server.kill()


def manual(ctx, page, interpreter, name, place, language=None, env=None):
    """The examples of a page of the manual that are marked `packaged`, those of one language one after another in one process."""
    text = (ctx.checkout / "docs" / "src" / "guide" / f"{page}.md").read_text(encoding="utf-8")
    blocks = [block for block in markdown.blocks(text) if block.has("packaged")]
    sources = [block for block in blocks if block.language != "text" and language in (None, block.language)]
    ends = {
        "python": 'print("\\x1e", end="")\n',
        "js": 'process.stdout.write("\\x1e");\n',
        "erlang": 'io:put_chars("\\x{1e}").\n',
        "elixir": 'IO.write("\\x1e")\n',
    }
    (place / name).write_text("".join(block.text + ends[block.language] for block in sources), encoding="utf-8")
    done = command([*interpreter, name], cwd=place, env=env)
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


def fresh_erlang(ctx, tarball):
    """A folder that has the library and nothing else, and the environment in which Erlang and Elixir find it."""
    place = ctx.folder("erlang-libraries")
    with tarfile.open(tarball) as packed:
        packed.extractall(place, filter="data")
    return place, {"ERL_LIBS": str(place), "LC_ALL": "C.UTF-8", "ERL_CRASH_DUMP": "/dev/null"}


def erl(path, module, function, *arguments, emulator=()):
    """The command that calls a function of an Erlang module."""
    return ["erl", *emulator, "-noshell", "-pa", path, "-run", module, function, *arguments]


def script(ctx, name, line, cwd, env=None):
    """Runs a script that says what is ok."""
    began = time.monotonic()
    env = {"SETTEE_BINARY": str(pathlib.Path(ctx.binary).resolve()), **(env or {})}
    done = command(line, cwd=cwd, timeout=SCRIPT_TIMEOUT_S if not ctx.soak else BUILD_TIMEOUT_S, env=env)
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


def checked(ctx, name, line, env=None):
    done = command(line, env=env)
    ctx.report.check(name, done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:])


def command(line, cwd=None, timeout=SCRIPT_TIMEOUT_S, env=None, check=False):
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **(env or {})}
    line = [str(part) for part in line]
    return subprocess.run(line, cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, check=check)
