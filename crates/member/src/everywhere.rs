//! The slots that every node keeps, whatever the number of copies is.
//!
//! Nodes look up accounts and jobs in their own replicas of system databases. A database whose
//! shards are in several slots, as those from before the number of copies was set, can be read
//! only where all of these slots are. Of a spread database, only the shard of the design documents
//! is everywhere: requests read the others at the nodes that have them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use cluster::SlotNumber;
use parking_lot::Mutex;

use crate::control::Catalogue;
use crate::control::entry::CataloguedDatabase;

/// The slot of new system databases.
pub const SYSTEM_SLOT: SlotNumber = 0;

/// Returns the slots that every node keeps, in a cluster with `slots` data slots and these
/// databases. `users` is the one with the accounts.
pub fn slots_everywhere(
    databases: &BTreeMap<String, CataloguedDatabase>,
    slots: SlotNumber,
    users: Option<&str>,
) -> BTreeSet<SlotNumber> {
    let mut everywhere = BTreeSet::from([SYSTEM_SLOT]);
    for (name, database) in databases {
        if everywhere.len() >= usize::from(slots) {
            break;
        }
        let of_shards = database.shard_slots(slots);
        if let Some(shard) = database.design_shard() {
            everywhere.insert(of_shards.of(shard));
            continue;
        }
        let of_shards = of_shards.all(database.q as usize);
        let is_of_system = database::is_system(name) || users == Some(name.as_str());
        if of_shards.len() > 1 || is_of_system {
            everywhere.extend(of_shards);
        }
    }
    everywhere
}

/// The slots that every node keeps, as of the last change of databases.
#[derive(Default)]
pub(crate) struct SlotsEverywhere {
    last: Mutex<Option<KnownSlots>>,
    /// The database of accounts, which can have any name.
    users: OnceLock<String>,
}

/// Slots, with the number of changes of databases that they follow.
type KnownSlots = (u64, Arc<BTreeSet<SlotNumber>>);

impl SlotsEverywhere {
    /// Sets the name of the database of accounts, once.
    pub fn set_users(&self, name: String) {
        // A second call has no effect.
        let _ = self.users.set(name);
    }

    /// Returns them, in a cluster with `count` data slots. Reads the catalogue only if databases
    /// were created or dropped.
    pub fn of(&self, catalogue: &Catalogue, count: SlotNumber) -> Arc<BTreeSet<SlotNumber>> {
        let changes = catalogue.database_changes();
        let mut last = self.last.lock();
        if let Some((at, slots)) = &*last
            && *at == changes
        {
            return slots.clone();
        }
        let users = self.users.get().map(String::as_str);
        let slots = catalogue.with(|state| slots_everywhere(&state.databases, count, users));
        let slots = Arc::new(slots);
        *last = Some((changes, slots.clone()));
        slots
    }
}

/// Returns the slots of the `q` shards of a new database: all of them in one slot, so that a node
/// that has it has the whole database.
pub fn one_slot(
    name: &str,
    uuid: database::DatabaseUuid,
    q: u32,
    slots: SlotNumber,
) -> Vec<SlotNumber> {
    let slot = match database::is_system(name) {
        true => SYSTEM_SLOT,
        false => crate::placement::slot_of(uuid, 0, slots),
    };
    vec![slot; q as usize]
}

/// Returns the slots of the `q` shards of a new spread database: different ones, as far as there are
/// that many, and for the last shard, that of the design documents, the slot that every node has.
pub fn different_slots(uuid: database::DatabaseUuid, q: u32, slots: SlotNumber) -> Vec<SlotNumber> {
    let others = slots.saturating_sub(1);
    let of_shard = |shard: usize| match others {
        0 => SYSTEM_SLOT,
        others => 1 + crate::placement::slot_of(uuid, shard, others),
    };
    let of_documents = (0..q.saturating_sub(1) as usize).map(of_shard);
    of_documents.chain([SYSTEM_SLOT]).collect()
}

#[cfg(test)]
mod tests {
    use database::{DatabaseUuid, NewDatabase};

    use super::*;

    const SLOTS: SlotNumber = 16;

    /// Returns a database whose first shard is in the slot `number`.
    fn database(number: u8, q: u32) -> CataloguedDatabase {
        let mut uuid = [0; 16];
        uuid[15] = number;
        CataloguedDatabase::new(NewDatabase {
            uuid: DatabaseUuid::new(uuid),
            q,
            n: None,
            partitioned: false,
            spread: false,
            created_unix_s: 0,
            security: "{}".into(),
        })
    }

    #[test]
    fn slots_of_system_databases_and_of_those_in_several_slots_are_everywhere() {
        let mut databases: BTreeMap<String, CataloguedDatabase> = BTreeMap::new();
        assert_eq!(
            slots_everywhere(&databases, SLOTS, None),
            BTreeSet::from([0])
        );
        databases.insert("one".into(), database(3, 1));
        assert_eq!(
            slots_everywhere(&databases, SLOTS, None),
            BTreeSet::from([0])
        );
        databases.insert("two".into(), database(15, 2));
        databases.insert("a/_replicator".into(), database(7, 1));
        assert_eq!(
            slots_everywhere(&databases, SLOTS, None),
            BTreeSet::from([0, 7, 15])
        );
        let mut together = database(9, 4);
        together.slots = one_slot("together", together.uuid, 4, SLOTS);
        assert_eq!(together.slots, [9; 4]);
        databases.insert("together".into(), together);
        assert_eq!(
            slots_everywhere(&databases, SLOTS, None),
            BTreeSet::from([0, 7, 15])
        );
        assert_eq!(one_slot("_users", database(9, 2).uuid, 2, SLOTS), [0, 0]);
        let mut spread = database(9, 5);
        spread.spread = true;
        spread.slots = different_slots(spread.uuid, 5, SLOTS);
        assert_eq!(spread.slots, [10, 11, 12, 13, 0]);
        databases.insert("spread".into(), spread);
        assert_eq!(
            slots_everywhere(&databases, SLOTS, None),
            BTreeSet::from([0, 7, 15])
        );
        let with_users = slots_everywhere(&databases, SLOTS, Some("one"));
        assert_eq!(with_users, BTreeSet::from([0, 3, 7, 15]));
        let few = different_slots(database(9, 2).uuid, 4, 3);
        assert_eq!(few.iter().collect::<BTreeSet<_>>().len(), 3);
        assert_eq!(different_slots(database(9, 2).uuid, 3, 1), [0, 0, 0]);
        databases.insert("wide".into(), database(0, 32));
        assert_eq!(slots_everywhere(&databases, SLOTS, None).len(), 16);
    }
}
