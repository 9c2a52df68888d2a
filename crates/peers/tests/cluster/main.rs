//! Nodes that talk, in one process.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod calls;
mod certificates;
mod figures;
mod joining;
mod messages;
mod support;
