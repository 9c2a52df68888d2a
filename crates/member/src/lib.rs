//! What does a server do as a member of a cluster? Its writes go into the log, and what the log brings is applied to its store.
//!
//! [`Member::start`] is where it begins, on top of the node's [`Databases`](database::Databases). `slot/` applies records to
//! documents, `control/` keeps what is the same on every node, `gateway.rs` takes this node's writes to the log (`database_lifecycle.rs`: databases, `validation.rs`: by what they were validated), `handler.rs` is
//! what other nodes ask of it, `join.rs` how a node comes in.

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
