//! Documents of a piece, as a map function sees them, and what it emits for them.

use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use document::attachment::write_stubs;
use document::{StoredBody, write_json_string};
use functions::{Doc, EMITS_BYTES_MAX, Emit, Emits, MapFailure, Mapper};
use storage::{Body, BodyScan, Row};

use super::MapCounts;
use super::buffer::RowBuffer;
use super::rows::push_doc;
use super::source::{PIECE_DOCS_FIRST, PIECE_DOCS_MAX, Piece, Source};
use crate::Error;
use crate::memory::LargeRows;
use crate::part::prefixes_of;
use crate::spec::Spec;

/// A piece whose rows have fewer bytes than this is followed by a larger one.
const EMITTED_FEW_BYTES: usize = 1 << 20;
/// A piece whose rows have this number of bytes or more is followed by a smaller one.
const EMITTED_MANY_BYTES: usize = EMITS_BYTES_MAX;
/// Bytes that a row takes for each byte of its key, and of its value, until it is written: a sort key may be
/// twice as long as the key, and is in the row, in the batch's row and in the back-index.
const KEY_BYTES_TIMES: usize = 10;
const VALUE_BYTES_TIMES: usize = 3;
/// Maximum bytes of a document's id in all its rows in all views together: ids can have 64 KiB.
const ROW_IDS_BYTES_MAX: usize = 64 << 20;
/// Maximum bytes of a document's rows by principal, about, until they are written.
const PRINCIPAL_ROWS_BYTES_MAX: usize = 256 << 20;
/// Maximum bytes of an emitted key, as JSON text. The storage engine keeps two whole keys of each file in
/// memory, in each version of its list of files, which no option limits.
const KEY_BYTES_MAX: usize = 256 << 10;

/// The result of mapping a document.
pub struct MapResult<'a> {
    /// The seq of its change.
    pub seq: u64,
    /// Its emitted rows.
    pub rows: &'a [Emit],
    /// Keys and values of the rows.
    pub emits: &'a Emits,
    /// The limit that a function exceeded, whose rows for this document are left out.
    pub limit: Option<&'a MapFailure>,
}

/// Counts of mapped documents, and whether to map more.
#[derive(Clone, Copy)]
pub struct Watch<'a> {
    pub counts: &'a MapCounts,
    pub go_on: &'a dyn Fn() -> bool,
    /// Whether to map the rest of a piece, after a part whose rows take this number of bytes.
    pub has_room: &'a dyn Fn(usize) -> bool,
}

/// The rules for rows of a build.
#[derive(Clone, Copy)]
pub(super) struct RowSpec<'a, 'm> {
    pub spec: &'a Spec,
    /// Documents without rows are listed too.
    pub with_deleted: bool,
    /// Memory for the rows of large documents.
    pub large: Option<&'a LargeRows<'m>>,
}

