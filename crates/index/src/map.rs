//! From changed documents to rows: documents are read in the order of their seqs, and mapped on all cores.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use document::attachment::write_stubs;
use document::collation::{Collator, compare_erlang};
use document::{StoredBody, write_json_string};
use functions::{Doc, Emit, Emits, Mapper};
use parking_lot::Mutex;
use storage::{Body, ChangeIter, Row, Shard, View};

use crate::Error;
use crate::keys::{RowValue, put_place_end, put_terminated};
use crate::spec::Spec;

/// Documents that are read and mapped in one go, and about how many bytes of them.
const PIECE_DOCS_MAX: usize = 256;
const PIECE_BYTES_MAX: usize = 1 << 20;
/// A buffer holds less than this many bytes, so that offsets fit.
const BUFFER_BYTES_MAX: usize = 3 << 30;

/// One row to be.
#[derive(Clone, Copy, Debug)]
pub struct RowRef {
    /// The view and the first bytes of the place, big endian: compared first.
    prefix: u64,
    pub view: u16,
    pub ordinal: u32,
    place: (u32, u32),
    pub sort_len: u32,
    value: (u32, u32),
    /// Length of key and value as JSON text.
    pub json_bytes: u32,
}

/// One document that was mapped.
#[derive(Clone, Debug)]
pub struct DocRef {
    id: (u32, u32),
    pub rows: Range<usize>,
}

/// Rows of some documents.
#[derive(Debug, Default)]
pub struct RowBuffer {
    bytes: Vec<u8>,
    pub rows: Vec<RowRef>,
    pub docs: Vec<DocRef>,
    /// The rows in the order of the documents' `rows`, once `rows` is sorted.
    pub unsorted: Vec<RowRef>,
}

impl RowBuffer {
    fn slice(&self, at: (u32, u32)) -> &[u8] {
        &self.bytes[at.0 as usize..at.1 as usize]
    }
    pub fn place(&self, row: &RowRef) -> &[u8] {
        self.slice(row.place)
    }
    /// The row's value as it is stored.
    pub fn value(&self, row: &RowRef) -> &[u8] {
        self.slice(row.value)
    }
    pub fn sort(&self, row: &RowRef) -> &[u8] {
        &self.place(row)[..row.sort_len as usize]
    }
    pub fn id(&self, doc: &DocRef) -> &[u8] {
        self.slice(doc.id)
    }
    pub fn compare(&self, a: &RowRef, other: &RowBuffer, b: &RowRef) -> Ordering {
        a.prefix
            .cmp(&b.prefix)
            .then_with(|| (a.view, self.place(a)).cmp(&(b.view, other.place(b))))
    }
    /// Memory that it takes.
    pub fn size(&self) -> usize {
        self.bytes.len()
            + self.rows.len() * size_of::<RowRef>()
            + self.docs.len() * size_of::<DocRef>()
    }
}

/// Changed documents of a shard, handed out in pieces; each piece is mapped by whoever took it.
pub struct Source<'a> {
    shard: &'a Shard,
    view: &'a View,
    changes: Mutex<Option<ChangeIter<'a>>>,
    /// All changes up to this one were handed out.
    pub handed_out: AtomicU64,
}

impl<'a> Source<'a> {
    pub fn new(shard: &'a Shard, view: &'a View, after: u64) -> Source<'a> {
        Source {
            shard,
            view,
            changes: Mutex::new(Some(ChangeIter::new(
                &view.snapshot,
                shard.number,
                after,
                false,
            ))),
            handed_out: AtomicU64::new(after),
        }
    }

    pub fn is_exhausted(&self) -> bool {
        self.changes.lock().is_none()
    }

    /// Takes the next changes into `piece`; false when there are none left.
    fn take(&self, piece: &mut Piece) -> Result<bool, Error> {
        piece.clear();
        let mut changes = self.changes.lock();
        let Some(it) = changes.as_mut() else {
            return Ok(false);
        };
        while piece.rows.len() < PIECE_DOCS_MAX && piece.bytes.len() < PIECE_BYTES_MAX {
            let Some((seq, value)) = it.entry() else {
                it.status()?;
                *changes = None;
                self.handed_out.store(self.view.meta.update_seq, Relaxed);
                return Ok(!piece.rows.is_empty());
            };
            let start = piece.bytes.len();
            piece.bytes.extend_from_slice(value);
            piece.rows.push((seq, start..piece.bytes.len()));
            self.handed_out.store(seq, Relaxed);
            it.next();
        }
        Ok(true)
    }
}

