//! Forwards the writes of this node's clients to the log.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::time::{Duration, Instant};

use cluster::record::{
    BYTES_MAX, DatabaseWork, EditRecord, PurgeRecord, RecordVersion, Request, Work,
};
use cluster::{CONTROL, Generation, NodeId, SlotNumber};
use database::{
    Database, DatabaseUuid, Databases, NewDatabase, Property, Sequencer, SequencerFuture,
    WriteTiming,
};
use document::Rev;
use futures_util::future::try_join_all;
use futures_util::{StreamExt as _, TryStreamExt as _};
use storage::{Outcome, ShardEdit, ShardPurge, SlotOutcome, WorkOutcome};

use crate::Error;
use crate::content::ContentExchange;
use crate::control::Catalogue;
use crate::control::entry::{CataloguedDatabase, Entry, EntryOutcome};
use crate::edit_records::{edit_bytes, to_records};
use crate::everywhere::SlotsEverywhere;
use crate::hold::{HELD, Hold};
use crate::members::Members;
use crate::membership::random;
use crate::placement::ShardSlots;
use crate::propose::{ProposalResult, Proposer};
use crate::replicas::{Replica, Replicas};
use crate::slot::{NO_DATABASE, OLD_DESIGNS, purge_record};
use crate::slot_batches::{SlotBatch, divide, weighed};

/// Time limit of a linearizable read.
pub const READ_TIME_MAX: Duration = Duration::from_secs(3);
/// Time limit of a read in a slot where one failed recently: other nodes may answer it.
const READ_AGAIN_TIME_MAX: Duration = Duration::from_millis(500);
/// Read timeout while this node's disk is full: it is up to date already, or will not be.
const READ_FULL_TIME_MAX: Duration = Duration::from_millis(100);
const NO_REPLICA: &str = "this node has no replica of it";
/// Maximum number of restarts of a read whose slot is copied meanwhile.
const FRESH_ATTEMPTS_MAX: u32 = 3;
/// Join timeout.
const NEW_TIME_MAX: Duration = Duration::from_secs(10);
/// Poll interval while a node joins.
const NEW_PAUSE: Duration = Duration::from_millis(100);

/// An entry of at most this length, in bytes, is sent in one record.
const ENTRY_BYTES_OF_RECORD: usize = BYTES_MAX - (1 << 10);

/// Maximum number of concurrent requests of one bulk.
const PARTS_AT_ONCE: usize = 32;

/// Slots that were read, each with its generation and state.
#[derive(Clone, Debug)]
pub struct ReadSlots(Vec<(SlotNumber, State)>);

/// A slot's generation, and the number of its state.
type State = (Generation, Option<u64>);

/// Proposes this node's writes to the cluster's log.
pub struct Gateway {
    pub(crate) databases: Arc<Databases>,
    pub(crate) catalogue: Arc<Catalogue>,
    pub(crate) members: Arc<Members>,
    pub(crate) replicas: Arc<Replicas>,
    pub(crate) proposer: Arc<Proposer>,
    pub(crate) contents: Arc<ContentExchange>,
    pub(crate) everywhere: SlotsEverywhere,
    /// The catalogue up to this version is stable.
    stays: AtomicU64,
}

impl Gateway {
    /// Creates the gateway of one start of this node.
    ///
    /// # Errors
    /// [`Error::Random`].
    pub(crate) fn new(
        databases: &Arc<Databases>,
        catalogue: &Arc<Catalogue>,
        members: &Arc<Members>,
        replicas: &Arc<Replicas>,
        contents: &Arc<ContentExchange>,
    ) -> Result<Arc<Gateway>, Error> {
        let number = u64::from_be_bytes(random()?);
        let proposer = Proposer::new(number, replicas.clone(), members.clone());
        Ok(Arc::new(Gateway {
            databases: databases.clone(),
            catalogue: catalogue.clone(),
            members: members.clone(),
            replicas: replicas.clone(),
            proposer: Arc::new(proposer),
            contents: contents.clone(),
            everywhere: SlotsEverywhere::default(),
            stays: AtomicU64::new(0),
        }))
    }

