"""What CouchDB 3.5 answers where the vectors are silent: parameters, partitions, odd but legal HTTP, configuration. The scenarios
are data: a name, the database's options, and steps of (request, status, what the answer holds)."""

import base64
import gzip
import json
import re
import socket

import pytest

from harness.api import ask
from harness.server import wait_until

pytestmark = [pytest.mark.quick, pytest.mark.may_be_retried, pytest.mark.costly_hashes]

DOCS = [{"_id": f"d{i}", "n": i} for i in range(4)]
VIEWS = {
    "views": {
        "plain": {"map": "function(doc) { if ('n' in doc) emit(doc.n, null); }"},
        "sums": {"map": "function(doc) { if ('n' in doc) emit(doc.n, doc.n); }", "reduce": "_sum"},
    }
}
LIST_OF_IDS = "function() { var row, ids = []; while ((row = getRow())) ids.push(row.id); return JSON.stringify(ids); }"
PARTITIONED = [{"_id": f"{p}:{i}", "n": i} for p in ("a", "b") for i in range(3)]
# Of {"_attachments": {"f": {"data": "eA=="}}}.
ATTACHED = "1-013f72f30532d83f5a6285fd068d4035"
ILLEGAL_ID = {"error": "illegal_docid", "reason": "Doc id must be of form partition:id"}


def ids(*expected):
    """The answer's rows are of these documents, in this order."""
    return lambda body: [row.get("id") for row in body["rows"]] == list(expected)


def bad(error, reason):
    return {"error": error, "reason": reason}


def parse_error(reason):
    return bad("query_parse_error", reason)


def offset(number, *expected):
    """These rows, and the offset."""
    return lambda body: body["offset"] == number and ids(*expected)(body)


def keys(*expected):
    """The answer's rows have these keys, in this order."""
    return lambda body: [row["key"] for row in body["rows"]] == list(expected)


def first_of_queries(holds):
    return lambda body: holds(body["results"][0])


TEAMS = [{"_id": doc_id, "team": team} for doc_id, team in (("a", "eng"), ("b", "sales"), ("c", "eng"), ("d", "hr"))]
BY_TEAM = {"views": {"team": {"map": "function(doc) { emit(doc.team, 1); }", "reduce": "_count"}}}
HR_ENG = "keys=%5B%22hr%22%2C%22eng%22%5D"
KEYS_WITH_RANGE = parse_error("`keys` is incompatible with `key`, `start_key` and `end_key`")
GROUP_AND_NONE = parse_error("Can't specify group=false and group_level>0 at the same time")

