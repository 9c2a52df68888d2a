//! Building and updating an index: the order of steps that makes it correct after a crash at any
//! moment.
//!
//! **One thread writes an index at a time.** Every batch holds rows, the back-index, the changed
//! blocks, and the state with their seq; the engine's log orders it after the documents that it was
//! made from. A first build sorts rows and adds them as files instead: meanwhile the state has a
//! flag, and after a crash there the index starts over.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use functions::Mapper;
use storage::{
    DiskGuard, Engine, IdIter, Keyspace, ShardNumber, Snapshot, SortedFiles, View, Writes,
};

use crate::Error;
use crate::apply::Changes;
use crate::blocks::{Block, Blocks, CountedRows};
use crate::index::Index;
use crate::map::{Control, RowBuffer, Source, map_on_all};
use crate::memory::{LargeRows, Reservation};
use crate::read::PlaceRange;
use crate::run::{self, RunOutput};
use crate::state::State;

/// Free space, beyond what memtables need, below which no rows are added.
const RESERVE_BYTES: u64 = 32 << 20;
/// During a first build, a block is not split until it has this many times the maximum of rows or
/// bytes: splitting one reads all its rows.
const UNSPLIT_TIMES: u32 = 4;
/// Blocks split between two writes of the result.
const SPLIT_BLOCKS: usize = 1024;
/// Bytes before the id in a key of the back-index: the index's number.
const NUMBER_LEN: usize = size_of::<ShardNumber>();
/// Documents that are passed one by one before the next one of the index is sought.
const STEPS_MAX: usize = 16;
/// Documents of the index that are compared with the shard's between two checks for a stop.
const COMPARED_MAX: usize = 1024;

/// Memory limits of a build.
#[derive(Clone, Copy, Debug)]
pub struct BuildLimits {
    /// Rows that a first build sorts at a time, in bytes.
    pub run_bytes_max: usize,
    /// Rows mapped ahead of an incremental update, in bytes.
    pub update_bytes_max: usize,
    /// The limit of an update of few changes, which does not wait for memory.
    pub small_update_bytes_max: usize,
    /// A run of a first build is added as sorted files when it is longer than this: each file costs
    /// a sync and a place among the engine's files.
    pub small_run_bytes_max: usize,
    /// Size at which a batch is written, in bytes: a larger one would delay writers of documents.
    pub batch_bytes: usize,
    /// Blocks whose reductions are worked out between writes of them.
    pub warm_blocks: usize,
}

impl Default for BuildLimits {
    fn default() -> BuildLimits {
        BuildLimits {
            run_bytes_max: 128 << 20,
            update_bytes_max: 8 << 20,
            small_update_bytes_max: 1 << 20,
            small_run_bytes_max: 512 << 10,
            batch_bytes: 256 << 10,
            warm_blocks: 4096,
        }
    }
}

/// One update under way: the state as it will be after the next write.
pub(crate) struct Build<'a> {
    index: &'a Index,
    state: State,
    guard: DiskGuard,
    /// Whether there are few changes to process.
    pub(crate) is_small: bool,
}

impl<'a> Build<'a> {
    pub(crate) fn new(index: &'a Index, state: State) -> Build<'a> {
        Build {
            index,
            state,
            guard: DiskGuard::new(index.store.engine().path(), RESERVE_BYTES),
            is_small: false,
        }
    }

    fn engine(&self) -> &'a Engine {
        self.index.store.engine()
    }

    /// Applies all changes in `view` to the index.
    pub(crate) fn run(
        &mut self,
        view: &View,
        mappers: &mut [Box<dyn Mapper>],
    ) -> Result<(), Error> {
        if self.state.version == 0 {
            // Until something is indexed nothing was purged from it.
            self.state.purge_seq = view.meta.purge_seq;
        }
        self.purge(view)?;
        let first = self.state.indexed_seq == 0;
        let source = Source::new(&self.index.owner, view, self.state.indexed_seq);
        while !source.is_exhausted() {
            let index = self.index;
            index.check_stop()?;
            let taken = self.reserve(first)?;
            let reserved_bytes = taken.as_ref().map_or(0, |taken| taken.bytes);
            let bytes_max = match taken {
                Some(_) => reserved_bytes,
                None => index.limits.small_update_bytes_max,
            };
            let large = LargeRows::new(&index.memory, &index.stop, reserved_bytes);
            let buffers = self.map(&source, mappers, first, (bytes_max, &large))?;
            let upto = source.handed_out.load(Relaxed);
            let bytes: usize = buffers.iter().map(RowBuffer::size).sum();
            if first && bytes > self.index.limits.small_run_bytes_max {
                self.ingest(buffers, upto)?;
            } else {
                self.apply(buffers, upto)?;
            }
            drop((large, taken));
        }
        if first {
            self.split_beyond(1)?;
        }
        Ok(())
    }

