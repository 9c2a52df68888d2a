//! The control slot on this node's store.

use std::sync::Arc;

use cluster::record::{Body, Request, Work};
use cluster::replica::{Cursor, Promises, Saved};
use cluster::slot::{Outcomes, SlotStore, StoreError};
use cluster::{CONTROL, Later, NodeId};
use database::Databases;
use parking_lot::Mutex;
use storage::{SlotOutcome, WorkOutcome};

use super::Catalogue;
use super::state::{ControlState, Effect};
use crate::copy::{Copied, Copier};
use crate::slot::{Prepare, Prepared, Queue, failed, open_error};

type Result<T> = std::result::Result<T, StoreError>;

/// What is told of a setting that all nodes have alike.
pub type OnSetting = Box<dyn Fn(&str, &str, Option<&str>) + Send + Sync>;

/// The control slot.
pub struct ControlSlot {
    queue: Queue,
    applier: Arc<Applier>,
    copier: Arc<Copier>,
}

impl ControlSlot {
    /// Begins; needs a Tokio runtime.
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
            ahead: Mutex::default(),
        });
        ControlSlot {
            queue: Queue::start(CONTROL, databases.store().clone(), applier.clone()),
            applier,
            copier,
        }
    }
}

/// The state that the store has.
pub fn stored_state(databases: &Databases) -> Result<ControlState> {
    let rows = databases.store().slot_state(CONTROL, &[]).map_err(failed)?;
    let rows: Vec<_> = rows
        .into_iter()
        .filter(|(key, _)| ControlState::owns(key))
        .collect();
    ControlState::from_rows(&rows)
        .ok_or_else(|| StoreError::Failed("what is kept of the control slot is damaged".into()))
}

impl SlotStore for ControlSlot {
    type Outcome = SlotOutcome;
    type Copy = Copied;

    fn saved(&self) -> Result<Option<Saved>> {
        let saved = self.queue.saved()?;
        let state = stored_state(&self.applier.databases)?;
        *self.applier.ahead.lock() = state.clone();
        self.applier.catalogue.set(state);
        Ok(saved)
    }

    fn apply(
        &self,
        body: Option<Body>,
        cursor: &Cursor,
    ) -> Later<'static, Result<Outcomes<SlotOutcome>>> {
        let entries = body.as_ref().map(entries).unwrap_or_default();
        let done = self.queue.apply(body, cursor);
        let catalogue = self.applier.catalogue.clone();
        Box::pin(async move {
            let outcomes = done.await?;
            // Shown once it is on disk and done.
            catalogue.apply(&entries);
            Ok(outcomes)
        })
    }

    fn promise(&self, promises: &Promises) -> Later<'static, Result<()>> {
        self.queue.promise(promises)
    }

    fn position(&self) -> Result<cluster::Position> {
        self.queue.position()
    }

    fn copy(&self, from: NodeId) -> Later<'static, Result<Copied>> {
        let copier = self.copier.clone();
        Box::pin(async move { copier.fetch(CONTROL, from).await })
    }
}

/// The entries of a record, with gateways and counters. A request has one.
fn entries(body: &Body) -> Vec<(u64, u64, Vec<u8>)> {
    let Body::Requests(requests) = body else {
        return vec![];
    };
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
    /// With everything that was queued for the store.
    ahead: Mutex<ControlState>,
}

impl Prepare for Applier {
    async fn prepare(&self, body: Body, _: &Cursor) -> Result<Prepared> {
        let mut prepared = Prepared::default();
        // Done before it is written that it is: after a crash it is done again, which changes nothing.
        for (gateway, counter, entry) in entries(&body) {
            let applied = self.ahead.lock().apply(gateway, counter, &entry);
            self.carry_out(applied.effect).await?;
            prepared.rows.extend(applied.rows);
            let code = WorkOutcome::Refused(applied.outcome as u8);
            let outcome = SlotOutcome::Done(vec![code]);
            prepared.outcomes.push(((gateway, counter), outcome));
        }
        Ok(prepared)
    }
}

impl Applier {
    async fn carry_out(&self, effect: Effect) -> Result<()> {
        let done = match effect {
            Effect::None | Effect::Members => Ok(()),
            Effect::Create { name, database } => {
                self.databases
                    .create_ordered(&name, database.to_new())
                    .await
            }
            Effect::Drop { name, uuid } => self.databases.delete_ordered(&name, uuid).await,
            Effect::Change { name, change } => match self.databases.get(&name) {
                Ok(db) => db.change_ordered(change.into()).await,
                Err(e) => Err(e),
            },
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
}
