//! Replication between databases on this server and databases behind HTTP, compatible with CouchDB.
//!
//! | module | answers |
//! |---|---|
//! | `options`, `endpoint` | What does a replication document describe? |
//! | [`id`] | What is the replication id, which names the checkpoints? |
//! | `db` | How is a database read and written, on this server or behind HTTP? |
//! | `rows` | How is a JSON stream split into rows? |
//! | `job`, `checkpoint`, `progress` | How does one run copy everything, and what does it record? |
//! | `batch_memory`, `selections` | How much memory do jobs take, and who gets it next? |
//! | `scheduler` | Which jobs run when? |
//! | `requested`, `kept` | How do continuous replications of `_replicate` outlive a node of a cluster? |
//! | `docs` | How do documents of replicator databases become jobs, and how are their states written back? |
//! | `finished` | What does `_scheduler/docs` show of documents without a job? |
#![forbid(unsafe_code)]

mod batch_memory;
mod checkpoint;
pub mod counters;
mod db;
mod docs;
mod endpoint;
mod environment;
mod error;
mod finished;
pub mod id;
mod job;
mod kept;
mod options;
mod placement;
mod progress;
mod replicator;
mod requested;
mod rows;
mod rules;
mod scheduler;
mod selections;
mod settings;
mod shared_reads;
mod spans;
mod time;

pub use db::{AllowedAddresses, ConnectTo, LocalDb, TOKEN};
pub use endpoint::{Endpoint, without_user_info};
pub use environment::Environment;
pub use error::Error;
pub use kept::{KeptRequest, KeptRequests};
pub use options::{DocRef, Replication, Request, RolesOf, Selection, User};
pub use placement::Placement;
pub use replicator::{ReplicateResult, Replicator};
pub use rows::row_bytes_max;
pub use rules::is_replicator_db;
pub use scheduler::{JobCounts, local_id_json};
pub use settings::Settings;
pub use shared_reads::{BoxFuture, Settle, SharedReads};
pub use time::iso8601;
