//! The explicit slots of databases, for requests.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};

use cluster::SlotNumber;
use database::DatabaseUuid;
use parking_lot::RwLock;
use rustc_hash::FxHashMap;

use super::entry::CataloguedDatabase;

/// The explicit slots of databases. Those of a database are known before it exists on this node, so
/// a request that finds the database finds its slots.
#[derive(Default)]
pub(super) struct SlotMaps {
    /// Requests of a cluster without explicit slots take no lock.
    has_any: AtomicBool,
    all: RwLock<FxHashMap<DatabaseUuid, Arc<[SlotNumber]>>>,
}

impl SlotMaps {
    /// Adds those of databases.
    pub fn add<'a>(&self, databases: impl IntoIterator<Item = &'a CataloguedDatabase>) {
        for database in databases {
            if !database.slots.is_empty() {
                let slots = database.slots.as_slice().into();
                self.all.write().insert(database.uuid, slots);
                self.has_any.store(true, Release);
            }
        }
    }

    /// Removes those of a database that was dropped.
    pub fn remove(&self, uuid: DatabaseUuid) {
        if self.has_any.load(Acquire) {
            self.all.write().remove(&uuid);
        }
    }

    /// Returns those of a database; `None` if it has none.
    pub fn of(&self, uuid: DatabaseUuid) -> Option<Arc<[SlotNumber]>> {
        if !self.has_any.load(Acquire) {
            return None;
        }
        self.all.read().get(&uuid).cloned()
    }
}
