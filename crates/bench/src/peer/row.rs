//! The rows that are measured on a server and its peers.

/// Work that all do alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Row {
    /// One document by its id, always the same.
    Get,
    /// Random documents by their ids.
    GetRandom,
    /// Durable inserts, one at a time.
    InsertOne,
    /// Durable inserts over all connections.
    Insert,
    /// Durable inserts of 1,000 at once.
    Bulk,
    /// Ten documents by two indexed fields, sorted.
    Find,
    /// All documents are looked at by two fields without an index.
    Scan,
    /// A sum for each value of a field, over all documents.
    Aggregate,
}

impl Row {
    /// All, in the order in which they are run.
    pub(crate) const ALL: [Self; 8] = [
        Self::Get,
        Self::GetRandom,
        Self::InsertOne,
        Self::Insert,
        Self::Bulk,
        Self::Find,
        Self::Scan,
        Self::Aggregate,
    ];

    /// The workload's and the line's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Get => "peer_get",
            Self::GetRandom => "peer_get_random",
            Self::InsertOne => "peer_insert_1",
            Self::Insert => "peer_insert",
            Self::Bulk => "peer_bulk",
            Self::Find => "peer_find",
            Self::Scan => "peer_scan",
            Self::Aggregate => "peer_aggregate",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|row| row.name() == name)
    }

    /// What its rate counts: for scans and aggregates the documents that are looked at.
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Self::Get | Self::GetRandom | Self::Find => "req",
            _ => "docs",
        }
    }

    /// How many clients it has when the run has so many connections.
    pub(crate) fn clients(self, connections: usize) -> usize {
        match self {
            Self::InsertOne | Self::Bulk | Self::Scan | Self::Aggregate => 1,
            _ => connections,
        }
    }

    /// Does a store of keys and values do it?
    pub(crate) fn is_by_key(self) -> bool {
        !matches!(self, Self::Find | Self::Scan | Self::Aggregate)
    }

    /// Does it write?
    pub(crate) fn writes(self) -> bool {
        matches!(self, Self::InsertOne | Self::Insert | Self::Bulk)
    }
}
