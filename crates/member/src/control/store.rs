//! The control slot on this node's store.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cluster::record::{Agreement, Body, Request, Work};
use cluster::replica::{Cursor, DurableState, Promises};
use cluster::slot::{Outcomes, SlotStore, StoreError};
use cluster::{BoxFuture, CONTROL, NodeId};
use database::{DatabaseUuid, Databases};
use parking_lot::Mutex;
use storage::{SlotOutcome, Snapshot, WorkOutcome};

use super::state::{ControlState, Effect};
use super::{Catalogue, OnSetting, bring_in_line};
use crate::copy::{Copier, FetchedCopy};
use crate::slot::{Assembly, Chunk, Prepare, PreparedRecord, Queue, failed, open_error};

type Result<T> = std::result::Result<T, StoreError>;

/// Delay before a retry after a failure.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The control slot.
pub struct ControlSlot {
    queue: Queue,
    applier: Arc<Applier>,
    copier: Arc<Copier>,
}

impl ControlSlot {
    /// Starts it; requires a Tokio runtime.
    pub fn start(
        databases: &Arc<Databases>,
        catalogue: &Arc<Catalogue>,
        copier: Arc<Copier>,
        on_setting: OnSetting,
    ) -> ControlSlot {
        let applier = Arc::new(Applier {
            databases: databases.clone(),
            catalogue: catalogue.clone(),
            on_setting,
            long: Assembly::new(databases.store().clone(), CONTROL),
            ahead: Mutex::default(),
            queued: Mutex::default(),
            going: Mutex::default(),
            one: tokio::sync::Mutex::default(),
            is_late: AtomicBool::new(false),
        });
        ControlSlot {
            queue: Queue::start(CONTROL, databases.store().clone(), applier.clone()),
            applier,
            copier,
        }
    }
}

/// Returns the state in the store.
pub fn stored_state(databases: &Databases) -> Result<ControlState> {
    state_in(&databases.store().snapshot())
}

/// Returns the record versions in the store. They can be read whatever program wrote the rest.
pub fn stored_agreement(databases: &Databases) -> Result<Agreement> {
    let rows = databases.store().slot_state(CONTROL, &[]).map_err(failed)?;
    ControlState::agreement_in(&rows)
        .ok_or_else(|| StoreError::Failed("the stored record versions are damaged".into()))
}

/// Returns the state in a snapshot of the store.
pub(crate) fn state_in(snapshot: &Snapshot) -> Result<ControlState> {
    let rows = snapshot.slot_state(CONTROL, &[]).map_err(failed)?;
    let rows: Vec<_> = rows
        .into_iter()
        .filter(|(key, _)| ControlState::owns(key))
        .collect();
    ControlState::from_rows(&rows)
        .ok_or_else(|| StoreError::Failed("the stored state of the control slot is damaged".into()))
}

impl SlotStore for ControlSlot {
    type Outcome = SlotOutcome;
    type Copy = FetchedCopy;

    fn saved(&self) -> Result<Option<DurableState>> {
        let saved = self.queue.saved()?;
        // Changes that were not written have no effect.
        let at = saved.as_ref().map_or(0, |s| s.cursor.position.next_offset);
        self.applier.going.lock().retain(|(of, ..)| *of <= at);
        self.applier.renew(stored_state(&self.applier.databases)?)?;
        // A database that could not be deleted is deleted later, whether records arrive or not.
        if !self.applier.going.lock().is_empty() {
            tokio::spawn(self.applier.clone().delete_late(at));
        }
        Ok(saved)
    }

    fn apply(
        &self,
        body: Option<Body>,
        cursor: &Cursor,
    ) -> BoxFuture<'static, Result<Outcomes<SlotOutcome>>> {
        let next_offset = cursor.position.next_offset;
        let done = self.queue.apply(body, cursor);
        let applier = self.applier.clone();
        Box::pin(async move {
            let outcomes = done.await?;
            applier.delete_before(next_offset).await?;
            // Shown once it is on disk and its action is done.
            applier.show_before(next_offset);
            Ok(outcomes)
        })
    }

    fn promise(&self, promises: &Promises) -> BoxFuture<'static, Result<()>> {
        self.queue.promise(promises)
    }

    fn position(&self) -> Result<cluster::Position> {
        self.queue.position()
    }

    fn copy(&self, from: NodeId) -> BoxFuture<'static, Result<FetchedCopy>> {
        let (renewal, applier) = (self.queue.renewal(), self.applier.clone());
        let then = Box::new(move || {
            Box::pin(async move {
                renewal.renew_now()?;
                applier.take_over().await
            }) as BoxFuture<'static, Result<()>>
        });
        Box::pin(self.copier.clone().fetch(CONTROL, from, then))
    }
}

/// An entry with the gateway and the counter of its request.
type NumberedEntry = (u64, u64, Vec<u8>);

/// Returns the entries of requests. Each has one.
fn entries(requests: &[Request]) -> Vec<NumberedEntry> {
    let entry = |request: &Request| {
        let entry = request.databases.iter().find_map(|part| match &part.work {
            Work::Entry(entry) => Some(entry.clone()),
            Work::Edits(_) | Work::Purges(_) => None,
        });
        (request.gateway, request.counter, entry.unwrap_or_default())
    };
    requests.iter().map(entry).collect()
}

