//! Ids that a node gives its documents itself.

use embedded::ProcessIds;
use rustler::{Env, Resource, ResourceArc, Term};

use crate::answer::ok_with;
use crate::error::term;

/// A source of ids.
struct Ids(embedded::Ids);

#[rustler::resource_impl]
impl Resource for Ids {}

/// Ids that start at a random number and grow by random steps.
#[rustler::nif]
fn sequential_ids<'a>(env: Env<'a>, prefix: String) -> Term<'a> {
    ids(env, ProcessIds::Sequential, &prefix)
}

/// Ids that start with the time.
#[rustler::nif]
fn monotonic_ids<'a>(env: Env<'a>, prefix: String) -> Term<'a> {
    ids(env, ProcessIds::Monotonic, &prefix)
}

fn ids<'a>(env: Env<'a>, kind: ProcessIds, prefix: &str) -> Term<'a> {
    match embedded::Ids::new(kind, prefix) {
        Ok(ids) => ok_with(env, ResourceArc::new(Ids(ids))),
        Err(e) => term(env, &e),
    }
}

/// The next id.
#[rustler::nif]
fn next_id(ids: ResourceArc<Ids>) -> String {
    ids.0.next()
}
