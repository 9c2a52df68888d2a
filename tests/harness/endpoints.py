"""Every endpoint, and who may use it."""

from harness import markdown

ENDPOINTS = """
GET /{db}/_all_docs                                      member
POST /{db}/_all_docs                                     member
GET /{db}/_design_docs                                   member
POST /{db}/_design_docs                                  member
POST /{db}/_all_docs/queries                             member
POST /{db}/_design_docs/queries                          member
POST /{db}/_bulk_get                                     member
POST /{db}/_bulk_docs                                    member
GET /{db}/_changes                                       member
POST /{db}/_changes                                      member
POST /{db}/_search_cleanup                               db-admin
POST /{db}/_nouveau_cleanup                              db-admin
HEAD /{db}                                               member
GET /{db}                                                member
PUT /{db}                                                admin
DELETE /{db}                                             admin
POST /{db}                                               member
POST /{db}/_compact                                      db-admin
POST /{db}/_compact/{ddoc}                               db-admin
POST /{db}/_ensure_full_commit                           member
POST /{db}/_view_cleanup                                 db-admin
POST /{db}/_find                                         member
POST /{db}/_index                                        db-admin
GET /{db}/_index                                         member
DELETE /{db}/_index/{design_doc}/json/{name}             db-admin
POST /{db}/_index/_bulk_delete                           db-admin
POST /{db}/_explain                                      member
POST /{db}/_purge                                        admin
GET /{db}/_purged_infos                                  member
GET /{db}/_purged_infos_limit                            member
PUT /{db}/_purged_infos_limit                            db-admin
GET /{db}/_auto_purge                                    member
PUT /{db}/_auto_purge                                    db-admin
GET /{db}/_time_seq                                      member
DELETE /{db}/_time_seq                                   db-admin
POST /{db}/_missing_revs                                 member
POST /{db}/_revs_diff                                    member
GET /{db}/_revs_limit                                    member
PUT /{db}/_revs_limit                                    db-admin
GET /{db}/_security                                      member
PUT /{db}/_security                                      db-admin
GET /{db}/_shards                                        member
GET /{db}/_shards/{docid}                                member
POST /{db}/_sync_shards                                  admin
HEAD /{db}/_design/{ddoc}                                member
GET /{db}/_design/{ddoc}                                 member
PUT /{db}/_design/{ddoc}                                 db-admin
DELETE /{db}/_design/{ddoc}                              db-admin
COPY /{db}/_design/{ddoc}                                db-admin
HEAD /{db}/_design/{ddoc}/{attname}                      member
GET /{db}/_design/{ddoc}/{attname}                       member
PUT /{db}/_design/{ddoc}/{attname}                       db-admin
DELETE /{db}/_design/{ddoc}/{attname}                    db-admin
GET /{db}/_design/{ddoc}/_info                           member
GET /{db}/_design/{ddoc}/_nouveau/{index}                member
GET /{db}/_design/{ddoc}/_nouveau_info/{index}           member
GET /{db}/_design/{ddoc}/_show/{func}                    member
POST /{db}/_design/{ddoc}/_show/{func}                   member
GET /{db}/_design/{ddoc}/_show/{func}/{docid}            member
POST /{db}/_design/{ddoc}/_show/{func}/{docid}           member
GET /{db}/_design/{ddoc}/_list/{func}/{view}             member
POST /{db}/_design/{ddoc}/_list/{func}/{view}            member
GET /{db}/_design/{ddoc}/_list/{func}/{other-ddoc}/{view}  member
POST /{db}/_design/{ddoc}/_list/{func}/{other-ddoc}/{view} member
POST /{db}/_design/{ddoc}/_update/{func}                 member
PUT /{db}/_design/{ddoc}/_update/{func}/{docid}          member
ANY /{db}/_design/{ddoc}/_rewrite/{path}                 member
GET /{db}/_design/{ddoc}/_search/{index}                 member
GET /{db}/_design/{ddoc}/_search_info/{index}            member
GET /{db}/_design/{ddoc}/_view/{view}                    member
POST /{db}/_design/{ddoc}/_view/{view}                   member
POST /{db}/_design/{ddoc}/_view/{view}/queries           member
HEAD /{db}/{docid}/{attname}                             member
GET /{db}/{docid}/{attname}                              member
PUT /{db}/{docid}/{attname}                              member
DELETE /{db}/{docid}/{attname}                           member
HEAD /{db}/{docid}                                       member
GET /{db}/{docid}                                        member
PUT /{db}/{docid}                                        member
DELETE /{db}/{docid}                                     member
COPY /{db}/{docid}                                       member
GET /{db}/_local_docs                                    member
POST /{db}/_local_docs                                   member
POST /{db}/_local_docs/queries                           member
GET /{db}/_local/{docid}                                 member
PUT /{db}/_local/{docid}                                 member
DELETE /{db}/_local/{docid}                              member
COPY /{db}/_local/{docid}                                member
GET /{db}/_partition/{partition_id}                      member
GET /{db}/_partition/{partition_id}/_all_docs            member
GET /{db}/_partition/{partition_id}/_design/{ddoc}/_view/{view} member
POST /{db}/_partition/{partition_id}/_find               member
POST /{db}/_partition/{partition_id}/_explain            member
POST /_session                                           anybody
GET /_session                                            anybody
DELETE /_session                                         anybody
GET /                                                    anybody
GET /_active_tasks                                       admin
GET /_all_dbs                                            admin
GET /_dbs_info                                           admin
POST /_dbs_info                                          admin
GET /_cluster_setup                                      admin
POST /_cluster_setup                                     admin
GET /_db_updates                                         admin
GET /_membership                                         admin
POST /_replicate                                         user
GET /_scheduler/jobs                                     admin
GET /_scheduler/docs                                     admin
GET /_scheduler/docs/{replicator_db}                     admin
GET /_scheduler/docs/{replicator_db}/{docid}             admin
GET /_node/{node-name}                                   admin
GET /_node/{node-name}/_stats                            admin
GET /_node/{node-name}/_prometheus                       admin
GET /_node/{node-name}/_smoosh/status                    admin
GET /_node/{node-name}/_system                           admin
POST /_node/{node-name}/_restart                         admin
GET /_node/{node-name}/_versions                         admin
POST /_search_analyze                                    admin
POST /_nouveau_analyze                                   admin
GET /_utils                                              anybody
GET /_utils/                                             anybody
GET /_up                                                 anybody
GET /_uuids                                              anybody
GET /favicon.ico                                         anybody
GET /_reshard                                            admin
GET /_reshard/state                                      admin
PUT /_reshard/state                                      admin
GET /_reshard/jobs                                       admin
GET /_reshard/jobs/{jobid}                               admin
POST /_reshard/jobs                                      admin
DELETE /_reshard/jobs/{jobid}                            admin
GET /_reshard/jobs/{jobid}/state                         admin
PUT /_reshard/jobs/{jobid}/state                         admin
GET /_node/{node-name}/_config                           admin
GET /_node/{node-name}/_config/{section}                 admin
GET /_node/{node-name}/_config/{section}/{key}           admin
PUT /_node/{node-name}/_config/{section}/{key}           admin
DELETE /_node/{node-name}/_config/{section}/{key}        admin
POST /_node/{node-name}/_config/_reload                  admin
"""
# What is not in api.md: system databases as they are by default, ways around, routes of Settee's own.
MORE = """
GET /_users                                              admin
PUT /_users                                              admin
DELETE /_users                                           admin
GET /_users/_all_docs                                    admin
POST /_users/_all_docs/queries                           admin
GET /_users/_design_docs                                 admin
GET /_users/_local_docs                                  admin
GET /_users/_changes                                     admin
POST /_users/_changes                                    admin
GET /_users/org.couchdb.user:member                      admin
PUT /_users/org.couchdb.user:member                      admin
GET /_users/_design/_auth                                admin
POST /_users/_bulk_get                                   admin
POST /_users/_bulk_docs                                  admin
POST /_users/_find                                       admin
GET /_users/_security                                    admin
PUT /_users/_security                                    nobody
GET /_replicator                                         admin
PUT /_replicator                                         admin
GET /_replicator/_all_docs                               admin
GET /_replicator/_changes                                admin
GET /_replicator/a                                       admin
PUT /_replicator/a                                       admin
POST /_replicator/_bulk_docs                             admin
GET /_replicator/_security                               admin
GET /%5fusers/_all_docs                                  admin
GET //_users//_all_docs                                  admin
GET /_users/_all_docs/                                   admin
GET /{db}/_design%2F{ddoc}                               member
PUT /{db}/_design%2F{ddoc}                               db-admin
DELETE /{db}/_design%2F{ddoc}                            db-admin
COPY /{db}/{docid}#to-design                             db-admin
PUT /{db}/_design%2F{ddoc}/{attname}                     db-admin
POST /{db}#design                                        db-admin
GET /_dbs_info/x                                         admin
GET /_node/_local/_config/admins                         admin
GET /_node/_local/_config/chttpd_auth/secret             admin
GET /_settee/cluster                                     admin
POST /_settee/cluster/tokens                             admin
DELETE /_settee/cluster/nodes/{node}                     admin
PUT /_settee/cluster/nodes/{node}                        admin
POST /_settee/cluster/place                              admin
POST /_settee/cluster/reseed                             admin
POST /_settee/cluster/bench-network                      admin
POST /_settee/backup                                     admin
GET /_settee/backup                                      admin
GET /_settee/top                                         admin
GET /_settee/profile?seconds=1&format=folded             admin
GET /_settee/doctor                                      admin
GET /_settee/slow                                        admin
GET /_settee/constant                                    admin
GET /_settee/openapi.json                                anybody
GET /_node/{node-name}/_settee/settings                  admin
POST /{db}/_settee/preview                               db-admin
GET /_utils/index.js                                     anybody
GET /_utils/session.html                                 anybody
POST /{db}/_temp_view                                    member
POST /{db}/_partition/{partition_id}/_all_docs           member
POST /{db}/_partition/{partition_id}/_design/{ddoc}/_view/{view} member
POST /{db}/_design/{ddoc}/_nouveau/{index}               member
POST /{db}/_design/{ddoc}/_search/{index}                member
GET /{db}/_design/{ddoc}/_search_disk_size/{index}       member
GET /{db}/_partition/{partition_id}/_design/{ddoc}/_search/{index} member
POST /{db}/_partition/{partition_id}/_design/{ddoc}/_search/{index} member
GET /_search_analyze                                     admin
GET /{db}/_partition/{partition_id}/_design/{ddoc}/_nouveau/{index} member
POST /{db}/_partition/{partition_id}/_design/{ddoc}/_nouveau/{index} member
GET /{db}/_partition/{partition_id}/_index               member
GET /{db}/_design/{ddoc}/_rewrite/doc                    member
PUT /{db}/_design/{ddoc}/_rewrite/security               db-admin
PUT /{db}/_design/{ddoc}/_rewrite/design                 db-admin
POST /{db}/_design/{ddoc}/_rewrite/purge                 nobody
DELETE /{db}/_design/{ddoc}/_rewrite/database            nobody
PUT /{db}/_design/{ddoc}/_rewrite/database               nobody
GET /{db}/_design/{ddoc}/_list/{func}/_all_docs          member
PUT /{db}/_design/{ddoc}/_update/design                  db-admin
GET /{db}/_design/{ddoc}/_view/linked?include_docs=true  member
POST /{db}/_bulk_get?attachments=true                    member
GET /{db}/_changes?filter=d/f&include_docs=true          member
PUT /{db}/{docid}-with-attachments                       member
POST /_replicate#from-here                               member
POST /_replicate#to-here                                 member
POST /_replicate#new                                     admin
"""

