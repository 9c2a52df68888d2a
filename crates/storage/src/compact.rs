//! Compaction of a shard: bodies that no leaf needs are removed, and the engine gives the space back.

use std::sync::Arc;

use crate::Error;
use crate::commit::{Committer, Put};
use crate::engine::{Engine, Keyspace, Snapshot};
use crate::keys;
use crate::record::Record;
use crate::row::{Body, Row};
use crate::shard::{Shard, saved};

/// Superseded rows looked at for each trip through the commit queue.
const STEP_ROWS: usize = 2_000;

/// Told now and then (rows done, rows in all); false stops the compaction.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) -> bool + Sync);

/// Compacts `shard` while reads and writes go on. Returns the number of rows removed.
pub fn compact(
    committer: &Committer,
    shard: &Arc<Shard>,
    progress: Progress<'_>,
) -> Result<u64, Error> {
    let engine = &shard.engine;
    let upto = save_summary(engine, shard)?;
    let total = shard.meta().superseded_rows;
    let snapshot = engine.snapshot();
    let (mut done, mut removed, mut from) = (0, 0, 0);
    loop {
        let step = dead_rows(&snapshot, shard, from, upto)?;
        let Some(last) = step.last_seq else {
            break;
        };
        let rows = step.removed;
        let sent = committer.put_compacted(step.puts, shard.clone(), rows);
        sent.blocking_recv().map_err(|_| Error::Closed)??;
        (done, removed, from) = (done + step.seen, removed + rows, last + 1);
        if !progress(done, total.max(done)) {
            return Ok(removed);
        }
    }
    drop(snapshot);
    reclaim(engine, shard);
    Ok(removed)
}

/// **The summary must not need a row that is about to go**: its saved form catches up first, and only rows up to the
/// seq that it stands for, which this answers, may go.
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
}

/// The next superseded rows up to seq `upto` whose body no leaf needs, as removals.
fn dead_rows(snapshot: &Snapshot, shard: &Shard, from: u64, upto: u64) -> Result<Step, Error> {
    let mut step = Step {
        puts: vec![],
        seen: 0,
        removed: 0,
        last_seq: None,
    };
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
        if let Some(external) = removable(snapshot, shard, seq, &key)? {
            step.removed += 1;
            step.puts.push((Keyspace::BySeq, key.to_vec(), None));
            step.puts.push((Keyspace::Superseded, key.to_vec(), None));
            if external {
                step.puts.push((Keyspace::Bodies, key.to_vec(), None));
            }
        }
        if step.seen as usize >= STEP_ROWS {
            break;
        }
        markers.next();
    }
    markers.status()?;
    Ok(step)
}

/// Whether the row can go, and whether it has a body elsewhere. A body that is not a leaf's never becomes one again.
fn removable(
    snapshot: &Snapshot,
    shard: &Shard,
    seq: u64,
    key: &[u8],
) -> Result<Option<bool>, Error> {
    let Some(value) = snapshot.get(Keyspace::BySeq, key)? else {
        return Ok(Some(false));
    };
    let row = Row::decode(seq, &value)?;
    let id_key = keys::id_key(shard.number, row.id.as_bytes());
    let needed = match snapshot.get(Keyspace::ById, &id_key)? {
        Some(v) => Record::decode(&v)?
            .tree
            .leaves()
            .iter()
            .any(|l| l.revision.seq == seq),
        None => false,
    };
    Ok((!needed).then_some(matches!(row.body, Body::External { .. })))
}

/// Lets the engine rewrite the shard's files without what was removed.
fn reclaim(engine: &Engine, shard: &Shard) {
    let start = shard.number.to_be_bytes();
    let end = keys::shard_end(shard.number);
    for k in [
        Keyspace::BySeq,
        Keyspace::Bodies,
        Keyspace::Superseded,
        Keyspace::ById,
    ] {
        let cf = engine.cf(k);
        if let Err(e) = engine.db.flush_cf(cf) {
            tracing::warn!(error = %e, "flush before compaction failed");
        }
        // Files that were moved to the last level unread are still in the first levels' compression: all are rewritten.
        let mut options = rocksdb::CompactOptions::default();
        options.set_bottommost_level_compaction(rocksdb::BottommostLevelCompaction::ForceOptimized);
        options.set_exclusive_manual_compaction(false);
        engine
            .db
            .compact_range_cf_opt(cf, Some(&start[..]), Some(&end[..]), &options);
    }
}
