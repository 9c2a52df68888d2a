//! The integration tests of `bench`: one program, so that it is linked once.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod bench;
#[allow(dead_code, reason = "crates/load has tests with it too")]
mod fake;
mod measuring;
