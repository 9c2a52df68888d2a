//! The route table: every path that the server knows, with its methods, who may use it, how a
//! cluster treats it, its class in metrics, and its OpenAPI description. [`find`] matches a path
//! once; everything that depends on the path is a property of the [`Row`] or the [`Route`] that it
//! returns.

mod captures;
mod class;
mod operation;
mod parameters;
mod route;
mod row;
mod table;
mod tree;
mod who;

pub use class::{CLASSES, Class};
pub use operation::Operation;
pub use parameters::{Group, Kind, PATH_PARAMETERS, Parameter};
pub use route::{
    DatabaseRoute, DesignRoute, ListingKind, NodeRoute, ReshardRoute, Route, SchedulerRoute,
    ServerRoute,
};
pub use row::{BodyClass, Cluster, Rewrites, Row};
pub use table::{UNKNOWN, rows};
pub use tree::{RouteMatch, find};
pub use who::Who;

/// Returns whether requests with this method never change anything.
pub fn is_read(method: &str) -> bool {
    matches!(method, "GET" | "HEAD" | "OPTIONS")
}

#[cfg(test)]
mod tests;
