"""The quickstarts of the manual, one file for each language: they run as they stand, and print the same."""

import os
import shutil
import subprocess

import pytest

pytestmark = pytest.mark.may_be_retried

TIMEOUT_S = 300
PROGRAMS = {
    "curl": ["bash", "quickstart.sh"],
    "JavaScript": ["node", "quickstart.mjs"],
    "Python": ["python3", "quickstart.py"],
    "Go": ["go", "run", "quickstart.go"],
    "PHP": ["php", "quickstart.php"],
    "Java": ["java", "Quickstart.java"],
}
PRINTED = ["database: 201", "documents: 201", "update: 201", "conflict: 409", "found: milk tea"]


@pytest.fixture(scope="module")
def server(suite):
    # A password with characters that URLs encode.
    with suite.server(admin="admin:p@ss/word") as server:
        yield server
        left = [name for name in server.api().expect(200, "GET", "/_all_dbs") if not name.startswith("_")]
        suite.report.equal("every program tidied up after itself", left, [])


@pytest.mark.parametrize("language", PROGRAMS)
def test_quickstart_in(suite, ctx, server, language):
    command, folder = PROGRAMS[language], ctx.checkout / "examples" / "quickstart"
    if shutil.which(command[0]) is None:
        pytest.skip(f"there is no {command[0]}")
    url = server.url.replace("://", "://admin:p%40ss%2Fword@")
    environment = {**os.environ, "S": url, "PYTHONDONTWRITEBYTECODE": "1", "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    ctx.report.equal(f"{language}: it prints what the manual says", done.stdout.splitlines(), PRINTED)
    ctx.report.check(f"{language}: without errors", done.returncode == 0, done.stderr[-2000:])


def test_the_manual_has_each_of_them(ctx):
    page = (ctx.checkout / "docs" / "src" / "guide" / "quickstarts.md").read_text(encoding="utf-8")
    absent = [command[-1] for command in PROGRAMS.values() if f"examples/quickstart/{command[-1]}" not in page]
    ctx.report.equal("its page includes each file", absent, [])
    ctx.report.check("and what they print", "\n".join(PRINTED) in page, page[-500:])
