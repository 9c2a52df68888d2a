//! Reruns the map functions, and compares the result with the stored rows.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use functions::{Languages, Owner};
use storage::check::{Findings, Kind, Watch};
use storage::{ChangeIter, Keyspace, Row, Shard, View};
use xxhash_rust::xxh3::xxh3_64;

use super::{ChangedDocuments, IndexCheck, IndexTotals, all, id_and_ordinal, row_hash};
use crate::Error;
use crate::keys::RowValue;
use crate::map::{Control, MapCounts, Source, map_pieces};

/// Documents that changed since the index was last brought up to date: of more, rows are not
/// compared.
const CHANGED_MAX: usize = 4_000_000;
/// Maximum bytes of rows before they are summed.
const ROWS_BYTES: usize = 32 << 20;

/// Runs map functions again.
pub struct Remap<'a> {
    /// Runs the functions.
    pub languages: &'a dyn Languages,
    /// The owner of the functions.
    pub owner: Owner,
    /// The shard that the index is of.
    pub shard: &'a Shard,
    /// A snapshot of the shard.
    pub view: &'a View,
}

/// Returns why the rows of an index cannot be compared with the current output of its functions.
fn why_incomparable(totals: &IndexTotals) -> Option<&'static str> {
    if !totals.knows_purges {
        return Some(
            "its rows were not compared: there were purges since it was brought up to date",
        );
    }
    // Whether a function exceeds a limit differs between a busy machine and an idle one.
    totals.leaves_out.then_some(
        "its rows were not compared: it leaves out documents for which a function exceeded a limit",
    )
}

impl IndexCheck<'_> {
    /// Compares the rows with the current output of the map functions. `totals` is the result of
    /// [`IndexCheck::run`].
    ///
    /// # Errors
    /// Errors of reading, and of functions that cannot run.
    pub fn remap(
        &self,
        again: &Remap<'_>,
        totals: &IndexTotals,
        watch: &Watch,
        findings: &mut Findings,
    ) -> Result<(), Error> {
        let Some(spec) = self.spec else {
            return Ok(());
        };
        if let Some(why) = why_incomparable(totals) {
            findings.note(Kind::Index, why.into());
            return Ok(());
        }
        let changed = self.changed(again, totals.indexed_seq)?;
        let Some(changed) = changed else {
            findings.note(
                Kind::Index,
                format!("its rows were not compared: it is more than {CHANGED_MAX} changes behind"),
            );
            return Ok(());
        };
        let stored = match changed.is_empty() {
            true => (totals.rows, totals.sum),
            false => self.stored(again, &changed, watch)?,
        };
        let group = spec.map_group(again.owner.clone());
        let mut mapper = again.languages.mapper(&group)?;
        let source = Source::new(again.shard, again.view, 0);
        let counts = MapCounts::new(spec.mapped());
        let (mut rows, mut sum, mut buffer) = (0u64, 0u128, vec![]);
        while !source.is_exhausted() {
            let control = Control {
                stopped: &AtomicBool::new(false),
                failed: &AtomicBool::new(false),
                done: &AtomicU64::new(0),
                bytes: &AtomicUsize::new(0),
                bytes_max: ROWS_BYTES,
                large: None,
                counts: &counts,
            };
            let mut mapped = map_pieces(&source, mapper.as_mut(), spec, false, &control)?;
            source.take_back(std::slice::from_mut(&mut mapped));
            for doc in &mapped.docs {
                watch.rows.fetch_add(1, Relaxed);
                if changed.contains(&xxh3_64(mapped.id(doc))) {
                    continue;
                }
                for row in &mapped.rows[doc.rows()] {
                    rows += 1;
                    let hash =
                        row_hash(row.view, mapped.place(row), mapped.value(row), &mut buffer);
                    sum = sum.wrapping_add(hash);
                }
            }
        }
        if !counts.take_omissions().is_empty() {
            let why = "its rows were not compared: its map functions exceed a limit for some documents now";
            findings.note(Kind::Index, why.into());
            return Ok(());
        }
        if (rows, sum) != stored {
            let more = format!("they give {rows}, {} are stored", stored.0);
            let topic = "its rows are not those that its map functions give now";
            findings.damage(Kind::Index, None, topic, more);
        }
        Ok(())
    }

    /// Returns the documents that changed after a seq; `None` when they are too many.
    fn changed(&self, again: &Remap<'_>, after: u64) -> Result<Option<ChangedDocuments>, Error> {
        let mut changed = ChangedDocuments::new();
        let mut it = ChangeIter::new(&again.view.snapshot, self.owner, after, false);
        while let Some((seq, value)) = it.entry() {
            if changed.len() >= CHANGED_MAX {
                return Ok(None);
            }
            changed.insert(xxh3_64(Row::decode(seq, value)?.id.as_bytes()));
            it.next();
        }
        it.status()?;
        Ok(Some(changed))
    }

    /// Rows of unchanged documents, with their sum.
    fn stored(
        &self,
        again: &Remap<'_>,
        changed: &ChangedDocuments,
        watch: &Watch,
    ) -> Result<(u64, u128), Error> {
        let mut it = all(&again.view.snapshot, Keyspace::IndexRows, self.number);
        let (mut rows, mut sum, mut buffer) = (0u64, 0u128, vec![]);
        while let Some((key, value)) = it.item() {
            watch.rows.fetch_add(1, Relaxed);
            let (view, place) = (u16::from_be_bytes([key[4], key[5]]), &key[6..]);
            let id = RowValue::decode(value)
                .ok()
                .and_then(|row| id_and_ordinal(place, row.sort_len));
            if id.is_none_or(|(id, _)| !changed.contains(&xxh3_64(id.as_bytes()))) {
                rows += 1;
                sum = sum.wrapping_add(row_hash(view, place, value, &mut buffer));
            }
            it.next();
        }
        it.status()?;
        Ok((rows, sum))
    }
}
