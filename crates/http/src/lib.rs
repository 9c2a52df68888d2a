//! CouchDB's HTTP API over a node's databases. Thin: it reads requests, calls `database`, writes answers.
//!
//! | folder | answers |
//! |---|---|
//! | `connection` | how does a connection live, and what does every answer carry? |
//! | `request` | what did the client send, and a proxy on its behalf? |
//! | `router` | who handles a route, and who may use it? The crate `routes` matches paths |
//! | `server_routes`, `database_routes`, `document_routes`, `design_routes` | what happens at a route? |
//! | `reply`, `errors` | what does the client get? The crate `statuses` has the table of statuses |
//! | `browsers` | what may pages of other origins do? |
//! | `app`, `settings` | what does every request need, and which settings are current? |
//! | `metrics` | what is counted, and logged about a request at its end? |
#![forbid(unsafe_code)]

mod app;
mod browsers;
mod clustered;
mod connection;
mod database_routes;
mod design_routes;
mod document_routes;
mod errors;
mod load;
mod metrics;
mod passed_on;
mod reply;
mod request;
mod router;
mod server_routes;
mod settings;
mod shares;

pub use app::{App, COUCHDB_VERSION};
pub use browsers::dev::Dev;
pub use connection::server::{Listeners, serve};
pub use connection::tls::{Tls, TlsError};
pub use passed_on::passed_on;
pub use reply::answers::measure_by;
