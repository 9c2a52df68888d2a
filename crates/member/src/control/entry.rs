//! Entries of the control slot: changes of cluster-wide state.

use std::collections::BTreeSet;
use std::sync::Arc;

use cluster::record::{Announcement, RecordVersion};
use cluster::{NodeId, SlotNumber};
use database::{DatabaseUuid, Expiry, NewDatabase, PURGED_INFOS_LIMIT, Property, REVS_LIMIT, Ttl};
use serde::{Deserialize, Serialize};

use super::placement_entry::PlacementChange;
use super::replications::KeptReplication;
use crate::placement::ShardSlots;

/// A change of cluster-wide state. The proposer fills in all random values and times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Entry {
    /// Creates a database.
    CreateDatabase {
        /// Its name.
        name: String,
        /// Its properties.
        database: CataloguedDatabase,
    },
    /// Announces that a database will be dropped: irreversible once stable.
    AnnounceDrop {
        /// Its uuid.
        uuid: DatabaseUuid,
    },
    /// Drops an announced database. Nodes delete it, which is irreversible, so the announcement has
    /// to be stable.
    DropDatabase {
        /// Its uuid.
        uuid: DatabaseUuid,
    },
    /// Changes a property of a database.
    Change {
        /// Its uuid.
        uuid: DatabaseUuid,
        /// The property.
        #[serde(flatten)]
        change: PropertyChange,
    },
    /// Adds a member.
    Join {
        /// Its number.
        node: NodeId,
        /// Its name and address.
        member: MemberInfo,
        /// The token that it joined with.
        token: Option<String>,
        /// The latest record version that its program reads; `None` while version 1 is in force.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<RecordVersion>,
    },
    /// Removes a member.
    Leave {
        /// Its number.
        node: NodeId,
    },
    /// Sets the members that run jobs. Programs from before it refuse it, and follow with the next
    /// one of these entries: each has the whole decision.
    Runs {
        /// All of them.
        nodes: BTreeSet<NodeId>,
        /// The number of this decision: an entry that does not exceed the last one is late.
        changes: u64,
    },
    /// Announces which records a member's program reads.
    Announce {
        /// Its number.
        node: NodeId,
        /// The version.
        #[serde(flatten)]
        announcement: Announcement,
    },
    /// Raises the record version in force. Refused unless all members have announced it.
    Raise {
        /// The new version.
        version: RecordVersion,
    },
    /// Sets the table of the nodes that keep the log. Refused unless it follows the table in force.
    LogTable(LogTable),
    /// Issues a join token.
    Token {
        /// Its name.
        id: String,
        /// Its record, as text for the issuer.
        record: String,
    },
    /// Sets a cluster-wide setting.
    Setting {
        /// Its section.
        section: String,
        /// Its key.
        key: String,
        /// Its value; `None` removes it.
        value: Option<String>,
    },
    /// Keeps a continuous replication of `_replicate`, or replaces the one with its id.
    KeepReplication {
        /// The id of its job.
        id: String,
        /// Its request.
        replication: KeptReplication,
    },
    /// Ends a kept replication.
    EndReplication {
        /// The id of its job.
        id: String,
    },
    /// Changes which nodes have which slots.
    Placement {
        /// The change.
        #[serde(flatten)]
        change: PlacementChange,
    },
}

/// The nodes that keep the cluster's log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogTable {
    /// The number of the log. Disks of another log have other ids.
    pub log: u64,
    /// Counts the tables of this log.
    pub changes: u64,
    /// The nodes, those first that were added first.
    pub nodes: Vec<LogSeat>,
    /// Members that are to keep no log: they are about to leave.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub barred: BTreeSet<NodeId>,
}

/// A seat in the log's groups: a node that keeps the log, and the id of its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogSeat {
    /// The node.
    pub node: NodeId,
    /// The id of the disk in the log's groups.
    pub disk: u64,
}

impl LogTable {
    /// Returns whether a node keeps the log.
    pub fn has(&self, node: NodeId) -> bool {
        self.nodes.iter().any(|seat| seat.node == node)
    }

    /// Returns whether it is a later one.
    pub fn follows(&self, before: &LogTable) -> bool {
        (self.log, self.changes) > (before.log, before.changes)
    }
}