    /// Proposes a control entry and waits until it is applied locally.
    ///
    /// # Errors
    /// [`Error::NotNow`], also if the record version that it needs is not in force yet.
    pub async fn enter(&self, entry: Entry) -> Result<EntryOutcome, Error> {
        let shuts_out = entry.shuts_out();
        let is_me = matches!(entry, Entry::Leave { node } if node == self.members.me);
        let leaves = is_me && !self.members.has_left();
        let json = serde_json::to_vec(&entry).map_err(|e| Error::Membership(e.to_string()))?;
        // Earlier programs ignore entries that are longer than a record.
        let needs = match json.len() > ENTRY_BYTES_OF_RECORD {
            true => entry.needs().max(RecordVersion::V4),
            false => entry.needs(),
        };
        self.wait_for_version(needs).await?;
        let work = DatabaseWork {
            database: [0; 16],
            since: 0,
            revs_limit: 0,
            purged_infos_limit: 0,
            leaves_max: None,
            designs: 0,
            work: Work::Entry(json),
        };
        let (all, copies) = (self.members.count(), self.control_copies());
        let done = self.proposer.propose(CONTROL, vec![work], copies).await;
        if leaves && self.members.has_left() {
            // The nodes that have it may refuse to talk to this node now, so it cannot learn who
            // has it.
            return Ok(EntryOutcome::Done);
        }
        let (done, _) = done.map_err(|e| Error::NotNow(e.to_string()))?;
        if !done.is_safe && done.copies * 2 <= all {
            return Err(Error::NotNow("too few nodes have it".into()));
        }
        if shuts_out && done.copies < all {
            // Nodes that have not answered use the previous state for at most this long.
            tokio::time::sleep(HELD).await;
        }
        // Another node may have done it. A node that was removed is not notified any more.
        if !leaves {
            self.control_is_here().await?;
        }
        match done.outcome {
            SlotOutcome::Done(work) => match work[..] {
                [WorkOutcome::Refused(code)] => Ok(EntryOutcome::of(code)),
                _ => Ok(EntryOutcome::Refused),
            },
            SlotOutcome::Forgotten => Err(Error::NotNow(
                "the outcome is unknown: it may be in force".into(),
            )),
        }
    }

    /// Returns the number of nodes that must have a control entry before it is acknowledged: all live
    /// replicas, so that a user who was locked out is locked out everywhere. Members that are not
    /// replicas yet serve no client. `None` for a majority: a node that is not a replica itself may
    /// not know the others.
    fn control_copies(&self) -> Option<usize> {
        let replicas = self.replicas.get(CONTROL)?.status().members;
        let (me, others) = (self.members.me, self.members.live_others());
        let is_live = |node: &&NodeId| **node == me || others.contains(node);
        let live = replicas.iter().filter(is_live).count();
        // A node that has just started has heard from no other yet.
        let copies = live.max(replicas.len() / 2 + 1);
        replicas.contains(&me).then_some(copies)
    }

    /// Waits until this node has all acknowledged entries.
    ///
    /// # Errors
    /// [`Error::NotNow`].
    pub async fn fresh_control(&self) -> Result<(), Error> {
        self.fresh_slots([CONTROL]).await.map(drop)
    }

    /// Waits until the cluster-wide state here was current at most 2 s ago: a node that waits this
    /// time after a change knows that no node uses the previous state.
    ///
    /// # Errors
    /// [`Error::NotNow`].
    pub async fn hold_control(&self) -> Result<(), Error> {
        self.hold_slot(CONTROL).await
    }

    /// Waits until a slot here was current at most 2 s ago.
    ///
    /// # Errors
    /// [`Error::NotNow`].
    pub async fn hold_slot(&self, slot: SlotNumber) -> Result<(), Error> {
        let (hold, state, fresh) = self.hold_of(slot)?;
        hold.current(state, fresh).await
    }

    /// Waits until a slot here is current. Requests that wait at the same time share the work.
    ///
    /// # Errors
    /// [`Error::NotNow`].
    pub async fn refresh_slot(&self, slot: SlotNumber) -> Result<(), Error> {
        let (hold, state, fresh) = self.hold_of(slot)?;
        hold.fresh(state, fresh).await
    }

    #[allow(clippy::type_complexity)]
    fn hold_of(
        &self,
        slot: SlotNumber,
    ) -> Result<
        (
            &Arc<Hold>,
            impl Fn() -> Option<u64> + Send + use<>,
            impl Future<Output = Result<(), Error>> + Send + use<>,
        ),
        Error,
    > {
        let replica = self.replicas.get(slot);
        let replica = replica.ok_or_else(|| Error::NotNow(NO_REPLICA.into()))?;
        let replicas = self.replicas.clone();
        let state = move || replicas.get(slot).and_then(Replica::replaced);
        let replicas = self.replicas.clone();
        let fresh = async move { fresh(&replicas, [slot]).await.map(drop) };
        Ok((&replica.hold, state, fresh))
    }

