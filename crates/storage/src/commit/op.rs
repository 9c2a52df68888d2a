//! The operations of the writer, and the answers.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use document::{DocId, Rev};
use tokio::sync::oneshot;

use super::piece::{Budget, Fetcher};
use super::queue::Leftovers;
use crate::Error;
use crate::batch::Batch;
use crate::edit::{Change, Edit, Outcome};
use crate::keys::ShardNumber;
use crate::keyspace::Keyspace;
use crate::limits::Limits;
use crate::shard::Shard;
use crate::slot::{Installation, Pending, SlotNumber, SlotOutcome, SlotWrite, WorkOutcome};

/// A key of a keyspace, and its new value or its removal.
pub type Put = (Keyspace, Vec<u8>, Option<Vec<u8>>);

pub(super) type Reply<T> = oneshot::Sender<Result<T, Error>>;

/// An edit in its shard.
#[derive(Clone)]
pub struct ShardEdit {
    /// The shard of the document.
    pub shard: Arc<Shard>,
    /// The edit.
    pub edit: Edit,
}

impl ShardEdit {
    /// Returns its approximate size in a batch.
    pub(crate) fn bytes(&self) -> usize {
        self.edit.cost_bytes()
    }

    /// Returns the document whose record it changes.
    pub(crate) fn document(&self) -> Option<(&Arc<Shard>, &DocId)> {
        (!self.is_local()).then_some((&self.shard, &self.edit.id))
    }

    /// Returns whether it is of a local document.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self.edit.change, Change::Local { .. })
    }
}

/// A purge of revisions of one document.
#[derive(Clone)]
pub struct ShardPurge {
    /// The shard of the document.
    pub shard: Arc<Shard>,
    /// The document.
    pub id: DocId,
    /// Leaves to remove; revisions that are not leaves are skipped.
    pub revs: Vec<Rev>,
    /// Random id of the purge request, for replication of purges.
    pub uuid: [u8; 16],
}

/// How long an edit request waited and how long its batch took, in microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timing {
    /// In the queue.
    pub wait_us: u64,
    /// From the batch's start to its acknowledgement.
    pub commit_us: u64,
}

/// The outcomes of a request's edits, and their timing.
pub type EditOutcomes = (Vec<Outcome>, Timing);

/// Operations with more edits or purges wait in lanes.
const SHORT_EDITS_MAX: usize = 64;
/// Operations of more bytes wait in lanes, too.
const SHORT_BYTES_MAX: usize = 256 << 10;

pub(super) enum Op {
    Edits {
        edits: Vec<ShardEdit>,
        /// Outcomes of the first edits: the others are still to be applied.
        done: Vec<Outcome>,
        /// Their approximate size, in bytes.
        bytes: usize,
        limits: Limits,
        synced: bool,
        queued: Instant,
        reply: Reply<EditOutcomes>,
    },
    Purge {
        purges: Vec<ShardPurge>,
        /// The revisions that the first purges removed: the others are still to be applied.
        done: Vec<Vec<Rev>>,
        limits: Limits,
        reply: Reply<Vec<Vec<Rev>>>,
    },
    /// Removes some of the purges beyond the last `keep`.
    TrimPurges {
        shard: Arc<Shard>,
        keep: u64,
        reply: Reply<()>,
    },
    /// Removes a shard's time bins.
    ResetTimeSeq {
        shard: Arc<Shard>,
        reply: Reply<()>,
    },
    Put {
        puts: Vec<Put>,
        /// The shard that the puts are about, and the number of its superseded rows that they
        /// remove.
        compacted: Option<(Arc<Shard>, u64)>,
        /// Shards of a database that is dropped.
        dropped: Vec<Arc<Shard>>,
        synced: bool,
        reply: Reply<()>,
    },
    /// A write of a cluster's log.
    Slot {
        write: Box<SlotWrite>,
        reply: Reply<Vec<SlotOutcome>>,
    },
    DropSlot {
        slot: SlotNumber,
        reply: Reply<()>,
    },
    /// Installs a copy of a slot.
    Install {
        installation: Box<Installation>,
        reply: Reply<()>,
    },
    Sync {
        reply: Reply<()>,
    },
    /// Saves the summaries of shards where it is worth it.
    Save {
        shards: Vec<Arc<Shard>>,
        reply: Reply<()>,
    },
}

