//! The rows of a first build, sorted and written as files that the engine adopts as they are.

use std::sync::{Arc, OnceLock};

use functions::ReduceRow;
use storage::{Engine, Keyspace, ShardNumber, SortedFiles};

use crate::Error;
use crate::blocks::{Block, Blocks, CountedRows, Reductions, Tally};
use crate::cutter::Cutter;
use crate::keys::{BackEntry, RowValue, view_prefix};
use crate::map::{DocRef, RowBuffer, RowRef};
use crate::reducer::Reducers;
use crate::spec::Spec;

/// Sorts each buffer's rows and documents, all buffers concurrently.
pub fn sort(buffers: &mut [RowBuffer]) {
    std::thread::scope(|scope| {
        for buffer in buffers {
            scope.spawn(|| {
                telemetry::give_way(telemetry::BACKGROUND_NICE);
                let _sorts = telemetry::enter(telemetry::State::Sort);
                buffer.sort_all();
            });
        }
    });
}

/// Takes the smallest head of several sorted lists in turn.
struct Merge<'a, T> {
    lists: Vec<(&'a RowBuffer, std::slice::Iter<'a, T>)>,
}

impl<'a, T> Merge<'a, T> {
    fn new(buffers: &'a [RowBuffer], list: impl Fn(&'a RowBuffer) -> &'a [T]) -> Self {
        Merge {
            lists: buffers.iter().map(|b| (b, list(b).iter())).collect(),
        }
    }

    fn next(
        &mut self,
        less: impl Fn((&RowBuffer, &T), (&RowBuffer, &T)) -> bool,
    ) -> Option<(&'a RowBuffer, &'a T)> {
        let mut best: Option<(usize, &'a T)> = None;
        for (i, (buffer, list)) in self.lists.iter().enumerate() {
            let Some(head) = list.as_slice().first() else {
                continue;
            };
            if best.is_none_or(|(b, held)| less((buffer, head), (self.lists[b].0, held))) {
                best = Some((i, head));
            }
        }
        let (i, head) = best?;
        self.lists[i].1.next();
        Some((self.lists[i].0, head))
    }
}

/// Writes the back-index of sorted buffers.
pub fn write_back(
    engine: &Engine,
    number: ShardNumber,
    buffers: &[RowBuffer],
) -> Result<SortedFiles, Error> {
    let mut merge = Merge::new(buffers, |b| &b.docs);
    let (mut key, mut value) = (vec![], vec![]);
    engine.write_files(Keyspace::IndexBack, |file| {
        loop {
            let next = merge.next(|(a, x): (_, &DocRef), (b, y)| a.id(x) < b.id(y));
            let Some((buffer, doc)) = next else {
                return Ok(false);
            };
            if doc.rows().is_empty() {
                continue;
            }
            key.clear();
            key.extend_from_slice(&number.to_be_bytes());
            key.extend_from_slice(buffer.id(doc));
            value.clear();
            put_back(buffer, &buffer.unsorted[doc.rows()], &mut value);
            file.put(&key, &value)?;
            return Ok(true);
        }
    })
}

/// Appends the back-index's entry of a document.
pub fn put_back(buffer: &RowBuffer, rows: &[RowRef], out: &mut Vec<u8>) {
    for row in rows {
        BackEntry {
            view: row.view,
            ordinal: row.ordinal,
            bytes: row.json_bytes,
            sort: buffer.sort(row),
        }
        .put(out);
    }
}

/// Result of writing the rows of sorted buffers.
pub struct RunOutput {
    pub files: SortedFiles,
    /// The blocks of these rows alone, by view; empty for a view that has rows already.
    pub blocks: Vec<Vec<Block>>,
    /// For a view that has rows already: the number of added rows, by the fences of its blocks.
    pub counted: Vec<Vec<CountedRows>>,
    /// Length of keys and values as JSON text.
    pub bytes: u64,
}

