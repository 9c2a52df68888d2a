//! CouchDB's HTTP API over a node's databases. Thin: it reads requests, calls `database`, writes answers.
//!
//! | module | answers |
//! |---|---|
//! | `server`, `tls`, `patience`, `linger`, `lenient` | how does a connection live, and what does every answer carry? |
//! | `router` | which route is a path? |
//! | `stored` | what does a selector see of a document? |
//! | `request`, `body`, `query`, `forwarded` | what did the client say, and what a proxy of it? |
//! | `internal` | what may be done in a client's place, which it did not ask for? |
//! | `reply`, `errors` | what does it get? `errors` is the one table from errors to statuses |
//! | `documents`, `attachments`, `bulk`, `listing`, `changes`, `find`, `indexes`, `partition`, `db` | what happens at a database's routes? |
//! | `write_mode` | how is a write to be acknowledged? |
//! | `design` | what does a design function get of a request, and what becomes of its response? |
//! | `replication` | what can be replicated, and how do replications fare? |
//! | `cors`, `cross_site`, `frame_options` | what may pages of other origins do? |
//! | `host` | is the request for this server? |
//! | `root`, `node`, `session`, `setup`, `utils`, `db_updates`, `later` | and at the server's? |

mod access;
mod app;
mod attachments;
mod body;
mod bulk;
mod changes;
mod cors;
mod cross_site;
mod db;
mod db_updates;
pub mod design;
mod documents;
mod errors;
mod feed;
mod find;
mod forwarded;
mod frame_options;
mod given;
mod host;
mod indexes;
mod internal;
mod jsonp;
mod later;
mod lenient;
mod linger;
mod listing;
mod node;
mod partition;
mod patience;
mod query;
mod replication;
mod reply;
mod request;
mod root;
mod router;
mod server;
mod session;
mod setup;
mod stats;
mod stored;
mod tls;
mod utils;
mod views;
mod wrapper;
mod write_mode;

pub use app::{App, COUCHDB_VERSION, NODE};
pub use server::{Listeners, serve};
pub use setup::create_system_databases;
pub use tls::{Tls, TlsError};