/// A database in the catalogue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CataloguedDatabase {
    /// Its uuid.
    pub uuid: DatabaseUuid,
    /// The number of shards.
    pub q: u32,
    /// The requested number of copies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n: Option<u32>,
    /// The slot of each shard. Empty in databases of the first record versions, whose slots are
    /// those of [`slot_of`](crate::placement::slot_of).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slots: Vec<SlotNumber>,
    /// Whether ids start with a partition.
    #[serde(default)]
    pub partitioned: bool,
    /// Whether its shards are in slots of different nodes. The last shard has all design documents,
    /// in a slot that every node has.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub spread: bool,
    /// Seconds since 1970.
    pub created_unix_s: u64,
    /// JSON text of the security object.
    pub security: String,
    /// Revisions kept of each branch, if set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revs_limit: Option<u64>,
    /// Number of purges remembered of each shard, if set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purged_infos_limit: Option<u64>,
    /// How long deleted documents are kept, where that was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted_document_ttl: Option<Ttl>,
    /// When documents expire, if they do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expiry: Option<Expiry>,
    /// The catalogue version that first contained it.
    #[serde(default)]
    pub since: u64,
    /// It will be dropped. A node may have done so already.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_going: bool,
}

impl CataloguedDatabase {
    /// Creates it from a request.
    pub fn new(new: NewDatabase) -> CataloguedDatabase {
        CataloguedDatabase {
            uuid: new.uuid,
            q: new.q,
            n: new.n,
            slots: vec![],
            partitioned: new.partitioned,
            spread: new.spread,
            created_unix_s: new.created_unix_s,
            security: new.security,
            revs_limit: None,
            purged_infos_limit: None,
            deleted_document_ttl: None,
            expiry: None,
            since: 0,
            is_going: false,
        }
    }

    /// Returns the parameters with which a node creates it.
    pub fn to_new(&self) -> NewDatabase {
        NewDatabase {
            uuid: self.uuid,
            q: self.q,
            n: self.n,
            partitioned: self.partitioned,
            spread: self.spread,
            created_unix_s: self.created_unix_s,
            security: self.security.clone(),
        }
    }

    /// Returns the slots of its shards, in a cluster with `slots` data slots.
    pub fn shard_slots(&self, slots: SlotNumber) -> ShardSlots {
        let explicit = (!self.slots.is_empty()).then(|| Arc::from(self.slots.as_slice()));
        ShardSlots::new(self.uuid, slots, explicit)
    }

    /// Returns the index of the shard with all design documents; `None` if it has no such shard.
    pub(crate) fn design_shard(&self) -> Option<usize> {
        self.spread.then(|| (self.q as usize).saturating_sub(1))
    }

    /// Returns whether its explicit slots are one for each shard, and a spread one has a shard for
    /// documents.
    pub(crate) fn has_valid_slots(&self) -> bool {
        if self.spread && self.q < 2 {
            return false;
        }
        self.slots.is_empty() || self.slots.len() == self.q as usize
    }

    /// Changes a property.
    pub fn set(&mut self, change: PropertyChange) {
        match change {
            PropertyChange::Security(json) => self.security = json,
            PropertyChange::RevsLimit(limit) => self.revs_limit = Some(limit),
            PropertyChange::PurgedInfosLimit(limit) => self.purged_infos_limit = Some(limit),
            PropertyChange::DeletedDocumentTtl(ttl) => self.deleted_document_ttl = ttl,
            PropertyChange::Expiry(expiry) => self.expiry = expiry,
        }
    }

    /// Returns all properties that can be changed.
    pub fn properties(&self) -> [Property; 5] {
        let purged_infos_limit = self.purged_infos_limit;
        [
            Property::Security(self.security.clone()),
            Property::RevsLimit(self.revs_limit.unwrap_or(REVS_LIMIT)),
            Property::PurgedInfosLimit(purged_infos_limit.unwrap_or(PURGED_INFOS_LIMIT)),
            Property::DeletedDocumentTtl(self.deleted_document_ttl.clone()),
            Property::Expiry(self.expiry.clone()),
        ]
    }
}

/// A change of one property of a database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "property", content = "value", rename_all = "snake_case")]
pub enum PropertyChange {
    /// JSON text of the security object.
    Security(String),
    /// Revisions kept of each branch.
    RevsLimit(u64),
    /// Number of purges remembered of each shard.
    PurgedInfosLimit(u64),
    /// How long deleted documents are kept; `None` for what the settings of the nodes say.
    DeletedDocumentTtl(Option<Ttl>),
    /// When documents expire; `None` for never.
    Expiry(Option<Expiry>),
}

