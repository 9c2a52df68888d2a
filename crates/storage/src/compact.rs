//! Compaction of a shard: removes bodies that no leaf needs, and lets the engine reclaim the space.

use std::sync::Arc;

use document::{ContentId, StoredBody};
use rustc_hash::FxHashSet;

use crate::Error;
use crate::commit::{Committer, Put};
use crate::contents::{Contents, reference};
use crate::engine::Engine;
use crate::keys;
use crate::keyspace::Keyspace;
use crate::record::Record;
use crate::row::{Body, Row};
use crate::shard::{Shard, saved};
use crate::snapshot::Snapshot;

/// Superseded rows examined per trip through the commit queue.
const STEP_ROWS: usize = 2_000;
/// Approximate maximum number of keys that such a trip removes.
const STEP_KEYS: usize = 8_000;

/// Called periodically (rows done, rows in total); false stops the compaction.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) -> bool + Sync);

/// Compacts `shard` while reads and writes continue. Returns the number of rows removed.
pub fn compact(
    committer: &Committer,
    shard: &Arc<Shard>,
    contents: &Contents,
    progress: Progress<'_>,
) -> Result<u64, Error> {
    let engine = &shard.engine;
    let upto = save_summary(engine, shard)?;
    let total = shard.meta().superseded_rows;
    let snapshot = engine.snapshot();
    let (mut done, mut removed, mut from) = (0, 0, 0);
    loop {
        let step = dead_rows(&snapshot, shard, contents, from, upto)?;
        let Some(last) = step.last_seq else {
            break;
        };
        let rows = step.removed;
        let sent = committer.put_compacted(step.puts, shard.clone(), rows);
        sent.blocking_recv().map_err(|_| Error::Closed)??;
        contents.sweep(step.released)?;
        (done, removed, from) = (done + step.seen, removed + rows, last + 1);
        if !progress(done, total.max(done)) {
            return Ok(removed);
        }
    }
    drop(snapshot);
    reclaim(engine, shard);
    Ok(removed)
}

/// Removes the oldest purges of `shard` beyond the last `keep`.
///
/// # Errors
/// [`Error::Closed`], and those of the engine.
pub fn trim_purges(committer: &Committer, shard: &Arc<Shard>, keep: u64) -> Result<(), Error> {
    loop {
        let meta = shard.meta();
        if meta.purge_seq - meta.purge_floor <= keep {
            return Ok(());
        }
        let sent = committer.trim_purges(shard.clone(), keep);
        sent.blocking_recv().map_err(|_| Error::Closed)??;
    }
}

/// **The summary must not need a row that is about to be removed**: its saved form catches up
/// first, and only rows up to its seq, which is returned, may be removed.
fn save_summary(engine: &Engine, shard: &Shard) -> Result<u64, Error> {
    let mut state = shard.state.lock();
    let seq = state.meta.update_seq;
    let summary = shard.loaded(&mut state)?;
    let mut wb = rocksdb::WriteBatch::default();
    saved::save(engine, shard.number, summary, seq, &mut wb);
    engine.write(wb, false)?;
    Ok(seq)
}

struct Step {
    puts: Vec<Put>,
    seen: u64,
    removed: u64,
    last_seq: Option<u64>,
    /// Contents that the removed rows referenced.
    released: Vec<ContentId>,
}

/// Returns the next superseded rows up to seq `upto` whose body no leaf needs, as removals.
fn dead_rows(
    snapshot: &Snapshot,
    shard: &Shard,
    contents: &Contents,
    from: u64,
    upto: u64,
) -> Result<Step, Error> {
    let mut step = Step {
        puts: vec![],
        seen: 0,
        removed: 0,
        last_seq: None,
        released: vec![],
    };
    let mut leaves = LeafSeqs::default();
    let mut markers = snapshot.iter(Keyspace::Superseded, shard.number);
    markers.seek(keys::seq_key(shard.number, from));
    while let Some(key) = markers.key() {
        let seq = keys::seq_of(key);
        if seq > upto {
            break;
        }
        step.seen += 1;
        step.last_seq = Some(seq);
        let key = keys::seq_key(shard.number, seq);
        if let Some((external, released)) = removable(snapshot, shard, seq, &key, &mut leaves)? {
            step.removed += 1;
            step.puts.push((Keyspace::BySeq, key.to_vec(), None));
            step.puts.push((Keyspace::Superseded, key.to_vec(), None));
            if external {
                step.puts.push((Keyspace::Bodies, key.to_vec(), None));
            }
            for id in &released {
                let key = reference(contents.home(), id, shard.number, seq);
                step.puts.push((Keyspace::Attachments, key, None));
            }
            step.released.extend(released);
        }
        if step.seen as usize >= STEP_ROWS || step.puts.len() >= STEP_KEYS {
            break;
        }
        markers.next();
    }
    markers.status()?;
    Ok(step)
}

/// Seqs of the leaves of the document that was checked last: a document that was changed often has
/// many superseded rows.
#[derive(Default)]
struct LeafSeqs {
    id: Option<String>,
    seqs: FxHashSet<u64>,
}

impl LeafSeqs {
    /// Returns whether a leaf of a document has its body at `seq`, as of the snapshot.
    fn need(
        &mut self,
        snapshot: &Snapshot,
        shard: &Shard,
        id: &str,
        seq: u64,
    ) -> Result<bool, Error> {
        if self.id.as_deref() != Some(id) {
            self.seqs.clear();
            let key = keys::id_key(shard.number, id.as_bytes());
            if let Some(v) = snapshot.get(Keyspace::ById, &key)? {
                let tree = Record::decode(&v)?.tree;
                self.seqs
                    .extend(tree.leaves().iter().map(|leaf| leaf.revision.seq));
            }
            self.id = Some(id.to_owned());
        }
        Ok(self.seqs.contains(&seq))
    }
}

/// If the row can be removed, returns whether it has a body elsewhere, and the contents that it
/// references. A body that is not a leaf's never becomes one again.
fn removable(
    snapshot: &Snapshot,
    shard: &Shard,
    seq: u64,
    key: &[u8],
    leaves: &mut LeafSeqs,
) -> Result<Option<(bool, Vec<ContentId>)>, Error> {
    let Some(value) = snapshot.get(Keyspace::BySeq, key)? else {
        return Ok(Some((false, vec![])));
    };
    let row = Row::decode(seq, &value)?;
    let needed = leaves.need(snapshot, shard, row.id, seq)?;
    if needed {
        return Ok(None);
    }
    Ok(Some(match row.body {
        Body::None => (false, vec![]),
        Body::Inline(body) => (false, referred_to(body)?),
        Body::External {
            attachments: false, ..
        } => (true, vec![]),
        Body::External { .. } => match snapshot.get(Keyspace::Bodies, key)? {
            Some(body) => (true, referred_to(&body)?),
            None => (true, vec![]),
        },
    }))
}

fn referred_to(stored: &[u8]) -> Result<Vec<ContentId>, Error> {
    let attachments = StoredBody::split(stored).attachments();
    let attachments = attachments.ok_or(Error::Corrupt("attachments"))?;
    Ok(attachments.into_iter().map(|a| a.content).collect())
}

/// Lets the engine rewrite the shard's files without the removed rows.
fn reclaim(engine: &Engine, shard: &Shard) {
    for k in [
        Keyspace::BySeq,
        Keyspace::Bodies,
        Keyspace::Superseded,
        Keyspace::ById,
    ] {
        if let Err(e) = engine.flush(k) {
            tracing::warn!(error = %e, "flush before compaction failed");
        }
        engine.rewrite(k, shard.number);
    }
}
