//! What can be asked of the writer, and the answers.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use document::{DocId, Rev};
use tokio::sync::oneshot;

use crate::Error;
use crate::batch::{Batch, Limits};
use crate::edit::{Change, Edit, Outcome};
use crate::keys::ShardNumber;
use crate::keyspace::Keyspace;
use crate::shard::Shard;
use crate::slot::{Installation, Pending, SlotNumber, SlotOutcome, SlotWrite};

/// A key of a keyspace, and its new value or its removal.
pub type Put = (Keyspace, Vec<u8>, Option<Vec<u8>>);

pub(super) type Reply<T> = oneshot::Sender<Result<T, Error>>;

/// A shard's edit with the limits of its database.
#[derive(Clone)]
pub struct ShardEdit {
    /// Where the document belongs.
    pub shard: Arc<Shard>,
    /// What is to be done.
    pub edit: Edit,
}

impl ShardEdit {
    /// About how much it takes in a batch.
    pub(crate) fn bytes(&self) -> usize {
        self.edit.body.len() + 256 * self.edit.files.len() + 64
    }

    /// The document whose record it changes.
    pub(crate) fn document(&self) -> Option<(&Arc<Shard>, &DocId)> {
        (!self.is_local()).then_some((&self.shard, &self.edit.id))
    }

    /// It is of a local document.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self.edit.change, Change::Local { .. })
    }
}

/// A purge of revisions of one document.
#[derive(Clone)]
pub struct ShardPurge {
    /// Where the document belongs.
    pub shard: Arc<Shard>,
    /// The document.
    pub id: DocId,
    /// Leaves to be removed; those that are none are passed over.
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

/// What became of a request's edits, and how long they took.
pub type Edited = (Vec<Outcome>, Timing);

pub(super) enum Op {
    Edits {
        edits: Vec<ShardEdit>,
        limits: Limits,
        synced: bool,
        queued: Instant,
        reply: Reply<Edited>,
    },
    Purge {
        purges: Vec<ShardPurge>,
        limits: Limits,
        reply: Reply<Vec<Vec<Rev>>>,
    },
    /// Forgets some of the purges beyond the last `keep`.
    TrimPurges {
        shard: Arc<Shard>,
        keep: u64,
        reply: Reply<()>,
    },
    Put {
        puts: Vec<Put>,
        /// The shard that the puts are about, and how many of its superseded rows they remove.
        compacted: Option<(Arc<Shard>, u64)>,
        /// Shards of a database that goes.
        dropped: Vec<Arc<Shard>>,
        synced: bool,
        reply: Reply<()>,
    },
    /// What a cluster's log brings.
    Slot {
        write: Box<SlotWrite>,
        reply: Reply<Vec<SlotOutcome>>,
    },
    DropSlot {
        slot: SlotNumber,
        reply: Reply<()>,
    },
    /// Puts a copy of a slot in its place.
    Install {
        installation: Box<Installation>,
        reply: Reply<()>,
    },
    Sync {
        reply: Reply<()>,
    },
    /// Has the summaries of shards saved that are worth it.
    Save {
        shards: Vec<Arc<Shard>>,
        reply: Reply<()>,
    },
}

impl Op {
    pub(super) fn body_bytes(&self) -> usize {
        match self {
            Op::Edits { edits, .. } => edits.iter().map(ShardEdit::bytes).sum(),
            Op::Slot { write, .. } => write.bytes(),
            Op::Install { installation, .. } => installation.bytes(),
            _ => 64,
        }
    }

    /// Whether its edits need nothing that is yet to be loaded, which can take long.
    pub(super) fn is_of_loaded_shards(&self) -> bool {
        match self {
            Op::Edits { edits, .. } => edits.iter().all(|edit| edit.shard.is_loaded()),
            _ => false,
        }
    }

    /// Shards that go with it.
    pub(super) fn dropped(&self) -> &[Arc<Shard>] {
        match self {
            Op::Put { dropped, .. } => dropped,
            Op::Install { installation, .. } if installation.is_applied.load(Relaxed) => {
                &installation.replaced
            }
            _ => &[],
        }
    }

    /// It is refused while the disk is full: what gives space back goes on.
    pub(super) fn takes_room(&self) -> bool {
        match self {
            Op::Edits { .. } | Op::Purge { .. } | Op::Slot { .. } | Op::Install { .. } => true,
            Op::Put { .. }
            | Op::TrimPurges { .. }
            | Op::DropSlot { .. }
            | Op::Sync { .. }
            | Op::Save { .. } => false,
        }
    }

    pub(super) fn edits(&self) -> usize {
        match self {
            Op::Edits { edits, .. } => edits.len(),
            Op::Slot { write, .. } => write.edits().count(),
            _ => 0,
        }
    }

    /// Adds the documents whose records it changes.
    pub(super) fn docs_into<'a>(&'a self, docs: &mut Vec<(&'a Arc<Shard>, &'a DocId)>) {
        match self {
            Op::Edits { edits, .. } => docs.extend(edits.iter().filter_map(ShardEdit::document)),
            Op::Purge { purges, .. } => docs.extend(purges.iter().map(|p| (&p.shard, &p.id))),
            Op::Slot { write, .. } => {
                docs.extend(write.edits().filter_map(ShardEdit::document));
                docs.extend(write.purges().map(|p| (&p.shard, &p.id)));
            }
            Op::Put { .. }
            | Op::TrimPurges { .. }
            | Op::DropSlot { .. }
            | Op::Install { .. }
            | Op::Sync { .. }
            | Op::Save { .. } => {}
        }
    }

