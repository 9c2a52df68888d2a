//! Verification of a stored index: rows, back-index, blocks, reductions and state agree, and belong
//! to existing documents.
//!
//! Rows and the back-index have different orders. Each row, and each entry of a document, is hashed
//! to a number, and the sums are compared: so memory does not grow with rows. A closer diagnosis is
//! not needed, as an index can be rebuilt.

mod remap;

use std::collections::HashSet;
use std::sync::atomic::Ordering::Relaxed;

use storage::check::{Findings, Kind, Watch};
use storage::{Cursor, Keyspace, RecordHead, ShardMeta, ShardNumber, Snapshot, shard_end};
use xxhash_rust::xxh3::xxh3_128;

use crate::Error;
use crate::blocks::Block;
use crate::keys::{BackEntry, RowValue, put_place_end, put_terminated};
use crate::map::write_key_sort;
use crate::part::prefix_len;
use crate::reduce::{Builtin, is_overflow_of};
use crate::spec::{ReduceSpec, Spec};
use crate::state::{State, decode_block, read_head};

pub use remap::Remap;

/// An index, and what it is of.
pub struct IndexCheck<'a> {
    /// Its number in the store.
    pub number: ShardNumber,
    /// The specification; `None` when no design document defines it.
    pub spec: Option<&'a Spec>,
    /// The shard that it is of.
    pub owner: ShardNumber,
    /// That shard's counters.
    pub meta: &'a ShardMeta,
}

/// Totals of an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexTotals {
    /// Rows of all views.
    pub rows: u64,
    /// Seq of the shard up to which it is built.
    pub indexed_seq: u64,
    /// Whether it includes all purges.
    pub knows_purges: bool,
    /// Whether it leaves documents out, because a function exceeded a limit for them.
    pub leaves_out: bool,
    /// Sum of the rows with their values, independent of their order.
    pub sum: u128,
}

/// Returns a number for a row: as its document's entry in the back-index has it.
fn entry_hash(entry: &BackEntry<'_>, id: &[u8], buffer: &mut Vec<u8>) -> u128 {
    buffer.clear();
    entry.put(buffer);
    buffer.extend_from_slice(id);
    xxh3_128(buffer)
}

/// Returns the hash of a row with its value.
fn row_hash(view: u16, place: &[u8], value: &[u8], buffer: &mut Vec<u8>) -> u128 {
    buffer.clear();
    buffer.extend_from_slice(&view.to_be_bytes());
    buffer.extend_from_slice(&(place.len() as u64).to_be_bytes());
    buffer.extend_from_slice(place);
    buffer.extend_from_slice(value);
    xxh3_128(buffer)
}

