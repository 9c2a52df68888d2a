//! Checks that everything stored has an owner.

use std::collections::{BTreeMap, BTreeSet};

use super::StoreCheck;
use super::finding::{Findings, Kind};
use crate::Error;
use crate::keys::{ShardNumber, meta, shard_end};
use crate::keyspace::Keyspace;
use crate::meta::ShardMeta;
use crate::slot::rows::{self, Head, SessionHead};
use crate::store::{FORMAT_WITH_ACCESS, FORMATS, Signature};
use crate::time_seq::TimeSeq;

/// The owners that the catalogue names.
#[derive(Debug, Default)]
pub struct CatalogueOwners {
    /// Databases with their records, by name.
    pub databases: BTreeMap<String, Vec<u8>>,
    /// Indexes by their shard.
    pub indexes: BTreeMap<ShardNumber, Vec<(Signature, ShardNumber)>>,
    /// Shards and indexes whose rows are still to be deleted.
    pub dropped: BTreeSet<ShardNumber>,
    /// Slots of a cluster.
    pub slots: BTreeSet<u16>,
    /// Whether versions without access by document refuse the store.
    pub has_format_with_access: bool,
    /// Shards with counters or time bins, and indexes with a state.
    shards: BTreeSet<ShardNumber>,
    states: BTreeSet<ShardNumber>,
    next_shard: ShardNumber,
}

impl CatalogueOwners {
    /// Returns a shard's indexes.
    pub fn indexes_of(&self, shard: ShardNumber) -> &[(Signature, ShardNumber)] {
        self.indexes.get(&shard).map_or(&[], Vec::as_slice)
    }
}

impl StoreCheck {
    /// Reads the catalogue.
    ///
    /// # Errors
    /// Errors of reading.
    pub fn catalogue(&self, findings: &mut Findings) -> Result<CatalogueOwners, Error> {
        self.watch.begin("the catalogue".into());
        let mut owners = CatalogueOwners {
            next_shard: 1,
            ..CatalogueOwners::default()
        };
        let mut has_format = false;
        let mut sessions: BTreeMap<u16, (Option<u64>, u64)> = BTreeMap::new();
        let mut it = self.snapshot.iter_all(Keyspace::Meta);
        it.seek_to_first();
        while let Some((key, value)) = it.item() {
            self.watch.row();
            has_format |= key == meta::FORMAT && FORMATS.contains(&value);
            owners.has_format_with_access |= key == meta::FORMAT && value == FORMAT_WITH_ACCESS;
            if read(key, value, &mut owners, &mut sessions).is_none() {
                let more = String::from_utf8_lossy(key).escape_debug().to_string();
                let topic = "an entry of the catalogue cannot be read";
                findings.damage(Kind::Catalogue, None, topic, more);
            }
            it.next();
        }
        it.status()?;
        if !has_format {
            let topic = "the catalogue does not say in which format the store is";
            findings.damage(Kind::Catalogue, None, topic, "");
        }
        for (slot, (said, counted)) in sessions {
            if said.unwrap_or(0) != counted {
                let more = format!("slot {slot} says {said:?}, there are {counted}");
                findings.damage(Kind::Slots, None, "sessions of a slot are miscounted", more);
            }
        }
        Ok(owners)
    }

    /// Reports stored data without an owner. `shards` are those of all databases.
    ///
    /// # Errors
    /// Errors of reading.
    pub fn check_owners(
        &self,
        owners: &CatalogueOwners,
        shards: &BTreeSet<ShardNumber>,
        findings: &mut Findings,
    ) -> Result<(), Error> {
        let indexes: BTreeSet<ShardNumber> =
            owners.indexes.values().flatten().map(|(_, n)| *n).collect();
        let known = |n: &ShardNumber| {
            shards.contains(n) || indexes.contains(n) || owners.dropped.contains(n)
        };
        for shard in owners.indexes.keys().filter(|n| !known(n)) {
            let topic = "an index is of a shard that no database has";
            findings.damage(Kind::Catalogue, None, topic, format!("shard {shard}"));
        }
        for shard in owners
            .shards
            .iter()
            .chain(&owners.states)
            .filter(|n| !known(n))
        {
            let topic = "counters are of nothing that any database has";
            findings.damage(Kind::Catalogue, None, topic, format!("number {shard}"));
        }
        let mut stray: BTreeMap<ShardNumber, Vec<&str>> = BTreeMap::new();
        let mut highest = owners
            .dropped
            .iter()
            .chain(shards)
            .chain(&indexes)
            .max()
            .copied();
        for k in Keyspace::SHARDED {
            for number in self.numbers(k)? {
                highest = highest.max(Some(number));
                if !known(&number) {
                    stray.entry(number).or_default().push(k.name());
                }
            }
        }
        for (number, keyspaces) in stray {
            let topic = "rows are of no database and no index";
            let more = format!("number {number}, in {}", keyspaces.join(", "));
            findings.damage(Kind::Catalogue, None, topic, more);
        }
        if highest.is_some_and(|highest| highest >= owners.next_shard) {
            let topic = "a number would be given out again that is in use";
            let more = format!("{} of {highest:?}", owners.next_shard);
            findings.damage(Kind::Catalogue, None, topic, more);
        }
        if !owners.dropped.is_empty() {
            findings.note(
                Kind::Space,
                format!(
                    "rows of {} dropped shards and indexes, or their space, are not removed yet: a server removes them",
                    owners.dropped.len()
                ),
            );
        }
        Ok(())
    }