VALUES = {
    "db": "matrix",
    "ddoc": "d",
    "design_doc": "d",
    "docid": "a",
    "attname": "file.txt",
    "name": "i",
    "view": "v",
    "index": "i",
    "func": "f",
    "other-ddoc": "d",
    "path": "x",
    "partition_id": "p",
    "node": "none",
    "node-name": "_local",
    "section": "matrix",
    "key": "k",
    "jobid": "1",
    "replicator_db": "_replicator",
}
DESIGN = {
    "views": {"v": {"map": "function (doc) { emit(doc._id); }"}, "linked": {"map": "function (doc) { emit(1, {_id: 'a'}); }"}},
    "shows": {"f": "function () { return 'x'; }"},
    "lists": {"f": "function () { return 'x'; }"},
    "updates": {"f": "function () { return [null, 'x']; }", "design": "function () { return [{_id: '_design/updated'}, 'x']; }"},
    "filters": {"f": "function () { return true; }"},
    "rewrites": [
        {"from": "x", "to": "../../a"},
        {"from": "doc", "to": "../../a"},
        {"from": "security", "to": "../../_security"},
        {"from": "design", "to": "../../_design/led"},
        {"from": "purge", "to": "../../_purge"},
        {"from": "database", "to": "../.."},
    ],
}


def reference(checkout):
    """{path: {method: who}} of docs/src/reference/api.md."""
    routes = {}
    text = (checkout / "docs/src/reference/api.md").read_text(encoding="utf-8")
    for _, cells in markdown.table_rows(text):
        if len(cells) == 4 and cells[0].startswith("`/"):
            for method in cells[1].split(", "):
                routes.setdefault(cells[0].strip("`"), {})[method] = cells[2]
    return routes


def matrix(lines):
    """{path: {method: who}} of the authorisation matrix."""
    routes = {}
    for line in filter(None, lines.splitlines()):
        method, path, who = line.split()
        if method != "HEAD":
            routes.setdefault(path.partition("?")[0], {})["any" if method == "ANY" else method] = who
    return routes
