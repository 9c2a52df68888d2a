//! Starts slots over any log and network.

use std::sync::Arc;

use cluster::record::RecordVersions;
use cluster::slot::{Network, Slot, SlotOptions};
use cluster::{CONTROL, Log, NodeId, SlotNumber};
use database::Databases;

use crate::Error;
use crate::content::ContentExchange;
use crate::control::{Catalogue, ControlSlot, OnSetting};
use crate::copy::{Copier, Source};
use crate::membership::{Cluster, random};
use crate::replicas::Replicas;
use crate::slot::DataSlot;
use crate::validation::Validators;

/// The parameters of all slots.
pub(crate) struct SlotStarter<'a> {
    pub node: NodeId,
    pub cluster: &'a Cluster,
    pub versions: &'a RecordVersions,
    pub databases: &'a Arc<Databases>,
    pub catalogue: &'a Arc<Catalogue>,
    pub log: Arc<dyn Log>,
    pub network: Arc<dyn Network>,
    pub source: Arc<dyn Source>,
    pub contents: Arc<ContentExchange>,
}

impl SlotStarter<'_> {
    /// Starts the control slot and the data slots.
    pub fn start_slots(&self, replicas: &Replicas, on_setting: OnSetting) -> Result<(), Error> {
        let slots = self.cluster.slots;
        let copier = Copier::new(self.databases, self.catalogue, slots, self.source.clone());
        let copier = Arc::new(copier);
        let control =
            ControlSlot::start(self.databases, self.catalogue, copier.clone(), on_setting);
        let control = self.slot(CONTROL, control)?;
        let data = (0..slots).map(|slot| {
            let validators = Arc::new(Validators::default());
            let (copier, known) = (copier.clone(), validators.clone());
            let of_node = (self.databases, self.catalogue, &self.contents);
            let store = DataSlot::start(slot, of_node, copier, known);
            Ok::<_, Error>((self.slot(slot, store)?, validators))
        });
        replicas.start(control, data.collect::<Result<_, _>>()?);
        Ok(())
    }

    fn slot<S: cluster::slot::SlotStore>(
        &self,
        slot: SlotNumber,
        store: S,
    ) -> Result<Slot<S>, Error> {
        let start = u64::from_be_bytes(random()?);
        let genesis = vec![self.cluster.first];
        let stamp = self.cluster.stamp(slot, self.versions)?;
        let options = SlotOptions::new(stamp, self.node, start, genesis);
        let (log, network) = (self.log.clone(), self.network.clone());
        Ok(Slot::start(options, Arc::new(store), log, network)?)
    }
}
