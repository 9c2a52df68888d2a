"""The web interface in a real browser: Debian's Chromium, driven by the scenarios of tests/clients/browser, on the pages that the
binary has in it. And what is committed in web/dist is what the sources build.
"""

import shutil
import subprocess

import pytest

from harness.browser import CHROMIUM, names, scenarios
from harness.packages import node_modules

pytestmark = pytest.mark.may_be_retried

BUILD_TIMEOUT_S = 300
# What is made of the sources, or of the packages.
MADE = ("node_modules", "dist")
# {scenario: {theme: whether it is one of `make test`}} of the longest. A theme of `search-waiting` has two indexes that take 9 s each to build.
# Themes and widths of `search` are also those of `everywhere`.
THEMES = {"everywhere": {"light": True, "dark": True}, "search": {"light": True, "dark": False}, "search-waiting": {"light": False, "dark": True}}
# Scenarios that change nothing but databases of their own share a server and a browser.
TOGETHER = (("document-conflicts", "document-edit", "document-revisions"), ("changes-live", "query-mango", "views-edit"))


def test_dist_is_what_the_sources_build(ctx):
    """Built in a folder of its own: the checkout may have other packages, or none. Types and unit tests are `make web`."""
    web, place = ctx.checkout / "web", ctx.folder("sources") / "web"
    shutil.copytree(web, place, ignore=shutil.ignore_patterns(*MADE))
    (place / "node_modules").symlink_to(node_modules(ctx, web))
    for what, command in (("a build", "build"), ("its budget of bytes", "sizes")):
        done = subprocess.run(
            ["npm", "run", "--silent", command],
            cwd=place,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=BUILD_TIMEOUT_S,
            check=False,
        )
        ctx.report.check(f"npm run {command}: {what}", done.returncode == 0, f"{done.stdout[-3000:]}{done.stderr[-1000:]}")
    built, committed = files(place / "dist"), files(web / "dist")
    others = sorted(name for name in built | committed if built.get(name) != committed.get(name))
    ctx.report.equal("web/dist is what the sources build (`npm ci && npm run build`)", others, [])


def files(folder):
    """{name: bytes} of all files below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def cases():
    """Each scenario is a test, but those of `TOGETHER`; those of `THEMES` are one in each theme."""
    alone = names()
    for group in TOGETHER:
        if not all([alone.pop(name) for name in group]):
            raise ValueError(f"{group}: all of them have to be short")
        yield pytest.param(",".join(group), None, id="-".join(group))
    for name, is_short in alone.items():
        for theme, theme_is_short in THEMES.get(name, {None: True}).items():
            marks = [] if is_short and theme_is_short else [pytest.mark.slow]
            yield pytest.param(name, theme, marks=marks, id=f"{name}-{theme}" if theme else name)


@pytest.mark.parametrize(("scenario", "theme"), cases())
def test_in_a_browser(ctx, scenario, theme):
    if not CHROMIUM.exists():
        ctx.report.check("Chromium is there", False, "no /usr/bin/chromium: run `make setup-test`")
        return
    # Scenarios log in more often, and more wrongly, than the default of the lockout permits.
    with ctx.server(admin="admin:secret", options=["--set", "chttpd_auth_lockout/mode=off"]) as server:
        scenarios(ctx, server, only=scenario, theme=theme)
        ctx.report.check("no panic", "panicked" not in server.log(), server.log()[-1500:])