    /// Returns the version of the cluster-wide state here.
    pub fn control_version(&self) -> u64 {
        self.catalogue.version()
    }

    /// Waits as [`Gateway::hold_control`] does, with retries for a node that may be too new.
    ///
    /// # Errors
    /// [`Error::NotNow`].
    pub async fn control_is_here(&self) -> Result<(), Error> {
        let until = Instant::now() + NEW_TIME_MAX;
        loop {
            match self.fresh_control().await {
                Err(_) if Instant::now() < until => tokio::time::sleep(NEW_PAUSE).await,
                done => return done,
            }
        }
    }

    /// Waits until this node has everything acknowledged in these slots.
    ///
    /// # Errors
    /// [`Error::NotNow`].
    pub async fn fresh_slots(
        &self,
        slots: impl IntoIterator<Item = SlotNumber>,
    ) -> Result<ReadSlots, Error> {
        fresh(&self.replicas, slots).await
    }

    /// Waits until everything that was seen in these slots is stable.
    ///
    /// # Errors
    /// [`Error::NotNow`], also when it is not: it may have been seen before the slot was reset.
    pub async fn settle(&self, seen: &ReadSlots) -> Result<(), Error> {
        let now = tokio::time::Instant::now();
        let settle = |(slot, state): &(SlotNumber, State)| {
            let (slot, (generation, replaced)) = (*slot, *state);
            async move {
                let replica = self.replicas.get(slot);
                let replica = replica.ok_or_else(|| NO_REPLICA.to_owned())?;
                replica.settle(now + read_time(replica)).await?;
                let is_same = replaced.is_some() && replica.replaced() == replaced;
                match is_same && replica.generation() == generation {
                    true => Ok(()),
                    false => Err("the slot was replaced meanwhile: try again".to_owned()),
                }
            }
        };
        let done = try_join_all(seen.0.iter().map(settle)).await;
        done.map(drop).map_err(Error::NotNow)
    }

    /// Returns the slots of a database's shards.
    pub fn slots(&self, db: &Database) -> Vec<SlotNumber> {
        self.shard_slots(db.uuid()).all(db.all_shards().len())
    }

    /// Returns the slot of a shard.
    pub fn slot_of_shard(&self, db: &Database, shard: usize) -> SlotNumber {
        self.shard_slots(db.uuid()).of(shard)
    }

    /// Returns the slots that the design documents of a database are in.
    pub fn design_slots(&self, db: &Database) -> Vec<SlotNumber> {
        match db.design_shard() {
            Some(shard) => vec![self.shard_slots(db.uuid()).of(shard)],
            None => self.slots(db),
        }
    }

    /// Returns the slots of a database that a write at this node reads: all, or of a spread one
    /// those that this node has. Its documents in others are written at their nodes.
    fn slots_here(&self, db: &Database) -> Vec<SlotNumber> {
        let mut slots = self.slots(db);
        if db.is_spread() {
            let counts = |slot: &SlotNumber| {
                let replica = self.replicas.get(*slot);
                replica.is_some_and(Replica::is_member)
            };
            let designs = self.design_slots(db);
            slots.retain(|slot| designs.contains(slot) || counts(slot));
        }
        slots
    }

    /// Returns the slots of a database's shards by their indexes.
    pub(crate) fn shard_slots(&self, uuid: DatabaseUuid) -> ShardSlots {
        self.catalogue.shard_slots(uuid, self.replicas.count())
    }

    /// Returns the slot of a document.
    pub fn slot(&self, db: &Database, id: &str) -> SlotNumber {
        self.shard_slots(db.uuid()).of(db.shard_index(id))
    }

    /// Returns the number of nodes that must have a write.
    fn copies(&self, asked: Option<usize>) -> Option<usize> {
        asked.map(|asked| asked.clamp(1, self.nodes_per_slot().max(1)))
    }