    pub(super) fn wants_sync(&self) -> bool {
        match self {
            Op::Edits { synced, .. } | Op::Put { synced, .. } => *synced,
            Op::Save { .. } | Op::TrimPurges { .. } => false,
            _ => true,
        }
    }

    pub(super) fn fail(self, e: Error) {
        // A caller that went away does not want to know.
        match self {
            Op::Edits { reply, .. } => drop(reply.send(Err(e))),
            Op::Purge { reply, .. } => drop(reply.send(Err(e))),
            Op::Slot { reply, .. } => drop(reply.send(Err(e))),
            Op::Put { reply, .. }
            | Op::TrimPurges { reply, .. }
            | Op::DropSlot { reply, .. }
            | Op::Install { reply, .. }
            | Op::Sync { reply }
            | Op::Save { reply, .. } => {
                drop(reply.send(Err(e)));
            }
        }
    }
}

/// Applies an operation of which nothing is refused. `earlier` are those before it in the batch. An error fails the whole batch.
pub(super) fn apply<'e>(
    op: &'e Op,
    earlier: &[Op],
    batch: &mut Batch<'e>,
    slots: &mut Pending,
) -> Result<Answer, Error> {
    Ok(match op {
        Op::Edits { edits, limits, .. } => Answer::Edits(
            edits
                .iter()
                .map(|e| batch.edit(&e.shard, &e.edit, limits))
                .collect::<Result<_, _>>()?,
        ),
        Op::Purge { purges, limits, .. } => Answer::Purges(
            purges
                .iter()
                .map(|p| batch.purge(p, limits))
                .collect::<Result<_, _>>()?,
        ),
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
            match slots.plan(batch, write, |shard| writes_locals(earlier, shard)) {
                Ok(plan) => Answer::Slot(slots.apply(batch, write, plan)?),
                Err(e) => Answer::Failed(e),
            }
        }
        Op::TrimPurges { shard, keep, .. } => {
            batch.trim_purges(shard, *keep)?;
            Answer::Done
        }
        Op::DropSlot { slot, .. } => {
            slots.drop_slot(*slot);
            Answer::Done
        }
        Op::Install { installation, .. } => match slots.install(installation) {
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
        Op::Sync { .. } | Op::Save { .. } => Answer::Done,
    })
}

/// Whether one of the plain edits is of a local document of the shard.
fn writes_locals(ops: &[Op], shard: ShardNumber) -> bool {
    let of_shard = |e: &ShardEdit| e.is_local() && e.shard.number == shard;
    let mut ops = ops.iter();
    ops.any(|op| matches!(op, Op::Edits { edits, .. } if edits.iter().any(of_shard)))
}

/// Why an operation cannot be tried; the others of its batch go on.
pub(super) fn refusal(batch: &Batch<'_>, op: &Op) -> Option<Error> {
    let gone = |s: &Arc<Shard>| s.dropped.load(Relaxed).then_some(Error::Dropped);
    match op {
        Op::Edits { edits, .. } => edits
            .iter()
            .find_map(|e| gone(&e.shard).or_else(|| batch.unreadable(&e.shard, &e.edit.id))),
        Op::Purge { purges, .. } => purges
            .iter()
            .find_map(|p| gone(&p.shard).or_else(|| batch.unreadable(&p.shard, &p.id))),
        Op::Put { compacted, .. } => compacted.as_ref().and_then(|(s, _)| gone(s)),
        Op::TrimPurges { shard, .. } => gone(shard),
        Op::Install { installation, .. } => installation.replaced.iter().find_map(gone),
        // What stands against a slot's write is seen when its turn comes.
        Op::Slot { .. } | Op::DropSlot { .. } | Op::Sync { .. } | Op::Save { .. } => None,
    }
}

pub(super) enum Answer {
    Failed(Error),
    Edits(Vec<Outcome>),
    Purges(Vec<Vec<Rev>>),
    Slot(Vec<SlotOutcome>),
    Done,
}

pub(super) fn answer(ops: Vec<Op>, answers: Vec<Answer>, started: Instant) {
    let commit_us = started.elapsed().as_micros() as u64;
    for (op, answer) in ops.into_iter().zip(answers) {
        match (op, answer) {
            (Op::Edits { reply, queued, .. }, Answer::Edits(outcomes)) => {
                let timing = Timing {
                    wait_us: started.saturating_duration_since(queued).as_micros() as u64,
                    commit_us,
                };
                drop(reply.send(Ok((outcomes, timing))));
            }
            (Op::Purge { reply, .. }, Answer::Purges(revs)) => drop(reply.send(Ok(revs))),
            (Op::Slot { reply, .. }, Answer::Slot(outcomes)) => drop(reply.send(Ok(outcomes))),
            (
                Op::Put { reply, .. }
                | Op::TrimPurges { reply, .. }
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
}