# Of each: name, parameters of the database's creation, documents, steps. `{db}` stands for the database.
SCENARIOS = [
    (
        "the query string counts more than the body",
        "",
        DOCS,
        [
            ("POST /{db}/_all_docs?limit=1", {"limit": 2}, 200, ids("_design/v")),
            ("POST /{db}/_design/v/_view/plain?limit=1", {"limit": 2, "descending": True}, 200, ids("d3")),
            ("POST /{db}/_all_docs", {"keys": ["d1", "d2"], "limit": 1}, 200, ids("d1")),
        ],
    ),
    (
        "of two equal parameters the later counts",
        "",
        DOCS,
        [
            ("GET /{db}/_all_docs?limit=3&limit=1&start_key=%22d1%22", None, 200, ids("d1")),
            ("GET /{db}/_design/v/_view/plain?startkey=2&key=1", None, 200, ids("d1")),
            ("GET /{db}/_all_docs?key=%22d1%22&start_key=%22d0%22", None, 200, ids("d0", "d1")),
            ("GET /_all_dbs?limit=5&limit=0", None, 200, []),
        ],
    ),
    *(
        (
            f"descending turns the order of keys, but not of their groups: {q}",
            f"?{q}",
            [],
            [
                ("POST /{db}/_bulk_docs", {"docs": TEAMS}, 201, None),
                ("PUT /{db}/_design/t", BY_TEAM, 201, None),
                (f"GET /{{db}}/_design/t/_view/team?reduce=false&descending=true&{HR_ENG}", None, 200, holds("c", "a", "d")),
                ("POST /{db}/_design/t/_view/team?descending=true", {"reduce": False, "keys": ["hr", "eng"]}, 200, holds("c", "a", "d")),
                (
                    "POST /{db}/_design/t/_view/team/queries",
                    {"queries": [{"reduce": False, "descending": True, "keys": ["hr", "eng"]}]},
                    200,
                    first_of_queries(holds("c", "a", "d")),
                ),
                (f"GET /{{db}}/_design/t/_view/team?reduce=false&descending=true&skip=1&limit=1&{HR_ENG}", None, 200, ids("a")),
                (f"GET /{{db}}/_design/t/_view/team?reduce=false&{HR_ENG}", None, 200, ids("d", "a", "c")),
                (f"GET /{{db}}/_design/t/_view/team?group=true&{HR_ENG}", None, 200, keys("hr", "eng")),
                (f"GET /{{db}}/_design/t/_view/team?group=true&descending=true&{HR_ENG}", None, 200, keys("hr", "eng")),
            ],
        )
        for q, holds in (("q=1", lambda *rows: offset(2, *rows)), ("q=2", ids), ("q=4", ids))
    ),
    (
        "offsets of several keys are sums over shards",
        "?q=2",
        [],
        [
            ("POST /{db}/_bulk_docs", {"docs": [{"_id": doc_id} for doc_id in "abc"]}, 201, None),
            ("PUT /{db}/_design/k", {"views": {"ids": {"map": "function(doc) { emit(doc._id, null); }"}}}, 201, None),
            ("POST /{db}/_design/k/_view/ids/queries", {"queries": [{"keys": ["a", "c"]}]}, 200, first_of_queries(offset(1, "a", "c"))),
            (
                "POST /{db}/_design/k/_view/ids/queries",
                {"queries": [{"keys": ["a", "c"], "limit": 1, "skip": 1}]},
                200,
                first_of_queries(offset(2, "c")),
            ),
            ("GET /{db}/_design/k/_view/ids?keys=%5B%22x%22%2C%22y%22%5D", None, 200, offset(3)),
        ],
    ),
    (
        "keys and a range are not asked for together",
        "",
        DOCS,
        [
            *(
                (f"GET /{{db}}/{path}?{query}", None, 400, KEYS_WITH_RANGE)
                for path in ("_all_docs", "_design_docs", "_local_docs", "_design/v/_view/plain", "_design/v/_view/sums")
                for name in ("key", "startkey", "start_key", "endkey", "end_key")
                for query in (
                    f"group={str('sums' in path).lower()}&keys=%5B1,2%5D&{name}=1",
                    f"group={str('sums' in path).lower()}&{name}=1&keys=%5B1,2%5D",
                )
            ),
            *(
                (f"POST /{{db}}/{path}{query}", body, 400, KEYS_WITH_RANGE)
                for path in ("_all_docs", "_design/v/_view/plain")
                for query, body in (
                    ("?startkey=1", {"keys": [1, 2]}),
                    ("", {"keys": [1, 2], "end_key": 1}),
                    ("/queries", {"queries": [{"keys": [1, 2], "key": 1}]}),
                    ("/queries?startkey=1", {"queries": [{}, {"keys": [1, 2]}]}),
                )
            ),
            *(
                (f"GET /{{db}}/{path}?keys=%5B%22d0%22%5D&startkey=%22d1%22", None, 400, KEYS_WITH_RANGE)
                for path in ("_all_docs", "_design_docs", "_local_docs")
            ),
            ("GET /{db}/_all_docs?key=%22d0%22&keys=%5B%22d1%22%5D", None, 200, offset(None, "d1")),
            ("POST /{db}/_all_docs", {"keys": ["d1"]}, 200, offset(None, "d1")),
            ("GET /{db}/_design/v/_view/plain?keys=%5B1%5D&startkey=0", None, 200, ids("d0", "d1")),
            ("GET /{db}/_design/v/_view/plain?keys=%5B%5D&startkey=0", None, 200, ids()),
            ("GET /{db}/_all_docs?keys=%5B%5D&startkey=%22d0%22", None, 200, ids()),
            ("POST /{db}/_all_docs/queries?keys=%5B%22d0%22%2C%22d1%22%5D", {"queries": [{"limit": 1}]}, 200, first_of_queries(ids("_design/v"))),
            ("POST /{db}/_design/v/_view/plain/queries?keys=%5B0,1%5D", {"queries": [{"limit": 1, "skip": 2}]}, 200, first_of_queries(ids("d2"))),
        ],
    ),
    (
        "a group level counts more than group",
        "",
        DOCS,
        [
            (
                "PUT /{db}/_design/g",
                {"views": {"pairs": {"map": "function(doc) { if ('n' in doc) emit([doc.n % 2, doc.n], 1); }", "reduce": "_count"}}},
                201,
                None,
            ),
            *(
                (f"GET /{{db}}/_design/g/_view/pairs?{query}", None, 200, keys([0], [1]))
                for query in ("group=true&group_level=1", "group_level=1&group=true")
            ),
            *(
                (f"GET /{{db}}/{path}?{query}", None, 400, GROUP_AND_NONE)
                for path in ("_design/g/_view/pairs", "_all_docs")
                for query in ("group=false&group_level=2", "group_level=2&group=false")
            ),
            ("POST /{db}/_design/g/_view/pairs?group=false", {"group_level": 2}, 400, GROUP_AND_NONE),
            ("GET /{db}/_design/g/_view/pairs?group=true&group_level=0", None, 200, keys(None)),
            ("GET /{db}/_design/g/_view/pairs?group=false&group_level=0", None, 200, keys(None)),
            ("POST /{db}/_design/g/_view/pairs/queries?group=true", {"queries": [{}]}, 200, first_of_queries(keys(None))),
            ("GET /{db}/_all_docs?group=true", None, 400, parse_error("Invalid use of grouping on a map view.")),
        ],
    ),
    (
        "a reduction that does not shrink costs the others nothing",
        "",
        [],
        [
            (
                "POST /{db}/_bulk_docs",
                {"docs": [{"_id": f"{i}", "g": "big", "text": "x" * 3000} for i in range(9)] + [{"_id": "s", "g": "small", "text": "x"}]},
                201,
                None,
            ),
            (
                "PUT /{db}/_design/o",
                {"views": {"texts": {"map": "function(doc) { emit(doc.g, doc.text); }", "reduce": "function(keys, values) { return values; }"}}},
                201,
                None,
            ),
            *(
                (
                    f"GET /{{db}}/_design/o/_view/texts?{query}",
                    None,
                    200,
                    lambda body, small=small: (
                        [(row.get("key"), row.get("error", row.get("value")), row.get("reason", "")[:39]) for row in body["rows"]]
                        == [(None, "reduce_overflow_error", "Reduce output must shrink more rapidly:"), *small]
                    ),
                )
                for query, small in (("group=true", [("small", [["x"]], "")]), ("", []), ("endkey=%22big%22", []), ("group=true&limit=1", []))
            ),
        ],
    ),
    (
        "more replicas than there are",
        "",
        [],
        [
            ("POST /{db}/_bulk_docs?w=2", {"docs": [{"_id": "a"}]}, 202, lambda body: body[0]["ok"] and body[0]["accepted"]),
            ("POST /{db}/_bulk_docs?w=2", {"docs": [{"_id": "a"}]}, 201, lambda body: body[0]["error"] == "conflict" and "accepted" not in body[0]),
            ("POST /{db}/_bulk_docs?w=1", {"docs": [{"_id": "b"}]}, 201, lambda body: "accepted" not in body[0]),
        ],
    ),
    (
        "deletions",
        "",
        [],
        [
            ("POST /{db}", {"_id": "a", "_deleted": True}, 201, {"ok": True, "id": "a"}),
            ("PUT /{db}/b", {"_deleted": True}, 200, {"ok": True, "id": "b"}),
            ("GET /{db}/a", None, 404, bad("not_found", "deleted")),
        ],
    ),
    (
        "parameters of wrong kinds",
        "",
        DOCS,
        [
            *(
                (f"GET /{{db}}/{path}?{query}", None, 400, parse_error(reason))
                for path in ("_all_docs", "_design/v/_view/plain")
                for query, reason in (
                    ("limit=x", 'Invalid value for integer: "x"'),
                    ("limit=", "Invalid value for integer: []"),
                    ("skip=-1", 'Invalid value for positive integer: "-1"'),
                    ("descending=", "Invalid boolean parameter: []"),
                    ("include_docs=1", 'Invalid boolean parameter: "1"'),
                    ("stale=x", "Invalid value for `stale`."),
                    ("update=x", "Invalid value for `update`."),
                    ("stable=x", "Invalid value for `stable`."),
                )
            ),
            ("GET /{db}/_design/v/_view/plain?reduce=FALSE&limit=1&descending=TRUE", None, 200, ids("d3")),
            ("GET /{db}/_design/v/_view/sums?conflicts=true", None, 400, parse_error("`conflicts` is invalid for reduce views.")),
            ("GET /{db}/_design/v/_view/plain?keys=1", None, 400, parse_error("`keys` must be an array of strings.")),
            ("POST /{db}/_design/v/_view/plain", {"keys": 1}, 400, bad("bad_request", "`keys` member must be an array.")),
            ("POST /{db}/_all_docs", {"keys": 1}, 400, bad("bad_request", "`keys` body member must be an array.")),
            (
                "POST /{db}/_design/v/_view/plain",
                {"queries": [{}]},
                400,
                bad("bad_request", "The `queries` parameter is no longer supported at this endpoint"),
            ),
            ("GET /{db}/_all_docs?skip=99999999999999999999", None, 200, ids()),
            ("GET /{db}/_all_docs?partition=a", None, 400, parse_error("`partition` parameter is not supported on this db")),
            ("GET /{db}/_design/v/_view/plain/x", None, 405, {"error": "method_not_allowed"}),
        ],
    ),
    (
        "limits of queries",
        "",
        DOCS,
        [
            (f"GET /{{db}}/_design/v/_view/plain?limit={2**59}", None, 400, parse_error(f"Limit is too large, must not exceed {2**59 - 1}")),
            ("PUT /{db}/_design/w", {"lists": {"ids": LIST_OF_IDS}}, 201, None),
            ("PUT /_node/_local/_config/query_server_config/query_limit", "2", 200, None),
            ("GET /{db}/_design/v/_view/plain", None, 200, ids("d0", "d1")),
            ("GET /{db}/_design/v/_view/plain?limit=3", None, 400, parse_error("Limit is too large, must not exceed 2")),
            *(
                (f"GET /{path}?limit=3", None, 400, parse_error("Limit is too large, must not exceed 2"))
                for path in ("{db}/_all_docs", "{db}/_design_docs", "{db}/_local_docs", "_all_dbs", "_dbs_info")
            ),
            ("GET /{db}/_all_docs", None, 200, ids("_design/v", "_design/w")),
            ("GET /{db}/_all_docs?limit=1", None, 200, ids("_design/v")),
            (f"GET /{{db}}/_all_docs?limit={2**59 - 1}", None, 200, ids("_design/v", "_design/w")),
            ("POST /{db}/_all_docs", {"keys": ["d1", "d2", "d3"]}, 200, ids("d1", "d2")),
            ("POST /{db}/_all_docs", {"limit": 3}, 400, parse_error("Limit is too large, must not exceed 2")),
            ("POST /{db}/_all_docs/queries", {"queries": [{}]}, 200, first_of_queries(ids("_design/v", "_design/w"))),
            ("POST /{db}/_all_docs/queries", {"queries": [{"limit": 3}]}, 400, parse_error("Limit is too large, must not exceed 2")),
            ("POST /{db}/_design/v/_view/plain/queries", {"queries": [{}]}, 200, first_of_queries(ids("d0", "d1"))),
            ("GET /{db}/_design/w/_list/ids/v/plain", None, 200, ["d0", "d1"]),
            ("GET /{db}/_design/w/_list/ids/_all_docs", None, 200, ["_design/v", "_design/w"]),
            ("GET /_all_dbs", None, 200, lambda body: len(body) == 2),
            ("DELETE /_node/_local/_config/query_server_config/query_limit", None, 200, "2"),
        ],
    ),
    (
        "limits of queries of a partition",
        "?partitioned=true",
        PARTITIONED,
        [
            ("PUT /_node/_local/_config/query_server_config/partition_query_limit", "2", 200, None),
            ("GET /{db}/_partition/a/_all_docs", None, 200, ids("a:0", "a:1")),
            ("GET /{db}/_all_docs?partition=a&limit=3", None, 400, parse_error("Limit is too large, must not exceed 2")),
            ("GET /{db}/_partition/a/_design/v/_view/plain", None, 200, ids("a:0", "a:1")),
            ("GET /{db}/_partition/a/_design/v/_view/plain?limit=3", None, 400, parse_error("Limit is too large, must not exceed 2")),
            ("GET /{db}/_all_docs?limit=3", None, 200, ids("_design/v", "a:0", "a:1")),
            ("DELETE /_node/_local/_config/query_server_config/partition_query_limit", None, 200, "2"),
        ],
    ),
    (
        "a partition as a parameter",
        "?partitioned=true",
        PARTITIONED,
        [
            ("GET /{db}/_all_docs?partition=a", None, 200, ids("a:0", "a:1", "a:2")),
            ("GET /{db}/_design/v/_view/plain?partition=b&limit=2", None, 200, ids("b:0", "b:1")),
            ("GET /{db}/_partition/a/_all_docs?partition=a&limit=1", None, 200, ids("a:0")),
            ("GET /{db}/_partition/a/_all_docs?partition=b", None, 400, bad("bad_request", "Conflicting value for `partition` in query string")),
            ("GET /{db}/_all_docs?partition=", None, 400, parse_error("Invalid value for `partition`.")),
            ("GET /{db}/_partition/a/_design/v/_info", None, 200, {"name": "v"}),
            ("GET /{db}/_partition/a/_design/v", None, 404, bad("not_found", "missing")),
            ("GET /{db}/_partition/a/a:0", None, 404, bad("not_found", "missing")),
            ("HEAD /{db}/_partition/a", None, 200, None),
            ("POST /{db}/_partition/_a", {}, 400, bad("illegal_partition", "Partition must not start with an underscore")),
            # CouchDB skips the empty name too.
            ("GET /{db}/_partition//_design/d/_view/v", None, 400, bad("illegal_partition", "Partition must not start with an underscore")),
            ("GET /{db}/_partition/a/b/c", None, 404, {"error": "not_found"}),
            ("PUT /{db}/_design/g", {"options": {"partitioned": False}, **VIEWS}, 201, None),
            ("GET /{db}/_partition/a/_design/g/_view/plain", None, 400, parse_error("`partition` parameter is not supported in this design doc")),
        ],
    ),
    (
        "ids without a partition",
        "?partitioned=true",
        PARTITIONED,
        [
            ("GET /{db}/x", None, 400, ILLEGAL_ID),
            ("PUT /{db}/x", {}, 400, ILLEGAL_ID),
            ("POST /{db}/_purge", {"x": ["1-a"]}, 400, ILLEGAL_ID),
            ("POST /{db}/_revs_diff", {"x": ["1-a"]}, 400, ILLEGAL_ID),
            (
                "POST /{db}/_bulk_get",
                {"docs": [{"id": "x", "rev": "1-a"}]},
                200,
                {"results": [{"id": "x", "docs": [{"error": {"id": "x", "rev": None, **ILLEGAL_ID}}]}]},
            ),
        ],
    ),
    (
        "a full partition",
        "?partitioned=true&q=1",
        [],
        [
            ("PUT /_node/_local/_config/couchdb/max_partition_size", "2000", 200, None),
            ("POST /{db}/_bulk_docs", {"docs": [{"_id": f"a:{i}", "text": "x" * 1000} for i in range(3)]}, 201, None),
            ("PUT /{db}/a:3", {}, 403, bad("partition_overflow", "Partition limit exceeded due to update on 'a:3'")),
            (
                "POST /{db}/_bulk_docs",
                {"docs": [{"_id": "a:3"}, {"_id": "b:0"}]},
                201,
                lambda body: body[0]["error"] == "partition_overflow" and body[1].get("ok") is True,
            ),
            ("PUT /{db}/a:4?new_edits=false", {"_rev": "1-00000000000000000000000000000001"}, 201, None),
            ("PUT /{db}/_design/more", {}, 201, None),
            ("GET /{db}/a:0", None, 200, {"_id": "a:0"}),
            ("PUT /_node/_local/_config/couchdb/max_partition_size", "1000000", 200, "2000"),
            ("PUT /{db}/a:3", {}, 201, None),
            ("DELETE /_node/_local/_config/couchdb/max_partition_size", None, 200, "1000000"),
        ],
    ),
    (
        "what a database may not be created with",
        "",
        [],
        [
            *(
                (f"PUT /{{db}}x?{query}", None, 400, bad("bad_request", reason))
                for query, reason in (
                    ("q=0", "The `q` value should be a positive integer."),
                    ("n=x", "The `n` value should be a positive integer."),
                    ("placement=x", "The `placement` value should be in a format `zone:n`."),
                    ("engine=x", "invalid_engine_extension"),
                    ("partitioned=TRUE", "Invalid `partitioned` parameter"),
                )
            ),
            ("PUT /{db}%2F_users?partitioned=true", None, 400, bad("bad_request", "Cannot partition a system database")),
            ("DELETE /{db}nope?rev=1-a", None, 400, {"error": "bad_request"}),
        ],
    ),
    (
        "HEAD goes wherever GET goes",
        "",
        DOCS,
        [
            *(
                (f"HEAD /{{db}}/{path}", None, 200, None)
                for path in (
                    "_security",
                    "_revs_limit",
                    "_purged_infos_limit",
                    "_purged_infos",
                    "_shards",
                    "_local_docs",
                    "_design/v/_info",
                    "_design/v/_view/plain",
                )
            ),
            ("HEAD /{db}/_bulk_docs", None, 405, None),
        ],
    ),
    (
        "_bulk_get",
        "",
        DOCS,
        [
            *(
                (f"POST /{{db}}/_bulk_get?{name}=1-a", {"docs": []}, 400, bad("bad_request", f'"{name}" query parameter is not acceptable'))
                for name in ("rev", "open_revs", "new_edits", "w", "atts_since")
            ),
            ("POST /{db}/_bulk_get?revs=true&latest=true", {"docs": []}, 200, {"results": []}),
        ],
    ),
    (
        "purges",
        "",
        DOCS,
        [
            ("PUT /{db}/_purged_infos_limit", 0, 400, bad("bad_request", "`purged_infos_limit` must be positive integer")),
            ("POST /{db}/_purged_infos_limit", 1, 405, bad("method_not_allowed", "Only GET,PUT allowed")),
            ("POST /{db}/_purge", {str(i): ["1-a"] for i in range(101)}, 201, {"purge_seq": None, "purged": {str(i): [] for i in range(101)}}),
            ("POST /{db}/_purge", {"d0": [f"{i}-a" for i in range(1, 1002)]}, 201, {"purge_seq": None, "purged": {"d0": []}}),
        ],
    ),
    (
        "changes",
        "",
        DOCS,
        [
            ("GET /{db}/_changes?heartbeat=-1", None, 400, bad("bad_request", "The heartbeat value should be a positive integer (in milliseconds).")),
            (
                "GET /{db}/_changes?heartbeat=x",
                None,
                400,
                bad("bad_request", "Invalid heartbeat value. Expecting a positive integer value (in milliseconds)."),
            ),
            ("GET /{db}/_changes?feed=", None, 400, {"error": "bad_request"}),
            ("GET /{db}/_changes?filter=_selector", None, 400, bad("bad_request", "Selector must be specified in POST payload")),
            ("POST /{db}/_changes?filter=_selector", {}, 400, bad("bad_request", "Selector error: expected a JSON object")),
            *(
                (f"GET /{{db}}/_changes?filter={name}", None, 400, bad("bad_request", "unknown builtin filter name"))
                for name in ("_foo", "_foo/bar", "_")
            ),
        ],
    ),
    (
        "configuration",
        "",
        [],
        [
            *(
                (f"PUT /_node/_local/_config/{section}/x", "y", 403, bad("forbidden", "Config section blacklisted for modification over HTTP API."))
                for section in ("daemons", "httpd_global_handlers", "kafka", "query_servers", "native_query_servers")
            ),
            *(
                (f"{method} /_node/_local/_config/{name}", value, 403, {"error": "forbidden"})
                for name in ("log/file", "log/slow_file", "ssl/key_file", "couchdb/database_dir", "backup/target", "tracing/otlp_endpoint")
                for method, value in (("PUT", "/tmp/x"), ("PUT", ""), ("DELETE", None))
            ),
            ("PUT /_node/_local/_config/log/level", "info", 200, None),
            ("GET /_node", None, 400, bad("bad_request", "Incomplete path to _node request")),
            ("POST /_node/_local/_stats", {}, 405, bad("method_not_allowed", "Only GET allowed")),
            ("PUT /_node/_local/_config/couchdb/maintenance_mode", "nolb", 200, None),
            ("GET /_up", None, 404, {"status": "nolb"}),
            ("DELETE /_node/_local/_config/couchdb/maintenance_mode", None, 200, "nolb"),
            ("GET /_up", None, 200, {"status": "ok"}),
            ("PUT /_node/_local/_config/chttpd/decode_plus_to_space", "false", 200, None),
            ("PUT /{db}/a+b", {}, 201, {"id": "a+b"}),
            ("DELETE /_node/_local/_config/chttpd/decode_plus_to_space", None, 200, "false"),
            ("GET /{db}/a+b", None, 404, None),
            ("GET /{db}/a%2Bb", None, 200, {"_id": "a+b"}),
        ],
    ),
    (
        "rewrites without an end",
        "",
        [],
        [
            ("PUT /{db}/_design/l", {"rewrites": [{"from": "loop", "to": "_rewrite/loop"}]}, 201, None),
            ("PUT /{db}/_design/f", {"rewrites": "function(req) { return {path: '../../_design/f/_rewrite/x'}; }"}, 201, None),
            ("PUT /_node/_local/_config/chttpd/rewrite_limit", "1000", 200, None),
            ("GET /{db}/_design/l/_rewrite/loop", None, 400, {"error": "bad_request"}),
            ("GET /{db}/_design/f/_rewrite/loop", None, 400, {"error": "bad_request"}),
            ("DELETE /_node/_local/_config/chttpd/rewrite_limit", None, 200, "1000"),
        ],
    ),
    (
        "counts of documents in a request",
        "",
        DOCS,
        [
            *(
                step
                for limit, path in (("max_bulk_docs_count", "_bulk_docs"), ("max_bulk_get_count", "_bulk_get"))
                for step in (
                    (f"PUT /_node/_local/_config/couchdb/{limit}", "1", 200, None),
                    (f"POST /{{db}}/{path}", {"docs": [{"id": "d0"}, {"id": "d1"}]}, 413, bad(f"{limit}_exceeded", "1")),
                    (f"DELETE /_node/_local/_config/couchdb/{limit}", None, 200, "1"),
                )
            ),
        ],
    ),
    (
        "the latest of a document is its winner, of whatever branch the revision is",
        "",
        [],
        [
            *(
                ("POST /{db}/_bulk_docs", {"new_edits": False, "docs": [{"_id": "a", "n": n, "_revisions": {"start": start, "ids": ids}}]}, 201, [])
                for n, start, ids in (("short", 2, ["b2", "1"]), ("long", 3, ["c3", "c2", "1"]))
            ),
            *((f"GET /{{db}}/a?rev={rev}&latest=true", None, 200, {"_rev": "3-c3", "n": "long"}) for rev in ("1-1", "2-b2", "3-c3", "9-x")),
            ("GET /{db}/a?latest=true", None, 200, {"_rev": "3-c3"}),
            ("GET /{db}/a?rev=2-b2", None, 200, {"_rev": "2-b2"}),
            ("GET /{db}/a?rev=x&latest=true", None, 400, bad("bad_request", "Invalid rev format")),
            (
                "POST /{db}/_bulk_get?latest=true",
                {"docs": [{"id": "a", "rev": "2-b2"}]},
                200,
                lambda body: body["results"][0]["docs"][0]["ok"]["_rev"] == "2-b2",
            ),
            ("PUT /{db}/gone", {}, 201, None),
            ("DELETE /{db}/gone?rev=1-967a00dff5e02add41819138abb3284d", None, 200, None),
            ("GET /{db}/gone?rev=1-967a00dff5e02add41819138abb3284d&latest=true", None, 404, bad("not_found", "deleted")),
            ("GET /{db}/none?rev=1-1&latest=true", None, 404, bad("not_found", "missing")),
        ],
    ),
    (
        "an attachment that is not there is not removed",
        "",
        [],
        [
            ("DELETE /{db}/a/f", None, 404, bad("not_found", "missing")),
            ("PUT /{db}/a", {"_attachments": {"f": {"data": "eA=="}}}, 201, {"rev": ATTACHED}),
            *(
                (f"DELETE /{{db}}/a/{name}", None, 404, bad("not_found", "Document is missing attachment"))
                for name in ("g", f"g?rev={ATTACHED}", f"F?rev={ATTACHED}")
            ),
            ("DELETE /{db}/a/g?rev=1-x", None, 409, bad("not_found", "missing_rev")),
            ("DELETE /{db}/a/f", None, 409, {"error": "conflict"}),
            ("GET /{db}/a", None, 200, {"_rev": ATTACHED}),
            (f"DELETE /{{db}}/a/f?rev={ATTACHED}", None, 200, {"ok": True, "id": "a"}),
            ("GET /{db}/a", None, 200, lambda body: body["_rev"].startswith("2-") and "_attachments" not in body),
            (f"DELETE /{{db}}/a/f?rev={ATTACHED}", None, 409, {"error": "conflict"}),
            ("DELETE /{db}/a/f", None, 404, bad("not_found", "Document is missing attachment")),
        ],
    ),
    (
        "local documents without a name",
        "",
        [],
        [
            *(
                (f"{method} /{{db}}/{path}", body, 400, bad("bad_request", "Invalid _local document id."))
                for path in ("_local", "_local/", "_local%2F", "_local%2f")
                for method, body in (("GET", None), ("PUT", {}), ("DELETE", None), ("POST", {}), ("COPY", None))
            ),
            ("PUT /{db}/_local/foo/bar", {}, 400, bad("bad_request", "_local documents do not accept attachments.")),
            ("PUT /{db}/_local%2Ffoo", {}, 201, {"id": "_local/foo"}),
        ],
    ),
    (
        "indexes below a partition",
        "?partitioned=true",
        PARTITIONED,
        [
            ("POST /{db}/_partition/a/_index", {"index": {"fields": ["n"]}, "ddoc": "i", "name": "n"}, 200, {"result": "created"}),
            ("GET /{db}/_partition/a/_index", None, 200, lambda body: [i["name"] for i in body["indexes"]] == ["_all_docs", "n"]),
            ("GET /{db}/_partition/a/_index?limit=1", None, 200, lambda body: len(body["indexes"]) == 1),
            ("DELETE /{db}/_partition/a/_index", None, 405, {"error": "method_not_allowed"}),
            ("GET /{db}/_partition/_a/_index", None, 400, {"error": "illegal_partition"}),
            ("GET /{db}/_partition/a/_index?partition=b", None, 400, bad("bad_request", "Conflicting value for `partition` in query string")),
            ("DELETE /{db}/_partition/a/_index/_design/i/json/n", None, 200, {"ok": True}),
            ("GET /{db}/_index", None, 200, lambda body: body["total_rows"] == 1),
        ],
    ),
    (
        "no partitions, no indexes below them",
        "",
        [],
        [
            ("GET /{db}/_partition/a/_index", None, 400, bad("bad_request", "database is not partitioned")),
        ],
    ),
    (
        "paths that are not well encoded",
        "",
        [],
        [
            ("GET /{db}/%zz", None, 400, bad("bad_request", "invalid_url_encoding")),
            ("GET /{db}/_changes?styl%FF=all_docs", None, 400, bad("bad_request", "The query is not valid UTF-8")),
            ("GET /{db}/_changes?heartbeat=%C3", None, 400, bad("bad_request", "The query is not valid UTF-8")),
            ("GET /{db}?x=%", None, 400, bad("bad_request", "invalid_url_encoding")),
        ],
    ),
]


