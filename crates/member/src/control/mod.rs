//! The control slot: cluster-wide state, the same on every node.

pub mod entry;
mod local;
pub mod placement_entry;
pub mod placement_state;
pub mod replications;
mod rows;
mod slot_maps;
pub mod state;
mod store;

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};

use cluster::SlotNumber;
use cluster::record::Agreement;
use cluster::slot::StoreError;
use database::{Database, DatabaseUuid, Databases};
use parking_lot::RwLock;
use tokio::sync::watch;

pub use self::local::OnSetting;
use self::local::bring_in_line;
use self::slot_maps::SlotMaps;
use self::state::{ControlState, Effect};
pub(crate) use self::store::state_in;
pub use self::store::{ControlSlot, stored_agreement, stored_state};
use crate::placement::ShardSlots;

/// A shared view of the control slot's state on this node.
pub struct Catalogue {
    state: RwLock<ControlState>,
    version: watch::Sender<u64>,
    /// Counts the decisions about the nodes that run jobs.
    runners: watch::Sender<u64>,
    /// The record versions of the cluster.
    agreement: watch::Sender<Agreement>,
    slot_maps: SlotMaps,
    /// Slots may have some of the nodes only.
    is_placed: AtomicBool,
    /// Counts databases that were created or dropped.
    database_changes: AtomicU64,
    closed: watch::Sender<bool>,
}

impl Catalogue {
    /// Creates it with the stored state.
    pub fn new(state: ControlState) -> Catalogue {
        let version = watch::Sender::new(state.version);
        let runners = watch::Sender::new(state.runners.changes);
        let agreement = watch::Sender::new(state.agreement.clone());
        let slot_maps = SlotMaps::default();
        slot_maps.add(state.databases.values());
        let is_placed = AtomicBool::new(state.placement.copies.is_some());
        Catalogue {
            state: RwLock::new(state),
            version,
            runners,
            agreement,
            slot_maps,
            is_placed,
            database_changes: AtomicU64::new(0),
            closed: watch::Sender::new(false),
        }
    }

    /// Creates it with the stored state, after this node was reconciled with it: a crash may have
    /// come in between.
    pub(crate) async fn open(
        databases: &Arc<Databases>,
        on_setting: &OnSetting,
    ) -> Result<Arc<Catalogue>, StoreError> {
        let state = stored_state(databases)?;
        bring_in_line(databases, &ControlState::default(), &state, on_setting).await?;
        Ok(Arc::new(Catalogue::new(state)))
    }

    /// Reads the state.
    pub fn with<T>(&self, look: impl FnOnce(&ControlState) -> T) -> T {
        look(&self.state.read())
    }

    /// Replaces the state.
    pub(crate) fn set(&self, state: ControlState) {
        let (version, runners) = (state.version, state.runners.changes);
        let agreement = state.agreement.clone();
        self.slot_maps.add(state.databases.values());
        let is_placed = state.placement.copies.is_some();
        *self.state.write() = state;
        self.is_placed.store(is_placed, Release);
        self.database_changes.fetch_add(1, AcqRel);
        self.version.send_replace(version);
        self.runners.send_replace(runners);
        self.agreement.send_replace(agreement);
    }

    /// Applies entries that the store has.
    pub(crate) fn apply(&self, entries: &[(u64, u64, Vec<u8>)]) {
        let mut state = self.state.write();
        for (gateway, counter, entry) in entries {
            let applied = state.apply(*gateway, *counter, entry);
            if let Effect::Drop { uuid, .. } = applied.effect {
                self.slot_maps.remove(uuid);
            }
            if let Effect::Create { .. } | Effect::Drop { .. } = applied.effect {
                self.database_changes.fetch_add(1, AcqRel);
            }
        }
        let is_placed = state.placement.copies.is_some();
        self.is_placed.store(is_placed, Release);
        let (version, runners) = (state.version, state.runners.changes);
        let agreement = state.agreement.clone();
        drop(state);
        set_if_new(&self.version, version);
        set_if_new(&self.runners, runners);
        set_if_new(&self.agreement, agreement);
    }

    /// Adds the explicit slots of databases that this node is about to create.
    pub(crate) fn add_slot_maps<'a>(
        &self,
        databases: impl IntoIterator<Item = &'a entry::CataloguedDatabase>,
    ) {
        self.slot_maps.add(databases);
    }

    /// Returns the slots of a database's shards, in a cluster with `slots` data slots.
    pub(crate) fn shard_slots(&self, uuid: DatabaseUuid, slots: SlotNumber) -> ShardSlots {
        ShardSlots::new(uuid, slots, self.slot_maps.of(uuid))
    }

    /// Returns whether slots may have some of the nodes only: requests of other clusters ask no
    /// more.
    pub(crate) fn is_placed(&self) -> bool {
        self.is_placed.load(Acquire)
    }

    /// Returns a number that changes when databases are created or dropped.
    pub(crate) fn database_changes(&self) -> u64 {
        self.database_changes.load(Acquire)
    }

    /// Returns the local version.
    pub fn version(&self) -> u64 {
        *self.version.borrow()
    }

    /// Waits for a version.
    ///
    /// # Errors
    /// The server stops before.
    pub async fn wait_for(&self, version: u64) -> Result<(), StoreError> {
        let (mut here, mut closed) = (self.version.subscribe(), self.closed.subscribe());
        // The senders live as long as this.
        tokio::select! {
            _ = here.wait_for(|here| *here >= version) => Ok(()),
            _ = closed.wait_for(|closed| *closed) => {
                Err(StoreError::Failed("the server is shutting down".into()))
            }
        }
    }

    /// Ends all waits for versions.
    pub fn close(&self) {
        self.closed.send_replace(true);
    }

    /// Returns whether the server is stopping.
    pub fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }

    /// Notifies of every decision about the nodes that run jobs.
    pub fn watch_runners(&self) -> watch::Receiver<u64> {
        self.runners.subscribe()
    }

    /// Notifies of all changes of the record versions.
    pub fn watch_agreement(&self) -> watch::Receiver<Agreement> {
        self.agreement.subscribe()
    }

    /// Returns the record versions of the cluster.
    pub fn agreement(&self) -> Agreement {
        self.agreement.borrow().clone()
    }

    /// Notifies of every version.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Returns the database with this uuid, if it is in the catalogue.
    ///
    /// # Errors
    /// Errors of opening it.
    pub fn database(
        &self,
        databases: &Databases,
        uuid: DatabaseUuid,
    ) -> Result<Option<Arc<Database>>, database::Error> {
        let Some(name) = self.with(|state| state.names.get(&uuid).cloned()) else {
            return Ok(None);
        };
        match databases.get(&name) {
            Ok(db) => Ok((db.uuid() == uuid).then_some(db)),
            Err(database::Error::NoDatabase) => Ok(None),
            Err(e) => Err(e),
        }
    }
}

/// Sets a value, and notifies its receivers if it is another one.
fn set_if_new<T: PartialEq>(sender: &watch::Sender<T>, new: T) {
    sender.send_if_modified(|here| {
        let is_new = *here != new;
        *here = new;
        is_new
    });
}
