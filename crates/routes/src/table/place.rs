//! Builds routes and ids from the parameters of a path.

use crate::captures::Captures;
use crate::route::{DatabaseRoute, DesignRoute, NodeRoute, Route, ServerRoute};

pub(super) fn node(c: &Captures<'_>, route: NodeRoute) -> Route {
    Route::Server(ServerRoute::Node(Some(c.text("node-name")), route))
}

pub(super) fn database(c: &Captures<'_>, route: DatabaseRoute) -> Route {
    Route::Database(c.text("db"), route)
}

pub(super) fn design(c: &Captures<'_>, route: DesignRoute) -> Route {
    database(c, DatabaseRoute::Design(ddoc_id(c), route))
}

pub(super) fn ddoc_id(c: &Captures<'_>) -> String {
    format!("_design/{}", c.text("ddoc"))
}

/// Returns the id of an index's design document, whose name may have the prefix in the same segment.
pub(super) fn index_ddoc_id(name: &str) -> String {
    match name.starts_with("_design/") {
        true => name.to_owned(),
        false => format!("_design/{name}"),
    }
}

pub(super) fn local_id(c: &Captures<'_>) -> String {
    format!("_local/{}", c.text("docid"))
}
