//! What does a server do as a member of a cluster? Its writes go into the log, and what the log brings is applied to its store.
//!
//! [`Member::start`] is where it begins, on top of the node's [`Databases`](database::Databases). `slot/` applies records to
//! documents, `control/` keeps what is the same on every node, `gateway.rs` takes this node's writes to the log (`existence.rs`: databases, `validation.rs`: by what they were validated), `handler.rs` is
//! what other nodes ask of it, `join.rs` how a node comes in.

#![forbid(unsafe_code)]

pub mod control;
mod copy;
mod error;
mod existence;
mod gateway;
mod handler;
mod home;
mod join;
mod member;
mod members;
mod parts;
mod placement;
mod planner;
mod propose;
mod replicas;
mod slot;
#[cfg(test)]
mod tests;
mod validation;

pub use control::entry::Member as MemberFacts;
pub use error::Error;
pub use gateway::{GOING, Gateway, Seen};
pub use handler::{CLIENT, Clients};
pub use home::{Home, folder, is_member};
pub use join::{init, join};
pub use member::{Member, MemberOptions, NodeStatus, SlotSummary};
