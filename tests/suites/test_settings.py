"""When settings count: those that say so at once, and the files of the configuration when they are read again."""

import pathlib
import re

import pytest

from harness.server import wait_until

pytestmark = [pytest.mark.quick, pytest.mark.costly_hashes]


@pytest.fixture(scope="module")
def server(suite):
    with suite.server() as server:
        yield server
        suite.report.check("no panic", "panicked" not in server.log(), server.log()[-1500:])


def put(api, section, key, value):
    return api.put(f"/_node/_local/_config/{section}/{key}", value)


def test_every_setting_that_counts_at_once_takes_its_default(server, suite):
    api = server.api()
    table = api.expect(200, "GET", "/_node/_local/_settee/settings")
    at_once = [setting for setting in table if not setting["restart"] and setting["default"] and setting["value"] is None]
    suite.report.check("most settings count at once", len(at_once) > 100, len(at_once))
    for setting in at_once:
        section, key = setting["section"], setting["key"]
        answer = put(api, section, key, setting["default"])
        # Some are for files alone.
        suite.report.check(f"{section}/{key}", answer.status in (200, 403), answer)
        if answer.status == 200:
            suite.report.equal(f"{section}/{key} is removed", api.delete(f"/_node/_local/_config/{section}/{key}").status, 200)
    suite.report.equal("the server works", api.get("/_up").status, 200)


def test_the_level_of_the_log_counts_at_once(server, suite):
    api = server.api()

    def is_logged(name):
        api.get(f"/{name}")
        return f"path=/{name} " in server.log()

    suite.report.check("requests are logged", wait_until(lambda: is_logged("logged-at-first")))
    put(api, "log", "level", "error")
    for n in range(20):
        api.get(f"/not-logged-{n}")
    put(api, "log", "level", "info")
    suite.report.check("requests are logged again", wait_until(lambda: is_logged("logged-later")))
    suite.report.check("none was meanwhile", "not-logged" not in server.log())


def test_the_limits_of_reductions_count_at_once(server, suite):
    api = server.api()
    api.expect(201, "PUT", "/reductions")
    reduce = "function (keys, values) { return values }"
    view = {"views": {"v": {"map": "function (doc) { emit(null, 'x'.repeat(100)) }", "reduce": reduce}}}
    api.expect(201, "PUT", "/reductions/_design/d", view)
    api.expect(201, "POST", "/reductions/_bulk_docs", {"docs": [{"_id": str(n)} for n in range(60)]})

    def reduced():
        return "error" not in str(api.get("/reductions/_design/d/_view/v").json)

    section = "query_server_config"
    suite.report.check("a reduction that does not shrink is refused", not reduced())
    for key, value, fits in (
        ("reduce_limit", "false", True),
        ("reduce_limit", "true", False),
        ("reduce_limit_threshold", "1000000", True),
        ("reduce_limit_threshold", "5000", False),
        ("reduce_limit_ratio", "0.5", True),
        ("reduce_limit_ratio", "2.0", False),
    ):
        put(api, section, key, value)
        suite.report.equal(f"{key} = {value}", reduced(), fits)


def test_background_builds_can_be_turned_off_and_on(server, suite):
    api = server.api()
    put(api, "ken", "enable", "false")
    api.expect(201, "PUT", "/background?q=1")
    api.expect(201, "PUT", "/background/_design/d", {"views": {"v": {"map": "function (doc) { emit(null) }"}}})
    api.expect(201, "PUT", "/background/a", {})

    def indexed():
        info = api.get("/background/_design/d/_info").json["view_index"]
        return int(str(info["update_seq"]).split("-")[0])

    waiting = "/_node/_local/_stats/settee/databases_to_index"
    suite.report.check("the background has been there", wait_until(lambda: api.get(waiting).json["value"] == 0))
    suite.report.check("nothing is built", not wait_until(lambda: indexed() > 0, 2), indexed())
    put(api, "ken", "enable", "true")
    api.expect(201, "PUT", "/background/b", {})
    suite.report.check("the index is built without a query", wait_until(lambda: indexed() == 3))


def test_names_that_no_file_can_hold_are_refused(server, suite):
    api = server.api()
    for section in ("uuids", "admins"):
        for key in ("a%0Ab", "a%00b", "a%5Db"):
            suite.report.equal(f"{section}/{key}", put(api, section, key, "x").status, 400)


def test_files_are_read_again_at_an_interval(ctx):
    with ctx.server("reload", options=["--set", "config/auto_reload_secs=1"]) as server:
        api = server.api()
        local = pathlib.Path(server.data) / "local.ini"
        local.write_text(local.read_text(encoding="utf-8") + "\n[uuids]\nalgorithm = utc_random\n", encoding="utf-8")
        ctx.report.check("the file is read again", wait_until(lambda: api.get("/_node/_local/_config/uuids/algorithm").json == "utc_random"))
        ctx.report.check("it counts", re.fullmatch("0[0-9a-f]{31}", api.get("/_uuids").json["uuids"][0]))
        # A file with an error changes nothing.
        local.write_text(local.read_text(encoding="utf-8").replace("utc_random", "nonsense"), encoding="utf-8")
        ctx.report.check("the error is logged", wait_until(lambda: "the old configuration stays in force" in server.log()))
        ctx.report.equal("the old value", api.get("/_node/_local/_config/uuids/algorithm").json, "utc_random")
        # Turned off, and at once.
        put(api, "config", "auto_reload_secs", "infinity")


def test_a_higher_limit_brings_in_documents_that_were_left_out(ctx):
    with ctx.server("limits", options=["--set", "functions/emit_rows_limit=10"]) as server:
        api = server.api()
        api.expect(201, "PUT", "/limits?q=1")
        api.expect(201, "PUT", "/limits/_design/d", {"views": {"v": {"map": "function (doc) { for (var n = 0; n < doc.n; n++) emit(n) }"}}})
        api.expect(201, "POST", "/limits/_bulk_docs", {"docs": [{"_id": "few", "n": 3}, {"_id": "many", "n": 20}]})

        def rows():
            return api.expect(200, "GET", "/limits/_design/d/_view/v")["total_rows"]

        ctx.report.equal("one document is left out", rows(), 3)
        for limit, wanted, said in ((10, 3, 1), (15, 3, 1), (20, 23, 0)):
            server.stop()
            server.options = ["--set", f"functions/emit_rows_limit={limit}"]
            server.restart()
            api = server.api()
            ctx.report.equal(f"with a limit of {limit}", rows(), wanted)
            found = [f for f in api.expect(200, "GET", "/_settee/doctor")["findings"] if "documents out" in str(f)]
            ctx.report.equal(f"findings with a limit of {limit}", len(found), said)