    /// Returns the numbers of shards or indexes that have rows in a keyspace.
    fn numbers(&self, k: Keyspace) -> Result<Vec<ShardNumber>, Error> {
        let mut it = self.snapshot.iter_all(k);
        let mut numbers = vec![];
        it.seek_to_first();
        while let Some(key) = it.key() {
            let first = key.first_chunk().ok_or(Error::Corrupt("key"))?;
            let number = ShardNumber::from_be_bytes(*first);
            numbers.push(number);
            it.seek(shard_end(number));
        }
        it.status()?;
        Ok(numbers)
    }
}

/// Reads an entry; `None` when it cannot be read.
fn read(
    key: &[u8],
    value: &[u8],
    owners: &mut CatalogueOwners,
    sessions: &mut BTreeMap<u16, (Option<u64>, u64)>,
) -> Option<()> {
    let (kind, rest) = key.split_first()?;
    let number = || Some(u32::from_be_bytes(rest.try_into().ok()?));
    match *kind {
        _ if key == meta::FORMAT => {}
        _ if key == meta::NEXT_SHARD => {
            owners.next_shard = u32::from_be_bytes(value.try_into().ok()?)
        }
        _ if key == meta::NEXT_CONTENT => drop(<[u8; 8]>::try_from(value).ok()?),
        _ if key == meta::CONTENTS_COUNTED => {}
        meta::DATABASE => {
            let name = std::str::from_utf8(rest).ok()?;
            owners.databases.insert(name.to_owned(), value.to_vec());
        }
        b's' => {
            owners.shards.insert(number()?);
            ShardMeta::decode(value).ok()?;
        }
        meta::INDEX => {
            let (owner, signature) = rest.split_first_chunk()?;
            let index = u32::from_be_bytes(value.try_into().ok()?);
            let indexes = owners.indexes.entry(u32::from_be_bytes(*owner));
            indexes
                .or_default()
                .push((signature.try_into().ok()?, index));
        }
        b'm' => drop(owners.states.insert(number()?)),
        meta::TIME_SEQ => {
            owners.shards.insert(number()?);
            TimeSeq::decode(value).ok()?;
        }
        meta::PURGED_TO => {
            owners.shards.insert(number()?);
            <[u8; 8]>::try_from(value).ok()?;
        }
        meta::DROPPED => drop(owners.dropped.insert(number()?)),
        meta::UPLOAD if rest.len() == 12 && (value.is_empty() || value.len() == 32) => {}
        meta::PINNED if rest.len() == 36 => {}
        meta::SLOT => {
            let (slot, rest) = rest.split_first_chunk()?;
            let slot = u16::from_be_bytes(*slot);
            owners.slots.insert(slot);
            let (kind, rest) = rest.split_first()?;
            match *kind {
                rows::HEAD => {
                    sessions.entry(slot).or_default().0 = Some(Head::decode(value).ok()?.sessions)
                }
                rows::OUTCOME if rest.len() == 16 => drop(rows::decode_outcome(value).ok()?),
                rows::SESSION if rest.len() == 8 => {
                    SessionHead::decode(value).ok()?;
                    sessions.entry(slot).or_default().1 += 1;
                }
                rows::STATE => {}
                _ => return None,
            }
        }
        _ => return None,
    }
    Some(())
}