def test_scenarios(ctx):
    server = ctx.server("scenarios").start()
    api = server.api()
    for number, (name, options, docs, steps) in enumerate(SCENARIOS):
        db = f"behaviour{number}"
        api.expect(201, "PUT", f"/{db}{options}")
        if docs:
            api.expect(201, "POST", f"/{db}/_bulk_docs", {"docs": docs})
            api.expect(201, "PUT", f"/{db}/_design/v", VIEWS)
        failures = [failure for step in steps if (failure := step_failure(api, db, step))]
        ctx.report.check(name, not failures, "\n".join(failures))


def step_failure(api, db, step):
    """What is wrong with the answer, or None."""
    request, body, status, holds = step
    method, path = request.replace("{db}", db).split(" ", 1)
    answer = api.request(method, path, json.dumps(body).encode() if isinstance(body, (str, int)) else body)
    if answer.status == status and holds_true(answer, holds):
        return None
    return f"{method} {path}: expected {status} {holds}, got {answer!r}"


def holds_true(answer, holds):
    if holds is None:
        return True
    body = answer.json
    if callable(holds):
        return holds(body)
    if isinstance(holds, dict):
        return all(body.get(key) == value for key, value in holds.items())
    return body == holds


def test_odd_http(ctx):
    server = ctx.server("odd").start()
    api, report = server.api(), ctx.report
    api.expect(201, "PUT", "/db")
    api.expect(201, "PUT", "/db/a", {"n": 1})

    mine = api.get("/", headers={"X-Couch-Request-ID": "E7498DE1-B661"}).headers["X-Couch-Request-ID"]
    other = api.get("/", headers={"X-Couch-Request-ID": "not; an id"}).headers["X-Couch-Request-ID"]
    report.check("a client may name its request", mine == "E7498DE1-B661" and re.fullmatch("[0-9a-f]{10}", other), [mine, other])

    for path in ("/_all_dbs", "/db/_changes", "/db/a"):
        etag = api.get(path).headers["ETag"]
        again = api.get(path, headers={"If-None-Match": f'"x", {etag}'})
        report.equal(f"{path} is not sent to who has it", (again.status, again.raw), (304, b""))

    for accept, kind in (
        ("application/json", "application/json"),
        ("text/html", "application/json"),
        ("*/*", "multipart/mixed"),
        ("application/json, multipart/mixed", "multipart/mixed"),
    ):
        answer = api.get("/db/a?open_revs=all", headers={"Accept": accept})
        report.equal(f"open_revs to who takes {accept}", answer.headers["Content-Type"].split(";")[0], kind)

    minimal = api.get("/db/a", headers={"Prefer": "return=minimal"}).headers
    report.check("headers to be done without are left out", "ETag" in minimal and "X-Couch-Request-ID" not in minimal, minimal)
    report.equal("an event source is not cached", api.get("/db/_changes?feed=eventsource&timeout=1").headers["Cache-Control"], "no-cache")

    off = api.get("/db/a?callback=f")
    report.equal("JSONP is off at first", (off.headers["Content-Type"], off.raw[:1]), ("application/json", b"{"))
    api.expect(200, "PUT", "/_node/_local/_config/chttpd/allow_jsonp", "true")
    for path in ("/db/a", "/db/_all_docs", "/db/_changes"):
        on = api.get(f"{path}?callback=f.g")
        called = re.fullmatch(rb"/\* CouchDB \*/f\.g\((.*)\);\n", on.raw, re.S)
        report.check(f"JSONP of {path}", on.headers["Content-Type"] == "application/javascript" and called and json.loads(called[1]), repr(on))
    report.equal("a callback is no script", api.get("/db/a?callback=f'").status, 400)

    zipped = gzip.compress(b'{"docs":[{"_id":"zipped"}]}')
    inflated = api.post("/db/_bulk_docs", zipped, headers={"Content-Encoding": "gzip"})
    report.equal("a body may be gzipped", (inflated.status, inflated.json[0].get("id")), (201, "zipped"))

    head = f"HTTP/1.1\r\nHost: x\r\nAuthorization: Basic {base64.b64encode(b'admin:admin').decode()}\r\n"
    for name, sent, statuses in (
        ("a PUT that announces no body", f"PUT /db/b {head}\r\n", [400]),
        ("a client that waits to be told is refused at once", f"POST /db/_bulk_docs {head}Content-Length: 2\r\nExpect: 100-continue\r\n\r\n", [415]),
        (
            "a client that waits to be told is told",
            f"PUT /db/c {head}Content-Length: 2\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n{{}}",
            [100, 201],
        ),
        (
            "a body in chunks",
            f"PUT /db/d {head}Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n1;x=y\r\n{{\r\n1\r\n}}\r\n0\r\nX: y\r\n\r\n",
            [201],
        ),
        (
            "requests one behind another, also behind an error",
            f"GET /db/a {head}\r\nPOST /db/_bulk_docs {head}Content-Length: 2\r\n\r\n{{}}GET /db/a {head}Connection: close\r\n\r\n",
            [200, 415, 200],
        ),
    ):
        got = [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+)", exchange(server, sent.encode(), len(statuses)))]
        report.equal(name, got, statuses)


