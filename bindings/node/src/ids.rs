//! Ids that a process gives its documents itself.

use embedded::ProcessIds;
use napi_derive::napi;

use crate::error::exception;

/// A source of ids.
#[napi]
pub struct Ids(embedded::Ids);

#[napi]
impl Ids {
    /// The next id.
    #[napi]
    pub fn next(&self) -> String {
        self.0.next()
    }
}

/// Ids that start at a random number and grow by random steps.
#[napi]
pub fn sequential_ids(prefix: String) -> napi::Result<Ids> {
    ids(ProcessIds::Sequential, &prefix)
}

/// Ids that start with the time.
#[napi]
pub fn monotonic_ids(prefix: String) -> napi::Result<Ids> {
    ids(ProcessIds::Monotonic, &prefix)
}

fn ids(kind: ProcessIds, prefix: &str) -> napi::Result<Ids> {
    embedded::Ids::new(kind, prefix).map(Ids).map_err(exception)
}
