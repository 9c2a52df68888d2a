//! Checks that every content that a document names is stored completely, and that every stored
//! content is referenced.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use document::Attachment;
use md5::{Digest as _, Md5};

use super::StoreCheck;
use super::finding::{Findings, Kind};
use super::sorter::{SortedRecords, Sorter};
use crate::Error;
use crate::contents::{CHUNK_BYTES, Place, keys};
use crate::keys::{ShardNumber, meta, seq_key};
use crate::keyspace::Keyspace;
use crate::row::Row;
use crate::snapshot::Cursor;
use crate::varint::Reader;

/// The references from bodies to contents under one shard.
pub struct References {
    sorter: Sorter<REFERENCE_BYTES>,
}

/// Content id, shard, seq, MD5 sum, stored length.
const REFERENCE_BYTES: usize = 32 + 4 + 8 + 16 + 8;
/// The part of it that is in the key of a reference.
const KEY_BYTES: usize = 32 + 4 + 8;
/// Number, length, content id, MD5 sum, whether that is known, shard, seq.
const PLACE_BYTES: usize = 8 + 8 + 32 + 16 + 1 + 4 + 8;

impl References {
    /// Creates an empty list. `temporary` is the folder for sorting.
    pub fn new(temporary: &Path) -> References {
        References {
            sorter: Sorter::new(temporary),
        }
    }

    pub(super) fn add(
        &mut self,
        shard: ShardNumber,
        seq: u64,
        attachment: &Attachment,
    ) -> Result<(), Error> {
        let mut record = [0; REFERENCE_BYTES];
        record[..32].copy_from_slice(&attachment.content);
        record[32..36].copy_from_slice(&shard.to_be_bytes());
        record[36..44].copy_from_slice(&seq.to_be_bytes());
        record[44..60].copy_from_slice(&attachment.md5);
        record[60..].copy_from_slice(&attachment.stored_length.to_be_bytes());
        self.sorter.push(record)
    }
}

/// A stored content.
struct StoredContent {
    place: Place,
    id: [u8; 32],
    /// The MD5 sum according to documents.
    md5: Option<[u8; 16]>,
    /// A change whose body names it.
    by: Option<(ShardNumber, u64)>,
}

impl StoredContent {
    fn encode(&self) -> [u8; PLACE_BYTES] {
        let mut out = [0; PLACE_BYTES];
        out[..8].copy_from_slice(&self.place.number().to_be_bytes());
        out[8..16].copy_from_slice(&self.place.length().to_be_bytes());
        out[16..48].copy_from_slice(&self.id);
        out[48..64].copy_from_slice(&self.md5.unwrap_or_default());
        out[64] = u8::from(self.by.is_some());
        let (shard, seq) = self.by.unwrap_or_default();
        out[65..69].copy_from_slice(&shard.to_be_bytes());
        out[69..].copy_from_slice(&seq.to_be_bytes());
        out
    }

    fn decode(bytes: &[u8; PLACE_BYTES]) -> StoredContent {
        let known = bytes[64] == 1;
        let by = (number32(&bytes[65..]), number64(&bytes[69..]));
        StoredContent {
            place: Place::new(number64(bytes), number64(&bytes[8..])),
            id: array(&bytes[16..]),
            md5: known.then(|| array(&bytes[48..])),
            by: known.then_some(by),
        }
    }
}

/// Returns the first bytes of a slice that is long enough.
fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.first_chunk().copied().unwrap_or([0; N])
}

fn number64(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(array(bytes))
}

fn number32(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(array(bytes))
}

/// Totals of the contents under a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContentTotals {
    /// Number of contents.
    pub contents: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Number of unreferenced contents that no node keeps.
    pub unreferred: u64,
    /// Their bytes.
    pub unreferred_bytes: u64,
}

impl StoreCheck {
    /// Checks the contents under a shard against the references from bodies, of all shards with
    /// contents there.
    ///
    /// # Errors
    /// Errors of reading.
    pub fn contents(
        &self,
        home: ShardNumber,
        references: References,
        findings: &mut Findings,
    ) -> Result<ContentTotals, Error> {
        let named = self.references(home, references.sorter.sorted()?, findings)?;
        let mut totals = ContentTotals::default();
        let places = self.places(home, named.sorted()?, &mut totals, findings)?;
        self.counted_bytes(home, totals.bytes, findings)?;
        self.chunks(home, places.sorted()?, findings)?;
        if totals.unreferred > 0 {
            findings.note(
                Kind::Space,
                format!(
                    "{} contents of attachments, {} bytes, are named by no document: the next compaction removes them",
                    totals.unreferred, totals.unreferred_bytes
                ),
            );
        }
        Ok(totals)
    }