    /// Returns the number of nodes that have each slot.
    fn nodes_per_slot(&self) -> usize {
        let count = self.members.count();
        let placed = self.catalogue.is_placed().then(|| self.slot_copies());
        let copies = placed.flatten();
        copies.map_or(count, |copies| count.min(copies as usize))
    }

    fn work(&self, db: &Target, work: Work) -> DatabaseWork {
        DatabaseWork {
            database: *db.uuid.as_bytes(),
            since: db.since,
            revs_limit: db.limits.revs_limit,
            purged_infos_limit: db.limits.purged_infos_limit,
            leaves_max: match &work {
                Work::Edits(_) => db.limits.leaves_max,
                Work::Purges(_) | Work::Entry(_) => None,
            },
            designs: db.designs,
            work,
        }
    }

    /// A database is created here a moment before its entry counts.
    async fn target(&self, db: &Database) -> Result<Target, database::Error> {
        let unavailable = |e: Error| database::Error::Unavailable(e.to_string());
        let target = match self.known_target(db) {
            Err(database::Error::NoDatabase) => {
                self.control_is_here().await.map_err(unavailable)?;
                self.known_target(db)?
            }
            known => known?,
        };
        // Others wait for this version, so it has to reach them.
        self.stays(target.since).await.map_err(unavailable)?;
        Ok(target)
    }

    /// Waits until the catalogue up to this version is stable.
    pub(crate) async fn stays(&self, version: u64) -> Result<(), Error> {
        if version <= self.stays.load(Acquire) {
            return Ok(());
        }
        let here = self.catalogue.version();
        self.settle_control().await?;
        let here = here.min(self.catalogue.version());
        if here < version {
            return Err(Error::NotNow("the catalogue went back meanwhile".into()));
        }
        self.stays.fetch_max(here, AcqRel);
        Ok(())
    }

    /// Waits until the cluster-wide state that is seen here is stable.
    pub(crate) async fn settle_control(&self) -> Result<(), Error> {
        let none = || Error::NotNow(NO_REPLICA.into());
        let control = self.replicas.get(CONTROL).ok_or_else(none)?;
        let deadline = tokio::time::Instant::now() + READ_TIME_MAX;
        control.settle(deadline).await.map_err(Error::NotNow)
    }

    fn known_target(&self, db: &Database) -> Result<Target, database::Error> {
        let uuid = db.uuid();
        let (since, is_going) = self
            .catalogue
            .with(|state| {
                let database = state.databases.get(state.names.get(&uuid)?)?;
                Some((database.since, database.is_going))
            })
            .ok_or(database::Error::NoDatabase)?;
        if is_going {
            return Err(database::Error::Unavailable(GOING.into()));
        }
        Ok(Target {
            uuid,
            since,
            limits: db.limits(),
            designs: 0,
        })
    }

    /// Returns whether a database is being dropped: nodes may have deleted it already, or lost
    /// parts of it.
    pub fn is_going(&self, name: &str) -> bool {
        let is_going = |database: &CataloguedDatabase| database.is_going;
        self.catalogue.with(|state| {
            !state.going.is_empty() && state.databases.get(name).is_some_and(is_going)
        })
    }

    /// Proposes one request to its slot. If the design documents in force there were set by a node
    /// that did not know the last change, they are set again.
    async fn edit_one(
        &self,
        db: &Arc<Database>,
        target: &Target,
        (slot, stored_bytes): (SlotNumber, usize),
        edits: Vec<EditRecord>,
        copies: Option<usize>,
    ) -> Result<ProposalResult, database::Error> {
        let work = vec![self.work(target, Work::Edits(edits))];
        let place = (slot, stored_bytes);
        let proposed = self.proposer.propose_rewriting(place, work, copies);
        let (done, request) = proposed.await?;
        if target.designs == 0 || !is_barred(&done) || db.designs_hash().await? != target.designs {
            return Ok(done);
        }
        self.bar_older(db, &[slot]).await?;
        if db.designs_hash().await? != target.designs {
            return Ok(done);
        }
        let work = Request::from_bytes(&request).map(|request| request.databases);
        let work = work.ok_or_else(odd)?;
        let proposed = self.proposer.propose_rewriting(place, work, copies);
        Ok(proposed.await?.0)
    }

    /// Returns whether all nodes know records that name contents without their bytes.
    fn names_contents(&self) -> bool {
        self.members.record_versions().written() >= RecordVersion::V3
    }