# Headers by CouchDB's spelling, which clients that compare it look for.
SPELLINGS = {
    "Accept-Ranges",
    "Access-Control-Allow-Credentials",
    "Access-Control-Allow-Headers",
    "Access-Control-Allow-Methods",
    "Access-Control-Allow-Origin",
    "Access-Control-Expose-Headers",
    "Access-Control-Max-Age",
    "Allow",
    "Cache-Control",
    "Connection",
    "Content-Disposition",
    "Content-Encoding",
    "Content-Length",
    "Content-MD5",
    "Content-Range",
    "Content-Security-Policy",
    "Content-Type",
    "Date",
    "ETag",
    "Expires",
    "Location",
    "Pragma",
    "Server",
    "Server-Timing",
    "Set-Cookie",
    "Transfer-Encoding",
    "Vary",
    "WWW-Authenticate",
    "X-Content-Type-Options",
    "X-Couch-Request-ID",
    "X-Couch-Update-NewRev",
    "X-CouchDB-Body-Time",
    "X-Frame-Options",
}


def test_header_spelling(ctx):
    """Names of headers have CouchDB's spelling over HTTP/1.1, in every kind of answer."""
    with ctx.server("spelling") as server:
        api, report = server.api(), ctx.report
        for section, key, value in (
            ("chttpd", "enable_cors", "true"),
            ("cors", "origins", "*"),
            ("chttpd", "enable_xframe_options", "true"),
            ("chttpd", "WWW-Authenticate", 'Basic realm="x"'),
        ):
            api.expect(200, "PUT", f"/_node/_local/_config/{section}/{key}", value)
        api.expect(201, "PUT", "/db?q=1")
        api.expect(201, "PUT", "/db/a", {"_attachments": {"f": {"content_type": "image/x", "data": "eA=="}}})
        api.expect(
            201, "PUT", "/db/_design/d", {"updates": {"u": "function (doc) { return [{_id: 'made'}, {headers: {'x-own': '1'}, body: 'x'}]; }"}}
        )
        login = f"Authorization: Basic {base64.b64encode(b'admin:admin').decode()}\r\n"
        body = "Content-Type: application/json\r\nContent-Length: {}\r\n"
        seen = set()
        for name, head, sent in (
            ("a document", "GET /db/a", ""),
            ("its head", "HEAD /db/a", ""),
            ("one that is known", 'GET /db/a\nIf-None-Match: "1-x"', ""),
            ("a listing", "GET /db/_all_docs", ""),
            ("changes", "GET /db/_changes", ""),
            ("an attachment", "GET /db/a/f", ""),
            ("a range of it", "GET /db/a/f\nRange: bytes=0-0", ""),
            ("a write", "PUT /db/new", "{}"),
            ("a redirection", "GET /_utils", ""),
            ("a method that is none", "PATCH /db", ""),
            ("what is not there", "GET /no-such", ""),
            ("a page's question", "OPTIONS /db\nOrigin: http://x.example\nAccess-Control-Request-Method: PUT", ""),
            ("a page's request", "GET /db\nOrigin: http://x.example", ""),
            ("ids", "GET /_uuids", ""),
            ("a session", "POST /_session", '{"name":"admin","password":"admin"}'),
            ("an update", "PUT /db/_design/d/_update/u/x", "{}"),
            ("a stranger", "GET /_all_dbs", None),
            ("an event source", "GET /db/_changes?feed=eventsource&timeout=1", ""),
            ("no request", "GARBAGE", ""),
        ):
            line, *more = head.split("\n")
            credentials = login if sent is not None and "_session" not in line else ""
            extra = "".join(f"{header}\r\n" for header in more) + (body.format(len(sent)) if sent else "")
            text = f"{line} HTTP/1.1\r\nHost: x\r\n{credentials}{extra}Connection: close\r\n\r\n{sent or ''}"
            answer = exchange(server, text.encode(), 100).partition(b"\r\n\r\n")[0].decode()
            names = {header.split(":")[0] for header in answer.split("\r\n")[1:]}
            known = {spelling.lower(): spelling for spelling in SPELLINGS}
            wrong = {header for header in names if known.get(header.lower(), header.title()) != header}
            report.equal(f"{name}: {answer.splitlines()[0] if answer else ''}", wrong, set())
            seen |= names
        report.check("most are seen", len(SPELLINGS & seen) >= 24, sorted(SPELLINGS - seen))


