//! Starts slots over any log and network.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cluster::record::RecordVersions;
use cluster::slot::{Network, Slot, SlotOptions};
use cluster::{CONTROL, Log, NodeId, SlotNumber};
use database::Databases;
use tokio::time::Instant;

use crate::Error;
use crate::content::ContentExchange;
use crate::control::state::ControlState;
use crate::control::{Catalogue, ControlSlot, OnSetting};
use crate::copy::Copier;
use crate::membership::{Cluster, random};
use crate::placement::SlotSets;
use crate::replicas::{Replicas, StartedSlot};
use crate::slot::DataSlot;
use crate::slot_holders::{SlotChange, SlotKeeper, is_left};
use crate::slot_removal::remove_slot;
use crate::validation::Validators;

/// Interval of checks which slots this node has.
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
    /// Starts the control slot, and the data slots of this node.
    pub fn start_slots(&self, replicas: &Replicas, on_setting: OnSetting) -> Result<(), Error> {
        let (databases, catalogue) = (&self.databases, &self.catalogue);
        let control = ControlSlot::start(databases, catalogue, self.copier.clone(), on_setting);
        let control = self.slot(CONTROL, control)?;
        let mut data = BTreeMap::new();
        let (mut keeper, nothing) = (SlotKeeper::new(self.node), BTreeSet::new());
        for change in self.changes(&mut keeper, Duration::ZERO, (replicas, &nothing)) {
            if let SlotChange::Start(slot) = change {
                data.insert(slot, self.start(slot)?);
            }
        }
        replicas.start(control, data);
        Ok(())
    }

    /// Starts a data slot.
    pub fn start(&self, slot: SlotNumber) -> Result<StartedSlot, Error> {
        let validators = Arc::new(Validators::default());
        let of_node = (&self.databases, &self.catalogue, &self.contents);
        let store = DataSlot::start(slot, of_node, self.copier.clone(), validators.clone());
        Ok((self.slot(slot, store)?, validators))
    }

    fn slot<S: cluster::slot::SlotStore>(
        &self,
        slot: SlotNumber,
        store: S,
    ) -> Result<Slot<S>, Error> {
        let start = u64::from_be_bytes(random()?);
        let genesis = vec![self.cluster.first];
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

    /// Returns the data slots of which this node has data.
    fn stored(&self) -> BTreeSet<SlotNumber> {
        let slots = self.databases.store().slots();
        let slots =
            slots.inspect_err(|e| tracing::error!(error = %e, "the slots cannot be listed"));
        let slots = slots.unwrap_or_default().into_iter();
        slots.filter(|slot| *slot < self.cluster.slots).collect()
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

    /// Ends a data slot, and removes its data. Returns whether that is done.
    async fn leave(&self, slot: SlotNumber, replicas: &Replicas) -> bool {
        // The cluster may have decided otherwise since this node last heard.
        let deadline = Instant::now() + CONTROL_TIME_MAX;
        let Some(control) = replicas.get(CONTROL) else {
            return false;
        };
        if control.fresh(deadline).await.is_err() || !self.has_left(slot, replicas) {
            return false;
        }
        replicas.end(slot).await;
        let (databases, catalogue) = (&self.databases, &self.catalogue);
        match remove_slot(databases, catalogue, self.cluster.slots, slot).await {
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

    fn has_left(&self, slot: SlotNumber, replicas: &Replicas) -> bool {
        let replica = replicas.get(slot);
        let members = replica.map(|replica| replica.status().members.into_iter().collect());
        let members: Option<BTreeSet<NodeId>> = members;
        let is_left =
            |state: &ControlState| is_left(&state.placement, self.node, slot, members.as_ref());
        self.catalogue.with(is_left)
    }
}

/// Returns the data slots that run here, each with the nodes that count in it.
fn running(replicas: &Replicas) -> SlotSets {
    let data = replicas.all().filter(|(slot, _)| *slot != CONTROL);
    data.map(|(slot, replica)| (slot, replica.status().members.into_iter().collect()))
        .collect()
}

/// Starts and ends data slots as the cluster decides, until the future is dropped.
pub(crate) async fn keep_slots(starter: SlotStarter, replicas: Arc<Replicas>) {
    let mut keeper = SlotKeeper::new(starter.node);
    let began = Instant::now();
    let mut stored = starter.stored();
    loop {
        tokio::time::sleep(KEPT_EVERY).await;
        if !starter.catalogue.is_placed() && !replicas.lacks_some() {
            continue;
        }
        for change in starter.changes(&mut keeper, began.elapsed(), (&replicas, &stored)) {
            match change {
                SlotChange::Start(slot) => {
                    starter.join(slot, &replicas);
                    stored.insert(slot);
                }
                SlotChange::End(slot) => {
                    if starter.leave(slot, &replicas).await {
                        stored.remove(&slot);
                    }
                }
            }
        }
    }
}
