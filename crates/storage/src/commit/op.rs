//! What can be asked of the commit thread, and the answers.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use document::{DocId, Rev};
use tokio::sync::oneshot;

use crate::Error;
use crate::batch::{Batch, Limits};
use crate::edit::{Change, Edit, Outcome};
use crate::keyspace::Keyspace;
use crate::shard::Shard;

/// A key of a keyspace, and its new value or its removal.
pub type Put = (Keyspace, Vec<u8>, Option<Vec<u8>>);

pub(super) type Reply<T> = oneshot::Sender<Result<T, Error>>;

/// A shard's edit with the limits of its database.
pub struct ShardEdit {
    /// Where the document belongs.
    pub shard: Arc<Shard>,
    /// What is to be done.
    pub edit: Edit,
}

/// A purge of revisions of one document.
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
    Put {
        puts: Vec<Put>,
        /// The shard that the puts are about, and how many of its superseded rows they remove.
        compacted: Option<(Arc<Shard>, u64)>,
        /// Shards of a database that goes.
        dropped: Vec<Arc<Shard>>,
        synced: bool,
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
            Op::Edits { edits, .. } => edits
                .iter()
                .map(|e| e.edit.body.len() + 256 * e.edit.files.len() + 64)
                .sum(),
            _ => 64,
        }
    }

    pub(super) fn edits(&self) -> usize {
        match self {
            Op::Edits { edits, .. } => edits.len(),
            _ => 0,
        }
    }

    /// Adds the documents whose records it changes.
    pub(super) fn docs_into<'a>(&'a self, docs: &mut Vec<(&'a Arc<Shard>, &'a DocId)>) {
        match self {
            Op::Edits { edits, .. } => {
                let with_record = |e: &&ShardEdit| !matches!(e.edit.change, Change::Local { .. });
                let edits = edits.iter().filter(with_record);
                docs.extend(edits.map(|e| (&e.shard, &e.edit.id)));
            }
            Op::Purge { purges, .. } => docs.extend(purges.iter().map(|p| (&p.shard, &p.id))),
            Op::Put { .. } | Op::Sync { .. } | Op::Save { .. } => {}
        }
    }

    pub(super) fn wants_sync(&self) -> bool {
        match self {
            Op::Edits { synced, .. } | Op::Put { synced, .. } => *synced,
            Op::Purge { .. } | Op::Sync { .. } => true,
            Op::Save { .. } => false,
        }
    }

    pub(super) fn fail(self, e: Error) {
        // A caller that went away does not want to know.
        match self {
            Op::Edits { reply, .. } => drop(reply.send(Err(e))),
            Op::Purge { reply, .. } => drop(reply.send(Err(e))),
            Op::Put { reply, .. } | Op::Sync { reply } | Op::Save { reply, .. } => {
                drop(reply.send(Err(e)));
            }
        }
    }
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
        Op::Sync { .. } | Op::Save { .. } => None,
    }
}

pub(super) enum Answer {
    Failed(Error),
    Edits(Vec<Outcome>),
    Purges(Vec<Vec<Rev>>),
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
            (Op::Put { reply, .. } | Op::Sync { reply } | Op::Save { reply, .. }, Answer::Done) => {
                drop(reply.send(Ok(())));
            }
            (op, Answer::Failed(e)) => op.fail(e),
            (op, _) => op.fail(Error::Corrupt("commit answer")),
        }
    }
}
