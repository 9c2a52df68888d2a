//! Checks that every block of every file can be read.

use std::collections::BTreeSet;

use super::StoreCheck;
use super::finding::{Findings, Kind};
use super::holes::{Hole, HoleScan, ScanItem};
use crate::Error;
use crate::keys::{SHARD_LEN, ShardNumber, seq_of, shard_end};
use crate::keyspace::Keyspace;

impl StoreCheck {
    /// Reads every block of every table file, including deleted and replaced rows: the engine
    /// verifies the checksum of each. `name` describes a shard or index. The contents under `homes`
    /// are left out: [`StoreCheck::contents`] reads them.
    pub fn files(
        &self,
        homes: &BTreeSet<ShardNumber>,
        name: &dyn Fn(ShardNumber) -> String,
        findings: &mut Findings,
    ) -> Result<(), Error> {
        for k in Keyspace::ALL {
            self.watch.begin(format!("files of {}", k.name()));
            for (low, high) in ranges(k, homes) {
                let cursor = self.snapshot.scan_files(k, low.clone(), Some(high.clone()));
                let mut rows = HoleScan::new(cursor, low, high);
                loop {
                    match rows.advance() {
                        ScanItem::Row => self.watch.row(),
                        ScanItem::Hole(hole) => {
                            let (kind, what) = described(k, &hole, name);
                            findings.damage(kind, None, "a part of a file cannot be read", what);
                        }
                        ScanItem::End => break,
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the number of table files, their bytes, and their rows including old versions.
    pub fn table_totals(&self) -> Result<(u64, u64, u64), Error> {
        let files = self.snapshot.engine().table_files()?;
        let sum = |f: fn(&crate::engine::TableFile) -> u64| files.iter().map(f).sum();
        Ok((files.len() as u64, sum(|f| f.bytes), sum(|f| f.rows)))
    }
}

/// Returns the ranges of a keyspace, without chunks of contents under `homes`.
fn ranges(k: Keyspace, homes: &BTreeSet<ShardNumber>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let end = vec![0xff; 64];
    let mut from = vec![];
    let mut ranges = vec![];
    if k == Keyspace::Attachments {
        for &home in homes {
            let (first, last) = crate::contents::keys::all_chunks(home);
            ranges.push((std::mem::replace(&mut from, last), first));
        }
    }
    ranges.push((from, end));
    ranges
}

/// Describes the effect of a hole in a keyspace.
fn described(k: Keyspace, hole: &Hole, name: &dyn Fn(ShardNumber) -> String) -> (Kind, String) {
    let number = |key: &[u8]| Some(u32::from_be_bytes(*key.first_chunk()?));
    let rest = |key: &[u8]| match key.get(SHARD_LEN..) {
        Some(id) if !id.is_empty() => {
            format!("'{}'", String::from_utf8_lossy(id).trim_end_matches('\0'))
        }
        _ => "the first one".to_owned(),
    };
    let of = |key: &[u8]| number(key).map_or_else(|| "?".to_owned(), name);
    let (a, b) = (&hole.after, &hole.before);
    let is_one = number(a).is_some()
        && (number(a) == number(b) || *b == number(a).map(shard_end).unwrap_or_default());
    let whose = match is_one {
        true => of(a),
        false => format!("{} to {}", of(a), of(b)),
    };
    let seqs = || match (a.len() >= 12, is_one && b.len() >= 12) {
        (true, true) => format!("after seq {} and before {}", seq_of(a), seq_of(b)),
        (true, false) => format!("after seq {}", seq_of(a)),
        _ => "from the first one on".to_owned(),
    };
    let (kind, what) = match k {
        Keyspace::Meta => (Kind::Catalogue, "the catalogue".to_owned()),
        Keyspace::ById => (
            Kind::Documents,
            format!(
                "records of documents of {whose}, with ids after {} and before {}",
                rest(a),
                rest(b)
            ),
        ),
        Keyspace::BySeq => (Kind::Documents, format!("changes of {whose}, {}", seqs())),
        Keyspace::Bodies => (
            Kind::Documents,
            format!("long bodies of {whose}, of changes {}", seqs()),
        ),
        Keyspace::Superseded => (Kind::Counters, format!("markers of {whose}, {}", seqs())),
        Keyspace::Local => (
            Kind::Documents,
            format!(
                "local documents of {whose}, with ids after {} and before {}",
                rest(a),
                rest(b)
            ),
        ),
        Keyspace::Purges => (Kind::Documents, format!("purges of {whose}")),
        Keyspace::Summary => (Kind::Counters, format!("the summary of {whose}")),
        Keyspace::IndexRows | Keyspace::IndexBack | Keyspace::IndexBlocks => {
            (Kind::Index, format!("{} of {whose}", k.name()))
        }
        Keyspace::Attachments => (
            Kind::Attachments,
            format!("contents of attachments of {whose}"),
        ),
        #[allow(unreachable_patterns, reason = "keyspaces that are added")]
        _ => (Kind::Files, format!("{} of {whose}", k.name())),
    };
    (kind, format!("{what} ({})", hole.reason))
}
