//! Starts slots over any log and network.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cluster::record::RecordVersions;
use cluster::replica::Cursor;
use cluster::slot::{Network, Slot, SlotOptions, StoreError};
use cluster::{CONTROL, Log, NodeId, SlotNumber};
use database::Databases;
use tokio::time::Instant;

use crate::Error;
use crate::content::ContentExchange;
use crate::control::state::ControlState;
use crate::control::{Catalogue, ControlSlot, OnSetting};
use crate::copy::Copier;
use crate::members::Members;
use crate::membership::{Cluster, random};
use crate::placement::SlotSets;
use crate::replicas::{Replicas, StartedSlot};
use crate::slot::{CURSOR, DataSlot, failed};
use crate::slot_holders::{SlotChange, SlotKeeper, are_ahead, left_to};
use crate::slot_removal::remove_slot;
use crate::validation::Validators;

/// Interval at which the node checks which slots it should have.
const KEPT_EVERY: Duration = Duration::from_secs(2);
/// Time limit to learn what the cluster has decided, before a slot ends.
const CONTROL_TIME_MAX: Duration = Duration::from_secs(3);

/// The parameters of all slots.
pub(crate) struct SlotStarter {
    pub node: NodeId,
    pub cluster: Cluster,
    pub versions: RecordVersions,
    pub databases: Arc<Databases>,
    pub catalogue: Arc<Catalogue>,
    pub log: Arc<dyn Log>,
    pub network: Arc<dyn Network>,
    pub copier: Arc<Copier>,
    pub contents: Arc<ContentExchange>,
}

impl SlotStarter {
    /// Starts the control slot, and the data slots of this node. Returns those that it has data of.
    pub fn start_slots(
        &self,
        replicas: &Replicas,
        on_setting: OnSetting,
    ) -> Result<BTreeSet<SlotNumber>, Error> {
        let stored = self.stored();
        let (databases, catalogue) = (&self.databases, &self.catalogue);
        let control = ControlSlot::start(databases, catalogue, self.copier.clone(), on_setting);
        let control = self.slot(CONTROL, control, vec![self.cluster.first])?;
        let mut data = BTreeMap::new();
        let mut keeper = SlotKeeper::new(self.node, BTreeSet::new());
        for change in self.changes(&mut keeper, Duration::ZERO, (replicas, &stored)) {
            if let SlotChange::Start(slot) = change {
                data.insert(slot, self.start(slot)?);
            }
        }
        replicas.start(control, data);
        Ok(stored)
    }

    /// Starts a data slot.
    pub fn start(&self, slot: SlotNumber) -> Result<StartedSlot, Error> {
        let validators = Arc::new(Validators::default());
        let of_node = (&self.databases, &self.catalogue, &self.contents);
        let (genesis, is_blank) = (self.genesis(), self.is_blank(slot)?);
        let store = DataSlot::start(slot, of_node, self.copier.clone(), validators.clone());
        let slot = self.slot(slot, store, genesis)?;
        Ok(StartedSlot {
            slot,
            validators,
            is_blank,
        })
    }

    /// Returns the replicas of a data slot of which this node has no data. The first node of the
    /// cluster was the only one at the beginning. Once there are others, it has removed the slot,
    /// and copies it: if it took itself for the only replica, it would confirm reads and start
    /// generations with an empty slot.
    fn genesis(&self) -> Vec<NodeId> {
        let has_others = |state: &ControlState| state.members.keys().any(|id| *id != self.node);
        match self.node == self.cluster.first && self.catalogue.with(has_others) {
            true => vec![],
            false => vec![self.cluster.first],
        }
    }

    /// Returns whether this node has no data of a slot, and does not count among its replicas.
    fn is_blank(&self, slot: SlotNumber) -> Result<bool, Error> {
        let store = self.databases.store();
        let unreadable = |e: storage::Error| Error::Membership(e.to_string());
        let Some(at) = store.slot(slot).map_err(unreadable)? else {
            return Ok(!self.genesis().contains(&self.node));
        };
        if at.next_offset > 0 || at.generation != storage::Generation::default() {
            return Ok(false);
        }
        let rows = store.slot_state(slot, CURSOR).map_err(unreadable)?;
        let cursor = rows.iter().find(|(key, _)| key == CURSOR);
        let cursor = cursor.and_then(|(_, value)| Cursor::decode(value));
        Ok(cursor.is_some_and(|cursor| !cursor.members.contains(&self.node)))
    }

