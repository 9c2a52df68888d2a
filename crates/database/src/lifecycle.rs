//! Whether a database still exists, or is deleted or replaced.

use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::{Acquire, Release};

use crate::Error;

const OPEN: u8 = 0;
/// It was deleted.
pub(crate) const DELETED: u8 = 1;
/// Others took the place of its shards.
pub(crate) const REPLACED: u8 = 2;
/// The reason that clients get meanwhile.
const REPLACED_REASON: &str = "the database is being copied from another node: try again";

/// One of [`OPEN`], [`DELETED`], [`REPLACED`]; shared with everything that outlives a call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lifecycle(Arc<AtomicU8>);

impl Lifecycle {
    pub fn live(&self) -> Result<(), Error> {
        match self.0.load(Acquire) {
            OPEN => Ok(()),
            DELETED => Err(Error::NoDatabase),
            _ => Err(Error::Unavailable(REPLACED_REASON.into())),
        }
    }

    pub fn end(&self, how: u8) {
        self.0.store(how, Release);
    }

    /// Adjusts a result: reports a removed shard as a missing database, or as a replaced one.
    pub fn explain<T>(&self, done: Result<T, Error>) -> Result<T, Error> {
        match done {
            Err(Error::NoDatabase) => self.live().and(Err(Error::NoDatabase)),
            done => done,
        }
    }
}