def test_features(ctx):
    """`GET /` names what clients look for before they use it, as CouchDB 3.5 does."""
    with ctx.server("features") as server:
        features = server.api().get("/").json["features"]
        ctx.report.equal("features", features, ["search", "nouveau", "partitioned", "pluggable-storage-engines", "scheduler", "access"])


def test_ends_of_descending_feeds(ctx):
    """A feed that goes down ends at the seq of its last row; it begins at the newest, whatever `since` is."""
    with ctx.server("ends") as server:
        api, report = server.api(), ctx.report
        for shards in (1, 3):
            db = f"/feed{shards}"
            api.expect(201, "PUT", f"{db}?q={shards}")
            seqs = api.get(f"{db}/_changes?descending=true").json["last_seq"], api.get(db).json["update_seq"]
            report.equal("nothing has happened", *(seq.split("-")[0] for seq in seqs))
            for number in range(5):
                api.expect(201, "PUT", f"{db}/d{number}", {"n": number})
            now = api.get(f"{db}/_changes?since=now").json["last_seq"]
            last = api.get(f"{db}/_changes?descending=true&limit=1").json
            report.equal(f"q={shards}: the newest change ends at its seq", last["last_seq"], last["results"][0]["seq"])
            for bounds in ("", "&limit=1", "&limit=2", "&limit=0", "&since=now", f"&since={now}", "&filter=_doc_ids&doc_ids=%5B%22d1%22%5D"):
                feed = api.get(f"{db}/_changes?descending=true{bounds}").json
                of_last = feed["results"][-1]["seq"] if feed["results"] else now
                report.equal(f"q={shards}{bounds}: down to the last row", feed["last_seq"], of_last)
                report.check("which is not before all", not feed["last_seq"].startswith("0-"), feed["last_seq"])
            whole = api.get(f"{db}/_changes?descending=true&since={now}").json["results"]
            report.equal("a feed down has all changes, whatever since is", len(whole), 5)
            by_id = api.get(f"{db}/_changes?descending=true&since={now}&filter=_doc_ids&doc_ids=%5B%22d1%22%5D").json["results"]
            report.equal("also of some documents", [row["id"] for row in by_id], ["d1"])
        newest = api.get("/feed1/_changes?descending=true&limit=1").json
        report.equal("what follows it is new", api.get(f"/feed1/_changes?since={newest['last_seq']}").json["results"], [])