/// Receives each document with the result; those that are not mapped without.
pub type Sink<'a, E> = &'a mut dyn FnMut(&str, Option<MapResult<'_>>) -> Result<(), E>;

/// Which documents are mapped, and with which members.
#[derive(Clone, Copy, Debug, Default)]
pub struct MapOptions {
    /// Design documents too.
    pub include_design: bool,
    /// They have `_local_seq`.
    pub local_seq: bool,
    /// They have `_conflicts` and `_deleted_conflicts`.
    pub conflicts: bool,
}

/// Buffers used again for each piece.
pub(super) struct MapBuffers {
    pub piece: Piece,
    /// Maximum documents of the next piece: fewer while they emit much, as all rows of a piece are
    /// in memory before limits of builds count them.
    pub docs_max: usize,
    members: Vec<u8>,
    bodies: Vec<u8>,
    /// The rows of a part of the piece.
    emits: Emits,
    /// Bytes of the rows of all parts.
    emitted: usize,
    sorts: Vec<u8>,
}

/// A document of a piece, by ranges of `MapBuffers`'s buffers.
struct Input {
    seq: u64,
    id: Range<usize>,
    members: Range<usize>,
    /// In the piece, or fetched into `bodies`.
    body: Result<Range<usize>, Range<usize>>,
}

impl Default for MapBuffers {
    fn default() -> MapBuffers {
        MapBuffers {
            piece: Piece::default(),
            docs_max: PIECE_DOCS_FIRST,
            members: vec![],
            bodies: vec![],
            emits: Emits::default(),
            emitted: 0,
            sorts: vec![],
        }
    }
}

impl MapBuffers {
    /// Takes the next piece; returns false at the end.
    pub fn take(&mut self, source: &Source<'_>) -> Result<bool, Error> {
        source.take(&mut self.piece, self.docs_max)
    }

    /// Notes the size of the rows of the piece, in bytes.
    pub fn note_rows(&mut self, bytes: usize) {
        self.docs_max = match bytes.max(self.emitted) {
            0..EMITTED_FEW_BYTES => (self.docs_max * 4).min(PIECE_DOCS_MAX),
            EMITTED_FEW_BYTES..EMITTED_MANY_BYTES => self.docs_max,
            _ => (self.docs_max / 4).max(1),
        };
    }

    /// Maps the piece and adds the rows to `out`. A part counts as the emitted bytes, or as its rows in
    /// `out` where these are longer. Returns the last seq if there was no room for all of
    /// it.
    pub fn map(
        &mut self,
        source: &Source<'_>,
        mapper: &mut dyn Mapper,
        rows_of: RowSpec<'_, '_>,
        out: &mut RowBuffer,
        watch: Watch<'_>,
    ) -> Result<Option<u64>, Error> {
        let RowSpec { spec, large, .. } = rows_of;
        let counts = watch.counts;
        let grown = Cell::new(0);
        let has_room = |emitted: usize| (watch.has_room)(emitted.max(grown.take()));
        let watch = Watch {
            has_room: &has_room,
            ..watch
        };
        let which = MapOptions {
            include_design: spec.include_design,
            local_seq: spec.local_seq,
            // Users of a database with access may not read all of them.
            conflicts: !spec.by_access,
        };
        let mut sorts = std::mem::take(&mut self.sorts);
        let before = out.size();
        out.begin_piece(self.piece.ends().0);
        let mut sink = |id: &str, mapped: Option<MapResult<'_>>| -> Result<(), Error> {
            match mapped {
                Some(MapResult {
                    seq, rows, emits, ..
                }) => {
                    let parts = match spec.by_access && !rows.is_empty() {
                        true => parts_of(source, id)?,
                        false => vec![],
                    };
                    let exceeded = exceeded_by(id, rows, parts.len());
                    if let Some(failure) = &exceeded {
                        counts.note_left_out_anyway(id, seq, failure);
                    }
                    let rows = if exceeded.is_none() { rows } else { &[] };
                    if let Some(large) = large {
                        large.take(row_bytes(rows) * (1 + parts.len()))?;
                    }
                    let before = out.size();
                    push_doc(id, (rows, &parts[..]), emits, spec, &mut sorts, out)?;
                    grown.set(grown.get() + out.size() - before);
                    Ok(())
                }
                None => {
                    if rows_of.with_deleted {
                        out.push_without_rows(id);
                    }
                    Ok(())
                }
            }
        };
        let result = self.map_to(source, mapper, which, watch, &mut sink);
        self.sorts = sorts;
        self.note_rows(out.size() - before);
        result
    }

    /// Maps the piece and passes each document of it to `sink` with the result, or without one if
    /// it is deleted or not to be mapped. The piece is mapped in parts: the rows of one are in memory
    /// at a time. Returns the last seq if there was no room for all of it.
    pub fn map_to<E: From<Error>>(
        &mut self,
        source: &Source<'_>,
        mapper: &mut dyn Mapper,
        which: MapOptions,
        watch: Watch<'_>,
        sink: Sink<'_, E>,
    ) -> Result<Option<u64>, E> {
        let mut gone = vec![];
        let inputs = self.read(source, which, &mut gone)?;
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
        self.emitted = 0;
        let mut last = None;
        let (mut done, mut at_once) = (0, docs.len());
        while done < docs.len() {
            let part = &docs[done..docs.len().min(done.saturating_add(at_once))];
            self.emits.clear();
            let mapped = map_some(mapper, part, &mut self.emits, watch).map_err(Error::from)?;
            debug_assert!(mapped > 0, "a mapper maps at least one document");
            // The next part is prepared for about as many documents.
            at_once = match mapped < part.len() {
                true => mapped.saturating_mul(2),
                false => at_once.saturating_mul(2),
            };
            let inputs = &inputs[done..done + mapped];
            pass_on(inputs, &self.piece, &self.emits, watch.counts, sink)?;
            done += mapped;
            let size = self.emits.size();
            self.emitted += size;
            if done < docs.len() && !(watch.has_room)(size) {
                last = inputs.last().map(|input| input.seq);
                break;
            }
        }
        for (_, id) in gone
            .iter()
            .filter(|(seq, _)| last.is_none_or(|last| *seq <= last))
        {
            sink(self.piece.text(id), None)?;
        }
        Ok(last)
    }

    /// Reads the documents of the piece that are to be mapped. The ids of the others are put into
    /// `gone` with their seqs, by their ranges in the piece.
    fn read(
        &mut self,
        source: &Source<'_>,
        which: MapOptions,
        gone: &mut Vec<(u64, Range<usize>)>,
    ) -> Result<Vec<Input>, Error> {
        self.members.clear();
        self.bodies.clear();
        let mut inputs = Vec::with_capacity(self.piece.rows.len());
        let mut far = FarBodies {
            source,
            ends: self.piece.ends(),
            scan: None,
            bytes: &mut self.bodies,
        };
        for (seq, range) in &self.piece.rows {
            let row = Row::decode(*seq, &self.piece.bytes[range.clone()])?;
            let offset = |part: &[u8]| part.as_ptr() as usize - self.piece.bytes.as_ptr() as usize;
            let wanted = which.include_design || !row.id.starts_with("_design/");
            if row.deleted || !wanted {
                let id = offset(row.id.as_bytes());
                gone.push((*seq, id..id + row.id.len()));
                continue;
            }
            let members = self.members.len();
            write_members(&row, *seq, which, &mut self.members)?;
            let body = match row.body {
                Body::Inline(b) if row.winner_seq == *seq => Ok(offset(b)..offset(b) + b.len()),
                _ => Err(far.fetch(*seq, &row)?),
            };
            let stored = StoredBody::split(match &body {
                Ok(range) => &self.piece.bytes[range.clone()],
                Err(range) => &far.bytes[range.clone()],
            });
            let without = stored.json.len();
            if !stored.attachments.is_empty() {
                let attachments = stored.attachments();
                let attachments =
                    attachments.ok_or_else(|| storage::Error::Corrupt("attachments"))?;
                write_stubs(&attachments, &mut self.members);
            }
            let body = match body {
                Ok(range) => Ok(range.start..range.start + without),
                Err(range) => Err(range.start..range.start + without),
            };
            let id = offset(row.id.as_bytes());
            inputs.push(Input {
                seq: *seq,
                id: id..id + row.id.len(),
                members: members..self.members.len(),
                body,
            });
        }
        Ok(inputs)
    }
}

