use std::collections::HashSet;

use super::*;
use crate::operation::post;
use crate::tree::TreeNode;

/// The decoded segments of a path without escapes.
fn segments(path: &str) -> Vec<Vec<u8>> {
    let parts = path.split('/').filter(|part| !part.is_empty());
    parts.map(|part| part.as_bytes().to_vec()).collect()
}

fn found(request: &str) -> RouteMatch {
    let (method, path) = request.split_once(' ').unwrap();
    find(method, &segments(path))
}

#[test]
fn every_row_is_reached_by_its_path() {
    for row in rows() {
        let part = |part: &str| match part.strip_prefix('{') {
            // More segments than any path of its beginning has.
            Some(name) if name.ends_with("...}") => "a/b/c/d/e".to_owned(),
            Some(name) => name.trim_end_matches('}').to_owned(),
            None => part.to_owned(),
        };
        let path: Vec<String> = row.path.split('/').map(part).collect();
        let method = row
            .methods
            .rsplit(',')
            .next()
            .unwrap()
            .trim()
            .replace('*', "GET");
        let found = find(&method, &segments(&path.join("/")));
        assert_eq!((found.row.path, found.row.methods), (row.path, row.methods));
    }
}

#[test]
fn a_path_of_a_partition_is_for_those_who_may_use_it_of_the_database() {
    let of_partitions = rows().filter(|row| row.path.contains("/_partition/{partition_id}/"));
    let mut compared = 0;
    for row in of_partitions {
        let path = row.path.replace("{path...}", "a/b/c/d/e");
        let mut path = segments(&path.replace("{function...}", "a/b/c/d/e"));
        path.drain(1..3);
        for method in ["GET", "HEAD", "POST", "PUT", "DELETE"] {
            let of_database = find(method, &path).row;
            if row.allows(method) && of_database.allows(method) {
                let who = (row.who(method), of_database.who(method));
                assert_eq!(who.0, who.1, "{method} {}", row.path);
                compared += 1;
            }
        }
    }
    assert!(compared > 20, "{compared}");
}

#[test]
fn rows_differ_by_path_or_method() {
    let mut seen = HashSet::new();
    for row in rows() {
        assert!(
            seen.insert((row.path, row.methods)),
            "{} {}",
            row.methods,
            row.path
        );
    }
}

#[test]
fn paths_have_their_classes() {
    for (request, name) in [
        ("GET /", "welcome"),
        ("GET /_all_dbs", "databases"),
        ("PUT /db", "database_create"),
        ("DELETE /db", "database_delete"),
        ("POST /db", "document_write"),
        ("GET /_users/org.couchdb.user:x", "document_read"),
        ("HEAD /db/doc", "document_read"),
        ("COPY /db/doc", "document_write"),
        ("GET /db/doc/file/with/slashes", "attachment_read"),
        ("PUT /db/doc/file", "attachment_write"),
        ("PUT /db/_local/x", "local_document"),
        ("GET /db/_design/x", "document_read"),
        ("GET /db/_design/x/logo.png", "attachment_read"),
        ("POST /db/_design/x/_view/y/queries", "view"),
        ("GET /db/_partition/p/_design/x/_view/y", "view"),
        ("GET /db/_design/x/_search/y", "search"),
        ("POST /db/_partition/p/_design/x/_search/y", "search"),
        ("POST /db/_design/x/_nouveau/y", "nouveau"),
        ("GET /db/_design/x/_search_info/y", "design_function"),
        ("POST /db/_search_cleanup", "maintenance"),
        ("POST /_nouveau_analyze", "server"),
        ("GET /db/_partition/p/_all_docs", "all_docs"),
        ("GET /db/_partition/p", "database_properties"),
        ("GET /_db_updates", "databases"),
        ("GET /db/_design/x/_info", "design_function"),
        ("GET /db/_changes", "changes"),
        ("POST /db/_find", "find"),
    ] {
        let method = request.split_once(' ').unwrap().0;
        assert_eq!(
            found(request).row.class(method, None).name(),
            name,
            "{request}"
        );
    }
    let row = found("GET /db/_changes").row;
    for feed in ["continuous", "live", "longpoll", "eventsource"] {
        assert_eq!(row.class("GET", Some(feed)), Class::Feed, "{feed}");
    }
    assert_eq!(row.class("GET", Some("normal")), Class::Changes);
}

#[test]
fn a_longer_path_falls_back_to_the_nearest_parameter() {
    let attachment = |id: &str, name: &str| {
        Route::Database(
            "db".into(),
            DatabaseRoute::Attachment(id.into(), name.as_bytes().into()),
        )
    };
    assert_eq!(
        found("GET /db/_bulk_docs/x").route,
        attachment("_bulk_docs", "x")
    );
    let design = |route| {
        Route::Database(
            "db".into(),
            DatabaseRoute::Design("_design/d".into(), route),
        )
    };
    assert_eq!(
        found("GET /db/_design/d/_info/x").route,
        design(DesignRoute::Missing)
    );
    assert_eq!(
        found("GET /db/_design/d/_view/v/x").route,
        design(DesignRoute::NoView)
    );
    assert_eq!(
        found("GET /db/_design/d/_view/v/x/y").route,
        design(DesignRoute::Missing)
    );
    assert_eq!(
        found("GET /db/_design/d/_x").route,
        design(DesignRoute::Attachment(b"_x".into()))
    );
    let scheduler = |route| Route::Server(ServerRoute::Scheduler(route));
    assert_eq!(
        found("GET /_scheduler/jobs/a/b").route,
        scheduler(SchedulerRoute::Unknown)
    );
    assert_eq!(
        found("GET /db/_design").route,
        Route::Database("db".into(), DatabaseRoute::Document("_design".into()))
    );
}

