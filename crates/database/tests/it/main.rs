//! The integration tests of `database`: one program, so that it is linked once.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod access;
mod access_queries;
mod attachments;
mod auto_purge;
mod closing;
mod concurrency;
mod designs;
mod expiry;
mod filtered_feeds;
mod golden;
mod homes;
mod large;
mod lifecycle;
mod model;
mod replacing;
mod rules;
mod support;
mod validate;
mod view_keys;
