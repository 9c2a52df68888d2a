"""What the suites of kivik, PHP-on-Couch and CouchDB's main branch request, and other suites here do not.
The expected answers are those of CouchDB, except where a check says so."""

import pytest

from harness.accounts import make_user
from harness.api import exchange

pytestmark = [pytest.mark.quick, pytest.mark.may_be_retried]


@pytest.fixture(scope="module")
def server(suite):
    with suite.server() as server:
        yield server
        suite.report.check("no panic", "panicked" not in server.log(), server.log()[-1500:])


@pytest.fixture
def api(server):
    return server.api()


def first_line(api, target, host="127.0.0.1"):
    sent = f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    return exchange(api.host, api.port, sent.encode())


def test_a_target_may_be_the_url_that_a_client_was_given(suite, api):
    """PHP-on-Couch follows feeds with the URL of the database as target, credentials included."""
    found = {
        target: first_line(api, target).status
        for target in (
            "http://127.0.0.1/",
            "http://name:password@127.0.0.1:5984/",
            "http://name@localhost/",
            "http://name:password@127.0.0.1/_all_dbs",
            "http://a@b@127.0.0.1/",
            "http://name@a,b/",
        )
    }
    # CouchDB accepts any host: the last one is 200 there.
    suite.report.equal("targets that name a host", list(found.values()), [200, 200, 200, 401, 200, 400])
    own = first_line(api, "http://admin:admin@127.0.0.1/_session")
    suite.report.equal("their credentials are not used", own.json["userCtx"]["name"], None)


def test_only_server_admins_learn_whether_they_delete_a_database(suite, server, api):
    api.expect(201, "PUT", "/there")
    make_user(api, "ann", "ann")
    for who, credentials in (("nobody", ""), ("a user", "ann:ann")):
        other = server.api(credentials=credentials)
        answers = [other.delete(f"/{name}") for name in ("there", "missing", "Invalid")]
        told = {(answer.status, answer.json.get("reason")) for answer in answers}
        suite.report.equal(f"{who} deletes", told, {(401, "You are not a server admin.")})
    suite.report.equal("an admin deletes", [api.delete(f"/{name}").status for name in ("there", "missing", "Invalid")], [200, 404, 404])


def test_global_changes_is_for_server_admins(suite, server, api):
    make_user(api, "bob", "bob")
    api.expect(200, "PUT", "/_global_changes/_security", {"members": {"names": ["bob"]}})
    paths = ("", "/_security", "/_index", "/_all_docs")
    for state in ("it exists", "it was deleted"):
        for who, credentials in (("nobody", ""), ("a member", "bob:bob")):
            other = server.api(credentials=credentials)
            told = {(answer.status, answer.json.get("reason")) for answer in (other.get(f"/_global_changes{path}") for path in paths)}
            suite.report.equal(f"{state}: {who} reads", told, {(401, "You are not a server admin.")})
        api.delete("/_global_changes")


def test_a_search_without_an_update_of_an_index_that_was_never_built(suite, api):
    api.expect(201, "PUT", "/unbuilt")
    index = "function(doc) { if (doc.s) index('string', 's', doc.s); }"
    design = {"autoupdate": False, "nouveau": {"i": {"default_analyzer": "standard", "index": index}}}
    api.expect(201, "PUT", "/unbuilt/_design/d", design)
    path = "/unbuilt/_design/d/_nouveau/i"
    missing = [api.get(f"{path}?q=*:*&update=false"), api.post(path, {"q": "*:*", "update": False})]
    suite.report.equal("before the first build", {(answer.status, answer.json.get("reason")) for answer in missing}, {(404, "Index does not exist")})
    suite.report.equal("the first build", api.expect(200, "GET", f"{path}?q=*:*")["total_hits"], 0)
    api.expect(201, "PUT", "/unbuilt/a", {"s": "x"})
    suite.report.equal("after it", api.expect(200, "GET", f"{path}?q=*:*&update=false")["total_hits"], 0)


def test_keys_that_queries_of_text_indexes_examine(suite, api):
    api.expect(201, "PUT", "/counted")
    api.expect(201, "POST", "/counted/_bulk_docs", {"docs": [{"name": "Ann"}, {"name": "Ann", "n": 1}, {"name": "Bob"}]})
    found = {}
    for kind in ("text", "nouveau"):
        made = api.expect(200, "POST", "/counted/_index", {"type": kind, "ddoc": kind, "index": {"fields": [{"name": "name", "type": "string"}]}})
        selector = {"name": "Ann", "n": {"$exists": False}}
        answer = api.expect(200, "POST", "/counted/_find", {"selector": selector, "execution_stats": True, "use_index": kind})
        stats = answer["execution_stats"]
        found[kind] = [stats[f"total_{what}_examined"] for what in ("keys", "docs")] + [stats["results_returned"]]
        api.expect(200, "DELETE", f"/counted/_index/_design/{kind}/{kind}/{made['name']}")
    # CouchDB counts the hits of Clouseau as keys, but not those of Nouveau.
    suite.report.equal("keys, documents, results", found, {"text": [2, 2, 1], "nouveau": [0, 2, 1]})
