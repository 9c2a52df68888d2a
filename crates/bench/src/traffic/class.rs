//! Classes of routes, as reports name them.

use percent_encoding::percent_decode_str;
use routes::Class;

/// Returns the class of a request by its method and path.
pub(super) fn of(method: &str, path: &str) -> &'static str {
    let path = path.split('?').next().unwrap_or_default();
    let segments: Vec<Vec<u8>> = path
        .split('/')
        .filter(|segment| !segment.is_empty())
        .map(|segment| percent_decode_str(segment).collect())
        .collect();
    let class = routes::find(method, &segments).row.class(method, None);
    name_of(class, method)
}

/// Returns the name of a class, of which reports have fewer than the server's metrics.
fn name_of(class: Class, method: &str) -> &'static str {
    match class {
        Class::Welcome | Class::Databases | Class::Server | Class::Unknown => "server",
        Class::DatabaseCreate | Class::DatabaseDelete | Class::DatabaseInfo => "database",
        Class::Properties | Class::Purge | Class::Maintenance => "database",
        Class::DocumentWrite if method == "DELETE" => "document_delete",
        Class::RevsDiff | Class::Local | Class::Replication => "replication",
        Class::Design => "function",
        class => class.name(),
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