/// Rows of by-seq, copied.
#[derive(Default)]
struct Piece {
    bytes: Vec<u8>,
    rows: Vec<(u64, Range<usize>)>,
}

impl Piece {
    fn clear(&mut self) {
        self.bytes.clear();
        self.rows.clear();
    }
}

/// How the mapping of many documents ends early.
pub struct Control<'a> {
    /// Set by whoever wants it to end.
    pub stopped: &'a AtomicBool,
    /// Set by the first thread that fails.
    pub failed: &'a AtomicBool,
    /// Documents mapped.
    pub done: &'a AtomicU64,
    /// Memory of all buffers, and how much it may be.
    pub bytes: &'a AtomicUsize,
    pub bytes_max: usize,
}

/// Maps pieces of `source` until it is exhausted, memory is full, or it is told to stop.
/// `with_deleted`: documents without rows are listed too, for those that they had before.
pub fn map_pieces(
    source: &Source<'_>,
    mapper: &mut dyn Mapper,
    spec: &Spec,
    with_deleted: bool,
    control: &Control<'_>,
) -> Result<RowBuffer, Error> {
    let mut out = RowBuffer::default();
    let mut work = Work::default();
    while !control.stopped.load(Relaxed)
        && !control.failed.load(Relaxed)
        && control.bytes.load(Relaxed) < control.bytes_max
        && out.bytes.len() < BUFFER_BYTES_MAX
        && source.take(&mut work.piece)?
    {
        let before = out.size();
        work.map(source, mapper, spec, with_deleted, &mut out)?;
        control.bytes.fetch_add(out.size() - before, Relaxed);
        control
            .done
            .fetch_add(work.piece.rows.len() as u64, Relaxed);
    }
    Ok(out)
}

/// Buffers used again for each piece.
#[derive(Default)]
struct Work {
    piece: Piece,
    members: Vec<u8>,
    bodies: Vec<u8>,
    emits: Emits,
    sorts: Vec<u8>,
}

/// A document of a piece, by ranges of `Work`'s buffers.
struct Input {
    id: Range<usize>,
    members: Range<usize>,
    /// In the piece, or fetched into `bodies`.
    body: Result<Range<usize>, Range<usize>>,
}

