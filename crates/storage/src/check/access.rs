//! Checks the access of documents of a shard: it agrees with the records and with the rows by
//! principal.
//!
//! Rows are looked up from either side, so memory does not grow with the number of documents.

use document::{DocAccess, Principal};

use super::StoreCheck;
use super::finding::{Findings, Kind};
use crate::Error;
use crate::access::PrincipalRow;
use crate::keys::{self, SHARD_LEN, ShardNumber};
use crate::keyspace::Keyspace;
use crate::record::Record;
use crate::snapshot::Cursor;

impl StoreCheck {
    /// Checks the access of the documents of a shard in a database with access.
    ///
    /// # Errors
    /// Errors of reading: [`StoreCheck::files`] reports where.
    pub fn access(&self, shard: ShardNumber, findings: &mut Findings) -> Result<(), Error> {
        self.records_have_access(shard, findings)?;
        let expected = self.access_has_records(shard, findings)?;
        let found = self.rows_have_access(shard, findings)?;
        if found != expected {
            let more = format!("{found} of {expected}");
            let topic = "documents that users may read are missing in their indexes";
            findings.damage(Kind::Documents, None, topic, more);
        }
        Ok(())
    }

    fn scan_all(&self, k: Keyspace, shard: ShardNumber) -> Cursor<'_> {
        let low = shard.to_be_bytes().to_vec();
        let mut cursor = self.snapshot().scan_range(k, low, keys::shard_end(shard));
        cursor.seek_to_first();
        cursor
    }

    fn access_of(&self, shard: ShardNumber, id: &[u8]) -> Result<Option<DocAccess>, Error> {
        let key = keys::id_key(shard, id);
        let stored = self.snapshot().get(Keyspace::IndexBack, &key)?;
        Ok(stored.and_then(|value| DocAccess::decode(&value)))
    }

    /// Finds records whose access is missing.
    fn records_have_access(
        &self,
        shard: ShardNumber,
        findings: &mut Findings,
    ) -> Result<(), Error> {
        let mut records = self.scan_all(Keyspace::ById, shard);
        while let Some(key) = records.key() {
            let id = &key[SHARD_LEN..];
            if self.access_of(shard, id)?.is_none() {
                let topic = "the access of a document is missing: only admins see it";
                wrong(findings, id, topic);
            }
            records.next();
        }
        records.status()
    }

    /// Compares the access of each document with its record. Returns the number of rows by
    /// principal that there should be.
    fn access_has_records(
        &self,
        shard: ShardNumber,
        findings: &mut Findings,
    ) -> Result<u64, Error> {
        let mut rows = 0;
        let mut all = self.scan_all(Keyspace::IndexBack, shard);
        while let Some((key, value)) = all.item() {
            let id = &key[SHARD_LEN..];
            match DocAccess::decode(value) {
                None => wrong(findings, id, "the access of a document cannot be read"),
                Some(access) => {
                    let record = self.snapshot().get(Keyspace::ById, key)?;
                    let record = record.map(|value| Record::decode(&value)).transpose();
                    // A record that cannot be read is a finding of its own.
                    if record.is_ok_and(|record| !agrees(record, &access)) {
                        let topic = "the access of a document has other leaves than the document";
                        wrong(findings, id, topic);
                    }
                    rows += access.grants.len() as u64 + readers(&access).len() as u64;
                }
            }
            all.next();
        }
        all.status()?;
        Ok(rows)
    }

    /// Compares each row by principal with the access of its document. Returns the number of rows.
    fn rows_have_access(&self, shard: ShardNumber, findings: &mut Findings) -> Result<u64, Error> {
        let mut count = 0;
        let mut rows = self.scan_all(Keyspace::IndexRows, shard);
        while let Some((key, value)) = rows.item() {
            count += 1;
            let id = match PrincipalRow::decode(key, value) {
                None => Some(value),
                Some(PrincipalRow::Seq(principal, seq, id)) => {
                    let access = self.access_of(shard, id)?.unwrap_or_default();
                    let mut grants = access.grants.iter();
                    let is_granted =
                        grants.any(|grant| grant.principal == principal && grant.seq == seq);
                    (!is_granted).then_some(id)
                }
                Some(PrincipalRow::Id(principal, id)) => {
                    let access = self.access_of(shard, id)?.unwrap_or_default();
                    (!readers(&access).contains(&&principal)).then_some(id)
                }
            };
            if let Some(id) = id {
                let topic = "an index of a user has a document that the user may not read";
                wrong(findings, id, topic);
            }
            rows.next();
        }
        rows.status()?;
        Ok(count)
    }
}

/// Returns whether a document has exactly the leaves that have access sets.
fn agrees(record: Option<Record>, access: &DocAccess) -> bool {
    let record = record.unwrap_or_default();
    let leaves = record.tree.leaves();
    let mut both = leaves.iter().zip(&access.leaves);
    leaves.len() == access.leaves.len() && both.all(|(leaf, own)| own.rev.as_ref() == leaf.rev)
}

/// Returns the principals that may read a leaf, each once.
fn readers(access: &DocAccess) -> Vec<&Principal> {
    let leaves = access.leaves.iter();
    let mut all: Vec<&Principal> = leaves.flat_map(|leaf| leaf.set.readers()).collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn wrong(findings: &mut Findings, id: &[u8], topic: &'static str) {
    let id = String::from_utf8_lossy(id);
    findings.damage(Kind::Documents, Some(&id), topic, String::new());
}