impl Op {
    /// Returns its approximate size in batches.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Op::Edits { bytes, .. } => *bytes,
            Op::Slot { write, .. } => write.bytes(),
            Op::Install { installation, .. } => installation.bytes(),
            Op::Put { puts, .. } => puts.iter().map(put_bytes).sum(),
            _ => 64,
        }
    }

    /// Returns the lane in which it waits; `None` for one that is short, or cannot be split.
    pub(super) fn lane(&self) -> Option<ShardNumber> {
        let (shard, is_long) = match self {
            Op::Edits { edits, bytes, .. } => (
                &edits.first()?.shard,
                edits.len() > SHORT_EDITS_MAX || *bytes > SHORT_BYTES_MAX,
            ),
            Op::Purge { purges, .. } => (&purges.first()?.shard, purges.len() > SHORT_EDITS_MAX),
            _ => return None,
        };
        (is_long || shard.has_long_edits() || self.done() > 0).then_some(shard.number)
    }

    /// Returns the number of its parts.
    pub(super) fn parts(&self) -> usize {
        match self {
            Op::Edits { edits, .. } => edits.len(),
            Op::Purge { purges, .. } => purges.len(),
            _ => 1,
        }
    }

    /// Returns the number of parts that are done.
    pub(super) fn done(&self) -> usize {
        match self {
            Op::Edits { done, .. } => done.len(),
            Op::Purge { done, .. } => done.len(),
            _ => 0,
        }
    }

    /// Returns whether its edits need no shard that is still to be loaded, which can be slow.
    pub(super) fn is_of_loaded_shards(&self) -> bool {
        match self {
            Op::Edits { edits, .. } => edits.iter().all(|edit| edit.shard.is_loaded()),
            _ => false,
        }
    }

    /// Returns whether its edits probably change long records, which is slow even if the edits are short.
    pub(super) fn has_long_records(&self) -> bool {
        match self {
            Op::Edits { edits, .. } => edits.iter().any(|edit| edit.shard.has_long_edits()),
            _ => false,
        }
    }

    /// Returns the shards that are dropped with it.
    pub(super) fn dropped(&self) -> &[Arc<Shard>] {
        match self {
            Op::Put { dropped, .. } => dropped,
            Op::Install { installation, .. } if installation.is_applied.load(Relaxed) => {
                &installation.replaced
            }
            _ => &[],
        }
    }

    /// Returns whether it is refused while the disk is full: what frees space continues.
    pub(super) fn takes_room(&self) -> bool {
        match self {
            Op::Edits { .. } | Op::Purge { .. } | Op::Slot { .. } => true,
            // Without rows it removes a slot.
            Op::Install { installation, .. } => !installation.rows.is_empty(),
            Op::Put { .. }
            | Op::TrimPurges { .. }
            | Op::ResetTimeSeq { .. }
            | Op::DropSlot { .. }
            | Op::Sync { .. }
            | Op::Save { .. } => false,
        }
    }

    /// Keeps the results of parts of it; returns an answer of another kind.
    fn add(&mut self, answer: Answer) -> Option<Answer> {
        match (self, answer) {
            (Op::Edits { done, .. }, Answer::Edits(outcomes)) => done.extend(outcomes),
            (Op::Purge { done, .. }, Answer::Purges(removed)) => done.extend(removed),
            (_, answer) => return Some(answer),
        }
        None
    }

    /// Adds the documents whose records it changes, from its part `from` on and up to `max`.
    /// Returns the first part that was not added.
    pub(super) fn docs_into<'a>(
        &'a self,
        from: usize,
        max: usize,
        docs: &mut Vec<(&'a Arc<Shard>, &'a DocId)>,
    ) -> usize {
        let mut place = from;
        match self {
            Op::Edits { edits, .. } => {
                while place < edits.len() && docs.len() < max {
                    docs.extend(edits[place].document());
                    place += 1;
                }
            }
            Op::Purge { purges, .. } => {
                while place < purges.len() && docs.len() < max {
                    docs.push((&purges[place].shard, &purges[place].id));
                    place += 1;
                }
            }
            Op::Slot { write, .. } => {
                docs.extend(write.edits().filter_map(ShardEdit::document));
                docs.extend(write.purges().map(|p| (&p.shard, &p.id)));
                place += 1;
            }
            Op::Put { .. }
            | Op::TrimPurges { .. }
            | Op::ResetTimeSeq { .. }
            | Op::DropSlot { .. }
            | Op::Install { .. }
            | Op::Sync { .. }
            | Op::Save { .. } => place += 1,
        }
        place
    }

    pub(super) fn wants_sync(&self) -> bool {
        match self {
            Op::Edits { synced, .. } | Op::Put { synced, .. } => *synced,
            Op::Save { .. } | Op::TrimPurges { .. } => false,
            _ => true,
        }
    }

    pub(super) fn fail(self, e: Error) {
        // The caller may have gone.
        match self {
            Op::Edits { reply, .. } => drop(reply.send(Err(e))),
            Op::Purge { reply, .. } => drop(reply.send(Err(e))),
            Op::Slot { reply, .. } => drop(reply.send(Err(e))),
            Op::Put { reply, .. }
            | Op::TrimPurges { reply, .. }
            | Op::ResetTimeSeq { reply, .. }
            | Op::DropSlot { reply, .. }
            | Op::Install { reply, .. }
            | Op::Sync { reply }
            | Op::Save { reply, .. } => {
                drop(reply.send(Err(e)));
            }
        }
    }
}

