//! Acknowledgement of a write: `w`, `batch=ok`, `X-Couch-Full-Commit`, `[couchdb] delayed_commits`.

use database::{Durability, EditMode, WriteTiming};

use crate::errors::ApiError;
use crate::request::Request;

pub struct WriteMode {
    pub durability: Durability,
    /// `batch=ok`: the answer holds no revision.
    pub batch: bool,
    /// 202 in place of 201: acknowledged before it is on disk, or by fewer replicas than requested.
    pub accepted: bool,
}

/// Copies on a server that is alone.
const COPIES_ALONE: u64 = 1;

impl WriteMode {
    /// `is_alone`: the server is not one of several, so that there is one copy of everything.
    pub fn of(req: &Request, is_alone: bool, w: Option<u64>) -> Result<Self, ApiError> {
        // That of the body counts more, as in CouchDB.
        let w = w.or_else(|| req.query.get("w").and_then(|w| w.parse().ok()));
        let full_commit = req.named_header("x-couch-full-commit") == Some("true");
        let copies = w.filter(|_| !is_alone);
        let copies = copies.map(|w| usize::try_from(w).unwrap_or(usize::MAX));
        Ok(WriteMode {
            durability: match (req.settings.couchdb.delayed_commits && !full_commit, copies) {
                (true, _) => Durability::Delayed,
                (false, None) => Durability::Synced,
                (false, Some(copies)) => Durability::Copies(copies),
            },
            batch: false,
            accepted: is_alone && w.is_some_and(|w| w > COPIES_ALONE),
        })
    }

    /// The mode of `POST /{db}` and `PUT /{db}/{doc}`: only there, and for a single document,
    /// `batch=ok` applies.
    ///
    /// CouchDB answers 202 before it writes, and drops conflicts; here they are refused like any
    /// other.
    #[must_use]
    pub fn or_batch(self, req: &Request) -> Self {
        match req.query.get("batch") {
            Some("ok") => WriteMode {
                durability: Durability::Delayed,
                batch: true,
                accepted: true,
            },
            _ => self,
        }
    }

    /// The mode after the write, which may have too few copies.
    #[must_use]
    pub fn once_written(self, timing: &WriteTiming) -> Self {
        WriteMode {
            accepted: self.accepted || timing.has_few_copies,
            ..self
        }
    }

    /// The mode of a request without `w`: COPY.
    #[must_use]
    pub fn without_w(self) -> Self {
        WriteMode {
            accepted: false,
            ..self
        }
    }

    /// The mode of replicated edits: in CouchDB, nodes that have such a revision count as copies,
    /// so that none is missing.
    #[must_use]
    pub fn of_edits(self, mode: EditMode) -> Self {
        match mode {
            EditMode::Replicated if !self.batch => self.without_w(),
            _ => self,
        }
    }

    pub fn status(&self, deleted: bool) -> u16 {
        match (self.accepted, deleted) {
            (true, _) => 202,
            (false, true) => 200,
            (false, false) => 201,
        }
    }
}
