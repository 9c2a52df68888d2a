//! A server as a member of a cluster: its writes go into the log, and records of the log are
//! applied to its store.
//!
//! [`Member::start`] is the entry point, on top of the node's [`Databases`](database::Databases).
//! `slot/` applies records to documents, `control/` keeps cluster-wide state, `gateway.rs` proposes
//! this node's writes (`database_lifecycle.rs`: databases, `validation.rs`: the design documents
//! that validated them; `barriers_elsewhere.rs`: in slots of other nodes), `content/` copies attachments without the log, `handler.rs` handles
//! requests from other nodes, `join.rs` adds nodes, `adopt.rs` makes a single server the first
//! node, `jobs.rs` assigns jobs to nodes, `placement/` decides which nodes have which slots,
//! `versions.rs` raises the version of records.

#![forbid(unsafe_code)]

mod address_check;
mod adopt;
mod barrier_report;
mod barriers_elsewhere;
mod choice;
mod content;
pub mod control;
mod copy;
pub mod counters;
mod database_lifecycle;
mod decider;
mod edit_records;
mod error;
pub mod everywhere;
mod figures;
mod forward;
mod forward_room;
mod gateway;
mod ground;
mod handler;
mod hold;
mod jobs;
mod join;
mod log_duty;
mod log_reach;
mod log_table;
mod log_transport;
mod log_trim;
mod log_watch;
mod member;
mod members;
mod membership;
mod network_bench;
mod newest_log;
mod open_log;
mod options;
pub mod placement;
mod placing;
mod planner;
mod progress;
mod propose;
mod query;
mod replicas;
mod requested;
mod reseed;
mod slot;
mod slot_batches;
pub mod slot_decisions;
pub mod slot_holders;
mod slot_lives;
mod slot_removal;
mod slot_starter;
mod slot_summary;
#[cfg(test)]
mod tests;
mod validation;
mod versions;

pub use adopt::{AdoptedData, IdleStore, LeftData, NewCluster, require_unused};
pub use cluster::record::RecordVersion;
pub use control::entry::MemberInfo;
pub use control::replications::KeptReplication;
pub use error::Error;
pub use figures::{ClusterFigures, HaltedLog, LogStatus, OwnLogStatus, PeerFigures, SlotFigures};
pub use forward::ForwardedClientRequest;
pub use gateway::{GOING, Gateway, ReadSlots};
pub use handler::{CLIENT, CLIENT_ADDRESS, Clients, GATHERED, NOT_STARTED, PART};
pub use jobs::Jobs;
pub use join::{init, join};
pub use member::{ClusterVersions, Member, NodeStatus};
pub use membership::{LogKeeper, Membership, folder, is_member};
pub use network_bench::{NetworkFigures, NodeNetwork};
pub use open_log::LogPlace;
pub use options::MemberOptions;
pub use placing::{DatabasePart, PlacementPlan, PlannedNode, SlotNodes};
pub use raft_log::LogFigures;
pub use requested::{KeepError, RequestedReplications};
pub use slot_summary::SlotSummary;
