//! The integration tests of `replicator`: one program, so that it is linked once.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod embedded;
mod filters;
mod kept;
mod support;