fn put_bytes((_, key, value): &Put) -> usize {
    key.len() + value.as_ref().map_or(0, Vec::len)
}

/// The state of a batch being built.
pub(super) struct Work<'e> {
    pub batch: Batch<'e>,
    pub slots: Pending,
    pub fetcher: Fetcher<'e>,
    pub budget: Budget,
}

/// Applies the operation at `i`, or as much of it as there is time for. An error fails the whole
/// batch.
pub(super) fn apply<'e>(ops: &'e [Op], i: usize, work: &mut Work<'e>) -> Result<Answer, Error> {
    let op = &ops[i];
    if op.lane().is_some() {
        work.budget.begin_long();
    }
    if i > 0 && work.budget.is_spent(&work.batch) {
        return Ok(Answer::NotNow);
    }
    work.fetcher.reach(i, op.done(), &mut work.batch)?;
    if let Some(e) = refusal(work, i, op) {
        return Ok(Answer::Failed(e));
    }
    let from = (i, op.done());
    let parts = match op {
        Op::Edits { edits, limits, .. } => {
            let of = |e: &'e ShardEdit| (&e.shard, &e.edit.id);
            let edit =
                |batch: &mut Batch<'e>, e: &'e ShardEdit| batch.edit(&e.shard, &e.edit, limits);
            each(edits, from, work, of, edit)?.map(Answer::Edits)
        }
        Op::Purge { purges, limits, .. } => {
            let of = |p: &'e ShardPurge| (&p.shard, &p.id);
            let purge = |batch: &mut Batch<'e>, p: &'e ShardPurge| batch.purge(p, limits);
            each(purges, from, work, of, purge)?.map(Answer::Purges)
        }
        whole => Ok(apply_whole(whole, &ops[..i], work)?),
    };
    Ok(parts.unwrap_or_else(Answer::Failed))
}

