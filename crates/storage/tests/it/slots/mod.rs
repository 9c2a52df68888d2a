//! Writes of slots: replicas that apply the same log reach the same state, and refusals leave no
//! trace.

pub mod copy;
mod copy_contents;
mod copy_refusals;
pub mod crash;
mod dump;
mod history;
mod model;
mod refusals;
mod replay;
mod sessions;
pub mod world;
