//! Checks that the data of a shard agree: records, changes, markers, bodies, local documents,
//! purges, counters, the summary.
//!
//! Records are ordered by id, everything else by seq. Claims of a record about changes go through a
//! sorter, and is compared when the changes are read.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

use document::{DocId, StoredBody};
use xxhash_rust::xxh3::xxh3_64;

use super::StoreCheck;
use super::claims::{BODY, CLAIM_BYTES, Claim, LISTS, claims_of, leaves_hash};
use super::contents::References;
use super::finding::{Findings, Kind};
use super::sorter::{SortedRecords, Sorter};
use crate::Error;
use crate::digest::{Kind as DigestKind, share};
use crate::keys::{self, SHARD_LEN, ShardNumber, seq_of, shard_end};
use crate::keyspace::Keyspace;
use crate::meta::ShardMeta;
use crate::purges;
use crate::record::Record;
use crate::row::{Body, Row};
use crate::shard::{decode_local, saved};
use crate::snapshot::Cursor;
use crate::summary::{SeqBits, Summary};

/// Facts about a shard that only its database knows.
pub struct ShardRules<'a> {
    /// The shard under which the contents of its attachments are.
    pub home: ShardNumber,
    /// Whether a document of this id belongs to it.
    pub belongs: &'a dyn Fn(&str) -> bool,
}

/// Recounted totals of a shard.
#[derive(Default)]
struct ShardRecount {
    doc_count: u64,
    doc_del_count: u64,
    external_bytes: u64,
    id_bytes: u64,
    superseded_rows: u64,
    digest: u128,
    /// Live documents and all documents of each block of the saved summary.
    blocks: Vec<(u64, u64)>,
    /// Seqs that list a document.
    listed: SeqBits,
    last_seq: u64,
}

struct Check<'a> {
    of: &'a StoreCheck,
    number: ShardNumber,
    rules: &'a ShardRules<'a>,
    meta: ShardMeta,
    summary: Summary,
    counted: ShardRecount,
    /// Changes that contradict the records naming them, by seq: the reason.
    refuted: BTreeMap<u64, &'static str>,
    references: &'a mut References,
    findings: &'a mut Findings,
}

/// Maximum number of contradicted changes whose documents are looked up.
const REFUTED_MAX: usize = 1_000;

impl StoreCheck {
    /// Checks a shard, and adds the attachments that its documents name to `references`. Returns
    /// its counters.
    ///
    /// # Errors
    /// Errors of reading: [`StoreCheck::files`] reports where.
    pub fn shard(
        &self,
        number: ShardNumber,
        rules: &ShardRules<'_>,
        references: &mut References,
        findings: &mut Findings,
    ) -> Result<ShardMeta, Error> {
        let key = keys::meta::shard(number);
        let meta = match self.snapshot.get(Keyspace::Meta, &key)? {
            Some(stored) => match ShardMeta::decode(&stored) {
                Ok(meta) => meta,
                Err(e) => {
                    findings.damage(
                        Kind::Counters,
                        None,
                        "the counters cannot be read",
                        e.to_string(),
                    );
                    return Err(e);
                }
            },
            None => ShardMeta::default(),
        };
        let summary = match saved::load(&self.snapshot, number) {
            Ok(summary) => summary,
            Err(e) => {
                findings.damage(
                    Kind::Counters,
                    None,
                    "the summary cannot be read",
                    e.to_string(),
                );
                Summary::default()
            }
        };
        let mut check = Check {
            of: self,
            number,
            rules,
            counted: ShardRecount {
                blocks: vec![(0, 0); summary.ids.fences().len()],
                ..ShardRecount::default()
            },
            meta,
            summary,
            refuted: BTreeMap::new(),
            references,
            findings,
        };
        let claims = check.records()?;
        check.changes(claims.sorted()?)?;
        check.name_refuted()?;
        check.locals()?;
        check.purges()?;
        check.counters();
        check.summary();
        Ok(check.meta)
    }
}

/// Returns all rows of a shard in a keyspace.
fn scan(of: &StoreCheck, number: ShardNumber, k: Keyspace) -> Cursor<'_> {
    let low = number.to_be_bytes().to_vec();
    let mut cursor = of.snapshot.scan_range(k, low, shard_end(number));
    cursor.seek_to_first();
    cursor
}

