//! Rules of the server's own databases (`_users`, `_replicator`): who may write which documents,
//! and which parts of them each user sees. The crates that keep such databases define the rules;
//! this module applies them.

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::Arc;

use document::{DocId, EditDoc, Principals, Rev, RevTree};
use fair_queue::{Limits, Queue};
use functions::{Requester, SLICE, Share};
use tokio::sync::watch;

use crate::Error;
use crate::changes::{Changes, ChangesQuery};
use crate::database::{Database, RevsDiff};
use crate::read::{Read, ReadDoc, ReadOptions};
use crate::reader::Reader;
use crate::rows::{Rows, RowsQuery};
use crate::security::SecurityObject;
use crate::text::TextIndex;
use crate::update::{Author, Caller, Durability, EditMode, Outcome, WriteTiming};
use crate::views::{Design, ViewAt, ViewIndex, ViewQuery, ViewRows};

/// Requests whose slow edits are checked at a time, for one database with rules: rules hash
/// passwords, and must not take all threads for blocking work.
const SLOW_WRITES_MAX: usize = 3;
/// Maximum number of those of one user, and never more than half of the processors: as for logins.
const SLOW_WRITES_OF_USER_MAX: usize = 2;
/// Server admins and the background have places of their own: no number of users delays them.
const SLOW_WRITES_OF_ADMINS_MAX: usize = 2;

/// The rules of some databases. Set by [`Databases::add_rules`](crate::Databases::add_rules).
pub trait SystemRules: Send + Sync {
    /// Whether the database of this name has these rules. Called when it is opened or created, and
    /// by [`Databases::ask_rules_again`](crate::Databases::ask_rules_again). A database keeps its
    /// rules until it is opened again.
    fn concerns(&self, db: &str) -> bool;

    /// Refuses an edit, or returns an edit to write in its place ([`EditDoc::with_body`]). Called
    /// for every edit through [`Database::update_as`], also replicated ones, local and design
    /// documents, before `validate_doc_update` functions. May block.
    ///
    /// # Errors
    /// The refusal.
    fn before_write(
        &self,
        context: &CallerContext<'_>,
        before: PriorDocument<'_>,
        edit: EditDoc,
    ) -> Result<EditDoc, Refusal>;

    /// Whether [`SystemRules::before_write`] may be slow for this edit. Such an edit waits for the
    /// turn of its request, which gives the turn to others between two of them.
    fn is_slow(&self, _edit: &EditDoc) -> bool {
        false
    }

    /// How many slow edits one request of this caller may have, and the reason for refusing further
    /// ones. `None`: any number.
    fn slow_edits_max(&self, _context: &CallerContext<'_>) -> Option<(usize, &'static str)> {
        None
    }

    /// Whether the caller sees every document unchanged: then [`SystemRules::after_read`] is not
    /// called.
    fn shows_all(&self, context: &CallerContext<'_>) -> bool;

    /// The part of a document that the caller sees. `json` is its whole text, with `_id`, `_rev`
    /// and the requested members.
    fn after_read(&self, context: &CallerContext<'_>, id: &str, json: &[u8]) -> Visibility;

    /// Whether the caller may learn if a document of this id exists, or existed. Otherwise its
    /// edits are judged as those of a new document, and are conflicts where there is one.
    fn may_know(&self, _context: &CallerContext<'_>, _id: &str) -> bool {
        true
    }

    /// Called before a write to a database under these rules, its creation or deletion is
    /// acknowledged. Must be quick.
    fn changed(&self, _db: &str) {}
}

/// A caller and the read that it requests.
pub struct CallerContext<'a> {
    /// Name of the database.
    pub db: &'a str,
    /// The caller.
    pub caller: &'a Caller,
    /// The database's security object.
    pub security: &'a SecurityObject,
}

/// The document before an edit.
#[derive(Clone, Copy, Debug)]
pub enum PriorDocument<'a> {
    /// It does not exist, is deleted, or is local.
    Nothing,
    /// Its whole text.
    Was(&'a [u8]),
    /// The edit will be answered as a conflict, so it matters only whether this caller may try it.
    Conflict,
}

/// Why an edit may not be made: error code and reason, as in [`Outcome::Refused`](crate::Outcome::Refused).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// CouchDB's word for the error.
    pub error: Cow<'static, str>,
    /// Why, for the client.
    pub reason: String,
}

