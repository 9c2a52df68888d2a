//! The integration tests of `search`: one program, so that it is linked once.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod facets;
mod files;
mod index;
mod merges;
mod naive;
mod support;
mod write_behind;