    fn slot<S: cluster::slot::SlotStore>(
        &self,
        slot: SlotNumber,
        store: S,
        genesis: Vec<NodeId>,
    ) -> Result<Slot<S>, Error> {
        let start = u64::from_be_bytes(random()?);
        let stamp = self.cluster.stamp(slot, &self.versions)?;
        let options = SlotOptions::new(stamp, self.node, start, genesis);
        let (log, network) = (self.log.clone(), self.network.clone());
        Ok(Slot::start(options, Arc::new(store), log, network)?)
    }

    /// Returns the data slots that this node starts or ends now, if it has data of those that are
    /// `stored`.
    fn changes(
        &self,
        keeper: &mut SlotKeeper,
        now: Duration,
        (replicas, stored): (&Replicas, &BTreeSet<SlotNumber>),
    ) -> Vec<SlotChange> {
        let running = running(replicas);
        let slots = self.cluster.slots;
        (self.catalogue).with(|state| keeper.step(now, &state.placement, slots, (&running, stored)))
    }

    /// Returns the data slots of which this node has data: all of them if that cannot be read.
    fn stored(&self) -> BTreeSet<SlotNumber> {
        let all = 0..self.cluster.slots;
        match self.databases.store().slots() {
            Ok(slots) => slots
                .into_iter()
                .filter(|slot| all.contains(slot))
                .collect(),
            Err(e) => {
                tracing::error!(error = %e, "the slots cannot be listed");
                all.collect()
            }
        }
    }

    /// Starts a data slot on a node that runs.
    pub fn join(&self, slot: SlotNumber, replicas: &Replicas) {
        let started = match self.start(slot) {
            Ok(started) => started,
            Err(e) => return tracing::error!(slot, error = %e, "the slot was not started"),
        };
        if replicas.add(slot, started)
            && let Some(replica) = replicas.get(slot)
        {
            let members =
                |state: &ControlState| state.members.keys().copied().collect::<Vec<NodeId>>();
            replica.know(self.catalogue.with(members));
            tracing::info!(slot, "this node has the slot from now on");
        }
    }

    /// Ends a data slot, and removes its data, once the nodes that count in it have that. Returns
    /// whether it is done.
    async fn leave(
        &self,
        (slot, is_new): (SlotNumber, bool),
        replicas: &Replicas,
        members: &Members,
    ) -> bool {
        let Some(others) = self.left_to(slot, is_new, replicas) else {
            return false;
        };
        match self.reached(slot, replicas).await {
            Ok(None) => {}
            Ok(Some(own)) => {
                let known = members.positions(others.clone(), None).await;
                let reached = |node: NodeId| known.get(&node)?.at(slot);
                if !are_ahead(&others, reached, (own, is_new)) {
                    tracing::debug!(slot, "the nodes of the slot do not have all of it now");
                    return false;
                }
            }
            Err(e) => {
                tracing::warn!(slot, error = %e, "the position of a slot was not read");
                return false;
            }
        }
        if !self.is_left_to(&others, (slot, is_new), replicas).await {
            return false;
        }
        replicas.end(slot).await;
        // Until it ended, the slot could be taken for one that has learned, and begin to count.
        if !self.is_left_to(&others, (slot, is_new), replicas).await {
            return false;
        }
        match self.remove(slot).await {
            Ok(()) => {
                tracing::info!(slot, "other nodes have the slot from now on");
                true
            }
            Err(e) => {
                tracing::warn!(slot, error = %e, "the data of a slot that other nodes have was not removed");
                false
            }
        }
    }