impl IndexCheck<'_> {
    /// Checks the index.
    ///
    /// # Errors
    /// Errors of reading.
    pub fn run(
        &self,
        snapshot: &Snapshot,
        watch: &Watch,
        findings: &mut Findings,
    ) -> Result<IndexTotals, Error> {
        let state = match read_head(snapshot, self.number) {
            Ok(state) => state,
            Err(e) => {
                findings.damage(Kind::Index, None, "its state cannot be read", e.to_string());
                return Ok(IndexTotals::default());
            }
        };
        let Some(state) = state else {
            return self.without_state(snapshot, findings);
        };
        if state.ingesting {
            findings.note(
                Kind::Index,
                "a crash interrupted its first build: it is rebuilt on the next query".into(),
            );
            return Ok(IndexTotals::default());
        }
        let meta = self.meta;
        if state.indexed_seq > meta.update_seq || state.purge_seq > meta.purge_seq {
            let more = format!(
                "seq {} of {}, purge seq {} of {}",
                state.indexed_seq, meta.update_seq, state.purge_seq, meta.purge_seq
            );
            let topic = "its state includes changes beyond the shard's";
            findings.damage(Kind::Index, None, topic, more);
        }
        let mut rows = Rows::new(self, snapshot, watch, findings);
        rows.run()?;
        let (counted, sum, entries, bytes) = (rows.rows, rows.sum, rows.entries, rows.bytes);
        if bytes != state.bytes {
            let more = format!("it says {}, there are {bytes}", state.bytes);
            let topic = "its bytes of keys and values are miscounted";
            findings.damage(Kind::Index, None, topic, more);
        }
        let back = self.back(snapshot, &state, watch, findings)?;
        if back != entries {
            let topic = "the rows and the back-index differ: an edit would leave or miss rows";
            findings.damage(Kind::Index, None, topic, "");
        }
        Ok(IndexTotals {
            rows: counted,
            indexed_seq: state.indexed_seq,
            knows_purges: state.purge_seq >= self.meta.purge_seq,
            leaves_out: !state.omissions.is_empty(),
            sum,
        })
    }

    fn without_state(
        &self,
        snapshot: &Snapshot,
        findings: &mut Findings,
    ) -> Result<IndexTotals, Error> {
        for k in [
            Keyspace::IndexRows,
            Keyspace::IndexBack,
            Keyspace::IndexBlocks,
        ] {
            let it = all(snapshot, k, self.number);
            if it.valid() {
                findings.damage(Kind::Index, None, "it has rows and no state", "");
                break;
            }
            it.status()?;
        }
        Ok(IndexTotals::default())
    }

    /// Compares the back-index with the documents; returns the sum of its entries.
    fn back(
        &self,
        snapshot: &Snapshot,
        state: &State,
        watch: &Watch,
        findings: &mut Findings,
    ) -> Result<u128, Error> {
        let mut it = all(snapshot, Keyspace::IndexBack, self.number);
        let mut docs = all(snapshot, Keyspace::ById, self.owner);
        let knows_purges = state.purge_seq >= self.meta.purge_seq;
        let (mut sum, mut buffer) = (0u128, vec![]);
        while let Some((key, value)) = it.item() {
            watch.rows.fetch_add(1, Relaxed);
            let id = &key[4..];
            let text = String::from_utf8_lossy(id);
            match BackEntry::decode_all(value) {
                Ok(entries) if !entries.is_empty() => {
                    for entry in entries {
                        sum = sum.wrapping_add(entry_hash(&entry, id, &mut buffer));
                    }
                }
                _ => {
                    let topic = "the back-index entry of a document cannot be read";
                    findings.damage(Kind::Index, Some(&text), topic, "");
                }
            }
            while docs.key().is_some_and(|doc| &doc[4..] < id) {
                docs.next();
            }
            docs.status()?;
            let doc = docs.item().filter(|(doc, _)| &doc[4..] == id);
            let is_right = match doc {
                Some((_, record)) => match RecordHead::decode(record) {
                    // Later changes are not in the index yet.
                    Ok(head) => !head.deleted || head.seq > state.indexed_seq,
                    // Said where documents are checked.
                    Err(_) => true,
                },
                None => !knows_purges,
            };
            if !is_right {
                let topic = "it has rows of a document that does not exist";
                findings.damage(Kind::Index, Some(&text), topic, "");
            }
            it.next();
        }
        it.status()?;
        Ok(sum)
    }
}

fn all(snapshot: &Snapshot, k: Keyspace, number: ShardNumber) -> Cursor<'_> {
    let mut it = snapshot.scan_range(k, number.to_be_bytes().to_vec(), shard_end(number));
    it.seek_to_first();
    it
}

/// Rows compared with the counts of their blocks.
struct Rows<'a, 'c> {
    check: &'c IndexCheck<'a>,
    snapshot: &'c Snapshot,
    watch: &'c Watch,
    findings: &'c mut Findings,
    rows: u64,
    bytes: u64,
    /// Sums of rows with their values, and of rows as in the back-index.
    sum: u128,
    entries: u128,
    /// The current view and block.
    view: Option<u16>,
    block: Option<Block>,
    /// Keys and values of the block's rows: only where there is a reduce function.
    of_block: Vec<(Vec<u8>, Vec<u8>)>,
    in_block: u32,
    sort: Vec<u8>,
    buffer: Vec<u8>,
}