    async fn edit_now(
        &self,
        of: &Arc<Database>,
        db: Target,
        parts: Vec<SlotBatch<ShardEdit>>,
        copies: Option<usize>,
        count: usize,
    ) -> Result<(Vec<Outcome>, WriteTiming), database::Error> {
        let started = Instant::now();
        let wanted = self.copies(copies);
        let propose = |part: SlotBatch<ShardEdit>| {
            let db = &db;
            async move {
                let (places, edits): (Vec<usize>, Vec<ShardEdit>) = part.work.into_iter().unzip();
                let (contents, names) = (&self.contents, self.names_contents());
                let edits = to_records(contents, (of, db.since), part.slot, edits, names).await?;
                let place = (part.slot, part.stored_bytes);
                let done = self.edit_one(of, db, place, edits, wanted).await?;
                Ok::<_, database::Error>((places, done))
            }
        };
        let all = futures_util::stream::iter(parts.into_iter().map(propose));
        let all: Vec<_> = all.buffer_unordered(PARTS_AT_ONCE).try_collect().await?;
        let mut outcomes = vec![Outcome::Conflict; count];
        let mut timing = WriteTiming::default();
        for (places, done) in all {
            timing.has_few_copies |= !done.is_safe || copies.is_some_and(|c| c > done.copies);
            for (place, outcome) in places.into_iter().zip(edited(done)?) {
                outcomes[place] = outcome;
            }
        }
        timing.commit_us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
        Ok((outcomes, timing))
    }

    pub(crate) async fn enter_for_client(&self, entry: Entry) -> Result<(), database::Error> {
        let unavailable = |e: Error| database::Error::Unavailable(e.to_string());
        let outcome = self.enter(entry).await.map_err(unavailable)?;
        if outcome != EntryOutcome::Done {
            // Conflicting edits may be dropped.
            let stays = self.stays(self.catalogue.version()).await;
            stays.map_err(unavailable)?;
        }
        match outcome {
            EntryOutcome::Done => Ok(()),
            EntryOutcome::Exists => Err(database::Error::DatabaseExists),
            EntryOutcome::Missing => Err(database::Error::NoDatabase),
            EntryOutcome::Refused => Err(database::Error::BadRequest("it was refused".into())),
        }
    }
}

/// Returns the time limit of a read.
fn read_time(replica: &Replica) -> Duration {
    match replica.read_failed_lately() {
        // It does not catch up.
        _ if replica.status().is_full => READ_FULL_TIME_MAX,
        true => READ_AGAIN_TIME_MAX,
        false => READ_TIME_MAX,
    }
}

/// A database as records name it.
struct Target {
    uuid: DatabaseUuid,
    since: u64,
    limits: storage::Limits,
    designs: u64,
}

/// The error for a database that is being dropped, since nodes may have deleted it already.
pub const GOING: &str = "the database is being deleted";

fn edited(done: ProposalResult) -> Result<Vec<Outcome>, database::Error> {
    match work(done)? {
        WorkOutcome::Edits(outcomes) => Ok(outcomes),
        WorkOutcome::Purges(_) | WorkOutcome::Refused(_) => Err(odd()),
    }
}

fn work(done: ProposalResult) -> Result<WorkOutcome, database::Error> {
    let forgotten = || {
        database::Error::Unavailable(
            "the outcome of the write is unknown: it may have been written".into(),
        )
    };
    let SlotOutcome::Done(mut work) = done.outcome else {
        return Err(forgotten());
    };
    match work.pop() {
        Some(WorkOutcome::Refused(NO_DATABASE)) => Err(database::Error::NoDatabase),
        Some(WorkOutcome::Refused(OLD_DESIGNS)) => Err(database::Error::Unavailable(
            "design documents changed meanwhile: try again".into(),
        )),
        Some(work) => Ok(work),
        None => Err(odd()),
    }
}

fn is_barred(done: &ProposalResult) -> bool {
    let SlotOutcome::Done(work) = &done.outcome else {
        return false;
    };
    work.contains(&WorkOutcome::Refused(OLD_DESIGNS))
}

fn odd() -> database::Error {
    database::Error::Unavailable("the slot's answer is of something else".into())
}

/// A shared gateway.
#[derive(Clone)]
pub struct ClusterSequencer(pub Arc<Gateway>);