    /// Reserves memory for the next rows; none for those of a small update.
    fn reserve(&self, first: bool) -> Result<Option<Reservation<'a>>, Error> {
        let index = self.index;
        if self.is_small {
            return Ok(None);
        }
        let wanted = match first {
            true => index.limits.run_bytes_max,
            false => index.limits.update_bytes_max,
        };
        index.memory.take(wanted, &index.stop).map(Some)
    }

    fn map(
        &self,
        source: &Source<'_>,
        mappers: &mut [Box<dyn Mapper>],
        first: bool,
        (bytes_max, large): (usize, &LargeRows<'_>),
    ) -> Result<Vec<RowBuffer>, Error> {
        let bytes = AtomicUsize::new(0);
        let failed = AtomicBool::new(false);
        let control = Control {
            stopped: &self.index.stop,
            failed: &failed,
            done: &self.index.progress.done,
            bytes: &bytes,
            bytes_max,
            large: Some(large),
            counts: &self.index.map_counts,
        };
        let buffers = map_on_all(source, mappers, &self.index.spec, !first, &control)?;
        // Handed-out documents may not have been mapped.
        self.index.check_stop()?;
        Ok(buffers)
    }

    /// Removes fully purged documents.
    fn purge(&mut self, view: &View) -> Result<(), Error> {
        let after = self.state.purge_seq;
        if view.meta.purge_seq <= after {
            return Ok(());
        }
        if view.meta.purge_floor > after {
            return self.remove_missing(view);
        }
        let index = self.index;
        let mut changes = Changes::new(self.engine(), index.number, &index.spec);
        // Documents whose rows the batch removes: they are still found.
        let mut removed = BTreeSet::new();
        let mut next = Some(after + 1);
        while let Some(from) = next {
            index.check_stop()?;
            let (ids, following) = storage::read_purged_ids(&index.owner, view, from)?;
            next = following;
            for id in ids {
                if removed.contains(&id) || view.record(&index.owner, &id)?.is_some() {
                    continue;
                }
                let bytes = changes.batch.bytes();
                changes.remove(id.as_bytes(), &mut self.state)?;
                if changes.batch.bytes() >= index.limits.batch_bytes {
                    self.write(changes.batch.take())?;
                    removed.clear();
                } else if changes.batch.bytes() > bytes {
                    removed.insert(id);
                }
            }
        }
        self.state.purge_seq = view.meta.purge_seq;
        self.write(changes.batch)
    }

    /// Removes the documents that the shard no longer has, after more purges than it remembers.
    ///
    /// The index does not start over: where purges are frequent, it would again and again, since
    /// there are more of them during a long build than are remembered.
    fn remove_missing(&mut self, view: &View) -> Result<(), Error> {
        let (index, engine) = (self.index, self.engine());
        tracing::info!(index = %index.label, "more purges than are kept: the index is compared with the documents");
        // The rows of purged documents change no more, so neither does what is to be found of them.
        let before = index.store.engine().snapshot();
        let mut indexed = before.iter(Keyspace::IndexBack, index.number);
        indexed.seek_to_first();
        let mut docs = IdIter::new(&view.snapshot, index.owner.number);
        docs.seek(b"");
        let mut changes = Changes::new(engine, index.number, &index.spec);
        let mut compared = 0usize;
        while let Some(key) = indexed.key() {
            if compared.is_multiple_of(COMPARED_MAX) {
                index.check_stop()?;
            }
            compared += 1;
            let id = &key[NUMBER_LEN..];
            if !is_listed(&mut docs, id)? {
                changes.remove(id, &mut self.state)?;
                if changes.batch.bytes() >= index.limits.batch_bytes {
                    self.write(changes.batch.take())?;
                }
            }
            indexed.next();
        }
        indexed.status()?;
        self.state.purge_seq = view.meta.purge_seq;
        self.write(changes.batch)
    }

    /// Adds the documents that were left out to the state, and removes those that were changed since.
    fn note_omissions(&mut self) -> Result<(), Error> {
        let omissions = &mut self.state.omissions;
        omissions.merge(&self.index.map_counts.take_omissions());
        if !omissions.is_empty() {
            let snapshot = self.index.store.engine().snapshot();
            let changed = self.index.changed_since(&snapshot, omissions)?;
            omissions.forget(&changed);
        }
        Ok(())
    }

    /// Writes a batch together with the changed blocks and the state, and shows it to readers.
    pub(crate) fn write(&mut self, mut batch: Writes<'_>) -> Result<(), Error> {
        // Another writer's state would be lost: each writes the whole of it.
        debug_assert!(self.index.writer.is_locked(), "one writer per index");
        self.note_omissions()?;
        let bytes = batch.bytes() as u64;
        self.guard.admit(self.engine(), bytes)?;
        self.engine().wait_for_room(bytes, &self.index.stop);
        self.state.save(self.index.number, &mut batch);
        self.index.begin_write();
        batch.commit(false)?;
        self.publish(None);
        Ok(())
    }

    fn publish(&self, stable: Option<Arc<Snapshot>>) {
        self.index.publish(self.state.clone(), stable);
    }

    fn apply(&mut self, buffers: Vec<RowBuffer>, upto: u64) -> Result<(), Error> {
        let mut changes = Changes::new(self.engine(), self.index.number, &self.index.spec);
        // The written state changes with each flush, so `self` lends it out meanwhile.
        let mut state = std::mem::replace(&mut self.state, State::empty(&self.index.spec));
        let mut result = Ok(());
        for buffer in buffers {
            result = changes.apply(&buffer, &mut state, |changes, state| {
                if changes.batch.bytes() < self.index.limits.batch_bytes {
                    return Ok(());
                }
                self.index.check_stop()?;
                let batch = changes.batch.take();
                std::mem::swap(&mut self.state, state);
                let written = self.write(batch);
                std::mem::swap(&mut self.state, state);
                written
            });
            if result.is_err() {
                break;
            }
        }
        self.state = state;
        result?;
        self.state.indexed_seq = upto;
        self.write(changes.batch)?;
        self.split(&changes.oversized)
    }

    /// Splits blocks that outgrew their size, along the rows just written.
    fn split(&mut self, oversized: &[(usize, Box<[u8]>)]) -> Result<(), Error> {
        if oversized.is_empty() {
            return Ok(());
        }
        let view = self.index.view()?;
        let find = |(n, fence): &(usize, Box<[u8]>)| (*n, view.state.views[*n].find(fence));
        for (n, at) in oversized.iter().map(find).collect::<BTreeSet<_>>() {
            let blocks = &view.state.views[n];
            let range = PlaceRange {
                low: blocks.block(at).fence.to_vec(),
                high: blocks.end_of(at).map(<[u8]>::to_vec),
            };
            let parts = self.index.cut(&view, n, &range)?;
            self.state.views[n].split(&range.low, parts);
        }
        self.write(self.engine().writes())
    }

    /// Adds the rows of documents that have none yet, as sorted files.
    fn ingest(&mut self, mut buffers: Vec<RowBuffer>, upto: u64) -> Result<(), Error> {
        let index = self.index;
        let engine = self.engine();
        let bytes: usize = buffers.iter().map(RowBuffer::size).sum();
        self.guard.admit(engine, bytes as u64)?;
        run::sort(&mut buffers);
        let (rows, back) = self.write_files(&buffers)?;
        // A file is durable immediately; the documents that it was made from must be durable first.
        let synced = index.store.committer.sync();
        synced
            .blocking_recv()
            .map_err(|_| storage::Error::Closed)??;
        index.check_stop()?;
        let stable = index.view()?.snapshot;
        self.state.ingesting = true;
        let mut batch = engine.writes();
        self.state.save(index.number, &mut batch);
        // Readers keep the earlier snapshot until everything is written.
        self.publish(Some(stable));
        batch.commit(true)?;
        back.ingest(engine, Keyspace::IndexBack)?;
        rows.files.ingest(engine, Keyspace::IndexRows)?;
        self.count(rows.blocks, rows.counted);
        self.state.bytes += rows.bytes;
        self.state.indexed_seq = upto;
        self.state.ingesting = false;
        drop(buffers);
        self.write(self.engine().writes())?;
        self.split_beyond(UNSPLIT_TIMES)
    }

    /// Splits the blocks beyond this many times the maximum, some of them at a time.
    fn split_beyond(&mut self, times: u32) -> Result<(), Error> {
        let views = self.state.views.iter().enumerate();
        let oversized = views.flat_map(|(n, blocks)| {
            let fences = blocks.beyond(times);
            fences.map(move |fence| (n, fence.into()))
        });
        let oversized: Vec<_> = oversized.collect();
        for some in oversized.chunks(SPLIT_BLOCKS) {
            self.split(some)?;
        }
        Ok(())
    }

    /// Writes the files of rows and of the back-index concurrently.
    fn write_files(&self, buffers: &[RowBuffer]) -> Result<(RunOutput, SortedFiles), Error> {
        let (engine, index) = (self.engine(), self.index);
        std::thread::scope(|scope| {
            let back = scope.spawn(|| {
                telemetry::give_way(telemetry::BACKGROUND_NICE);
                let _indexes = telemetry::enter(telemetry::State::Index);
                run::write_back(engine, index.number, buffers)
            });
            let (spec, reducers) = (&index.spec, &index.reducers);
            let existing = &self.state.views;
            let rows = run::write_rows(engine, index.number, buffers, existing, spec, reducers);
            let back = back
                .join()
                .unwrap_or_else(|_| Err(Error::Invalid("a build thread panicked".into())));
            Ok((rows?, back?))
        })
    }

    /// Counts added rows: as new blocks, or into existing ones.
    fn count(&mut self, blocks: Vec<Vec<Block>>, counted: Vec<Vec<CountedRows>>) {
        let spec = &self.index.spec;
        for (n, (new, counted)) in blocks.into_iter().zip(counted).enumerate() {
            let functions = spec.views[n].reduces.len();
            let view = &mut self.state.views[n];
            if view.rows() == 0 {
                *view = Blocks::from_blocks(new, functions);
            }
            for some in counted {
                view.add(&some.fence, some.rows, some.bytes);
            }
        }
    }
}