impl Check<'_> {
    /// Reads all records; returns their claims about changes.
    fn records(&mut self) -> Result<Sorter<CLAIM_BYTES>, Error> {
        let mut claims = Sorter::new(self.of.temporary());
        let of = self.of;
        let mut it = scan(of, self.number, Keyspace::ById);
        let fences = self.summary.ids.clone();
        let fences = fences.fences();
        let (mut block, mut again) = (0, vec![]);
        while let Some((key, value)) = it.item() {
            of.watch.row();
            of.watch.documents.fetch_add(1, Relaxed);
            let id = &key[SHARD_LEN..];
            while fences.get(block + 1).is_some_and(|fence| **fence <= *id) {
                block += 1;
            }
            if self.meta.digest.is_some() {
                let share = share(DigestKind::Document, id, value);
                self.counted.digest = self.counted.digest.wrapping_add(share);
            }
            self.record(id, value, block, &mut again, &mut claims)?;
            it.next();
        }
        it.status()?;
        Ok(claims)
    }

    fn record(
        &mut self,
        id: &[u8],
        value: &[u8],
        block: usize,
        again: &mut Vec<u8>,
        claims: &mut Sorter<CLAIM_BYTES>,
    ) -> Result<(), Error> {
        let text = String::from_utf8_lossy(id);
        let mut wrong = |topic, more: String| {
            self.findings
                .damage(Kind::Documents, Some(&text), topic, more);
        };
        match std::str::from_utf8(id)
            .ok()
            .filter(|id| DocId::new(id).is_ok())
        {
            None => wrong("a record has an invalid id", String::new()),
            Some(id) if !(self.rules.belongs)(id) => {
                wrong("a document is in the wrong shard for its id", String::new());
            }
            Some(_) => {}
        }
        let record = match Record::decode(value) {
            Ok(record) => record,
            Err(e) => {
                wrong("a record cannot be read", e.to_string());
                return Ok(());
            }
        };
        again.clear();
        record.encode(again);
        if *again != *value {
            wrong(
                "a record is not in its written form: its winner, its flags or the order of its revisions",
                String::new(),
            );
        }
        let update_seq = self.meta.update_seq;
        let leaves = record.tree.leaves();
        let beyond = |seq: u64| seq == 0 || seq > update_seq;
        if beyond(record.seq) || leaves.iter().any(|leaf| beyond(leaf.revision.seq)) {
            wrong(
                "a record names a change that there never was",
                String::new(),
            );
        }
        let counted = &mut self.counted;
        let live = !record.is_deleted();
        counted.doc_count += u64::from(live);
        counted.doc_del_count += u64::from(!live);
        counted.external_bytes = counted.external_bytes.saturating_add(record.leaf_bytes());
        counted.id_bytes += id.len() as u64;
        if let Some((of_live, all)) = counted.blocks.get_mut(block) {
            *of_live += u64::from(live);
            *all += 1;
        }
        let hash = xxh3_64(id);
        for claim in claims_of(record.seq, hash, &record.tree, &leaves) {
            claims.push(claim.encode())?;
        }
        Ok(())
    }

    /// Reads changes, markers and long bodies, and compares them with the claims of records.
    fn changes(&mut self, mut claims: SortedRecords<CLAIM_BYTES>) -> Result<(), Error> {
        let of = self.of;
        let mut rows = scan(of, self.number, Keyspace::BySeq);
        let mut markers = scan(of, self.number, Keyspace::Superseded);
        let mut bodies = scan(of, self.number, Keyspace::Bodies);
        let seq_at = |it: &Cursor<'_>| it.key().map(seq_of);
        loop {
            let claimed = claims.peek().map(|claim| Claim::decode(claim).seq);
            let all = [seq_at(&rows), seq_at(&markers), seq_at(&bodies), claimed];
            let Some(seq) = all.into_iter().flatten().min() else {
                break;
            };
            of.watch.row();
            let mut claim: Option<Claim> = None;
            while let Some(next) = claims.peek().map(Claim::decode).filter(|c| c.seq == seq) {
                claims.take()?;
                claim = Some(match claim {
                    None => next,
                    Some(before) => self.both(before, next),
                });
            }
            let at = |it: &Cursor<'_>| seq_at(it) == Some(seq);
            let here = Here {
                seq,
                row: at(&rows).then(|| rows.value().unwrap_or_default()),
                is_marked: at(&markers),
                body: at(&bodies).then(|| bodies.value().unwrap_or_default()),
                claim,
            };
            self.change(&here)?;
            for it in [&mut rows, &mut markers, &mut bodies] {
                if seq_at(it) == Some(seq) {
                    it.next();
                }
            }
        }
        rows.status()?;
        markers.status()?;
        bodies.status()
    }

    /// Merges two claims about one change: those of one document that it lists it and that it has
    /// its body; otherwise two documents disagree.
    fn both(&mut self, a: Claim, b: Claim) -> Claim {
        if a.id != b.id || a.kinds & b.kinds != 0 {
            self.refute(a.seq, "two documents or revisions name the same change");
        }
        let (lists, brings) = match a.kinds & LISTS {
            0 => (b, a),
            _ => (a, b),
        };
        Claim {
            kinds: a.kinds | b.kinds,
            size: brings.size,
            ..lists
        }
    }

    fn refute(&mut self, seq: u64, what: &'static str) {
        if self.refuted.len() < REFUTED_MAX {
            self.refuted.entry(seq).or_insert(what);
        }
    }

    fn change(&mut self, here: &Here<'_>) -> Result<(), Error> {
        let seq = here.seq;
        self.counted.last_seq = self.counted.last_seq.max(seq);
        self.counted.superseded_rows += u64::from(here.is_marked);
        let kinds = here.claim.map_or(0, |claim| claim.kinds);
        let Some(value) = here.row else {
            self.without_row(here, kinds);
            return Ok(());
        };
        let row = match Row::decode(seq, value) {
            Ok(row) => row,
            Err(e) => {
                let more = format!("seq {seq}: {e}");
                self.findings
                    .damage(Kind::Documents, None, "a change cannot be read", more);
                if kinds != 0 {
                    self.refute(seq, "a change that it names cannot be read");
                }
                return Ok(());
            }
        };
        let is_purge = row.winner.generation == 0 && row.winner.hash.is_empty();
        if seq > self.summary.saved_seq {
            self.summary.apply(seq, row.id.as_bytes(), row.delta);
        }
        if !here.is_marked {
            self.counted.listed.add(seq);
        }
        let id = xxh3_64(row.id.as_bytes());
        if let Some(claim) = here.claim
            && claim.id != id
        {
            self.refute(seq, "a change that it names is another document's");
        }
        self.listing(here, &row, kinds & LISTS != 0);
        if is_purge && !here.is_marked {
            let topic = "a change that ends a document is shown in feeds";
            self.findings
                .damage(Kind::Documents, Some(row.id), topic, format!("seq {seq}"));
        }
        self.body(here, &row, kinds)
    }

    /// Checks that the change lists its document exactly if the document's record claims so, with
    /// the same leaves.
    fn listing(&mut self, here: &Here<'_>, row: &Row<'_>, is_claimed: bool) {
        let seq = here.seq;
        match (is_claimed, here.is_marked) {
            (true, true) => self.refute(
                seq,
                "the change that lists it is marked as replaced: no feed shows it",
            ),
            (false, false) => {
                let more = format!("seq {seq}, revision {}", row.winner.to_rev());
                let topic = "a change lists a document whose record does not name it";
                self.findings
                    .damage(Kind::Documents, Some(row.id), topic, more);
            }
            _ => {}
        }
        if let Some(claim) = here.claim.filter(|claim| claim.kinds & LISTS != 0) {
            let winner = (row.winner.generation, row.winner.hash);
            let others = row.other_leaf_bytes();
            if row.other_leaves().is_err()
                || claim.leaves != leaves_hash(winner, row.deleted, row.winner_seq, others)
            {
                self.refute(
                    seq,
                    "its record and the change that lists it name other leaves",
                );
            }
        }
    }

    /// Handles a seq without a by-seq row.
    fn without_row(&mut self, here: &Here<'_>, kinds: u8) {
        let seq = here.seq;
        if kinds & LISTS != 0 {
            self.refute(
                seq,
                "the change that lists it is missing: no feed and no view shows it",
            );
        }
        if kinds & BODY != 0 {
            self.refute(seq, "the body of a leaf is missing with its change");
        }
        if here.is_marked {
            let topic = "a replaced change is missing before a compaction removed it";
            self.findings
                .damage(Kind::Documents, None, topic, format!("seq {seq}"));
        }
        if here.body.is_some() {
            let topic = "a long body belongs to no change";
            self.findings
                .damage(Kind::Documents, None, topic, format!("seq {seq}"));
        }
    }

    /// Returns the body of the change from the place in its row. `None` when it is missing.
    fn stored_body<'h>(&mut self, here: &Here<'h>, row: &Row<'h>) -> Option<Option<&'h [u8]>> {
        let topic = match (row.body, here.body) {
            (Body::External { len, .. }, Some(body)) => {
                if body.len() as u64 != u64::from(len) {
                    self.damaged(
                        here.seq,
                        row,
                        "a long body's length differs from its change's",
                    );
                }
                return Some(Some(body));
            }
            (Body::Inline(body), None) => return Some(Some(body)),
            (Body::None, None) => return Some(None),
            (Body::External { .. }, None) => "a long body is missing",
            (_, Some(_)) => "a long body belongs to a change that brought none",
        };
        self.damaged(here.seq, row, topic);
        None
    }

    fn damaged(&mut self, seq: u64, row: &Row<'_>, topic: &'static str) {
        let more = format!("seq {seq}");
        self.findings
            .damage(Kind::Documents, Some(row.id), topic, more);
    }

    fn body(&mut self, here: &Here<'_>, row: &Row<'_>, kinds: u8) -> Result<(), Error> {
        let seq = here.seq;
        let wanted = kinds & BODY != 0;
        let Some(stored) = self.stored_body(here, row) else {
            return Ok(());
        };
        let Some(stored) = stored else {
            if wanted {
                self.refute(seq, "a change that brought the body of a leaf has none");
            }
            return Ok(());
        };
        let split = StoredBody::split(stored);
        if !is_object(split.json) {
            let topic = "a body is not a JSON object in stored form";
            self.findings
                .damage(Kind::Documents, Some(row.id), topic, format!("seq {seq}"));
        }
        let mut size = split.json.len() as u64;
        match split.attachments() {
            None => {
                let topic = "the stored attachment metadata cannot be read";
                self.findings
                    .damage(Kind::Attachments, Some(row.id), topic, format!("seq {seq}"));
                return Ok(());
            }
            Some(attachments) => {
                if let Body::External {
                    attachments: says, ..
                } = row.body
                    && says == attachments.is_empty()
                {
                    let topic = "a change is wrong about whether its body has attachments";
                    self.findings.damage(
                        Kind::Attachments,
                        Some(row.id),
                        topic,
                        format!("seq {seq}"),
                    );
                }
                for attachment in attachments {
                    size = size.saturating_add(attachment.stored_length);
                    self.references.add(self.number, seq, &attachment)?;
                }
            }
        }
        if let Some(claim) = here.claim.filter(|_| wanted)
            && claim.size != size
        {
            self.refute(seq, "a record is wrong about the length of a body");
        }
        Ok(())
    }

    /// Reports the documents that name contradicted changes.
    fn name_refuted(&mut self) -> Result<(), Error> {
        if self.refuted.is_empty() {
            return Ok(());
        }
        let refuted = std::mem::take(&mut self.refuted);
        let mut told = 0;
        let mut found = vec![];
        let mut it = scan(self.of, self.number, Keyspace::ById);
        while let Some((key, value)) = it.item() {
            if let Ok(record) = Record::decode(value) {
                let leaves = record.tree.leaves();
                let seqs = leaves.iter().map(|leaf| leaf.revision.seq);
                let mut seqs: Vec<u64> = seqs.chain([record.seq]).collect();
                seqs.sort_unstable();
                seqs.dedup();
                for seq in seqs {
                    if let Some(what) = refuted.get(&seq) {
                        let id = String::from_utf8_lossy(&key[SHARD_LEN..]).into_owned();
                        found.push((id, *what, seq));
                    }
                }
            }
            it.next();
        }
        it.status()?;
        for (id, what, seq) in found {
            told += 1;
            let more = format!("seq {seq}");
            self.findings.damage(Kind::Documents, Some(&id), what, more);
        }
        debug_assert!(told > 0, "records named them");
        Ok(())
    }

    fn locals(&mut self) -> Result<(), Error> {
        let mut wrong = vec![];
        let mut digest = self.counted.digest;
        let mut it = scan(self.of, self.number, Keyspace::Local);
        while let Some((key, value)) = it.item() {
            self.of.watch.row();
            let id = &key[SHARD_LEN..];
            let is_id = std::str::from_utf8(id).is_ok_and(|id| id.starts_with("_local/"));
            let body = decode_local(value);
            let is_body = body.is_ok_and(|(_, body)| is_object(body));
            let belongs = std::str::from_utf8(id).is_ok_and(|id| (self.rules.belongs)(id));
            if !is_id || !is_body || !belongs {
                wrong.push(String::from_utf8_lossy(id).into_owned());
                wrong.truncate(REFUTED_MAX);
            }
            if self.meta.digest.is_some() {
                digest = digest.wrapping_add(share(DigestKind::Local, id, value));
            }
            it.next();
        }
        it.status()?;
        self.counted.digest = digest;
        for id in wrong {
            let topic = "a local document cannot be read, or is in the wrong place";
            self.findings.damage(Kind::Documents, Some(&id), topic, "");
        }
        Ok(())
    }

    fn purges(&mut self) -> Result<(), Error> {
        let mut wrong = vec![];
        let (mut count, mut last) = (0, self.meta.purge_floor);
        let mut it = scan(self.of, self.number, Keyspace::Purges);
        while let Some((key, value)) = it.item() {
            self.of.watch.row();
            let seq = seq_of(key);
            if purges::decode(seq, value).is_err() || key.len() != SHARD_LEN + 8 {
                wrong.push(seq);
                wrong.truncate(REFUTED_MAX);
            }
            count += u64::from(seq == last + 1);
            last = seq;
            it.next();
        }
        it.status()?;
        for seq in wrong {
            self.findings.damage(
                Kind::Documents,
                None,
                "a purge cannot be read",
                format!("purge seq {seq}"),
            );
        }
        let kept = self.meta.purge_seq.saturating_sub(self.meta.purge_floor);
        if count != kept || last != self.meta.purge_seq {
            let more = format!("{count} of {kept} are there, up to {last}");
            self.findings.damage(
                Kind::Counters,
                None,
                "purges differ from the counters",
                more,
            );
        }
        Ok(())
    }

    fn counters(&mut self) {
        let counted = &self.counted;
        let meta = &self.meta;
        for (name, kept, counted) in [
            ("documents", meta.doc_count, counted.doc_count),
            (
                "deleted documents",
                meta.doc_del_count,
                counted.doc_del_count,
            ),
            (
                "bytes of bodies",
                meta.external_bytes,
                counted.external_bytes,
            ),
            ("bytes of ids", meta.id_bytes, counted.id_bytes),
            (
                "replaced changes",
                meta.superseded_rows,
                counted.superseded_rows,
            ),
        ] {
            if kept != counted {
                let more = format!("{name}: it says {kept}, there are {counted}");
                self.findings
                    .damage(Kind::Counters, None, "a counter is wrong", more);
            }
        }
        if counted.last_seq > meta.update_seq {
            let more = format!("{} is after {}", counted.last_seq, meta.update_seq);
            let topic = "there are changes after the newest one";
            self.findings.damage(Kind::Counters, None, topic, more);
        }
        if let Some(digest) = meta.digest
            && digest != counted.digest
        {
            let topic = "the digest by which replicas compare is not that of the rows";
            self.findings.damage(Kind::Counters, None, topic, "");
        }
    }

    fn summary(&mut self) {
        let topic = "the summary is not that of the rows: counts and offsets of listings and feeds are wrong";
        if self.summary.saved_seq > self.meta.update_seq {
            let more = format!("it is of seq {}", self.summary.saved_seq);
            self.findings.damage(Kind::Counters, None, topic, more);
        }
        let ids = &self.summary.ids;
        for (n, &(live, rows)) in self.counted.blocks.iter().enumerate() {
            let block = ids.block(n);
            if (u64::from(block.live), u64::from(block.rows)) != (live, rows) {
                let fence = String::from_utf8_lossy(&block.fence).into_owned();
                let more = format!(
                    "from id '{fence}' on it counts {} documents, {} with deleted ones; there are {live} and {rows}",
                    block.live, block.rows
                );
                self.findings.damage(Kind::Counters, None, topic, more);
            }
        }
        if let Some(seq) = self.summary.seqs.first_difference(&self.counted.listed) {
            let more = format!("about seq {seq}");
            self.findings.damage(Kind::Counters, None, topic, more);
        }
        if self.summary.seqs.total() != self.counted.listed.total() {
            let more = format!(
                "{} changes, there are {}",
                self.summary.seqs.total(),
                self.counted.listed.total()
            );
            self.findings.damage(Kind::Counters, None, topic, more);
        }
    }
}

/// The data stored under one seq, and a record's claim about it.
struct Here<'a> {
    seq: u64,
    row: Option<&'a [u8]>,
    is_marked: bool,
    body: Option<&'a [u8]>,
    claim: Option<Claim>,
}

/// Returns whether a text is a JSON object in stored form.
fn is_object(json: &[u8]) -> bool {
    let is_normal =
        |normal: Vec<u8>| normal == json || document::json::differ_in_doubles_only(&normal, json);
    json.starts_with(b"{") && document::normalise(json).is_ok_and(is_normal)
}
