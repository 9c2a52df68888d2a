//! Versions of records, and how the nodes of a cluster agree on one.
//!
//! A program reads all versions up to its own latest one. It writes the version in force, which is
//! raised once the programs of all members read a later one, and is never lowered. So nodes are
//! updated one after the other, and none of them meets a record that it cannot read.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use serde::{Deserialize, Serialize};

use crate::position::NodeId;

/// A version of records. A later version may have other kinds of records, and other entries of the
/// control slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct RecordVersion(u8);

impl RecordVersion {
    /// The version of programs that do not agree on versions.
    pub const V1: RecordVersion = RecordVersion(1);
    /// Nodes that join name their version; documents expire, and databases say how long deleted
    /// documents are kept.
    pub const V2: RecordVersion = RecordVersion(2);
    /// Edits name contents of attachments without their bytes.
    pub const V3: RecordVersion = RecordVersion(3);
    /// The control slot keeps continuous replications of `_replicate`, and has a table of the nodes that
    /// keep the log. Databases have explicit slots, and slots have explicit nodes.
    pub const V4: RecordVersion = RecordVersion(4);
    /// Databases are spread: their shards are in slots of different nodes.
    pub const V5: RecordVersion = RecordVersion(5);
    /// The latest version that this program reads. A new version is a constant above, and this.
    pub const LATEST: RecordVersion = RecordVersion::V5;

    /// Returns its number.
    pub const fn number(self) -> u8 {
        self.0
    }
}

impl TryFrom<u8> for RecordVersion {
    type Error = &'static str;

    fn try_from(number: u8) -> Result<RecordVersion, &'static str> {
        match number {
            0 => Err("record versions begin at 1"),
            number => Ok(RecordVersion(number)),
        }
    }
}

impl From<RecordVersion> for u8 {
    fn from(version: RecordVersion) -> u8 {
        version.0
    }
}

impl fmt::Display for RecordVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The record versions of a running program: the latest that it reads, and the one that it writes.
/// Clones share the latter.
#[derive(Clone, Debug)]
pub struct RecordVersions {
    known: RecordVersion,
    written: Arc<AtomicU8>,
}

impl RecordVersions {
    /// Creates those of a program that reads this version and all earlier ones. It writes version 1
    /// until [`RecordVersions::raise`] is called.
    pub fn new(known: RecordVersion) -> RecordVersions {
        RecordVersions {
            known,
            written: Arc::new(AtomicU8::new(RecordVersion::V1.number())),
        }
    }

    /// Returns the latest version that it reads.
    pub fn known(&self) -> RecordVersion {
        self.known
    }

    /// Returns the version that it writes.
    pub fn written(&self) -> RecordVersion {
        RecordVersion(self.written.load(Ordering::Acquire))
    }

    /// Writes this version from now on. The entry that raised it must be stable in the control slot.
    /// An earlier version has no effect.
    ///
    /// # Panics
    /// The program does not know the version.
    pub fn raise(&self, version: RecordVersion) {
        assert!(version <= self.known, "a version that it cannot read");
        self.written.fetch_max(version.number(), Ordering::AcqRel);
    }

    /// Returns whether it reads records of the version with this number.
    pub(super) fn reads(&self, number: u8) -> bool {
        (RecordVersion::V1.number()..=self.known.number()).contains(&number)
    }
}

/// The versions that the members of a cluster announced, and the one in force. Part of the state of
/// the control slot: every node applies the same changes in the same order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agreement {
    in_force: RecordVersion,
    /// The last announcement of each member that made one.
    known: BTreeMap<NodeId, Announcement>,
}

/// An announcement of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announcement {
    /// The latest version that its program reads.
    pub version: RecordVersion,
    /// Counts the announcements of the member.
    pub number: u64,
}

/// The result of an announcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announced {
    /// It was recorded.
    Recorded,
    /// A later one was recorded before.
    Late,
    /// The version in force is later: the program must not be a member.
    TooOld,
}

impl Default for Agreement {
    fn default() -> Agreement {
        Agreement {
            in_force: RecordVersion::V1,
            known: BTreeMap::new(),
        }
    }
}

impl Agreement {
    /// Returns the version in force.
    pub fn in_force(&self) -> RecordVersion {
        self.in_force
    }

    /// Returns the last announcement of a member, if it made one.
    pub fn announcement(&self, node: NodeId) -> Option<Announcement> {
        self.known.get(&node).copied()
    }

    /// Returns the latest version that a member is known to read.
    pub fn known(&self, node: NodeId) -> RecordVersion {
        let announced = self.announcement(node);
        announced.map_or(RecordVersion::V1, |announced| announced.version)
    }

    /// Returns the announcement that a node makes next.
    pub fn next_announcement(&self, node: NodeId, version: RecordVersion) -> Announcement {
        let last = self.announcement(node).map_or(0, |last| last.number);
        Announcement {
            version,
            number: last + 1,
        }
    }

    /// Records an announcement: also of an earlier version than before, by a program that was
    /// replaced by an older one. One that was made before the last one may arrive after it, and has
    /// no effect.
    pub fn announce(&mut self, node: NodeId, announcement: Announcement) -> Announced {
        let last = self.announcement(node);
        if last.is_some_and(|last| announcement.number <= last.number) {
            return Announced::Late;
        }
        if announcement.version < self.in_force {
            return Announced::TooOld;
        }
        self.known.insert(node, announcement);
        Announced::Recorded
    }

    /// Forgets a node that is not a member any more. Returns whether it had announced a version.
    pub fn forget(&mut self, node: NodeId) -> bool {
        self.known.remove(&node).is_some()
    }

    /// Returns the version that can be raised to, if there is one: all members, also those that
    /// are down, have announced it.
    pub fn next(&self, members: impl IntoIterator<Item = NodeId>) -> Option<RecordVersion> {
        let least = members.into_iter().map(|node| self.known(node)).min()?;
        (least > self.in_force).then_some(least)
    }

    /// Raises the version in force, unless a member has not announced the new one, or has withdrawn
    /// that since this was proposed. Returns whether it was raised.
    pub fn raise(
        &mut self,
        version: RecordVersion,
        members: impl IntoIterator<Item = NodeId>,
    ) -> bool {
        let may = version > self.in_force && self.next(members).is_some_and(|all| version <= all);
        if may {
            self.in_force = version;
        }
        may
    }
}