/// The visible part of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// All of it.
    Whole,
    /// This text in place of it.
    Instead(Vec<u8>),
    /// As if it were not there.
    Hidden,
    /// A read of this document alone is refused with this reason; among others it is hidden.
    Forbidden(&'static str),
}

/// A database as a caller sees it: reads return what its rules and the access sets of its documents
/// let this caller see; everything else is the database's own. A database without rules and access
/// pays a branch for each.
#[derive(Clone)]
pub struct DatabaseAs {
    db: Arc<Database>,
    watch: Option<Watch>,
    /// In a database with access: the caller, unless it is an admin.
    reader: Option<Reader>,
    requester: Requester,
}

/// The reason of a request that access sets do not cover.
const NOT_COVERED: &str = "only admins of a database with access by document can do this";

/// Rules applied to the reads of one caller.
#[derive(Clone)]
pub(crate) struct Watch {
    rules: Arc<dyn SystemRules>,
    db: Arc<str>,
    caller: Arc<Caller>,
    security: Arc<SecurityObject>,
}

impl Watch {
    fn context(&self) -> CallerContext<'_> {
        CallerContext {
            db: &self.db,
            caller: &self.caller,
            security: &self.security,
        }
    }

    fn may_know(&self, id: &str) -> bool {
        self.rules.may_know(&self.context(), id)
    }

    fn shown(&self, id: &str, json: &[u8]) -> Visibility {
        self.rules.after_read(&self.context(), id, json)
    }

    /// Replaces the document that `out` holds from `start` on by its visible part, `null` for
    /// nothing.
    pub(crate) fn censor(&self, id: &str, start: usize, out: &mut Vec<u8>) {
        let shown = match self.shown(id, &out[start..]) {
            Visibility::Whole => return,
            Visibility::Instead(json) => json,
            Visibility::Hidden | Visibility::Forbidden(_) => b"null".to_vec(),
        };
        out.truncate(start);
        out.extend_from_slice(&shown);
    }

    /// For functions and selectors: a document of which nothing is shown has no members for them.
    pub(crate) fn censor_for_filter(&self, id: &str, out: &mut Vec<u8>) {
        self.censor(id, 0, out);
        if out == b"null" {
            *out = b"{}".to_vec();
        }
    }
}

/// The turns of requests with slow edits, for a database with rules.
#[derive(Debug)]
pub(crate) struct SlowWrites {
    of_users: Arc<Queue>,
    of_admins: Arc<Queue>,
}

impl Default for SlowWrites {
    fn default() -> SlowWrites {
        let queue = |places, of_user| {
            Queue::new(Limits {
                of_user,
                slice: SLICE,
                ..Limits::new(places)
            })
        };
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let of_user = (processors / 2).clamp(1, SLOW_WRITES_OF_USER_MAX);
        SlowWrites {
            of_users: queue(SLOW_WRITES_MAX, of_user),
            of_admins: queue(SLOW_WRITES_OF_ADMINS_MAX, SLOW_WRITES_OF_ADMINS_MAX),
        }
    }
}

impl Database {
    /// Returns the turns that a request with these edits needs; `None` if none of them is slow.
    pub(crate) fn slow_writes_for(
        &self,
        requester: &Requester,
        edits: &[EditDoc],
    ) -> Option<Arc<Queue>> {
        let rules = self.rules()?;
        if !edits.iter().any(|edit| rules.is_slow(edit)) {
            return None;
        }
        let turns = self.slow_writes.get_or_init(SlowWrites::default);
        Some(match requester {
            Requester::Client(_) => turns.of_users.clone(),
            Requester::Admin | Requester::Background => turns.of_admins.clone(),
        })
    }
}

impl Database {
    /// Returns this database as `caller` sees it. In a database with access, a caller who is not a
    /// server admin sees documents by their access sets, until [`DatabaseAs::as_admin`].
    pub fn seen_by(self: &Arc<Self>, caller: impl Fn() -> Caller) -> DatabaseAs {
        let watch = self.rules().map(|rules| Watch {
            rules: rules.clone(),
            db: self.name().clone(),
            caller: Arc::new(caller()),
            security: self.security_object(),
        });
        let watch = watch.filter(|watch| !watch.rules.shows_all(&watch.context()));
        let reader = self.access().and_then(|access| {
            let caller = caller();
            let is_admin = caller.is_server_admin();
            (!is_admin).then(|| Reader::new(access, caller.name.as_deref(), &caller.roles))
        });
        DatabaseAs {
            db: self.clone(),
            watch,
            reader,
            requester: Requester::Background,
        }
    }
}

