//! CouchDB's HTTP API over a node's databases. Thin: it reads requests, calls `database`, writes answers.
//!
//! | module | answers |
//! |---|---|
//! | `server`, `linger`, `lenient` | how does a connection live, and what does every answer carry? |
//! | `router` | which route is a path? |
//! | `stored` | what does a selector see of a document? |
//! | `request`, `query` | what did the client say? |
//! | `reply`, `errors` | what does it get? `errors` is the one table from errors to statuses |
//! | `documents`, `bulk`, `listing`, `changes`, `find`, `indexes`, `db` | what happens at a database's routes? |
//! | `design` | what does a design function get of a request, and what becomes of its response? |
//! | `root`, `node`, `session`, `later` | and at the server's? |

mod access;
mod app;
mod bulk;
mod changes;
mod db;
pub mod design;
mod documents;
mod errors;
mod feed;
mod find;
mod indexes;
mod later;
mod lenient;
mod linger;
mod listing;
mod node;
mod query;
mod reply;
mod request;
mod root;
mod router;
mod server;
mod session;
mod stats;
mod stored;
mod views;

pub use app::{App, COUCHDB_VERSION, NODE};
pub use server::serve;
