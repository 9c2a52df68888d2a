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
use crate::control::{Catalogue, ControlSlot, OnSetting};
use crate::copy::Copier;
use crate::membership::{Cluster, random};
use crate::replicas::{Replicas, StartedSlot};
use crate::slot::DataSlot;
use crate::slot_holders::{SlotChange, SlotKeeper};
use crate::validation::Validators;

/// Interval of checks which slots this node has.
const KEPT_EVERY: Duration = Duration::from_secs(2);

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
        for change in self.changes(&mut SlotKeeper::new(self.node), Duration::ZERO, replicas) {
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

    /// Returns the data slots that this node starts or stops now.
    fn changes(
        &self,
        keeper: &mut SlotKeeper,
        now: Duration,
        replicas: &Replicas,
    ) -> Vec<SlotChange> {
        let here = replicas.all().filter(|(slot, _)| *slot != CONTROL);
        let here: BTreeMap<SlotNumber, BTreeSet<NodeId>> = here
            .map(|(slot, replica)| (slot, replica.status().members.into_iter().collect()))
            .collect();
        let slots = self.cluster.slots;
        (self.catalogue).with(|state| keeper.step(now, &state.placement, slots, &here))
    }

    /// Starts a data slot on a node that runs.
    fn join(&self, slot: SlotNumber, replicas: &Replicas) {
        let started = match self.start(slot) {
            Ok(started) => started,
            Err(e) => return tracing::error!(slot, error = %e, "the slot was not started"),
        };
        if replicas.add(slot, started)
            && let Some(replica) = replicas.get(slot)
        {
            let members = |state: &crate::control::state::ControlState| {
                state.members.keys().copied().collect::<Vec<NodeId>>()
            };
            replica.know(self.catalogue.with(members));
            tracing::info!(slot, "this node has the slot from now on");
        }
    }
}

/// Starts and stops data slots as the cluster decides, until the future is dropped.
pub(crate) async fn keep_slots(starter: SlotStarter, replicas: Arc<Replicas>) {
    let mut keeper = SlotKeeper::new(starter.node);
    let began = Instant::now();
    loop {
        tokio::time::sleep(KEPT_EVERY).await;
        for change in starter.changes(&mut keeper, began.elapsed(), &replicas) {
            match change {
                SlotChange::Start(slot) => starter.join(slot, &replicas),
                SlotChange::Stop(slot) => {
                    tracing::info!(slot, "other nodes have the slot from now on");
                    replicas.end(slot).await;
                }
            }
        }
    }
}