/// Applies an operation that is not split; `earlier` are those before it in the batch.
fn apply_whole<'e>(op: &'e Op, earlier: &[Op], work: &mut Work<'e>) -> Result<Answer, Error> {
    let batch = &mut work.batch;
    Ok(match op {
        Op::Put {
            puts,
            compacted,
            dropped,
            ..
        } => {
            for shard in dropped {
                shard.dropped.store(true, Relaxed);
            }
            batch.put(puts);
            if let Some((shard, rows)) = compacted.as_ref().filter(|(_, rows)| *rows > 0) {
                batch.forget_superseded(shard, *rows);
            }
            Answer::Done
        }
        Op::Slot { write, .. } => {
            let slots = &mut work.slots;
            match slots.plan(batch, write, |shard| writes_locals(earlier, shard)) {
                Ok(plan) => Answer::Slot(slots.apply(batch, write, plan)?),
                Err(e) => Answer::Failed(e),
            }
        }
        Op::TrimPurges { shard, keep, .. } => {
            work.batch.trim_purges(shard, *keep)?;
            Answer::Done
        }
        Op::ResetTimeSeq { shard, .. } => match work.batch.reset_time_seq(shard) {
            Ok(()) => Answer::Done,
            Err(e) => Answer::Failed(e),
        },
        Op::DropSlot { slot, .. } => {
            work.slots.drop_slot(*slot);
            Answer::Done
        }
        Op::Install { installation, .. } => match work.slots.install(installation) {
            Ok(()) => {
                installation.is_applied.store(true, Relaxed);
                for shard in &installation.replaced {
                    shard.dropped.store(true, Relaxed);
                }
                batch.put(&installation.puts);
                Answer::Done
            }
            Err(e) => Answer::Failed(e),
        },
        Op::Sync { .. } | Op::Save { .. } | Op::Edits { .. } | Op::Purge { .. } => Answer::Done,
    })
}

/// Applies the parts of an operation from one on, until the batch is full. The inner error fails
/// the operation.
fn each<'e, P, T>(
    parts: &'e [P],
    (op, from): (usize, usize),
    work: &mut Work<'e>,
    of: impl Fn(&'e P) -> (&'e Arc<Shard>, &'e DocId),
    apply: impl Fn(&mut Batch<'e>, &'e P) -> Result<T, Error>,
) -> Result<Result<Vec<T>, Error>, Error> {
    let mut done = vec![];
    for (place, part) in parts.iter().enumerate().skip(from) {
        if place > from && work.budget.is_spent(&work.batch) {
            break;
        }
        if !work.fetcher.has(op, place) {
            work.fetcher.reach(op, place, &mut work.batch)?;
            let read = parts[place..].iter().enumerate();
            let read = read.take_while(|(i, _)| work.fetcher.has(op, place + i));
            let refused = read.map(|(_, part)| of(part)).find_map(|(shard, id)| {
                let gone = shard.dropped.load(Relaxed).then_some(Error::Dropped);
                gone.or_else(|| work.batch.unreadable(shard, id))
            });
            if let Some(e) = refused {
                return Ok(Err(e));
            }
        }
        done.push(apply(&mut work.batch, part)?);
    }
    Ok(Ok(done))
}

/// Returns whether one of the plain edits is of a local document of the shard.
fn writes_locals(ops: &[Op], shard: ShardNumber) -> bool {
    let of_shard = |e: &ShardEdit| e.is_local() && e.shard.number == shard;
    let mut ops = ops.iter();
    ops.any(|op| matches!(op, Op::Edits { edits, .. } if edits.iter().any(of_shard)))
}