#[test]
fn what_only_reads_can_be_repeated() {
    for request in [
        "POST /db/_all_docs",
        "POST /db/_bulk_get",
        "POST /db/_changes",
        "POST /db/_design/d/_list/l/v",
        "POST /db/_design/d/_nouveau/i",
        "POST /db/_design/d/_search/i",
        "POST /db/_design/d/_view/v",
        "POST /db/_design_docs",
        "POST /db/_explain",
        "POST /db/_find",
        "POST /db/_local_docs",
        "POST /db/_missing_revs",
        "POST /db/_partition/p/_design/d/_list/l/v",
        "POST /db/_partition/p/_find",
        "POST /db/_revs_diff",
        "POST /db/_settee/preview",
    ] {
        assert!(found(request).row.reads("POST"), "{request}");
    }
    for request in [
        "POST /db",
        "POST /db/_bulk_docs",
        "POST /db/_design/d/_update/u",
        "POST /db/_index",
        "POST /db/_partition/p/_design/d/_rewrite/r",
        "POST /db/_partition/p/_design/d/_update/u",
        "POST /db/_partition/p/_index",
        "POST /db/_purge",
    ] {
        assert!(!found(request).row.reads("POST"), "{request}");
    }
}

#[test]
fn segments_that_must_be_text_are_checked() {
    let bad = b"\xff".to_vec();
    let find = |segments: &[&[u8]]| {
        let segments: Vec<Vec<u8>> = segments.iter().map(|s| s.to_vec()).collect();
        find("GET", &segments).route
    };
    let db = |route| Route::Database("db".into(), route);
    assert_eq!(find(&[&bad]), Route::Server(ServerRoute::NoDatabase));
    assert_eq!(find(&[b"_node", &bad]), Route::Server(ServerRoute::Missing));
    assert_eq!(find(&[b"db", &bad]), db(DatabaseRoute::InvalidId));
    assert_eq!(
        find(&[b"db", b"_design", &bad]),
        db(DatabaseRoute::InvalidId)
    );
    assert_eq!(
        find(&[b"db", b"doc", &bad]),
        db(DatabaseRoute::Attachment("doc".into(), bad.clone()))
    );
}

#[test]
fn names_of_classes_are_labels() {
    let names: HashSet<&str> = CLASSES.iter().map(|class| class.name()).collect();
    assert_eq!(names.len(), CLASSES.len());
    assert!(
        CLASSES
            .iter()
            .enumerate()
            .all(|(i, class)| *class as usize == i)
    );
}

#[test]
fn what_is_documented_has_its_methods_and_names() {
    for row in rows() {
        for operation in row.operations {
            assert!(
                row.allows(operation.method),
                "{} {}",
                operation.method,
                row.path
            );
        }
        let names = row.path.split('/').filter_map(|part| {
            let name = part.strip_prefix('{')?.strip_suffix('}')?;
            Some(name.trim_end_matches('.'))
        });
        for name in names.filter(|_| !row.operations.is_empty()) {
            let is_known = PATH_PARAMETERS.iter().any(|(known, _)| *known == name);
            assert!(is_known, "{name} of {}", row.path);
        }
    }
    assert!(PATH_PARAMETERS.is_sorted());
}

/// A new path needs only this row.
static MADE_UP: Row = Row::database("POST", "/{db}/_made_up/{docid}", Class::Find, |c| {
    Route::Database(c.text("db"), DatabaseRoute::Document(c.text("docid")))
})
.who_may(Who::DatabaseAdmin)
.post_reads()
.rewrites_read()
.operations(&[post("Does nothing.", "Ok")]);

#[test]
fn a_new_route_needs_one_row() {
    let tree = TreeNode::of(rows().chain([&MADE_UP]));
    let found = tree.find("POST", &segments("/db/_made_up/x"));
    assert_eq!(
        found.route,
        Route::Database("db".into(), DatabaseRoute::Document("x".into()))
    );
    let row = found.row;
    assert!(row.reads("POST") && row.allows("POST") && !row.allows("GET"));
    assert_eq!(row.who("POST").name(), "db-admin");
    assert_eq!(row.class("POST", None).name(), "find");
    assert_eq!(row.cluster, Cluster::Documents { blind_writes: &[] });
    assert_eq!(row.rewrites, Rewrites::ReadOnly);
    assert_eq!(row.operations[0].method, "POST");
    // Without the row it is an attachment.
    let without = find("POST", &segments("/db/_made_up/x"));
    assert_eq!(without.row.path, "/{db}/{docid}/{attname...}");
}

#[test]
fn segments_after_some_routes_mean_nothing() {
    for path in ["/_up/x", "/_session/x/y", "/_node/_local/_system/x"] {
        let row = found(&format!("GET {path}")).row;
        assert!(
            path.starts_with(&row.path.replace("{node-name}", "_local")),
            "{path}"
        );
    }
    assert_eq!(found("GET /_all_dbs/x").row.path, "/_all_dbs/{path...}");
    assert_eq!(
        found("GET /_reshard/jobs/1/x").row.path,
        "/_reshard/jobs/{jobid}"
    );
}
