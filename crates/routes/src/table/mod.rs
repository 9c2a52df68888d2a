//! The rows of the table.

mod database;
mod design;
mod server;

use crate::class::Class;
use crate::route::{DatabaseRoute, DesignRoute, NodeRoute, Route, ServerRoute};
use crate::row::{Row, Who};
use crate::tree::Captures;

fn node(c: &Captures<'_>, route: NodeRoute) -> Route {
    Route::Server(ServerRoute::Node(Some(c.text("node-name")), route))
}

fn database(c: &Captures<'_>, route: DatabaseRoute) -> Route {
    Route::Database(c.text("db"), route)
}

fn design(c: &Captures<'_>, route: DesignRoute) -> Route {
    database(c, DatabaseRoute::Design(ddoc_id(c), route))
}

fn ddoc_id(c: &Captures<'_>) -> String {
    format!("_design/{}", c.text("ddoc"))
}

/// Returns the id of an index's design document, whose name may have the prefix in the same segment.
fn index_ddoc_id(name: &str) -> String {
    match name.starts_with("_design/") {
        true => name.to_owned(),
        false => format!("_design/{name}"),
    }
}

fn local_id(c: &Captures<'_>) -> String {
    format!("_local/{}", c.text("docid"))
}

/// The row of what is in no other: `/{db}` and `/{db}/{id}` match every path, so that it only stands for those without a meaning.
pub static UNKNOWN: Row = Row::server("*", "/{path...}", Class::Unknown, |_| {
    Route::Server(ServerRoute::Missing)
})
.who_may(Who::Anyone);

/// Returns all rows.
pub fn rows() -> impl Iterator<Item = &'static Row> {
    [server::SERVER, database::DATABASE, design::DESIGN]
        .into_iter()
        .flatten()
}
