//! The rows that are measured on a server and its peers.

use crate::words::SearchKind;

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
    /// Durable inserts in batches of 1,000.
    Bulk,
    /// Ten documents by two indexed fields, sorted.
    Find,
    /// All documents are examined by two fields without an index.
    Scan,
    /// A sum for each value of a field, over all documents.
    Aggregate,
    /// A text index of all documents is built.
    SearchBuild,
    /// The 25 best hits of a query, over all connections or by one client.
    Search { wanted: SearchKind, is_alone: bool },
    /// A durable write, and a search that finds it.
    SearchFresh,
}

impl Row {
    /// All, in the order in which they are run.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let searches = [true, false].into_iter().flat_map(|is_alone| {
            let wanted = SearchKind::ALL.into_iter();
            wanted.map(move |wanted| Self::Search { wanted, is_alone })
        });
        [
            Self::Get,
            Self::GetRandom,
            Self::InsertOne,
            Self::Insert,
            Self::Bulk,
            Self::Find,
            Self::Scan,
            Self::Aggregate,
            Self::SearchBuild,
        ]
        .into_iter()
        .chain(searches)
        .chain([Self::SearchFresh])
    }

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
            Self::SearchBuild => "peer_search_build",
            Self::Search { wanted, is_alone } => match (wanted, is_alone) {
                (SearchKind::Term, true) => "peer_search_term_1",
                (SearchKind::And, true) => "peer_search_and_1",
                (SearchKind::Phrase, true) => "peer_search_phrase_1",
                (SearchKind::Prefix, true) => "peer_search_prefix_1",
                (SearchKind::Term, false) => "peer_search_term",
                (SearchKind::And, false) => "peer_search_and",
                (SearchKind::Phrase, false) => "peer_search_phrase",
                (SearchKind::Prefix, false) => "peer_search_prefix",
            },
            Self::SearchFresh => "peer_search_fresh",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::all().find(|row| row.name() == name)
    }

    /// Is it about text indexes?
    pub(crate) fn is_search(self) -> bool {
        matches!(
            self,
            Self::SearchBuild | Self::Search { .. } | Self::SearchFresh
        )
    }

    /// Is it a fixed amount of work, or one client's that sends when it has seen the answer before?
    pub(crate) fn is_unpaced(self) -> bool {
        matches!(self, Self::SearchBuild | Self::SearchFresh)
    }

    /// The unit of its rate: for scans and aggregates, examined documents.
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Self::Get | Self::GetRandom | Self::Find | Self::Search { .. } | Self::SearchFresh => {
                "req"
            }
            _ => "docs",
        }
    }

    /// Number of clients in a run with `connections` connections.
    pub(crate) fn clients(self, connections: usize) -> usize {
        match self {
            Self::InsertOne | Self::Bulk | Self::Scan | Self::Aggregate => 1,
            Self::SearchBuild | Self::SearchFresh | Self::Search { is_alone: true, .. } => 1,
            _ => connections,
        }
    }

    /// Does a store of keys and values do it?
    pub(crate) fn is_by_key(self) -> bool {
        !self.is_search() && !matches!(self, Self::Find | Self::Scan | Self::Aggregate)
    }

    /// Does it write?
    pub(crate) fn writes(self) -> bool {
        matches!(self, Self::InsertOne | Self::Insert | Self::Bulk)
    }
}