impl Database {
    /// This database without a caller: its rules hide nothing.
    pub(crate) fn unwatched(self: &Arc<Self>) -> DatabaseAs {
        DatabaseAs {
            db: self.clone(),
            watch: None,
            reader: None,
            requester: Requester::Background,
        }
    }
}

impl DatabaseAs {
    /// Lets the work for this caller count to a requester.
    #[must_use]
    pub fn for_requester(self, requester: Requester) -> DatabaseAs {
        DatabaseAs { requester, ..self }
    }

    /// Lets the caller, an admin of the database, see and change all documents.
    #[must_use]
    pub fn as_admin(self) -> DatabaseAs {
        DatabaseAs {
            reader: None,
            ..self
        }
    }

    /// Whether the caller sees documents by their access sets.
    pub fn is_limited(&self) -> bool {
        self.reader.is_some()
    }

    /// Refuses a caller who sees documents by their access sets, for operations that they do not cover.
    pub(crate) fn refuse_limited(&self) -> Result<(), Error> {
        match self.is_limited() {
            true => Err(Error::Forbidden(NOT_COVERED)),
            false => Ok(()),
        }
    }

    /// The caller's principals, if it sees documents by their access sets.
    pub fn principals(&self) -> Option<&Principals> {
        self.reader.as_ref().map(|reader| &**reader.user())
    }

    /// [`Database::watch`]; for a caller who sees documents by their access sets, the value changes
    /// after commits that the caller's feeds show.
    pub fn watch(&self) -> watch::Receiver<u64> {
        match &self.reader {
            None => self.db.watch(),
            Some(reader) => self.db.watch_rows_of(reader.user()),
        }
    }

    pub(crate) fn reader(&self) -> Option<&Reader> {
        self.reader.as_ref()
    }

    fn author(&self, caller: Caller) -> Author {
        Author {
            caller,
            writer: self.reader.clone(),
        }
    }

    /// [`Database::update_as`]; edits that the access sets of their documents forbid are refused.
    ///
    /// # Errors
    /// Errors of the update.
    pub async fn update_as(
        &self,
        caller: Caller,
        edits: Vec<EditDoc>,
        mode: EditMode,
        durability: Durability,
    ) -> Result<(Vec<Outcome>, WriteTiming), Error> {
        let author = self.author(caller);
        self.db.update_by(author, edits, mode, durability).await
    }

    /// [`Database::update_bulk_as`]; edits that the access sets of their documents forbid are
    /// refused.
    ///
    /// # Errors
    /// Errors of the update.
    pub async fn update_bulk_as(
        &self,
        caller: Caller,
        edits: Vec<EditDoc>,
        mode: EditMode,
        durability: Durability,
    ) -> Result<(Vec<Outcome>, WriteTiming), Error> {
        let author = self.author(caller);
        self.db
            .update_bulk_by(author, edits, mode, durability)
            .await
    }

    /// The requester that the work for this caller counts to.
    pub fn requester(&self) -> &Requester {
        &self.requester
    }

    /// [`Database::update_view`]
    ///
    /// # Errors
    /// The update failed.
    pub async fn update_view(&self, index: &Arc<ViewIndex>) -> Result<(), Error> {
        self.db.update_view(index, &self.requester).await
    }

    /// [`Database::update_view_later`]
    pub fn update_view_later(&self, index: &Arc<ViewIndex>) {
        self.db.update_view_later(index, &self.requester);
    }

    /// [`Database::update_text`]
    ///
    /// # Errors
    /// The update failed.
    pub async fn update_text(&self, index: &Arc<TextIndex>) -> Result<(), Error> {
        self.db.update_text(index, &self.requester).await
    }

    /// The share of places that the caller's work in this database counts to.
    pub fn share(&self) -> Share {
        self.requester.share(self.db.name())
    }
}

impl Deref for DatabaseAs {
    type Target = Arc<Database>;

    fn deref(&self) -> &Arc<Database> {
        &self.db
    }
}

impl DatabaseAs {
    pub(crate) fn has_watch(&self) -> bool {
        self.watch.is_some()
    }