impl Work {
    fn map(
        &mut self,
        source: &Source<'_>,
        mapper: &mut dyn Mapper,
        spec: &Spec,
        with_deleted: bool,
        out: &mut RowBuffer,
    ) -> Result<(), Error> {
        self.members.clear();
        self.bodies.clear();
        let mut inputs = Vec::with_capacity(self.piece.rows.len());
        let mut scan = None;
        let ends = (self.piece.rows.first(), self.piece.rows.last());
        let (first, last) = (ends.0.map_or(0, |r| r.0), ends.1.map_or(0, |r| r.0));
        for (seq, range) in &self.piece.rows {
            let row = Row::decode(*seq, &self.piece.bytes[range.clone()])?;
            let wanted = spec.include_design || !row.id.starts_with("_design/");
            if row.deleted || !wanted {
                if with_deleted {
                    let at = push(&mut out.bytes, row.id.as_bytes());
                    let none = out.rows.len();
                    out.docs.push(DocRef {
                        id: at,
                        rows: none..none,
                    });
                }
                continue;
            }
            let members = self.members.len();
            write_members(&row, *seq, spec.local_seq, &mut self.members)?;
            let offset = |part: &[u8]| part.as_ptr() as usize - self.piece.bytes.as_ptr() as usize;
            let body = match row.body {
                Body::Inline(b) if row.winner_seq == *seq => Ok(offset(b)..offset(b) + b.len()),
                Body::External { .. } if row.winner_seq == *seq => {
                    let scan = scan
                        .get_or_insert_with(|| source.view.scan_bodies(source.shard, first, last));
                    let body = scan
                        .get(*seq)?
                        .ok_or(storage::Error::Corrupt("document body"))?;
                    let start = self.bodies.len();
                    self.bodies.extend_from_slice(body);
                    Err(start..self.bodies.len())
                }
                _ => {
                    let start = self.bodies.len();
                    let bodies = &mut self.bodies;
                    source
                        .view
                        .with_body(source.shard, row.winner_seq, |b| {
                            bodies.extend_from_slice(b)
                        })?
                        .ok_or(storage::Error::Corrupt("document body"))?;
                    Err(start..self.bodies.len())
                }
            };
            let stored = StoredBody::split(match &body {
                Ok(range) => &self.piece.bytes[range.clone()],
                Err(range) => &self.bodies[range.clone()],
            });
            let without = stored.json.len();
            if !stored.attachments.is_empty() {
                let attachments = stored.attachments();
                let attachments = attachments.ok_or(storage::Error::Corrupt("attachments"))?;
                write_stubs(&attachments, &mut self.members);
            }
            let body = match body {
                Ok(range) => Ok(range.start..range.start + without),
                Err(range) => Err(range.start..range.start + without),
            };
            let id = offset(row.id.as_bytes());
            inputs.push(Input {
                id: id..id + row.id.len(),
                members: members..self.members.len(),
                body,
            });
        }
        let docs: Vec<Doc<'_>> = inputs
            .iter()
            .map(|i| Doc {
                members: &self.members[i.members.clone()],
                body: match &i.body {
                    Ok(range) => &self.piece.bytes[range.clone()],
                    Err(range) => &self.bodies[range.clone()],
                },
            })
            .collect();
        self.emits.clear();
        if !docs.is_empty() {
            mapper.map(&docs, &mut self.emits)?;
        }
        let mut rows = self.emits.rows.as_slice();
        for (n, input) in inputs.iter().enumerate() {
            let count = rows.iter().take_while(|e| e.doc as usize == n).count();
            let (own, rest) = rows.split_at(count);
            rows = rest;
            // The ids come from stored rows, which were read as text above.
            let id = std::str::from_utf8(&self.piece.bytes[input.id.clone()]).unwrap_or_default();
            push_doc(id, own, &self.emits, spec, &mut self.sorts, out)?;
        }
        Ok(())
    }
}

fn push(bytes: &mut Vec<u8>, part: &[u8]) -> (u32, u32) {
    let start = bytes.len() as u32;
    bytes.extend_from_slice(part);
    (start, bytes.len() as u32)
}

/// The underscore members that a map function sees.
fn write_members(
    row: &Row<'_>,
    seq: u64,
    local_seq: bool,
    out: &mut Vec<u8>,
) -> Result<(), storage::Error> {
    out.extend_from_slice(b"\"_id\":");
    write_json_string(row.id, out);
    out.extend_from_slice(b",\"_rev\":");
    row.winner.write_json_to(out);
    if row.has_other_leaves() {
        let others = row.other_leaves()?;
        for (member, deleted) in [("_conflicts", false), ("_deleted_conflicts", true)] {
            let mut revs = others.iter().filter(|(_, d)| *d == deleted).peekable();
            if revs.peek().is_none() {
                continue;
            }
            out.extend_from_slice(format!(",\"{member}\":[").as_bytes());
            for (rev, _) in revs {
                rev.write_json_to(out);
                out.push(b',');
            }
            out.pop();
            out.push(b']');
        }
    }
    if local_seq {
        out.extend_from_slice(format!(",\"_local_seq\":{seq}").as_bytes());
    }
    Ok(())
}

/// Adds a document's rows to `out`.
fn push_doc(
    id: &str,
    emitted: &[Emit],
    emits: &Emits,
    spec: &Spec,
    sorts: &mut Vec<u8>,
    out: &mut RowBuffer,
) -> Result<(), Error> {
    let first = out.rows.len();
    let mut rest = emitted;
    while let Some(e) = rest.first() {
        let count = rest.iter().take_while(|x| x.view == e.view).count();
        let (own, others) = rest.split_at(count);
        rest = others;
        push_view_rows(id, own, emits, spec, sorts, out)?;
    }
    let at = push(&mut out.bytes, id.as_bytes());
    if out.bytes.len() > u32::MAX as usize {
        // Offsets wrapped: nothing of this buffer is to be used.
        let reason =
            format!("the documents up to '{id}' emit more rows than can be sorted at a time");
        return Err(Error::Invalid(reason));
    }
    out.docs.push(DocRef {
        id: at,
        rows: first..out.rows.len(),
    });
    Ok(())
}

