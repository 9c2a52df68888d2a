//! The integration tests of `cluster`: one program, so that it is linked once.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod directed;
mod messages;
mod records;
mod simulation;
mod slots;
mod versions;