def test_seq_intervals(ctx):
    """Which rows have a seq is counted by what is left of the limit, 10^15 when there is none."""
    with ctx.server("intervals") as server:
        api, report = server.api(), ctx.report
        api.expect(201, "PUT", "/db?q=1")
        for number in range(5):
            api.expect(201, "PUT", f"/db/d{number}", {})
        for query, expected in (("", "01001"), ("&limit=5", "00100"), ("&limit=4", "0100"), ("&limit=3", "100")):
            rows = api.get(f"/db/_changes?seq_interval=3{query}").json["results"]
            report.equal(f"seq_interval=3{query}", "".join(str(int(row["seq"] is not None)) for row in rows), expected)


def test_purged_infos_limit(ctx):
    """A compaction forgets purges beyond the limit, as the next purge does."""
    with ctx.server("purges") as server:
        api, report = server.api(), ctx.report
        api.expect(201, "PUT", "/db?q=2")
        for number in range(20):
            rev = api.expect(201, "PUT", f"/db/{number}", {})["rev"]
            api.expect(201, "POST", "/db/_purge", {str(number): [rev]})
        infos = lambda: len(api.expect(200, "GET", "/db/_purged_infos")["purged_infos"])
        report.equal("all are remembered", infos(), 20)
        seq = api.get("/db").json["purge_seq"]
        api.expect(200, "PUT", "/db/_purged_infos_limit", 2)
        report.equal("the limit alone forgets nothing, as in CouchDB", infos(), 20)
        api.expect(202, "POST", "/db/_compact", {})
        # The limit is of each shard.
        report.check("a compaction does", wait_until(lambda: infos() == 4), infos())
        report.equal("and purges are counted as before", api.get("/db").json["purge_seq"], seq)


def test_bulk_get_parts(ctx):
    """Parts of `_bulk_get` with attachments say which document they are; an empty `atts_since` gives stubs."""
    with ctx.server("parts") as server:
        api, report = server.api(), ctx.report
        api.expect(201, "PUT", "/db")
        attached = {"_attachments": {"f": {"content_type": "text/plain", "data": "eA=="}}}
        revs = {id_: api.expect(201, "PUT", f"/db/{id_}", body)["rev"] for id_, body in (("a", attached), ("b", {}))}
        odd = api.expect(201, "PUT", "/db/x%0D%0AX-Evil%3A%20y", attached)
        docs = [{"id": "a"}, {"id": "b"}, {"id": "none"}, {"id": odd["id"]}]
        answer = api.post("/db/_bulk_get", {"docs": docs}, headers={"Accept": "multipart/mixed"})
        boundary = re.search('boundary="([^"]+)"', answer.headers["Content-Type"])[1].encode()
        parts = [part.partition(b"\r\n\r\n")[0].strip().decode().split("\r\n") for part in answer.raw.split(b"--" + boundary)[1:-1]]
        report.equal("with attachments", parts[0][:2], ["X-Doc-Id: a", f"X-Rev-Id: {revs['a']}"])
        report.check("which are a body of their own", parts[0][2].startswith("Content-Type: multipart/related; boundary="), parts[0])
        report.equal("without", parts[1], ["Content-Type: application/json"])
        report.equal("missing", parts[2], ['Content-Type: application/json; error="true"'])
        report.equal("an id is no header", [line.split(":")[0] for line in parts[3]], ["X-Doc-Id", "X-Rev-Id", "Content-Type"])
        for since, stub in (([], True), (["1-x"], False), ([revs["a"]], True)):
            found = api.expect(200, "POST", "/db/_bulk_get", {"docs": [{"id": "a", "atts_since": since}]})
            attachment = found["results"][0]["docs"][0]["ok"]["_attachments"]["f"]
            report.equal(f"atts_since {since}", (attachment.get("stub", False), "data" in attachment), (stub, not stub))