/// Returns whether the shard has a document; the iterator only moves forward.
fn is_listed(docs: &mut IdIter<'_>, id: &[u8]) -> Result<bool, Error> {
    let mut steps = 0;
    while docs.entry().is_some_and(|(known, _)| known < id) {
        match steps < STEPS_MAX {
            true => docs.next(),
            false => docs.seek(id),
        }
        steps += 1;
    }
    docs.status()?;
    Ok(docs.entry().is_some_and(|(known, _)| known == id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use functions::{NoLanguages, Owner};
    use storage::{Store, StoreOptions};

    use crate::read::IndexView;
    use crate::spec::Spec;

    #[test]
    fn after_files_that_were_added_in_part_the_index_is_empty() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), &StoreOptions::default(), Box::new(|_| {})).unwrap();
        let store = Arc::new(store);
        let shard = Arc::new(store.shard(1).unwrap());
        let view = crate::ViewSpec {
            map: String::new(),
            raw: false,
            reduces: vec![],
        };
        let spec = Spec {
            language: String::new(),
            lib: None,
            views: vec![view],
            include_design: false,
            local_seq: false,
            partitioned: false,
            dialect: None,
            by_access: false,
        };
        let languages = Arc::new(NoLanguages);
        let index = Index::open(
            store,
            shard,
            9,
            spec.into(),
            languages,
            None,
            Owner::default(),
        )
        .unwrap();
        // As after a build that failed between its two keyspaces.
        let stable = index.view().unwrap().snapshot;
        let mut build = Build::new(&index, State::empty(&index.spec));
        build.state.ingesting = true;
        let engine = index.store.engine().clone();
        let mut batch = engine.writes();
        let key = crate::keys::row_key(9, 0, b"place");
        batch.put(Keyspace::IndexRows, &key, b"row");
        build.state.save(9, &mut batch);
        build.publish(Some(stable));
        batch.commit(false).unwrap();
        let found = |view: &IndexView| view.edge(0, &PlaceRange::default(), false).unwrap();
        assert_eq!(
            found(&index.view().unwrap()),
            None,
            "readers keep to what was before"
        );

        index.recover().unwrap();
        let view = index.view().unwrap();
        assert!(!view.state.ingesting && view.state.version > build.state.version);
        assert_eq!(found(&view), None);
        assert!(engine.get(Keyspace::IndexRows, &key).unwrap().is_none());
    }
}
