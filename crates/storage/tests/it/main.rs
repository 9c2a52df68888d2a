//! The integration tests of `storage`: one program, so that it is linked once.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod access;
mod codec;
mod contents;
mod dropped;
mod fuzz;
mod group_commit;
mod log_rotation;
mod pieces;
mod read_lately;
mod slots;
mod summary;
mod time_seq;