/// Writes the rows of sorted buffers. Where a view has no rows yet, works out their blocks with the
/// reductions that are native.
pub fn write_rows(
    engine: &Engine,
    number: ShardNumber,
    buffers: &[RowBuffer],
    existing: &[Blocks],
    spec: &Spec,
    reducers: &Reducers,
) -> Result<RunOutput, Error> {
    let mut merge = Merge::new(buffers, |b| &b.rows);
    let mut blocks: Vec<Vec<Block>> = spec.views.iter().map(|_| vec![]).collect();
    let mut tallies: Vec<Tally<'_>> = existing.iter().map(Tally::new).collect();
    let mut block: Vec<(&RowBuffer, &RowRef)> = vec![];
    let mut cutter = Cutter::new(spec.partitioned);
    let mut at_group = false;
    let mut bytes = 0;
    let mut key = vec![];
    let files = engine.write_files(Keyspace::IndexRows, |file| -> Result<bool, Error> {
        let next = merge.next(|(a, x): (_, &RowRef), (b, y)| a.compare(x, b, y).is_lt());
        let Some((buffer, row)) = next else {
            return Ok(false);
        };
        if block.first().is_some_and(|(_, r)| r.view != row.view) {
            close_block(&block, at_group, &mut blocks, spec, reducers)?;
            block.clear();
            let by_principal = spec.is_by_principal(usize::from(row.view));
            cutter = Cutter::new(spec.partitioned).by_principal(by_principal);
        }
        let view = usize::from(row.view);
        if existing[view].rows() > 0 {
            tallies[view].count(buffer.place(row), counted_bytes(spec, row));
        } else {
            if let Some(cut) = cutter.next(buffer.sort(row), counted_bytes(spec, row)) {
                close_block(&block[..cut.rows], at_group, &mut blocks, spec, reducers)?;
                block.drain(..cut.rows);
                at_group = cut.at_group;
            }
            block.push((buffer, row));
        }
        bytes += u64::from(row.json_bytes);
        key.clear();
        key.extend_from_slice(&view_prefix(number, row.view));
        key.extend_from_slice(buffer.place(row));
        file.put(&key, buffer.value(row))?;
        Ok(true)
    })?;
    close_block(&block, at_group, &mut blocks, spec, reducers)?;
    Ok(RunOutput {
        files,
        blocks,
        counted: tallies.into_iter().map(Tally::counted).collect(),
        bytes,
    })
}

/// Adds a block of these rows. `at_group`: they start with a group, and the block where rows of its
/// first key may be.
fn close_block(
    rows: &[(&RowBuffer, &RowRef)],
    at_group: bool,
    blocks: &mut [Vec<Block>],
    spec: &Spec,
    reducers: &Reducers,
) -> Result<(), Error> {
    let Some(&(buffer, first)) = rows.first() else {
        return Ok(());
    };
    let view = usize::from(first.view);
    let functions = spec.views[view].reduces.len();
    let mut reductions: Vec<OnceLock<Arc<[u8]>>> = Vec::with_capacity(functions);
    for function in 0..functions {
        reductions.push(match reducers.builtin(view, function) {
            None => OnceLock::new(),
            Some(_) => {
                let mut reduced = Vec::with_capacity(rows.len());
                for (buffer, row) in rows.iter() {
                    let stored = RowValue::decode(buffer.value(row))?;
                    reduced.push(ReduceRow {
                        key: stored.key,
                        id: &[],
                        value: stored.value,
                    });
                }
                OnceLock::from(reducers.reduce(view, function, &reduced)?)
            }
        });
    }
    let fence = match (blocks[view].is_empty(), at_group) {
        // The first block of a view starts before every row.
        (true, _) => &[],
        (false, true) => buffer.sort(first),
        (false, false) => buffer.place(first),
    };
    let block = Block::with_reductions(fence, rows.len() as u32, Reductions::from(reductions));
    let bytes: u64 = rows.iter().map(|(_, row)| counted_bytes(spec, row)).sum();
    blocks[view].push(block.of_bytes(bytes));
    Ok(())
}

/// Returns how many bytes of its block a row is.
fn counted_bytes(spec: &Spec, row: &RowRef) -> u64 {
    let view = &spec.views[usize::from(row.view)];
    view.counted_bytes(row.sort_len as usize, row.json_bytes.into())
}