def test_ids_with_prefixes(ctx):
    report = ctx.report
    with ctx.server("ids") as server:
        api, anyone = server.api(), server.api(credentials="")
        plain = {"sequential": 32, "random": 32, "utc_random": 32, "utc_id": 14 + len("-here"), "uuid_v7": 32, "uuid_v4": 32}
        api.expect(200, "PUT", "/_node/_local/_config/uuids/utc_id_suffix", "-here")
        for algorithm, length in plain.items():
            api.expect(200, "PUT", "/_node/_local/_config/uuids/algorithm", algorithm)
            ids = anyone.get("/_uuids?count=100&prefix=status/").json["uuids"]
            report.check(f"{algorithm}: each id has the prefix", all(id.startswith("status/") and len(id) == 7 + length for id in ids), ids[:3])
            report.equal(f"{algorithm}: no two are equal", len(set(ids)), 100)
            # Now and then `sequential` starts a new prefix.
            if algorithm in ("utc_random", "utc_id", "uuid_v7"):
                report.equal(f"{algorithm}: they ascend", ids, sorted(ids))
        for prefix, expected in {"": "", "gr%C3%BCn%3A": "grün:", "a+b": "a b", "%22": '"'}.items():
            (id,) = anyone.get(f"/_uuids?prefix={prefix}").json["uuids"]
            report.check(f"the prefix {expected!r}", id.startswith(expected) and len(id) == len(expected) + 32, id)
        (partitioned,) = anyone.get("/_uuids?prefix=sensor:").json["uuids"]
        api.expect(201, "PUT", "/parts?partitioned=true")
        api.expect(201, "PUT", f"/parts/{partitioned}", {})
        report.equal("the longest prefix", len(anyone.get(f"/_uuids?prefix={'x' * 256}").json["uuids"][0]), 288)
        for what, query in {
            "a longer one": "x" * 257,
            "an underscore": "_x",
            "that of design documents": "_design/",
            "a line feed": "a%0Ab",
            "a null": "%00",
        }.items():
            answer = anyone.get(f"/_uuids?prefix={query}")
            report.check(f"{what} is refused", answer.status == 400 and answer.json["error"] == "bad_request", repr(answer))
        report.equal("also when no id is asked for", anyone.get("/_uuids?count=0&prefix=_x").status, 400)
        report.equal("the limit of ids stays", anyone.get("/_uuids?count=1001&prefix=x").status, 400)
        api.expect(200, "PUT", "/_node/_local/_config/couchdb/max_document_id_length", "40")
        report.equal("ids that documents may have", [anyone.get(f"/_uuids?prefix={'x' * n}").status for n in (8, 9)], [200, 413])


def test_unknown_settings(ctx):
    """Names that are no settings are warned of, with the nearest one, wherever they come from; nothing is refused."""
    ini = ctx.folder("ini") / "own.ini"
    ini.write_text("[chttpd]\nprot = 6019\n[htpd]\nport = 1\nbind = 2\n[admins]\nanna = hushed\n[vendor]\nmotto = x\n")
    options = ["--config", str(ini), "--set", "couch_db/max_document_size=7", "--set", "log/levl=hushed", "--set", "jwt_keys/hmac:k=eA=="]
    with ctx.server("unknown", options=options) as server:
        api, report = server.api(), ctx.report
        log = server.log()
        for expected in (
            "own.ini: [chttpd] prot has no effect; did you mean [chttpd] port?",
            "own.ini: there is no section [htpd]; did you mean [httpd]?",
            "the command line: there is no section [couch_db]; did you mean [couchdb]?",
            "the command line: [log] levl has no effect; did you mean [log] level?",
        ):
            report.equal(expected, log.count(expected), 1)
        report.check("users' own names are not warned of", not any(word in log for word in ("anna", "motto", "hmac:k")), log)
        report.check("values are not told", "hushed" not in log and "6019" not in log, log)
        answer = api.request("PUT", "/_node/_local/_config/chttpd/alow_jsonp", "true")
        report.equal("CouchDB takes any name", (answer.status, answer.json), (200, ""))
        report.equal("and it is there", api.get("/_node/_local/_config/chttpd/alow_jsonp").json, "true")
        warned = "[chttpd] alow_jsonp has no effect; did you mean [chttpd] allow_jsonp?"
        report.check("with a warning", wait_until(lambda: warned in server.log()), server.log()[-500:])
        api.expect(200, "PUT", "/_node/_local/_config/chttpd/allow_jsonp", "true")
        report.equal("not for what is one", server.log().count("a setting over HTTP"), 1)


def test_encoded_design_paths(ctx):
    """Who asks for `_design%2F` is sent to `_design/`, with all that follows."""
    with ctx.server("encoded") as server:
        api, report = server.api(), ctx.report
        api.expect(201, "PUT", "/a%2Fb")
        api.expect(201, "PUT", "/a%2Fb/_design/foo", {**VIEWS, "_attachments": {"f": {"data": "eA=="}}})
        for rest in ("foo", "foo?revs=true&x=%22%2F%22", "foo/_view/plain?limit=1", "foo/_info", "foo/f", "foo%2Fbar/x"):
            for method, name in (("GET", "_design%2F"), ("GET", "_design%2f"), ("HEAD", "_design%2F")):
                answer = api.request(method, f"/a%2Fb/{name}{rest}")
                got = (answer.status, answer.raw, answer.headers["Location"])
                report.equal(f"{method} {name}{rest}", got, (301, b"", f"{server.url}/a%2Fb/_design/{rest}"), quiet=True)
        there = api.get(api.get("/a%2Fb/_design%2Ffoo/_view/plain?limit=1").headers["Location"].removeprefix(server.url))
        report.equal("a view is where it leads", there.json, {"total_rows": 0, "offset": 0, "rows": []})
        report.equal("what is written is not sent elsewhere", api.put("/a%2Fb/_design%2Fbar", {}).status, 201)


def test_descending_feeds(ctx):
    """Live feeds that go down end with the first change; the ids of events are JSON, and taken without quotes too."""
    with ctx.server("descending") as server:
        api, report = server.api(), ctx.report
        api.expect(201, "PUT", "/db?q=1")
        empty = api.get("/db/_changes?feed=longpoll&descending=true&timeout=60000").json
        report.equal("longpoll: there is nothing to wait for", (empty["results"], empty["pending"]), ([], 0))
        for name in "abc":
            api.expect(201, "PUT", f"/db/{name}", {})
        query = "/db/_changes?descending=true&timeout=60000&feed="
        for rest, expected in (("longpoll", "cba"), ("longpoll&limit=2", "cb"), ("longpoll&filter=_doc_ids&doc_ids=%5B%22a%22%2C%22b%22%5D", "ba")):
            rows = api.get(query + rest).json["results"]
            report.equal(rest, [row["id"] for row in rows], list(expected))
        for rest, expected in (("continuous", "cba"), ("continuous&limit=10", "cba"), ("continuous&limit=1", "c")):
            lines = [json.loads(line) for line in api.get(query + rest).raw.splitlines()]
            report.equal(rest, [line.get("id") for line in lines], [*expected, None])
        lines = api.get(query + "eventsource").raw.decode().splitlines()
        report.equal("eventsource", [json.loads(line[6:])["id"] for line in lines if line.startswith("data: ")], list("cba"))

        events = "/db/_changes?feed=eventsource&timeout=1"
        first = api.get(events + "&limit=1").raw.decode().splitlines()
        row, event_id = json.loads(first[0].removeprefix("data: ")), first[1].removeprefix("id: ")
        report.equal("an event's id is JSON", json.loads(event_id), row["seq"])
        for name, sent in (("its text", event_id), ("its value", row["seq"])):
            rest = api.get(events, headers={"Last-Event-ID": sent}).raw.decode().splitlines()
            report.equal(f"going on after {name}", [json.loads(line[6:])["id"] for line in rest if line.startswith("data: ")], ["b", "c"])


def test_copies(ctx):
    """`If-Match` names the revision that is copied, as `rev` does."""
    with ctx.server("copies") as server:
        api, report = server.api(), ctx.report
        api.expect(201, "PUT", "/db")
        first = api.expect(201, "PUT", "/db/a", {"n": 1})["rev"]
        second = api.expect(201, "PUT", "/db/a", {"n": 2, "_rev": first})["rev"]
        for number, (query, match, n) in enumerate(
            (("", None, 2), ("", first, 1), ("", second, 2), (f"?rev={first}", None, 1), (f"?rev={first}", first, 1))
        ):
            headers = {"Destination": f"copy{number}", **({"If-Match": f'"{match}"'} if match else {})}
            answer = api.request("COPY", f"/db/a{query}", headers=headers)
            report.equal(f"COPY {query} of {match}", (answer.status, api.get(f"/db/copy{number}").json.get("n")), (201, n))
        differ = api.request("COPY", f"/db/a?rev={first}", headers={"Destination": "copy", "If-Match": f'"{second}"'})
        report.equal("two revisions", (differ.status, differ.json), (400, bad("bad_request", "Document rev and etag have different values")))
        missing = api.request("COPY", "/db/a", headers={"Destination": "copy", "If-Match": '"3-none"'})
        report.equal("a revision that is not there", (missing.status, missing.json), (404, bad("not_found", "missing")))


