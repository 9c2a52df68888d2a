//! The rows of the table.

mod database;
mod design;
mod place;
mod server;

use crate::class::Class;
use crate::route::{Route, ServerRoute};
use crate::row::Row;
use crate::who::Who;

/// The row of unknown paths: `/{db}` and `/{db}/{id}` match every other path, so that only paths
/// without a meaning get here.
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