/// Returns why an operation cannot be attempted, as far as its records were read; the others of its
/// batch continue.
fn refusal(work: &Work<'_>, i: usize, op: &Op) -> Option<Error> {
    let gone = |s: &Arc<Shard>| s.dropped.load(Relaxed).then_some(Error::Dropped);
    let refused = |s: &Arc<Shard>, id: &DocId| gone(s).or_else(|| work.batch.unreadable(s, id));
    let read = |place: &usize| work.fetcher.has(i, *place);
    let mut read = (op.done()..op.parts()).take_while(read);
    match op {
        Op::Edits { edits, .. } => read.find_map(|i| refused(&edits[i].shard, &edits[i].edit.id)),
        Op::Purge { purges, .. } => read.find_map(|i| refused(&purges[i].shard, &purges[i].id)),
        Op::Put { compacted, .. } => compacted.as_ref().and_then(|(s, _)| gone(s)),
        Op::TrimPurges { shard, .. } | Op::ResetTimeSeq { shard, .. } => gone(shard),
        Op::Install { installation, .. } => installation.replaced.iter().find_map(gone),
        // A slot's write is checked when it is applied.
        Op::Slot { .. } | Op::DropSlot { .. } | Op::Sync { .. } | Op::Save { .. } => None,
    }
}

pub(super) enum Answer {
    Failed(Error),
    /// Outcomes of the parts that were applied in this batch.
    Edits(Vec<Outcome>),
    Purges(Vec<Vec<Rev>>),
    Slot(Vec<SlotOutcome>),
    Done,
    /// The batch had no time for it.
    NotNow,
}

impl Answer {
    /// Returns whether it completes its operation.
    pub fn ends(&self, op: &Op) -> bool {
        match self {
            Answer::Edits(outcomes) => op.done() + outcomes.len() >= op.parts(),
            Answer::Purges(removed) => op.done() + removed.len() >= op.parts(),
            Answer::NotNow => false,
            Answer::Failed(_) | Answer::Slot(_) | Answer::Done => true,
        }
    }

    /// Returns the number of applied edits.
    pub fn edits(&self) -> usize {
        match self {
            Answer::Edits(outcomes) => outcomes.len(),
            Answer::Slot(outcomes) => outcomes.iter().map(slot_edits).sum(),
            _ => 0,
        }
    }
}

fn slot_edits(outcome: &SlotOutcome) -> usize {
    let SlotOutcome::Done(work) = outcome else {
        return 0;
    };
    let edits = work.iter().map(|work| match work {
        WorkOutcome::Edits(outcomes) => outcomes.len(),
        WorkOutcome::Purges(_) | WorkOutcome::Refused(_) => 0,
    });
    edits.sum()
}

/// Sends the results of the operations; returns those that are not complete.
pub(super) fn answer(ops: Vec<Op>, answers: Vec<Answer>, started: Instant) -> Leftovers {
    let commit_us = started.elapsed().as_micros() as u64;
    let mut left = Leftovers::default();
    for (mut op, answer) in ops.into_iter().zip(answers) {
        if matches!(answer, Answer::NotNow) {
            left.untouched.push(op);
            continue;
        }
        let ends = answer.ends(&op);
        match op.add(answer) {
            Some(whole) => answer_whole(op, whole),
            None if ends => answer_parts(op, started, commit_us),
            None => left.begun.push(op),
        }
    }
    left
}

fn answer_parts(op: Op, started: Instant, commit_us: u64) {
    match op {
        Op::Edits {
            reply,
            queued,
            done,
            ..
        } => {
            let timing = Timing {
                wait_us: started.saturating_duration_since(queued).as_micros() as u64,
                commit_us,
            };
            drop(reply.send(Ok((done, timing))));
        }
        Op::Purge { reply, done, .. } => drop(reply.send(Ok(done))),
        op => op.fail(Error::Corrupt("commit answer")),
    }
}

fn answer_whole(op: Op, answer: Answer) {
    match (op, answer) {
        (Op::Slot { reply, .. }, Answer::Slot(outcomes)) => drop(reply.send(Ok(outcomes))),
        (
            Op::Put { reply, .. }
            | Op::TrimPurges { reply, .. }
            | Op::ResetTimeSeq { reply, .. }
            | Op::DropSlot { reply, .. }
            | Op::Install { reply, .. }
            | Op::Sync { reply }
            | Op::Save { reply, .. },
            Answer::Done,
        ) => {
            drop(reply.send(Ok(())));
        }
        (op, Answer::Failed(e)) => op.fail(e),
        (op, _) => op.fail(Error::Corrupt("commit answer")),
    }
}
