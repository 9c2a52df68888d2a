//! The library that `settee_nif.erl` loads: databases in an Erlang node. The public API is in
//! Erlang, `erlang/settee.erl`, and in Elixir, `elixir/settee.ex`.
//!
//! No function here waits. Each starts its work on threads of the database's own runtime, and
//! returns; the result is sent to the calling process as `{Tag, Result}` ([`answer`]). Any number of
//! processes can therefore wait concurrently. Erlang has only ten dirty I/O schedulers, and their
//! stacks of 320 KiB are too small for RocksDB. Only the conversion of large terms to JSON text
//! runs on dirty schedulers ([`text`]).

#![deny(unsafe_code)]

mod answer;
mod attachments;
mod bulk;
mod close;
mod database;
mod directory;
mod error;
mod exit;
mod ids;
mod later;
mod opened;
mod rows;
mod terms;
mod text;

use rustler::{Env, Term};

rustler::init!("settee_nif", load = load);

fn load(_env: Env<'_>, _info: Term<'_>) -> bool {
    exit::close_directories_at_exit();
    true
}

/// The version of the package.
#[rustler::nif]
fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}
