//! The integration tests of `kafka-log`: one program, so that it is linked once.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod common;
mod faults;
mod log;
