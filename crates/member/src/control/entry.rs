//! Entries of the control slot: what changes for the whole cluster.

use cluster::NodeId;
use database::{DatabaseUuid, NewDatabase, PURGED_INFOS_LIMIT, Property, REVS_LIMIT, Ttl};
use serde::{Deserialize, Serialize};

/// A change of what is the same on every node. Whoever proposes it fills in all that is random or of a clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Entry {
    /// A database is made.
    CreateDatabase {
        /// Its name.
        name: String,
        /// What it is.
        database: CataloguedDatabase,
    },
    /// A database will go: nothing undoes that once it is there to stay.
    AnnounceDrop {
        /// What it is known by.
        uuid: DatabaseUuid,
    },
    /// A database goes of which that was said. Nodes delete it, which they cannot undo, so what came before has to be there to stay.
    DropDatabase {
        /// What it is known by.
        uuid: DatabaseUuid,
    },
    /// A property of a database changes.
    Change {
        /// What it is known by.
        uuid: DatabaseUuid,
        /// The property.
        #[serde(flatten)]
        change: PropertyChange,
    },
    /// A node is a member from now on.
    Join {
        /// Its number.
        node: NodeId,
        /// What is known of it.
        member: Member,
        /// The token that it came with.
        token: Option<String>,
    },
    /// A node is none any more.
    Leave {
        /// Its number.
        node: NodeId,
    },
    /// A token is given out.
    Token {
        /// Its name.
        id: String,
        /// What is kept of it, as text of whoever checks it.
        record: String,
    },
    /// A setting that all nodes have alike.
    Setting {
        /// Its section,
        section: String,
        /// its key,
        key: String,
        /// and its value; `None` takes it away.
        value: Option<String>,
    },
}

/// A database in the catalogue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CataloguedDatabase {
    /// What it is known by.
    pub uuid: DatabaseUuid,
    /// Shards.
    pub q: u32,
    /// Copies, as they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n: Option<u32>,
    /// Ids begin with a partition.
    #[serde(default)]
    pub partitioned: bool,
    /// Seconds since 1970.
    pub created_unix_s: u64,
    /// JSON text of the security object.
    pub security: String,
    /// Revisions kept of each branch, where that was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revs_limit: Option<u64>,
    /// Purges remembered of each shard, where that was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purged_infos_limit: Option<u64>,
    /// How long deleted documents are kept, where that was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted_document_ttl: Option<Ttl>,
    /// The version of the catalogue that had it first.
    #[serde(default)]
    pub since: u64,
    /// It will be dropped. A node may have done so already.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_going: bool,
}

impl CataloguedDatabase {
    /// As it is asked for.
    pub fn new(new: NewDatabase) -> CataloguedDatabase {
        CataloguedDatabase {
            uuid: new.uuid,
            q: new.q,
            n: new.n,
            partitioned: new.partitioned,
            created_unix_s: new.created_unix_s,
            security: new.security,
            revs_limit: None,
            purged_infos_limit: None,
            deleted_document_ttl: None,
            since: 0,
            is_going: false,
        }
    }

    /// As a node makes it.
    pub fn to_new(&self) -> NewDatabase {
        NewDatabase {
            uuid: self.uuid,
            q: self.q,
            n: self.n,
            partitioned: self.partitioned,
            created_unix_s: self.created_unix_s,
            security: self.security.clone(),
        }
    }

    /// All properties that can be changed.
    pub fn properties(&self) -> [Property; 4] {
        let purged_infos_limit = self.purged_infos_limit;
        [
            Property::Security(self.security.clone()),
            Property::RevsLimit(self.revs_limit.unwrap_or(REVS_LIMIT)),
            Property::PurgedInfosLimit(purged_infos_limit.unwrap_or(PURGED_INFOS_LIMIT)),
            Property::DeletedDocumentTtl(self.deleted_document_ttl.clone()),
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
    /// Purges remembered of each shard.
    PurgedInfosLimit(u64),
    /// How long deleted documents are kept; `None` for what the settings of the nodes say. Programs of before do not know it.
    DeletedDocumentTtl(Option<Ttl>),
}

impl From<Property> for PropertyChange {
    fn from(property: Property) -> PropertyChange {
        match property {
            Property::Security(json) => PropertyChange::Security(json),
            Property::RevsLimit(limit) => PropertyChange::RevsLimit(limit),
            Property::PurgedInfosLimit(limit) => PropertyChange::PurgedInfosLimit(limit),
            Property::DeletedDocumentTtl(ttl) => PropertyChange::DeletedDocumentTtl(ttl),
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
        }
    }
}

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its name, as CouchDB's clients see it: `node1@127.0.0.1`.
    pub name: String,
    /// Where other nodes reach it, as `host:port`.
    pub address: String,
}

/// What became of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum EntryOutcome {
    /// It counts.
    Done = 0,
    /// There is one of that name already.
    Exists = 1,
    /// What it is about is not there.
    Missing = 2,
    /// It cannot be read, or says what cannot be.
    Refused = 3,
}

impl Entry {
    /// Somebody may be allowed less after it.
    pub fn shuts_out(&self) -> bool {
        match self {
            Entry::Setting { .. } => true,
            Entry::Change { change, .. } => matches!(change, PropertyChange::Security(_)),
            _ => false,
        }
    }
}

impl EntryOutcome {
    /// By its number.
    pub fn of(code: u8) -> EntryOutcome {
        match code {
            0 => EntryOutcome::Done,
            1 => EntryOutcome::Exists,
            2 => EntryOutcome::Missing,
            _ => EntryOutcome::Refused,
        }
    }
}