def test_lowered_revs_limit(ctx):
    """It counts at once for what is shown of longer histories."""
    with ctx.server("revs") as server:
        api, report = server.api(), ctx.report
        api.expect(201, "PUT", "/db")
        rev = None
        for n in range(6):
            rev = api.expect(201, "PUT", "/db/bar", {"n": n, **({"_rev": rev} if rev else {})})["rev"]

        def lengths():
            leaf = api.get(f"/db/bar?open_revs=%5B%22{rev}%22%5D&revs=true", headers={"Accept": "application/json"}).json[0]["ok"]
            bulk = api.post("/db/_bulk_get?revs=true", {"docs": [{"id": "bar"}]}).json["results"][0]["docs"][0]["ok"]
            docs = [api.get("/db/bar?revs=true").json, api.get(f"/db/bar?revs=true&rev={rev}").json, leaf, bulk]
            return {len(doc["_revisions"]["ids"]) for doc in docs}

        report.equal("six revisions", lengths(), {6})
        api.expect(200, "PUT", "/db/_revs_limit", b"5")
        report.equal("five of them are shown", lengths(), {5})
        report.equal("from the latest on", api.get("/db/bar?revs=true").json["_revisions"]["start"], 6)
        api.expect(200, "PUT", "/db/_revs_limit", b"1000")


def test_batches(ctx):
    """`batch=ok` counts for a document that comes alone; everywhere else it says nothing."""
    with ctx.server("batches") as server:
        api, report = server.api(), ctx.report
        api.expect(201, "PUT", "/db")
        for request in ("PUT /db/a", "POST /db"):
            method, path = request.split(" ")
            answer = api.request(method, f"{path}?batch=ok", {"_id": "a" if method == "PUT" else "b"})
            report.equal(
                f"{request} in a batch",
                (answer.status, answer.json, answer.headers["ETag"]),
                (202, {"ok": True, "id": "a" if method == "PUT" else "b"}, None),
            )
        report.equal("it is there", [api.get(f"/db/{name}").status for name in "ab"], [200, 200])
        report.equal("a conflict is told", api.put("/db/a?batch=ok", {}).status, 409)

        rev = api.get("/db/a").json["_rev"]
        api.expect(201, "PUT", "/db/_design/d", {"updates": {"u": "function(doc, req) { return [{_id: 'updated'}, 'ok']; }"}})
        copied = api.request("COPY", "/db/a?batch=ok", headers={"Destination": "copied"})
        report.equal("COPY", (copied.status, copied.json["rev"], copied.headers["ETag"]), (201, rev, f'"{rev}"'))
        bulk = api.post("/db/_bulk_docs?batch=ok", {"docs": [{"_id": "c"}]})
        report.equal("_bulk_docs", (bulk.status, bulk.json[0]["rev"]), (201, rev))
        put = api.put(f"/db/a/f?batch=ok&rev={rev}", b"text")
        report.check("PUT of an attachment", put.status == 201 and put.json["rev"].startswith("2-"), repr(put))
        removed = api.delete(f"/db/a/f?batch=ok&rev={put.json['rev']}")
        report.check("DELETE of an attachment", removed.status == 200 and removed.json["rev"].startswith("3-"), repr(removed))
        deleted = api.delete(f"/db/a?batch=ok&rev={removed.json['rev']}")
        report.check("DELETE", deleted.status == 200 and deleted.headers["ETag"] == f'"{deleted.json["rev"]}"', repr(deleted))
        updated = api.put("/db/_design/d/_update/u/x?batch=ok", b"")
        report.equal("_update", (updated.status, updated.headers["X-Couch-Update-NewRev"]), (201, rev))
        parts = b'--b\r\n\r\n{"_attachments":{"f":{"follows":true}}}\r\n--b\r\n\r\ntext\r\n--b--'
        related = api.put("/db/parts?batch=ok", parts, headers={"Content-Type": "multipart/related; boundary=b"})
        report.check("a document with its attachments", related.status == 201 and "rev" in related.json, repr(related))


def test_forwarded(ctx):
    """The headers in which a proxy says what it was asked for, whose names are settings."""
    with ctx.server("forwarded") as server:
        api, report = server.api(), ctx.report
        api.expect(201, "PUT", "/db")
        numbers = iter(range(100))

        def base(headers):
            path = f"/db/{next(numbers)}"
            return api.put(path, {}, headers=headers).headers["Location"].removesuffix(path)

        for headers, expected in (
            ({}, server.url),
            ({"X-Forwarded-Host": "a.example"}, "http://a.example"),
            ({"X-Forwarded-Host": "a.example", "X-Forwarded-Proto": "https"}, "https://a.example"),
            ({"X-Forwarded-Host": "a.example", "X-Forwarded-Proto": "gopher"}, "http://a.example"),
            ({"X-Forwarded-Host": "a.example", "X-Forwarded-Proto": "http", "X-Forwarded-Ssl": "on"}, "https://a.example"),
            ({"X-Forwarded-Host": "a.example", "X-Forwarded-Ssl": "off"}, "http://a.example"),
        ):
            report.equal(f"the URL asked for, by {headers}", base(headers), expected)
        api.expect(200, "PUT", "/_node/_local/_config/httpd/x_forwarded_host", "X-Older")
        report.equal("a name in the older section", base({"X-Older": "b.example", "X-Forwarded-Host": "a.example"}), "http://b.example")
        for name, value in (("host", "X-Asked-Host"), ("proto", "X-Asked-Proto"), ("ssl", "not a header")):
            api.expect(200, "PUT", f"/_node/_local/_config/chttpd/x_forwarded_{name}", value)
        asked = {"X-Asked-Host": "c.example", "X-Asked-Proto": "https", "X-Older": "b.example", "X-Forwarded-Host": "a.example"}
        report.equal("names of one's own", base(asked), "https://c.example")
        report.equal("the usual ones say nothing then", base({"X-Forwarded-Ssl": "on", "X-Forwarded-Proto": "https"}), server.url)


def test_few_connections(ctx):
    """CouchDB's `{max, N}`: a new connection takes the place of one at rest. While all have requests under way, `/_up` and server
    admins are answered all the same, and others are refused."""
    server = ctx.server("few", options=["--set", "chttpd/server_options=[{max, 2}]"]).start()
    first, second, third = server.api(), server.api(), server.api(timeout=20)
    ctx.report.equal("two connections are served", [first.put("/db").status, second.get("/").status], [201, 200])
    ctx.report.equal("a third one is served too", third.get("/").status, 200)
    for api in (first, second, third):
        api.close()
    feeds = [ask(server, "/db/_changes?feed=continuous&heartbeat=1000") for _ in range(2)]
    for feed in feeds:
        ctx.report.check("a feed has begun", feed.recv(100).startswith(b"HTTP/1.1 200"))
    stranger = server.api(timeout=20, credentials="")
    refused = stranger.get("/")
    ctx.report.equal(
        "while both have requests under way, another one is refused", (refused.status, refused.json["error"]), (503, "service_unavailable")
    )
    said = [refused.headers[name] for name in ("Retry-After", "Connection")]
    ctx.report.equal("for a while, and its connection is closed", said, ["1", "close"])
    ctx.report.equal("/_up and a server admin are answered", [stranger.get("/_up").status, server.api().get("/db").status], [200, 200])
    feeds[0].close()
    ctx.report.check("when one has gone there is a place", wait_until(lambda: stranger.get("/").status == 200, 20))
    feeds[1].close()


def exchange(server, data, answers):
    """What the server sends until it closes, or until it has sent so many heads and a whole last body of JSON."""
    api = server.api()
    with socket.create_connection((api.host, api.port), timeout=10) as sock:
        sock.sendall(data)
        received = b""
        while piece := sock.recv(65536):
            received += piece
            if received.count(b"HTTP/1.1 ") >= answers and received.endswith(b"}\n"):
                break
        return received
