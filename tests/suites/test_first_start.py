"""What the start prints: where the interface, the admin's password and the data are, and what to do next. Colours are for terminals only."""

import contextlib
import os
import pathlib
import pty
import subprocess

import pytest

from harness.api import Api
from harness.server import end, track
from ports import free_port

pytestmark = [pytest.mark.quick, pytest.mark.may_be_retried]

READY = "Settee is listening on http://"
ESCAPE = "\x1b"
# What decides on colours, and on what is printed.
DECIDING = ("CI", "CLICOLOR", "CLICOLOR_FORCE", "JOURNAL_STREAM", "NO_COLOR", "TERM")


def environment_with(**changed):
    """The environment of a program on a usual terminal, with these variables."""
    inherited = {name: value for name, value in os.environ.items() if name not in DECIDING}
    return {**inherited, "TERM": "xterm", **changed}


@contextlib.contextmanager
def started(ctx, data, *options, terminal=False, **environment):
    """The lines that a server prints until it is ready."""
    command = [ctx.binary, "serve", "--data", str(data), "--port", str(free_port()), *options]
    reader, writer = pty.openpty() if terminal else os.pipe()
    with open(reader, encoding="utf-8") as printed:
        process = subprocess.Popen(command, stdout=writer, stderr=subprocess.DEVNULL, env=environment_with(**environment))
        track(process)
        os.close(writer)
        try:
            lines = []
            for line in printed:
                lines.append(line.rstrip("\r\n"))
                if READY in line:
                    break
            yield lines
        finally:
            end(process)


def value(lines, label):
    """The text after a label."""
    found = [line.split(maxsplit=1)[1] for line in lines if line.split()[:1] == [label]]
    return found[0] if found else None


def test_a_first_start_prints_where_everything_is(ctx):
    data = ctx.folder("first") / "data"
    with started(ctx, data, "--generate-admin", terminal=True, NO_COLOR="1") as lines:
        password = (data / "admin-password").read_text().strip()
        url = lines[-1].removeprefix("Settee is listening on ")
        ctx.report.equal("the interface", value(lines, "Interface"), f"{url}/_utils/")
        ctx.report.equal("the data", value(lines, "Data"), str(data.absolute()))
        ctx.report.equal("the admin", value(lines, "Admin"), f"admin, password: {password} (also in {data.absolute()}/admin-password)")
        command = value(lines, "Try")
        program = ctx.folder("bin") / "settee"
        program.symlink_to(pathlib.Path(ctx.binary).resolve())
        environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}
        done = subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True, timeout=120, check=False)
        ctx.report.check("the command to try works as it stands", done.returncode == 0 and "0 refused" in done.stdout, (command, done))
    with started(ctx, data, terminal=True, NO_COLOR="1") as lines:
        text = "\n".join(lines)
        ctx.report.check("a later start has no password, but its place", password not in text and "admin-password" in value(lines, "Admin"), lines)


def test_a_changed_password_is_not_recommended(ctx):
    data = ctx.folder("changed") / "data"
    with started(ctx, data, "--generate-admin") as lines:
        password = (data / "admin-password").read_text().strip()
        url = lines[-1].removeprefix("Settee is listening on ")
        Api(url, f"admin:{password}").expect(200, "PUT", "/_node/_local/_config/admins/admin", "another")
    with started(ctx, data, terminal=True, NO_COLOR="1") as lines:
        ctx.report.equal("the admin", value(lines, "Admin"), "admin")
        ctx.report.check("commands have no password", "admin:PASSWORD@" in value(lines, "Try") and "$(cat" not in "\n".join(lines), lines)


def test_systemds_journal_gets_no_password(ctx):
    data = ctx.folder("journal") / "data"
    with started(ctx, data, "--generate-admin", JOURNAL_STREAM="8:1") as lines:
        password = (data / "admin-password").read_text().strip()
        ctx.report.check("it has the place alone", password not in "\n".join(lines) and "admin-password" in value(lines, "Admin:"), lines)


def test_programs_get_few_lines(ctx):
    """Scripts take the first line, and close what they read from."""
    data = ctx.folder("piped") / "data"
    with started(ctx, data, "--generate-admin") as lines:
        password = (data / "admin-password").read_text().strip()
        told = [f"Admin: admin, password: {password}", f"(also in {data.absolute()}/admin-password)"]
        ctx.report.equal("the new admin, and the address", lines[:-1], told)
    with started(ctx, data) as lines:
        ctx.report.equal("later the address alone", len(lines), 1)


def test_colours_are_for_terminals(ctx):
    for name, terminal, environment, wanted in [
        ("a terminal", True, {}, True),
        ("NO_COLOR", True, {"NO_COLOR": "1"}, False),
        ("NO_COLOR in CI", True, {"NO_COLOR": "1", "CI": "true"}, False),
        ("a terminal without colours", True, {"TERM": "dumb"}, False),
        ("a terminal without colours in CI", True, {"TERM": "dumb", "CI": "true"}, False),
        ("a terminal without colours with CLICOLOR", True, {"TERM": "dumb", "CLICOLOR": "1"}, False),
        ("colours are forced", True, {"TERM": "dumb", "CLICOLOR_FORCE": "1"}, True),
        ("a pipe", False, {}, False),
        ("a pipe in CI", False, {"CI": "true"}, False),
    ]:
        data = ctx.folder(name.replace(" ", "-")) / "data"
        with started(ctx, data, "--admin", "anna:secret", terminal=terminal, **environment) as lines:
            ctx.report.equal(f"{name}: colours", any(ESCAPE in line for line in lines), wanted)
            ctx.report.check(f"{name}: no password", "secret" not in "".join(lines), lines)


def test_colours_of_errors(ctx):
    for name, environment, wanted in [
        ("a terminal", {}, True),
        ("NO_COLOR", {"NO_COLOR": "1"}, False),
        ("a terminal without colours in CI", {"TERM": "dumb", "CI": "true"}, False),
    ]:
        for what, arguments in (("an error", ("query", "nonsense")), ("an unknown option", ("query", "--nonsense"))):
            error = printed_on_terminal(ctx, arguments, environment)
            ctx.report.check(f"{name}: {what}", "nonsense" in error and (ESCAPE in error) == wanted, error)


def printed_on_terminal(ctx, arguments, environment):
    """What a program prints on its standard error, which is a terminal."""
    reader, writer = pty.openpty()
    process = subprocess.Popen([ctx.binary, *arguments], stderr=writer, stdout=subprocess.DEVNULL, env=environment_with(**environment))
    process.wait(60)
    os.close(writer)
    error = b""
    with contextlib.suppress(OSError):  # EIO at its end
        while piece := os.read(reader, 10_000):
            error += piece
    os.close(reader)
    return error.decode()