/// A build fails when the functions take too much time for this many documents in a row: the
/// functions are at fault then, and not a document.
const LATE_DOCS_MAX: usize = 10;

/// Passes the documents of a part of a piece to `sink`, with their rows.
fn pass_on<E>(
    inputs: &[Input],
    piece: &Piece,
    emits: &Emits,
    counts: &MapCounts,
    sink: Sink<'_, E>,
) -> Result<(), E> {
    let mut rows = emits.rows.as_slice();
    let mut limits = emits.thrown.iter().peekable();
    for (n, input) in inputs.iter().enumerate() {
        let count = rows.iter().take_while(|e| e.doc as usize == n).count();
        let (own, rest) = rows.split_at(count);
        rows = rest;
        let id = piece.text(&input.id);
        let mut limit = None;
        while let Some(thrown) = limits.next_if(|thrown| thrown.doc as usize == n) {
            counts.note_left_out(id, input.seq, thrown);
            limit = Some(thrown);
        }
        let mapped = MapResult {
            seq: input.seq,
            rows: own,
            emits,
            limit,
        };
        sink(id, Some(mapped))?;
    }
    counts.note(inputs.len(), &emits.failures);
    Ok(())
}

/// Maps the first of some documents; returns their number. Those for which the functions take too much
/// time, also when each is mapped alone, have no rows, and the limit in [`Emits::thrown`] of every view:
/// which function it was is unknown.
fn map_some(
    mapper: &mut dyn Mapper,
    docs: &[Doc<'_>],
    emits: &mut Emits,
    watch: Watch<'_>,
) -> Result<usize, functions::Error> {
    let late = &watch.counts.late;
    match mapper.map_some(docs, emits) {
        Err(error) if error.is_of_time() && (watch.go_on)() => {}
        mapped => {
            if mapped.is_ok() {
                late.store(0, Relaxed);
            }
            return mapped;
        }
    }
    emits.clear();
    for (number, doc) in docs.iter().enumerate() {
        let mark = emits.mark();
        match mapper.map(std::slice::from_ref(doc), emits) {
            Ok(()) => {
                late.store(0, Relaxed);
                emits.renumber(mark, number);
            }
            Err(error) if error.is_of_time() && (watch.go_on)() => {
                if late.fetch_add(1, Relaxed) + 1 >= LATE_DOCS_MAX {
                    return Err(error);
                }
                emits.forget(mark);
                for view in 0..watch.counts.views() {
                    let thrown = MapFailure::new(number as u32, view as u32, error.clone(), None);
                    emits.thrown.push(thrown);
                }
            }
            Err(error) => return Err(error),
        }
        if emits.size() >= EMITS_BYTES_MAX {
            return Ok(number + 1);
        }
    }
    Ok(docs.len())
}

/// Returns the length of a part of a row, in bytes.
fn length((start, end): (u32, u32)) -> usize {
    end.saturating_sub(start) as usize
}

/// Returns about how many bytes the rows of a document take until they are written.
fn row_bytes(rows: &[Emit]) -> usize {
    let of = |row: &Emit| KEY_BYTES_TIMES * length(row.key) + VALUE_BYTES_TIMES * length(row.value);
    rows.iter().map(of).sum()
}

/// Returns the beginnings of the places of a document's rows by principal. Users see documents whose
/// winner they may read.
fn parts_of(source: &Source<'_>, id: &str) -> Result<Vec<Vec<u8>>, Error> {
    let access = source.view.access(source.shard, id)?;
    let winner = access.leaves.first();
    Ok(winner.map_or(vec![], |leaf| prefixes_of(&leaf.set)))
}

/// Returns the limit of all configurations that a document's rows exceed, if each row is stored once
/// more for each of some principals.
fn exceeded_by(id: &str, rows: &[Emit], principals: usize) -> Option<MapFailure> {
    let failure = |row: &Emit, limit, value: usize| {
        let value = value.to_string();
        let error = functions::Error::Limit { limit, value };
        MapFailure::new(row.doc, row.view, error, None)
    };
    if let Some(row) = rows.iter().find(|row| length(row.key) > KEY_BYTES_MAX) {
        return Some(failure(row, "the bytes of a key", KEY_BYTES_MAX));
    }
    let ids = rows.len().saturating_mul(id.len()) * (1 + principals);
    let more = row_bytes(rows).saturating_mul(principals);
    let is_long = ids > ROW_IDS_BYTES_MAX || more > PRINCIPAL_ROWS_BYTES_MAX;
    let row = rows.first().filter(|_| is_long)?;
    Some(failure(row, "emit_bytes_limit", ROW_IDS_BYTES_MAX))
}

/// Bodies that are not in the rows of a piece.
struct FarBodies<'s, 'a> {
    source: &'s Source<'a>,
    /// First and last seq of the piece.
    ends: (u64, u64),
    /// Started on first use.
    scan: Option<BodyScan<'a>>,
    /// The buffer that they are copied to.
    bytes: &'s mut Vec<u8>,
}

impl FarBodies<'_, '_> {
    /// Returns the winner's body of the row at `seq`; the seqs come in their order.
    fn fetch(&mut self, seq: u64, row: &Row<'_>) -> Result<Range<usize>, Error> {
        let corrupt = storage::Error::Corrupt("document body");
        let (shard, view) = (self.source.shard, self.source.view);
        let start = self.bytes.len();
        if row.winner_seq == seq && matches!(row.body, Body::External { .. }) {
            let (first, last) = self.ends;
            let scan = self
                .scan
                .get_or_insert_with(|| view.scan_bodies(shard, first, last));
            self.bytes.extend_from_slice(scan.get(seq)?.ok_or(corrupt)?);
        } else {
            let copied = view.with_body(shard, row.winner_seq, |b| self.bytes.extend_from_slice(b));
            copied?.ok_or(corrupt)?;
        }
        Ok(start..self.bytes.len())
    }
}

/// Returns the underscore members that a map function sees.
fn write_members(
    row: &Row<'_>,
    seq: u64,
    which: MapOptions,
    out: &mut Vec<u8>,
) -> Result<(), storage::Error> {
    out.extend_from_slice(b"\"_id\":");
    write_json_string(row.id, out);
    out.extend_from_slice(b",\"_rev\":");
    row.winner.write_json_to(out);
    if which.conflicts && row.has_other_leaves() {
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
    if which.local_seq {
        out.extend_from_slice(format!(",\"_local_seq\":{seq}").as_bytes());
    }
    Ok(())
}