    /// Compares distinct references with the stored contents; returns where these are.
    fn places(
        &self,
        home: ShardNumber,
        mut sorted: SortedRecords<REFERENCE_BYTES>,
        totals: &mut ContentTotals,
        findings: &mut Findings,
    ) -> Result<Sorter<PLACE_BYTES>, Error> {
        let mut highest = 0;
        let mut places = Sorter::new(self.temporary());
        let (low, high) = keys::places(home);
        let mut it = self.scan(low, high);
        loop {
            let there = match it.key() {
                Some(key) => Some(*keys::id_of(key)?),
                None => None,
            };
            let wanted = sorted.peek().map(|record| array::<32>(record));
            let Some(id) = [there, wanted].into_iter().flatten().min() else {
                break;
            };
            let by = match wanted == Some(id) {
                true => sorted.take()?,
                false => None,
            };
            if there != Some(id) {
                let by = by.unwrap_or([0; REFERENCE_BYTES]);
                let by = (number32(&by[32..]), number64(&by[36..]));
                self.damaged(by, "the content of an attachment is missing", findings)?;
                continue;
            }
            let place = match Place::decode(it.value().unwrap_or_default()) {
                Ok(place) => place,
                Err(e) => {
                    let topic = "where a content is cannot be read";
                    findings.damage(Kind::Attachments, None, topic, e.to_string());
                    it.next();
                    continue;
                }
            };
            highest = highest.max(place.number());
            totals.contents += 1;
            totals.bytes = totals.bytes.saturating_add(place.length());
            match by {
                None => self.count_unreferred((home, &id), place, totals)?,
                Some(by) if number64(&by[60..]) != place.length() => {
                    let by = (number32(&by[32..]), number64(&by[36..]));
                    let topic = "a content's length differs from its document's";
                    self.damaged(by, topic, findings)?;
                }
                Some(_) => {}
            }
            let stored = StoredContent {
                place,
                id,
                md5: by.map(|by| array(&by[44..])),
                by: by.map(|by| (number32(&by[32..]), number64(&by[36..]))),
            };
            places.push(stored.encode())?;
            it.next();
        }
        it.status()?;
        self.next_number(highest, findings)?;
        Ok(places)
    }

    /// Counts a content that no document names, unless a node keeps it nevertheless.
    fn count_unreferred(
        &self,
        (home, id): (ShardNumber, &[u8; 32]),
        place: Place,
        totals: &mut ContentTotals,
    ) -> Result<(), Error> {
        let pinned = keys::pinned(home, id);
        if self.snapshot.get(Keyspace::Meta, &pinned)?.is_none() {
            totals.unreferred += 1;
            totals.unreferred_bytes += place.length();
        }
        Ok(())
    }

