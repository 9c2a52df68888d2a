//! Parameters of a feed.

use std::sync::Arc;

use document::TextList;
use functions::{Admission, Place};

use crate::Error;
use crate::attachments::ShownAttachments;

/// Decides which changes a feed shows.
pub trait ChangeFilter: Send + Sync {
    /// Whether `matches` needs the document's JSON.
    fn needs_doc(&self) -> bool;
    /// Whether `matches` may need more time than reading the document.
    fn is_heavy(&self) -> bool {
        false
    }
    /// Whether `matches` may need too much time for a thread that serves requests, for a document
    /// of this length.
    fn is_heavy_for(&self, _doc_bytes: usize) -> bool {
        self.is_heavy()
    }
    /// `doc`: the whole JSON of the revision (with `_id`, `_rev`, `_deleted`), when `needs_doc`.
    fn matches(&self, id: &str, deleted: bool, doc: Option<&[u8]>) -> bool;
    /// With `include_docs`: the text that replaces the document (`fields` of `_selector`).
    fn project(&self, _doc: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

/// Filters many documents in one call, for filters whose call costs more than a document. May
/// block.
pub trait BatchFilter: Send + Sync {
    /// One answer a document. `docs` are whole JSON texts, with `_id`, `_rev`, `_revisions`, `_deleted`.
    fn matches(&self, place: &Place, docs: &[Vec<u8>]) -> Result<Vec<bool>, Error>;
    /// Requests permission for a call.
    fn admission(&self) -> Admission;
}

/// Which changes a feed shows.
#[derive(Clone)]
pub enum Filter {
    /// All.
    None,
    /// Changes of the documents with these ids, which are sorted.
    DocIds(Arc<TextList>),
    /// Design documents only.
    Design,
    /// Changes that it matches, one by one.
    Custom(Arc<dyn ChangeFilter>),
    /// Changes that it matches, many in one call.
    Batch(Arc<dyn BatchFilter>),
}

/// Where a feed begins.
#[derive(Clone, Debug)]
pub enum Since {
    /// At the first change.
    Start,
    /// After the last one.
    Now,
    /// After an update seq as a client sent it, or at a time (`2026-11-28T12:00:00Z`). A feed since a time may begin with older
    /// changes: those of the same time bin ([`storage::TimeSeq`]).
    Seq(String),
}

/// Which revisions of a changed document a row names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// The winning revision.
    MainOnly,
    /// All leaves.
    AllDocs,
}

impl Filter {
    /// Changes of the documents with these ids.
    pub fn of_ids(mut ids: TextList) -> Filter {
        ids.sort();
        Filter::DocIds(Arc::new(ids))
    }

    /// Whether reading the feed may block for longer than reads take.
    pub fn may_block(&self) -> bool {
        matches!(self, Filter::Batch(_)) || self.is_heavy()
    }

    /// Whether the feed reads documents to judge them, one by one.
    pub(super) fn needs_doc(&self) -> bool {
        matches!(self, Filter::Custom(filter) if filter.needs_doc())
    }

    /// Whether the feed judges documents itself, and needs more time for that than for reading them.
    pub(super) fn is_heavy(&self) -> bool {
        matches!(self, Filter::Custom(filter) if filter.is_heavy())
    }
}

/// A requested feed.
#[derive(Clone)]
pub struct ChangesQuery {
    /// Where it begins.
    pub since: Since,
    /// The newest change first; there is nothing to wait for then.
    pub descending: bool,
    /// Rows at most.
    pub limit: Option<u64>,
    /// Which revisions a row names.
    pub style: Style,
    /// Rows have the winning revision.
    pub include_docs: bool,
    /// With `include_docs`: documents have `_conflicts`.
    pub conflicts: bool,
    /// With `include_docs`: how attachments are shown.
    pub attachments: ShownAttachments,
    /// Which changes are shown.
    pub filter: Filter,
    /// Write the seq of one row in this many only ([`ChangesQuery::shows_seq`]).
    pub seq_interval: Option<u64>,
}

/// The limit of a feed without one, in CouchDB.
const LIMIT_DEFAULT: u64 = 1_000_000_000_000_000;

impl ChangesQuery {
    /// Refuses a feed that users of a database with access do not have.
    ///
    /// # Errors
    /// [`Error::Forbidden`].
    pub(super) fn refuse_unseen(&self) -> Result<(), Error> {
        if self.descending {
            return Err(Error::Forbidden(
                "only admins of a database with access by document can use descending",
            ));
        }
        match self.filter {
            Filter::Batch(_) => Err(Error::Forbidden(
                "only admins of a database with access by document can use filters of design documents",
            )),
            Filter::None | Filter::DocIds(_) | Filter::Design | Filter::Custom(_) => Ok(()),
        }
    }

    /// Returns whether the row after `rows` others has its seq. As in CouchDB, these are the rows before which the rest of the
    /// limit is a multiple of the interval.
    pub(super) fn shows_seq(&self, rows: u64) -> bool {
        let Some(interval) = self.seq_interval else {
            return true;
        };
        let left = self.limit.unwrap_or(LIMIT_DEFAULT).saturating_sub(rows);
        left.is_multiple_of(interval.max(1))
    }
}

/// The format of the response around the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Joined by `,\n`.
    Array,
    /// One a line.
    Lines,
    /// `data: {…}`, `id: "seq"`, an empty line.
    Events,
}