impl PropertyChange {
    /// See [`Entry::needs`].
    pub fn needs(&self) -> RecordVersion {
        match self {
            PropertyChange::Security(_)
            | PropertyChange::RevsLimit(_)
            | PropertyChange::PurgedInfosLimit(_) => RecordVersion::V1,
            PropertyChange::DeletedDocumentTtl(_) | PropertyChange::Expiry(_) => RecordVersion::V2,
        }
    }
}

impl From<Property> for PropertyChange {
    fn from(property: Property) -> PropertyChange {
        match property {
            Property::Security(json) => PropertyChange::Security(json),
            Property::RevsLimit(limit) => PropertyChange::RevsLimit(limit),
            Property::PurgedInfosLimit(limit) => PropertyChange::PurgedInfosLimit(limit),
            Property::DeletedDocumentTtl(ttl) => PropertyChange::DeletedDocumentTtl(ttl),
            Property::Expiry(expiry) => PropertyChange::Expiry(expiry),
        }
    }
}

impl From<PropertyChange> for Property {
    fn from(change: PropertyChange) -> Property {
        match change {
            PropertyChange::Security(json) => Property::Security(json),
            PropertyChange::RevsLimit(limit) => Property::RevsLimit(limit),
            PropertyChange::PurgedInfosLimit(limit) => Property::PurgedInfosLimit(limit),
            PropertyChange::DeletedDocumentTtl(ttl) => Property::DeletedDocumentTtl(ttl),
            PropertyChange::Expiry(expiry) => Property::Expiry(expiry),
        }
    }
}

/// The name and address of a member of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberInfo {
    /// Its name, as CouchDB's clients see it: `node1@127.0.0.1`.
    pub name: String,
    /// Its address for other nodes, as `host:port`.
    pub address: String,
}

/// The outcome of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum EntryOutcome {
    /// Applied.
    Done = 0,
    /// The name is taken.
    Exists = 1,
    /// Its subject does not exist.
    Missing = 2,
    /// It is invalid.
    Refused = 3,
}

impl Entry {
    /// Returns the record version that must be in force before it is proposed: a program that does
    /// not know an entry would refuse it, and have another state than the other nodes from then on.
    /// A new kind of entry needs a new version. Reading does not depend on this: programs applied
    /// some entries before there were versions.
    pub fn needs(&self) -> RecordVersion {
        match self {
            Entry::CreateDatabase { database, .. } if database.spread => RecordVersion::V5,
            Entry::CreateDatabase { database, .. } if !database.slots.is_empty() => {
                RecordVersion::V4
            }
            Entry::CreateDatabase { .. }
            | Entry::AnnounceDrop { .. }
            | Entry::DropDatabase { .. }
            | Entry::Leave { .. }
            // Written by programs of version 1 already. Those that refuse it are not harmed.
            | Entry::Runs { .. }
            | Entry::Token { .. }
            | Entry::Setting { .. } => RecordVersion::V1,
            // These bring later versions into force. All members know them when they are proposed:
            // `versions.rs` asks before the first one.
            Entry::Announce { .. } | Entry::Raise { .. } => RecordVersion::V1,
            Entry::Join { version, .. } => match version {
                None => RecordVersion::V1,
                Some(_) => RecordVersion::V2,
            },
            Entry::Change { change, .. } => change.needs(),
            Entry::KeepReplication { .. }
            | Entry::EndReplication { .. }
            | Entry::LogTable(_)
            | Entry::Placement { .. } => RecordVersion::V4,
        }
    }

    /// Returns whether it may revoke someone's access.
    pub fn shuts_out(&self) -> bool {
        match self {
            Entry::Setting { .. } => true,
            Entry::Change { change, .. } => matches!(change, PropertyChange::Security(_)),
            _ => false,
        }
    }
}

impl EntryOutcome {
    /// Decodes an outcome.
    pub fn of(code: u8) -> EntryOutcome {
        match code {
            0 => EntryOutcome::Done,
            1 => EntryOutcome::Exists,
            2 => EntryOutcome::Missing,
            _ => EntryOutcome::Refused,
        }
    }
}