    fn scan(&self, low: Vec<u8>, high: Vec<u8>) -> Cursor<'_> {
        let mut it = self.snapshot.scan_range(Keyspace::Attachments, low, high);
        it.seek_to_first();
        it
    }

    /// Compares reference rows with the bodies that caused them. Returns one of each content.
    fn references(
        &self,
        home: ShardNumber,
        mut wanted: SortedRecords<REFERENCE_BYTES>,
        findings: &mut Findings,
    ) -> Result<Sorter<REFERENCE_BYTES>, Error> {
        let (low, high) = keys::all_references(home);
        let mut there = self.scan(low, high);
        let mut named = Sorter::new(self.temporary());
        let mut last: Option<[u8; REFERENCE_BYTES]> = None;
        loop {
            let key = there.key().map(|key| key[5..].to_vec());
            let want = wanted.peek().copied();
            let ahead = want.map(|want| want[..KEY_BYTES].to_vec());
            let Some(at) = [key.as_ref(), ahead.as_ref()]
                .into_iter()
                .flatten()
                .min()
                .cloned()
            else {
                break;
            };
            self.watch.row();
            match (
                key.as_ref() == Some(&at),
                want.filter(|_| ahead.as_ref() == Some(&at)),
            ) {
                (true, None) => {
                    let seq = at.get(36..).map_or(0, number64);
                    let topic = "a content is kept for a body that does not name it";
                    findings.damage(Kind::Attachments, None, topic, format!("seq {seq}"));
                }
                (false, Some(want)) => {
                    let by = (number32(&want[32..]), number64(&want[36..]));
                    let topic =
                        "nothing keeps the content of an attachment: a compaction would remove it";
                    self.damaged(by, topic, findings)?;
                }
                _ => {}
            }
            // A document may reference a content twice, under two names.
            while let Some(want) = wanted
                .peek()
                .copied()
                .filter(|want| want[..KEY_BYTES] == at[..])
            {
                match last.filter(|last| last[..32] == want[..32]) {
                    None => {
                        named.push(want)?;
                        last = Some(want);
                    }
                    Some(first) if first[KEY_BYTES..] != want[KEY_BYTES..] => {
                        let by = (number32(&want[32..]), number64(&want[36..]));
                        let topic = "documents say different things of the same content: its digest, or its length";
                        self.damaged(by, topic, findings)?;
                    }
                    Some(_) => {}
                }
                wanted.take()?;
            }
            if key.as_ref() == Some(&at) {
                there.next();
            }
        }
        there.status()?;
        Ok(named)
    }

    /// Reports damage of something that the body of a change names.
    fn damaged(
        &self,
        (shard, seq): (ShardNumber, u64),
        topic: &'static str,
        findings: &mut Findings,
    ) -> Result<(), Error> {
        let row = self.snapshot.get(Keyspace::BySeq, &seq_key(shard, seq))?;
        let row = row.as_ref().and_then(|value| Row::decode(seq, value).ok());
        let id = row.map(|row| row.id);
        findings.damage(Kind::Attachments, id, topic, format!("seq {seq}"));
        Ok(())
    }

    /// Checks that new contents will get unused numbers.
    fn next_number(&self, highest: u64, findings: &mut Findings) -> Result<(), Error> {
        let next = self.snapshot.get(Keyspace::Meta, meta::NEXT_CONTENT)?;
        let next = next.map_or(1, |value| number64(&value));
        if next <= highest {
            let topic = "a number would be given out again that is in use";
            let more = format!("{next}, of contents up to {highest}");
            findings.damage(Kind::Attachments, None, topic, more);
        }
        Ok(())
    }

    fn counted_bytes(
        &self,
        home: ShardNumber,
        counted: u64,
        findings: &mut Findings,
    ) -> Result<(), Error> {
        let is_counted = self.snapshot.get(Keyspace::Meta, meta::CONTENTS_COUNTED)?;
        if is_counted.is_none() {
            // A store of an early version: the next start counts.
            return Ok(());
        }
        let key = keys::bytes(home);
        let kept = match self.snapshot.get(Keyspace::Attachments, &key)? {
            Some(value) => Reader::new(&value, "bytes of contents").varint().ok(),
            None => Some(0),
        };
        if kept != Some(counted) {
            let kept =
                kept.map_or_else(|| "nothing that can be read".to_owned(), |n| n.to_string());
            let more = format!("it says {kept}, there are {counted}");
            let topic = "the counter of bytes of attachments is wrong";
            findings.damage(Kind::Counters, None, topic, more);
        }
        Ok(())
    }

    /// Reads all chunks, and compares contents with their ids and with the metadata in documents.
    fn chunks(
        &self,
        home: ShardNumber,
        mut places: SortedRecords<PLACE_BYTES>,
        findings: &mut Findings,
    ) -> Result<(), Error> {
        let (low, high) = keys::all_chunks(home);
        let mut it = self
            .snapshot
            .scan_files(Keyspace::Attachments, low, Some(high));
        it.seek_to_first();
        let mut reading: Option<ContentRead> = None;
        let mut whole: BTreeMap<u64, Whole> = BTreeMap::new();
        loop {
            let at = match it.key() {
                Some(key) => Some(keys::number_and_chunk_of(key)?),
                None => None,
            };
            if let Some(done) = reading.take_if(|r| at.is_none_or(|(number, _)| number != r.number))
            {
                // Places come in the order of numbers: earlier ones have no chunks, or are
                // complete.
                let number = done.number;
                whole.insert(number, done.end());
                self.compare(home, number, &mut places, &mut whole, findings)?;
            }
            let Some((number, chunk)) = at else {
                break;
            };
            let bytes = it.value().unwrap_or_default();
            self.watch
                .attachment_bytes
                .fetch_add(bytes.len() as u64, Relaxed);
            reading
                .get_or_insert_with(|| ContentRead::new(number))
                .add(chunk, bytes);
            it.next();
        }
        it.status()?;
        self.compare(home, u64::MAX, &mut places, &mut whole, findings)
    }

    /// Compares the places of all numbers up to this one.
    fn compare(
        &self,
        home: ShardNumber,
        upto: u64,
        places: &mut SortedRecords<PLACE_BYTES>,
        whole: &mut BTreeMap<u64, Whole>,
        findings: &mut Findings,
    ) -> Result<(), Error> {
        let mut last = None;
        while let Some(stored) = places
            .peek()
            .map(StoredContent::decode)
            .filter(|s| s.place.number() <= upto)
        {
            places.take()?;
            let number = stored.place.number();
            if last.replace(number) == Some(number) {
                self.content(&stored, "two contents have the same place", findings)?;
            }
            let Some(whole) = whole.get(&number) else {
                if stored.place.length() > 0 {
                    self.content(&stored, "the bytes of a content are missing", findings)?;
                }
                continue;
            };
            let is_removed = self.is_removed(home, stored.place)?;
            let wrong = match whole {
                _ if is_removed => Some("the bytes of a content are missing"),
                Whole { has_gap: true, .. } => Some("a part of a content is missing"),
                Whole { length, .. } if *length != stored.place.length() => {
                    Some("a content's length differs from its entry's")
                }
                Whole { id, .. } if *id != stored.id => Some("a content does not match its name"),
                Whole { md5, .. } if stored.md5.is_some_and(|said| said != *md5) => {
                    Some("a content's digest differs from its document's")
                }
                Whole { .. } => None,
            };
            if let Some(wrong) = wrong {
                self.content(&stored, wrong, findings)?;
            }
        }
        // Others were removed, or belong to unfinished uploads.
        whole.clear();
        Ok(())
    }

    /// Returns whether a range deletion covers the bytes: many chunks are deleted so, which the
    /// scan of files does not show.
    fn is_removed(&self, home: ShardNumber, place: Place) -> Result<bool, Error> {
        let last = place.length().saturating_sub(1) / CHUNK_BYTES as u64;
        for chunk in [0, last / 2, last] {
            let key = keys::chunk(home, place.number(), chunk as u32);
            if self.snapshot.get(Keyspace::Attachments, &key)?.is_none() {
                return Ok(place.length() > 0);
            }
        }
        Ok(false)
    }

    fn content(
        &self,
        stored: &StoredContent,
        topic: &'static str,
        findings: &mut Findings,
    ) -> Result<(), Error> {
        match stored.by {
            Some(by) => self.damaged(by, topic, findings),
            None => {
                let more = "one that no document names";
                findings.damage(Kind::Attachments, None, topic, more);
                Ok(())
            }
        }
    }
}

/// A content whose chunks are being read.
struct ContentRead {
    number: u64,
    next_chunk: u32,
    length: u64,
    has_gap: bool,
    id: Box<blake3::Hasher>,
    md5: Md5,
}

/// A content that was read completely.
struct Whole {
    length: u64,
    has_gap: bool,
    id: [u8; 32],
    md5: [u8; 16],
}

impl ContentRead {
    fn new(number: u64) -> ContentRead {
        ContentRead {
            number,
            next_chunk: 0,
            length: 0,
            has_gap: false,
            id: Box::default(),
            md5: Md5::new(),
        }
    }

    fn add(&mut self, chunk: u32, bytes: &[u8]) {
        // All but the last one are full.
        let expected = u64::from(chunk) * CHUNK_BYTES as u64;
        self.has_gap |= chunk != self.next_chunk || self.length != expected;
        self.next_chunk = chunk + 1;
        self.length += bytes.len() as u64;
        self.id.update(bytes);
        self.md5.update(bytes);
    }

    fn end(self) -> Whole {
        Whole {
            length: self.length,
            has_gap: self.has_gap,
            id: *self.id.finalize().as_bytes(),
            md5: self.md5.finalize().into(),
        }
    }
}
