//! A server as a member of a cluster: its writes go into the log, and records of the log are
//! applied to its store.
//!
//! [`Member::start`] is the entry point, on top of the node's [`Databases`](database::Databases).
//! `slot/` applies records to documents, `control/` keeps cluster-wide state, `gateway.rs` proposes
//! this node's writes (`database_lifecycle.rs`: databases, `validation.rs`: the design documents
//! that validated them), `handler.rs` handles requests from other nodes, `join.rs` adds nodes.

#![forbid(unsafe_code)]

pub mod control;
mod copy;
mod database_lifecycle;
mod error;
mod gateway;
mod handler;
mod join;
mod member;
mod members;
mod membership;
mod placement;
mod planner;
mod propose;
mod replicas;
mod slot;
mod slot_starter;
#[cfg(test)]
mod tests;
mod validation;

pub use control::entry::MemberInfo;
pub use error::Error;
pub use gateway::{GOING, Gateway, Seen};
pub use handler::{CLIENT, Clients};
pub use join::{init, join};
pub use member::{Member, MemberOptions, NodeStatus, SlotSummary};
pub use membership::{Membership, folder, is_member};