/// Adds the rows of one document in one view, numbering those of equal keys in the order of their values.
fn push_view_rows(
    id: &str,
    emitted: &[Emit],
    emits: &Emits,
    spec: &Spec,
    sorts: &mut Vec<u8>,
    out: &mut RowBuffer,
) -> Result<(), Error> {
    sorts.clear();
    let mut keyed = Vec::with_capacity(emitted.len());
    for e in emitted {
        let start = sorts.len();
        write_sort(id, emits.key(e), spec, usize::from(e.view as u16), sorts)?;
        keyed.push((start..sorts.len(), e));
    }
    if keyed.len() > 1 {
        keyed.sort_by(|(a, x), (b, y)| {
            sorts[a.clone()]
                .cmp(&sorts[b.clone()])
                .then_with(|| compare_erlang(emits.value(x), emits.value(y)))
        });
    }
    let mut ordinal = 0;
    for (i, (sort, e)) in keyed.iter().enumerate() {
        let repeats = i > 0 && sorts[keyed[i - 1].0.clone()] == sorts[sort.clone()];
        ordinal = if repeats { ordinal + 1 } else { 0 };
        let (key, value) = (emits.key(e), emits.value(e));
        let place = out.bytes.len();
        out.bytes.extend_from_slice(&sorts[sort.clone()]);
        put_place_end(id, ordinal, &mut out.bytes);
        let stored = out.bytes.len();
        RowValue::encode(sort.len(), key, value, &mut out.bytes);
        out.rows.push(RowRef {
            prefix: prefix(e.view as u16, &out.bytes[place..stored]),
            view: e.view as u16,
            ordinal,
            place: (place as u32, stored as u32),
            sort_len: sort.len() as u32,
            value: (stored as u32, out.bytes.len() as u32),
            json_bytes: (key.len() + value.len()) as u32,
        });
    }
    Ok(())
}

/// The part of a place before the document's id.
fn write_sort(
    id: &str,
    key: &[u8],
    spec: &Spec,
    view: usize,
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    if spec.partitioned {
        put_terminated(partition_of(id).as_bytes(), out);
    }
    write_key_sort(key, spec.views.get(view).is_some_and(|v| v.raw), out)
}

fn partition_of(id: &str) -> &str {
    id.split_once(':').map_or("", |(p, _)| p)
}

/// The sort key of a view's key.
pub fn write_key_sort(key: &[u8], raw: bool, out: &mut Vec<u8>) -> Result<(), Error> {
    let collator = Collator::root();
    let written = if raw {
        collator.write_raw_sort_key(key, out)
    } else {
        collator.write_sort_key(key, out)
    };
    written.map_err(|e| Error::Invalid(format!("a key is not JSON: {e}")))
}

fn prefix(view: u16, place: &[u8]) -> u64 {
    let mut p = [0; 8];
    p[..2].copy_from_slice(&view.to_be_bytes());
    let n = place.len().min(6);
    p[2..2 + n].copy_from_slice(&place[..n]);
    u64::from_be_bytes(p)
}

/// Maps on this thread and on others, one for each mapper beyond the first; answers everybody's rows.
pub fn map_on_all(
    source: &Source<'_>,
    mappers: &mut [Box<dyn Mapper>],
    spec: &Arc<Spec>,
    with_deleted: bool,
    control: &Control<'_>,
) -> Result<Vec<RowBuffer>, Error> {
    let run = |mapper: &mut Box<dyn Mapper>| {
        let result = map_pieces(source, mapper.as_mut(), spec, with_deleted, control);
        if result.is_err() {
            control.failed.store(true, Relaxed);
        }
        result
    };
    let Some((first, others)) = mappers.split_first_mut() else {
        return Ok(vec![]);
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = others
            .iter_mut()
            .map(|mapper| {
                scope.spawn(|| {
                    crate::yield_to_readers();
                    run(mapper)
                })
            })
            .collect();
        let mut buffers = vec![run(first)];
        for t in threads {
            buffers.push(
                t.join()
                    .unwrap_or_else(|_| Err(Error::Invalid("a map thread panicked".into()))),
            );
        }
        buffers.into_iter().collect()
    })
}