/// Applies entries.
struct Applier {
    databases: Arc<Databases>,
    catalogue: Arc<Catalogue>,
    on_setting: OnSetting,
    /// Requests in chunks: an entry may be longer than a record.
    long: Assembly,
    /// The state after everything queued for the store.
    ahead: Mutex<ControlState>,
    /// Entries that are queued for the store, each with the offset after it.
    queued: Mutex<VecDeque<(u64, NumberedEntry)>>,
    /// Databases to delete once their drop is on disk: each with the offset after it.
    going: Mutex<Vec<(u64, String, DatabaseUuid)>>,
    /// Databases are created and deleted one at a time: one that is being deleted blocks another of
    /// the same name.
    one: tokio::sync::Mutex<()>,
    /// [`Applier::delete_late`] is running.
    is_late: AtomicBool,
}

impl Prepare for Applier {
    async fn prepare(&self, body: Body, cursor: &Cursor) -> Result<PreparedRecord> {
        let mut prepared = PreparedRecord::default();
        let next_offset = cursor.position.next_offset;
        // The action is taken before the entry is written: after a crash it is repeated, which has
        // no effect. But a deletion is irreversible, so it is done after the write: every database
        // in the stored catalogue exists here.
        let entries = match body {
            Body::Requests(requests) => entries(&requests),
            Body::Part {
                gateway,
                counter,
                index,
                count,
                bytes,
            } => {
                let part = Chunk {
                    gateway,
                    counter,
                    index,
                    count,
                    bytes,
                };
                let parted = self.long.take(&part, next_offset).await?;
                prepared.rows = parted.rows;
                entries(parted.request.as_slice())
            }
            _ => vec![],
        };
        for (gateway, counter, entry) in entries {
            let applied = self.ahead.lock().apply(gateway, counter, &entry);
            self.carry_out(applied.effect, next_offset).await?;
            prepared.rows.extend(applied.rows);
            let code = WorkOutcome::Refused(applied.outcome as u8);
            let outcome = SlotOutcome::Done(vec![code]);
            prepared.outcomes.push(((gateway, counter), outcome));
            let numbered = (gateway, counter, entry);
            self.queued.lock().push_back((next_offset, numbered));
        }
        Ok(prepared)
    }
}

impl Applier {
    /// Restarts from a stored state. Entries that were queued and not written have no effect.
    fn renew(&self, state: ControlState) -> Result<()> {
        self.long.load()?;
        self.queued.lock().clear();
        *self.ahead.lock() = state.clone();
        self.catalogue.set(state);
        Ok(())
    }

    /// Shows the entries of records before this offset, which are written.
    fn show_before(&self, next_offset: u64) {
        let mut queued = self.queued.lock();
        let count = queued.partition_point(|(at, _)| *at <= next_offset);
        let written: Vec<_> = queued.drain(..count).map(|(_, entry)| entry).collect();
        // Under the lock: they are shown in order.
        self.catalogue.apply(&written);
    }

    async fn carry_out(&self, effect: Effect, next_offset: u64) -> Result<()> {
        let done = match effect {
            Effect::None | Effect::Members => Ok(()),
            Effect::Create { name, database } => {
                let _one = self.one.lock().await;
                self.catalogue.add_slot_maps([&database]);
                self.databases
                    .create_sequenced(&name, database.to_new())
                    .await
            }
            Effect::Drop { name, uuid } => {
                self.going.lock().push((next_offset, name, uuid));
                Ok(())
            }
            Effect::Change { name, uuid, change } => {
                let property = change.into();
                self.databases.change_sequenced(&name, uuid, property).await
            }
            Effect::Setting {
                section,
                key,
                value,
            } => {
                (self.on_setting)(&section, &key, value.as_deref());
                Ok(())
            }
        };
        done.map_err(open_error)
    }

    /// Deletes the databases that records before this offset drop.
    async fn delete_before(&self, next_offset: u64) -> Result<()> {
        let _one = self.one.lock().await;
        let is_due = |going: &&(u64, String, DatabaseUuid)| going.0 <= next_offset;
        let due: Vec<_> = self.going.lock().iter().filter(is_due).cloned().collect();
        for (_, name, uuid) in due {
            let gone = self.databases.delete_sequenced(&name, uuid).await;
            gone.map_err(open_error)?;
            self.going.lock().retain(|(_, _, other)| *other != uuid);
        }
        Ok(())
    }

    /// Deletes databases with retries until it is done; one at a time.
    async fn delete_late(self: Arc<Applier>, next_offset: u64) {
        if self.is_late.swap(true, Ordering::AcqRel) {
            return;
        }
        while let Err(e) = self.delete_before(next_offset).await
            && !self.catalogue.is_closed()
        {
            tracing::error!(error = %e, "deleting a database failed: it is retried");
            tokio::time::sleep(AGAIN_AFTER).await;
        }
        self.is_late.store(false, Ordering::Release);
    }

    /// Handles a stored state that was replaced by another replica's. It is shown once this node
    /// was reconciled with it.
    async fn take_over(&self) -> Result<()> {
        let state = stored_state(&self.databases)?;
        let before = self.catalogue.with(ControlState::clone);
        self.going.lock().clear();
        self.catalogue.add_slot_maps(state.databases.values());
        while let Err(e) = bring_in_line(&self.databases, &before, &state, &self.on_setting).await {
            if self.catalogue.is_closed() {
                return Err(e);
            }
            tracing::error!(error = %e, "applying the catalogue on this node failed: it is retried");
            tokio::time::sleep(AGAIN_AFTER).await;
        }
        self.renew(state)
    }
}
