//! Classes of routes, as reports name them.

use percent_encoding::percent_decode_str;

/// The class of a request by its method and path.
pub(super) fn of(method: &str, path: &str) -> &'static str {
    let path = path.split('?').next().unwrap_or_default();
    let segments: Vec<_> = path
        .split('/')
        .filter(|segment| !segment.is_empty())
        .map(|segment| percent_decode_str(segment).decode_utf8_lossy())
        .collect();
    let segments: Vec<&str> = segments.iter().map(|segment| &**segment).collect();
    match segments.as_slice() {
        [] => "server",
        [
            "_all_dbs" | "_dbs_info" | "_up" | "_utils" | "_active_tasks" | "_uuids" | "_node",
            ..,
        ] => "server",
        [_] if method == "POST" => "document_write",
        [_] => "database",
        [_, inside @ ..] => inside_database(method, inside),
    }
}

fn inside_database(method: &str, segments: &[&str]) -> &'static str {
    let reads = matches!(method, "GET" | "HEAD");
    match segments {
        ["_partition", _, inside @ ..] if !inside.is_empty() => inside_database(method, inside),
        ["_all_docs" | "_design_docs" | "_local_docs", ..] => "all_docs",
        ["_bulk_docs"] => "bulk_docs",
        ["_bulk_get"] => "bulk_get",
        ["_changes"] => "changes",
        ["_find" | "_explain"] => "find",
        ["_index", ..] => "index",
        ["_revs_diff" | "_missing_revs" | "_local", ..] => "replication",
        ["_design", _, "_view", ..] => "view",
        ["_design", _, function, ..] if function.starts_with('_') => "function",
        ["_design", _, _, ..] => attachment(reads),
        ["_design", _] => document(method),
        [name, ..] if name.starts_with('_') => "database",
        [_] => document(method),
        [_, ..] => attachment(reads),
        [] => "database",
    }
}

fn document(method: &str) -> &'static str {
    match method {
        "GET" | "HEAD" => "document_read",
        "DELETE" => "document_delete",
        _ => "document_write",
    }
}

fn attachment(reads: bool) -> &'static str {
    match reads {
        true => "attachment_read",
        false => "attachment_write",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_route_has_its_class() {
        for (method, path, class) in [
            ("GET", "/", "server"),
            ("GET", "/_all_dbs?limit=1", "server"),
            ("PUT", "/db", "database"),
            ("POST", "/db", "document_write"),
            ("GET", "/db/_security", "database"),
            ("GET", "/db/a?rev=1-x", "document_read"),
            ("HEAD", "/db/a", "document_read"),
            ("PUT", "/db/a%2Fb", "document_write"),
            ("COPY", "/db/a", "document_write"),
            ("DELETE", "/db/a", "document_delete"),
            ("GET", "/db/a/photo.png", "attachment_read"),
            ("PUT", "/db/a/photo.png", "attachment_write"),
            ("POST", "/db/_bulk_docs", "bulk_docs"),
            ("GET", "/db/_all_docs", "all_docs"),
            ("GET", "/db/_changes?feed=longpoll", "changes"),
            ("POST", "/db/_find", "find"),
            ("POST", "/db/_partition/p/_find", "find"),
            ("GET", "/db/_design/d/_view/v", "view"),
            ("POST", "/db/_design/d/_update/u/x", "function"),
            ("GET", "/db/_design/d/file", "attachment_read"),
            ("PUT", "/db/_design/d", "document_write"),
            ("GET", "/db/_local/x", "replication"),
        ] {
            assert_eq!(of(method, path), class, "{method} {path}");
        }
    }
}
