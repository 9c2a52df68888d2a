//! Tracks the design documents that edits must have been validated by: each slot knows those in
//! force, and refuses edits validated by others.

use std::collections::VecDeque;
use std::sync::Arc;

use cluster::SlotNumber;
use cluster::record::Body;
use cluster::slot::StoreError;
use database::Database;
use futures_util::future::join_all;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::gateway::Gateway;
use crate::membership::random;
use crate::replicas::Replica;
use crate::slot::stored_in_force;

/// Maximum number of attempts to set the design documents in force while others do so, too.
const ATTEMPTS_MAX: u32 = 8;

/// The design documents in force for a database in a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ActiveDesigns {
    /// The number of the barrier that set them; 0 for none.
    pub number: u64,
    /// Hash over the design documents.
    pub designs: u64,
}

impl ActiveDesigns {
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        [self.number.to_be_bytes(), self.designs.to_be_bytes()].concat()
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<ActiveDesigns> {
        let (number, designs) = bytes.split_first_chunk::<8>()?;
        Some(ActiveDesigns {
            number: u64::from_be_bytes(*number),
            designs: u64::from_be_bytes(designs.try_into().ok()?),
        })
    }
}

/// The design documents in force in a slot, by database uuid, after everything that was queued for
/// the store.
#[derive(Default)]
pub struct Validators(Mutex<FxHashMap<[u8; 16], BarrierHistory>>);

/// The design documents in force, and the numbers of recent barriers, the last one first.
#[derive(Default)]
struct BarrierHistory {
    now: ActiveDesigns,
    counted: VecDeque<u64>,
}

/// Number of barriers of a database that are kept, for callers that wait to know whether theirs
/// counted.
const COUNTED_MAX: usize = 32;

impl Validators {
    /// Returns those of a database.
    pub fn get(&self, database: &[u8; 16]) -> ActiveDesigns {
        let all = self.0.lock();
        all.get(database).map(|known| known.now).unwrap_or_default()
    }

    /// Returns whether a barrier counted recently, even if others followed it.
    pub(crate) fn has_counted(&self, database: &[u8; 16], number: u64) -> bool {
        let all = self.0.lock();
        all.get(database)
            .is_some_and(|known| known.counted.contains(&number))
    }

    /// Replaces all by the stored ones.
    pub(crate) fn set_all(&self, all: FxHashMap<[u8; 16], ActiveDesigns>) {
        let known = |now| BarrierHistory {
            now,
            counted: VecDeque::new(),
        };
        let all = all.into_iter().map(|(uuid, now)| (uuid, known(now)));
        *self.0.lock() = all.collect();
    }

    /// Applies a barrier. Returns whether it counts: its author knew the one in force.
    pub(crate) fn bar(&self, database: [u8; 16], new: ActiveDesigns, follows: u64) -> bool {
        let mut all = self.0.lock();
        let known = all.entry(database).or_default();
        let counts = known.now.number == follows;
        if counts {
            known.now = new;
            known.counted.truncate(COUNTED_MAX);
            known.counted.push_front(new.number);
        }
        counts
    }

    /// Returns whether the design documents that validated an edit are outdated; never for 0, the
    /// server's own edits, which nothing validates.
    pub(crate) fn are_old(&self, database: &[u8; 16], designs: u64) -> bool {
        let known = self.get(database);
        designs != 0 && known.number != 0 && known.designs != designs
    }
}

impl Gateway {
    /// Ensures that from here on nothing is written that was validated by design documents other
    /// than the current ones.
    ///
    /// The validation in force is read **before** the design documents are: its author knew older
    /// ones, or the same. So a barrier that follows it never sets older ones, and one that comes
    /// too late has no effect.
    pub(crate) async fn bar_older(
        &self,
        db: &Arc<Database>,
        slots: &[SlotNumber],
    ) -> Result<(), database::Error> {
        let is_here = |slot: &SlotNumber| {
            let replica = self.replicas.get(*slot);
            !db.is_spread() || replica.is_some_and(Replica::is_member)
        };
        let (here, elsewhere): (Vec<SlotNumber>, Vec<SlotNumber>) =
            slots.iter().copied().partition(is_here);
        self.bar_older_elsewhere(db, &elsewhere).await?;
        self.bar_older_here(db, here).await
    }

    async fn bar_older_here(
        &self,
        db: &Arc<Database>,
        slots: Vec<SlotNumber>,
    ) -> Result<(), database::Error> {
        let database = *db.uuid().as_bytes();
        let unavailable = |e: crate::Error| database::Error::Unavailable(e.to_string());
        let failed = |e: StoreError| database::Error::Unavailable(e.to_string());
        let mut left = slots;
        for _ in 0..ATTEMPTS_MAX {
            let in_force = |slot: &SlotNumber| {
                let replica = self.replicas.get(*slot);
                replica.map_or_else(ActiveDesigns::default, |r| r.validators().get(&database))
            };
            let before: Vec<ActiveDesigns> = left.iter().map(in_force).collect();
            let seen = self.fresh_slots(self.design_slots(db)).await;
            let seen = seen.map_err(unavailable)?;
            let designs = db.designs_hash().await?;
            let store = self.databases.store();
            let stored = left
                .iter()
                .map(|slot| stored_in_force(store, *slot, &database));
            let stored: Vec<ActiveDesigns> = stored.collect::<Result<_, _>>().map_err(failed)?;
            // A change that other nodes do not know yet is not in force.
            self.settle(&seen).await.map_err(unavailable)?;
            let mut bars = vec![];
            let mut numbers = vec![];
            for ((slot, before), stored) in left.iter().zip(before).zip(stored) {
                // Another node has set the same, which is stable.
                if stored.number != 0 && stored.designs == designs {
                    continue;
                }
                let number = u64::from_be_bytes(random().map_err(unavailable)?).max(1);
                let body = Body::Barrier {
                    database,
                    designs,
                    number,
                    follows: before.number,
                };
                numbers.push((*slot, number));
                bars.push(self.proposer.append(*slot, body));
            }
            if bars.is_empty() {
                return Ok(());
            }
            for done in join_all(bars).await {
                done?;
            }
            // It is stable; whether it counted is known here once this node has it.
            let here = self.fresh_slots(left.iter().copied()).await;
            here.map_err(unavailable)?;
            // A barrier that followed it set newer ones.
            numbers.retain(|(slot, number)| {
                let replica = self.replicas.get(*slot);
                !replica.is_some_and(|r| r.validators().has_counted(&database, *number))
            });
            if numbers.is_empty() {
                return Ok(());
            }
            left = numbers.into_iter().map(|(slot, _)| slot).collect();
        }
        Err(database::Error::Unavailable(
            "design documents change all the time: try again".into(),
        ))
    }
}