impl<'a, 'c> Rows<'a, 'c> {
    fn new(
        check: &'c IndexCheck<'a>,
        snapshot: &'c Snapshot,
        watch: &'c Watch,
        findings: &'c mut Findings,
    ) -> Self {
        Rows {
            check,
            snapshot,
            watch,
            findings,
            rows: 0,
            bytes: 0,
            sum: 0,
            entries: 0,
            view: None,
            block: None,
            of_block: vec![],
            in_block: 0,
            sort: vec![],
            buffer: vec![],
        }
    }

    fn damage(&mut self, topic: &'static str, more: impl AsRef<str>) {
        self.findings.damage(Kind::Index, None, topic, more);
    }

    fn run(&mut self) -> Result<(), Error> {
        let snapshot = self.snapshot;
        let mut blocks = all(snapshot, Keyspace::IndexBlocks, self.check.number);
        let mut rows = all(snapshot, Keyspace::IndexRows, self.check.number);
        loop {
            let row = rows.key().map(|key| &key[4..]);
            let block = blocks.key().map(|key| &key[4..]);
            match (row, block) {
                (None, None) => break,
                // A block starts at its fence.
                (row, Some(at)) if row.is_none_or(|row| at <= row) => {
                    self.end_block();
                    let stored = blocks.value().unwrap_or_default();
                    self.begin_block(at, stored);
                    blocks.next();
                }
                (Some(row), _) => {
                    self.watch.rows.fetch_add(1, Relaxed);
                    self.row(row, rows.value().unwrap_or_default());
                    rows.next();
                }
                (None, Some(_)) => break,
            }
        }
        self.end_block();
        rows.status()?;
        Ok(blocks.status()?)
    }

    fn begin_block(&mut self, at: &[u8], stored: &[u8]) {
        let Some((view, fence)) = at.split_first_chunk() else {
            return self.damage("a block cannot be read", "");
        };
        let view = u16::from_be_bytes(*view);
        self.view = Some(view);
        let reduces = match self
            .check
            .spec
            .map(|spec| spec.views.get(usize::from(view)))
        {
            Some(Some(spec)) => &spec.reduces[..],
            Some(None) => return self.damage("it has a view that its design document has not", ""),
            None => &[],
        };
        match decode_block(fence, stored, reduces) {
            Ok(block) => self.block = Some(block),
            Err(e) => self.damage("a block cannot be read", e.to_string()),
        }
    }

    fn row(&mut self, key: &[u8], value: &[u8]) {
        let Some((view, place)) = key.split_first_chunk() else {
            return self.damage("a row cannot be read", "");
        };
        let view = u16::from_be_bytes(*view);
        if self.view != Some(view) {
            // For a view without blocks.
            self.end_block();
            self.view = Some(view);
        }
        self.rows += 1;
        self.in_block += 1;
        self.sum = self
            .sum
            .wrapping_add(row_hash(view, place, value, &mut self.buffer));
        let Ok(row) = RowValue::decode(value) else {
            return self.damage("a row cannot be read", "");
        };
        self.bytes += (row.key.len() + row.value.len()) as u64;
        let Some((id, ordinal)) = id_and_ordinal(place, row.sort_len) else {
            return self.damage("a row cannot be read", "");
        };
        let entry = BackEntry {
            view,
            ordinal,
            bytes: (row.key.len() + row.value.len()) as u32,
            sort: &place[..row.sort_len],
        };
        let hash = entry_hash(&entry, id.as_bytes(), &mut self.buffer);
        self.entries = self.entries.wrapping_add(hash);
        self.check_text(view, place, &row, &id);
        if self
            .block
            .as_ref()
            .is_some_and(|b| b.reductions.iter().any(|r| r.get().is_some()))
        {
            self.of_block.push((row.key.to_vec(), row.value.to_vec()));
        }
    }

