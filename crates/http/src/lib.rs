//! CouchDB's HTTP API over a node's databases. Thin: it reads requests, calls `database`, writes answers.
//!
//! | folder | answers |
//! |---|---|
//! | `connection` | how does a connection live? |
//! | `exchange` | what is checked before the router, and what does every answer carry? |
//! | `request` | what did the client send, and a proxy on its behalf? |
//! | `router` | who handles a route, and who may use it? The crate `routes` matches paths |
//! | `server_routes`, `database_routes`, `document_routes`, `design_routes` | what happens at a route? |
//! | `reply`, `errors` | what does the client get? The crate `statuses` has the table of statuses |
//! | `browsers` | what may pages of other origins do? |
//! | `spread` | how are requests to databases on several nodes divided? |
//! | `forwarded_clients`, `forwarded_headers` | what happens to requests that another node forwards? |
//! | `app`, `settings` | what does every request need, and which settings are current? |
//! | `accounting` | what is counted, and logged about a request at its end? |
//! | `metric_catalogue` | what is the value of each metric? The crate `metrics` writes them |
#![forbid(unsafe_code)]

mod accounting;
mod app;
mod browsers;
mod clustered;
mod connection;
mod database_routes;
mod design_routes;
mod document_routes;
mod errors;
mod exchange;
mod forwarded_clients;
mod forwarded_headers;
mod load;
mod metric_catalogue;
mod reply;
mod request;
mod router;
mod server_routes;
mod settings;
mod shares;
mod spread;

pub use app::{App, COUCHDB_VERSION, Ending};
pub use browsers::dev::Dev;
pub use connection::listen::{Listeners, serve, set_connection_options};
pub use connection::tls::{Tls, TlsError};
pub use forwarded_clients::forwarded_clients;
pub use reply::answers::measure_by;