    /// [`Database::read`]
    ///
    /// # Errors
    /// Errors of the read, and [`Error::Forbidden`].
    pub fn read(&self, id: &DocId, options: &ReadOptions) -> Result<Read, Error> {
        let read = match &self.reader {
            None => self.db.read(id, options)?,
            Some(reader) => self.read_visible(reader, id, options)?,
        };
        let Some(watch) = &self.watch else {
            return Ok(read);
        };
        let doc = match &read {
            Read::Found(doc) => doc,
            Read::Deleted if !watch.may_know(id.as_str()) => return Ok(Read::Missing),
            Read::Deleted | Read::Missing => return Ok(read),
        };
        Ok(match watch.shown(id.as_str(), &doc.json) {
            Visibility::Whole => read,
            Visibility::Instead(json) => Read::Found(ReadDoc {
                json,
                attachments: vec![],
                ..doc.clone()
            }),
            Visibility::Hidden => Read::Missing,
            Visibility::Forbidden(reason) => return Err(Error::Forbidden(reason)),
        })
    }

    /// [`Database::revs_diff`]; of a document that is not shown all revisions are missing.
    ///
    /// # Errors
    /// Errors of the reads.
    pub fn revs_diff(&self, id: &str, revs: &[Rev]) -> Result<Option<RevsDiff>, Error> {
        if let Some(reader) = &self.reader {
            return self.revs_diff_visible(reader, id, revs);
        }
        if self.watch.is_none() || self.shows(id)? {
            return self.db.revs_diff(id, revs);
        }
        let missing = RevTree::new().missing(revs);
        Ok((!missing.is_empty()).then_some(RevsDiff {
            missing,
            possible_ancestors: vec![],
        }))
    }

    /// Returns whether the caller must not learn that a document exists.
    pub(crate) fn hides(&self, id: &str) -> Result<bool, Error> {
        Ok(self.watch.is_some() && !self.shows(id)?)
    }

    /// Whether anything of a document is shown.
    fn shows(&self, id: &str) -> Result<bool, Error> {
        let Ok(id) = DocId::new(id) else {
            return Ok(true);
        };
        match self.read(&id, &ReadOptions::default()) {
            Ok(Read::Found(_) | Read::Deleted) => Ok(true),
            Ok(Read::Missing) | Err(Error::Forbidden(_)) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Returns the visible part of a found revision: a hidden one is missing.
    pub(crate) fn shown_rev(&self, found: Result<ReadDoc, Rev>) -> Result<ReadDoc, Rev> {
        let (Some(watch), Ok(doc)) = (&self.watch, &found) else {
            return found;
        };
        match watch.shown(doc.id.as_str(), &doc.json) {
            Visibility::Whole => found,
            Visibility::Instead(json) => Ok(ReadDoc {
                json,
                attachments: vec![],
                ..doc.clone()
            }),
            Visibility::Hidden | Visibility::Forbidden(_) => Err(doc.rev.clone()),
        }
    }

    /// [`Database::rows`]
    ///
    /// # Errors
    /// Errors of the listing.
    pub fn rows(&self, query: RowsQuery) -> Result<Rows, Error> {
        let mut rows = self.db.rows_for(query, self.reader.as_ref())?;
        rows.watch = self.watch.clone();
        Ok(rows)
    }

    /// [`Database::start_rows`]
    ///
    /// # Errors
    /// Errors of the listing.
    pub fn start_rows(&self, query: RowsQuery) -> Result<Rows, Error> {
        let mut rows = self.db.start_rows_for(query, self.reader.as_ref())?;
        rows.watch = self.watch.clone();
        Ok(rows)
    }

    /// [`Database::changes`]
    ///
    /// # Errors
    /// Errors of the feed.
    pub fn changes(&self, query: ChangesQuery) -> Result<Changes, Error> {
        let mut changes = self.db.changes_for(query, self.reader.as_ref())?;
        changes.watch = self.watch.clone();
        changes.requester = self.requester.clone();
        Ok(changes)
    }

    /// [`Database::view_rows`]
    ///
    /// # Errors
    /// Errors of the query.
    pub fn view_rows(
        &self,
        design: &Design,
        index: &ViewIndex,
        at: ViewAt,
        query: ViewQuery,
    ) -> Result<ViewRows, Error> {
        let reader = self.reader.as_ref();
        let mut rows = self.db.view_rows_for(design, index, at, query, reader)?;
        rows.seen = self.clone();
        Ok(rows)
    }
}