    /// Checks that key and value are JSON, and that the row's place matches its key.
    fn check_text(&mut self, view: u16, place: &[u8], row: &RowValue<'_>, id: &str) {
        if document::normalise(row.value).is_err() {
            return self.damage(
                "the value of a row is not JSON",
                format!("of document '{id}'"),
            );
        }
        let Some(spec) = self.check.spec else {
            return;
        };
        let Some(of) = spec.views.get(usize::from(view)) else {
            return self.damage("it has rows of a view that its design document has not", "");
        };
        self.sort.clear();
        if spec.partitioned {
            let partition = id.split_once(':').map_or("", |(partition, _)| partition);
            put_terminated(partition.as_bytes(), &mut self.sort);
        }
        let written = write_key_sort(row.key, of.raw, &mut self.sort);
        let begin = match spec.is_by_principal(usize::from(view)) {
            true => prefix_len(place),
            false => Some(0),
        };
        let sort = begin.and_then(|begin| place.get(begin..row.sort_len));
        if written.is_err() || sort != Some(&self.sort[..]) {
            self.damage(
                "a row is not where its key belongs",
                format!("of document '{id}'"),
            );
        }
    }

    /// Compares the block with the rows that it should have.
    fn end_block(&mut self) {
        let rows = std::mem::take(&mut self.in_block);
        let of_block = std::mem::take(&mut self.of_block);
        let Some(block) = self.block.take() else {
            if rows > 0 {
                self.damage("there are rows that no block counts", format!("{rows}"));
            }
            return;
        };
        if block.rows != rows {
            let more = format!("it says {}, there are {rows}", block.rows);
            return self.damage("a block miscounts its rows", more);
        }
        let view = usize::from(self.view.unwrap_or_default());
        let Some(spec) = self.check.spec.and_then(|spec| spec.views.get(view)) else {
            return;
        };
        for (reduce, state) in spec.reduces.iter().zip(&block.reductions) {
            let Some(state) = state.get() else {
                continue;
            };
            let is_right = match reduce {
                ReduceSpec::Builtin(builtin) => self.is_reduction(*builtin, &of_block, state),
                // Only the language's runtime knows its form.
                ReduceSpec::Custom(_) => document::normalise(state).is_ok(),
            };
            if !is_right {
                let more = format!("{rows} rows");
                self.damage("a stored reduction is not that of its rows", more);
            }
        }
    }

    fn is_reduction(&self, builtin: Builtin, rows: &[(Vec<u8>, Vec<u8>)], state: &[u8]) -> bool {
        let rows_of = || rows.iter().map(|(k, v)| (&k[..], &v[..]));
        let reduced = builtin.reduce(rows_of());
        if *reduced == *state {
            return true;
        }
        // The limit at that time is not known.
        let bytes = rows_of().map(|(k, v)| k.len() + v.len()).sum();
        builtin == Builtin::Sum && is_overflow_of(state, bytes, reduced.len())
    }
}

/// Returns the document and the ordinal that a place ends in, if it ends as places do.
fn id_and_ordinal(place: &[u8], sort_len: usize) -> Option<(String, u32)> {
    let rest = place.get(sort_len..)?;
    let (id, ordinal) = crate::keys::take_terminated(rest)?;
    let id = String::from_utf8(id).ok()?;
    let ordinal = match ordinal {
        [] => 0,
        ordinal => u32::from_be_bytes(ordinal.try_into().ok()?),
    };
    let mut again = vec![];
    put_place_end(&id, ordinal, &mut again);
    (again == *rest).then_some((id, ordinal))
}

/// Ids of documents that changed after a seq, as numbers.
type ChangedDocuments = HashSet<u64>;
