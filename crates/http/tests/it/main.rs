//! The integration tests of `http`: one program, so that it is linked once.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod head_timeout;
mod routes;