    /// Returns whether this node has left a slot to these nodes, by the current state of the
    /// cluster: it may have decided otherwise since this node last heard.
    async fn is_left_to(
        &self,
        others: &BTreeSet<NodeId>,
        (slot, is_new): (SlotNumber, bool),
        replicas: &Replicas,
    ) -> bool {
        let Some(control) = replicas.get(CONTROL) else {
            return false;
        };
        let deadline = Instant::now() + CONTROL_TIME_MAX;
        let is_fresh = control.fresh(deadline).await.is_ok();
        is_fresh && self.left_to(slot, is_new, replicas).as_ref() == Some(others)
    }

    /// Returns the generation and the offset that this node has reached in a slot; `None` without
    /// any data.
    async fn reached(
        &self,
        slot: SlotNumber,
        replicas: &Replicas,
    ) -> Result<Option<(u64, u64)>, StoreError> {
        if let Some(replica) = replicas.get(slot) {
            let position = replica.status().position;
            return Ok(Some((position.generation.number, position.next_offset)));
        }
        let stored = self.stored_position(slot).await?;
        Ok(stored.map(|at| (at.generation.number, at.next_offset)))
    }

    async fn stored_position(
        &self,
        slot: SlotNumber,
    ) -> Result<Option<storage::Position>, StoreError> {
        let store = self.databases.store().clone();
        let stored = tokio::task::spawn_blocking(move || store.slot(slot)).await;
        let stopped = |_| StoreError::Failed("the server is shutting down".into());
        stored.map_err(stopped)?.map_err(failed)
    }

    /// Removes the data of a slot that does not run. One without a position has no data.
    async fn remove(&self, slot: SlotNumber) -> Result<(), StoreError> {
        if self.stored_position(slot).await?.is_none() {
            return Ok(());
        }
        let (databases, catalogue) = (&self.databases, &self.catalogue);
        remove_slot(databases, catalogue, self.cluster.slots, slot).await
    }

    /// Returns the nodes that count in a slot which this node has left; `None` if it has not.
    fn left_to(
        &self,
        slot: SlotNumber,
        is_new: bool,
        replicas: &Replicas,
    ) -> Option<BTreeSet<NodeId>> {
        let replica = replicas.get(slot);
        let counting = replica.map(|replica| replica.status().members.into_iter().collect());
        let counting: Option<BTreeSet<NodeId>> = counting;
        let of_node = (counting.as_ref(), is_new);
        let others =
            |state: &ControlState| left_to(&state.placement, self.node, slot, of_node).cloned();
        self.catalogue.with(others)
    }
}

/// Returns the data slots that run here, each with the nodes that count in it.
fn running(replicas: &Replicas) -> SlotSets {
    let data = replicas.all().filter(|(slot, _)| *slot != CONTROL);
    data.map(|(slot, replica)| (slot, replica.status().members.into_iter().collect()))
        .collect()
}

/// Starts and ends data slots as the cluster decides, until the future is dropped. The node had
/// data of the slots `stored` when it started.
pub(crate) async fn keep_slots(
    (starter, mut stored): (SlotStarter, BTreeSet<SlotNumber>),
    replicas: Arc<Replicas>,
    members: Arc<Members>,
) {
    let new = (0..starter.cluster.slots).filter(|slot| !stored.contains(slot));
    let mut keeper = SlotKeeper::new(starter.node, new.collect());
    let began = Instant::now();
    loop {
        tokio::time::sleep(KEPT_EVERY).await;
        let is_placed = starter.catalogue.is_placed();
        replicas.note_partial(is_placed);
        if !is_placed && !replicas.lacks_some() {
            if keeper.has_new() {
                keeper.note(&running(&replicas));
            }
            continue;
        }
        let changes = starter.changes(&mut keeper, began.elapsed(), (&replicas, &stored));
        for change in changes {
            match change {
                SlotChange::Start(slot) => {
                    starter.join(slot, &replicas);
                    stored.insert(slot);
                }
                SlotChange::End(slot) => {
                    let of_slot = (slot, keeper.is_new(slot));
                    // One that has ended and was not removed has data.
                    stored.insert(slot);
                    if starter.leave(of_slot, &replicas, &members).await {
                        stored.remove(&slot);
                    }
                }
            }
        }
    }
}
