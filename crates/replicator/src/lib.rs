//! Replication between databases of this server and databases behind HTTP, as CouchDB does it.
//!
//! | module | answers |
//! |---|---|
//! | `options`, `endpoint` | what does a replication's description ask for? |
//! | [`id`] | what is its id, which names its checkpoints? |
//! | `db` | how is a database read and written, here or behind HTTP? |
//! | `rows` | where are the rows in a stream of JSON? |
//! | `job`, `checkpoint`, `progress` | how is everything copied once, and what is recorded of it? |
//! | `scheduler` | which jobs run when? |
//! | `docs` | what do the documents of replicator databases ask for, and what are they told? |
#![forbid(unsafe_code)]

mod checkpoint;
pub mod counters;
mod db;
mod docs;
mod endpoint;
mod environment;
mod error;
pub mod id;
mod job;
mod options;
mod progress;
mod replicator;
mod rows;
mod rules;
mod scheduler;
mod settings;
mod time;
mod traced;

pub use db::{Allowed, LocalDb, TOKEN};
pub use endpoint::{Endpoint, without_user_info};
pub use environment::{Environment, Pending};
pub use error::Error;
pub use options::{DocRef, Replication, Request, Selection, User};
pub use replicator::{Replicated, Replicator};
pub use rules::is_replicator_db;
pub use scheduler::{JobCounts, local_id_json};
pub use settings::Settings;
pub use time::iso8601;