impl Sequencer for ClusterSequencer {
    fn edit(
        &self,
        db: &Arc<Database>,
        edits: Vec<ShardEdit>,
        copies: Option<usize>,
        designs: Option<u64>,
    ) -> SequencerFuture<(Vec<Outcome>, WriteTiming)> {
        let (me, db, count) = (self.0.clone(), db.clone(), edits.len());
        let has_designs = edits.iter().any(|e| e.edit.id.is_design());
        let (names_contents, slots) = (me.names_contents(), me.shard_slots(db.uuid()));
        Box::pin(async move {
            let parts = divide(
                weighed(edits).await?,
                |e| slots.of(db.shard_index(e.edit.id.as_str())),
                |e| edit_bytes(e, names_contents),
            );
            let target = Target {
                designs: designs.unwrap_or(0),
                ..me.target(&db).await?
            };
            let done = me.edit_now(&db, target, parts, copies, count).await?;
            if has_designs {
                me.bar_older(&db, &me.slots(&db)).await?;
            }
            Ok(done)
        })
    }

    fn purge(
        &self,
        db: &Arc<Database>,
        purges: Vec<ShardPurge>,
    ) -> SequencerFuture<(Vec<Vec<Rev>>, bool)> {
        let (me, db, count) = (self.0.clone(), db.clone(), purges.len());
        let slots = me.shard_slots(db.uuid());
        Box::pin(async move {
            let parts = divide(
                weighed(purges).await?,
                |p| slots.of(db.shard_index(p.id.as_str())),
                |p| 64 + 40 * p.revs.len(),
            );
            let target = me.target(&db).await?;
            let (mut removed, mut has_few_copies) = (vec![vec![]; count], false);
            for part in parts {
                let (places, purges): (Vec<usize>, Vec<ShardPurge>) = part.work.into_iter().unzip();
                let purges: Vec<PurgeRecord> = purges.into_iter().map(purge_record).collect();
                let works = vec![me.work(&target, Work::Purges(purges))];
                let of = (part.slot, part.stored_bytes);
                let (done, _) = me.proposer.propose_rewriting(of, works, None).await?;
                has_few_copies |= !done.is_safe;
                let WorkOutcome::Purges(revs) = work(done)? else {
                    return Err(odd());
                };
                for (place, revs) in places.into_iter().zip(revs) {
                    removed[place] = revs;
                }
            }
            Ok((removed, has_few_copies))
        })
    }

    fn create(&self, name: String, new: NewDatabase) -> SequencerFuture<()> {
        let me = self.0.clone();
        Box::pin(async move { me.create_now(name, new).await })
    }

    fn delete(&self, name: String) -> SequencerFuture<()> {
        let me = self.0.clone();
        Box::pin(async move { me.delete_now(&name).await })
    }

    fn change(&self, db: &Database, property: Property) -> SequencerFuture<()> {
        let me = self.0.clone();
        let entry = Entry::Change {
            uuid: db.uuid(),
            change: property.into(),
        };
        Box::pin(async move { me.enter_for_client(entry).await })
    }

    fn copies(&self) -> u32 {
        u32::try_from(self.0.nodes_per_slot().max(1)).unwrap_or(u32::MAX)
    }

    fn fresh(&self, db: &Database) -> SequencerFuture<()> {
        let me = self.0.clone();
        let slots = me.slots_here(db);
        Box::pin(async move {
            let fresh = me.fresh_slots(slots).await.map(drop);
            fresh.map_err(|e| database::Error::Unavailable(e.to_string()))
        })
    }
}

/// See [`Gateway::fresh_slots`].
async fn fresh(
    replicas: &Replicas,
    slots: impl IntoIterator<Item = SlotNumber>,
) -> Result<ReadSlots, Error> {
    let now = tokio::time::Instant::now();
    let fresh = |slot| async move {
        let replica = replicas.get(slot);
        let replica = replica.ok_or_else(|| NO_REPLICA.to_owned())?;
        for _ in 0..FRESH_ATTEMPTS_MAX {
            let replaced = replica.replaced();
            replica.fresh(now + read_time(replica)).await?;
            let state = (replica.generation(), replaced);
            if replaced.is_some() && replica.replaced() == replaced {
                return Ok((slot, state));
            }
        }
        Err("it is being copied from another node".to_owned())
    };
    let done = try_join_all(slots.into_iter().map(fresh)).await;
    done.map(ReadSlots).map_err(Error::NotNow)
}
