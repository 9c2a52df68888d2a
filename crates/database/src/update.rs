//! The update pipeline: edits are validated, given their revision id and shard, and queued.

use crate::counters;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use document::{AccessSet, EditDoc, Principals, Rev, RevPath, has_negative_zero, revision_id};
use functions::{Admission, Lane, Requester};
use storage::{Change, Edit, EditAccess, File, ShardEdit, hashed};

use crate::attachments::{HeldContents, MISSING_STUB, ResolvedEdits};
use crate::database::Database;
use crate::leaf_limit::{access_too_long, too_many_leaves};
use crate::reader::Reader;
use crate::refusals::RefusalRoom;
use crate::text::add_lucene_versions;
use crate::validate::{Held, Need, Needs, Validation};
use crate::{Error, partition};

/// The state of a shard with fewer changes is small enough to be loaded on the commit thread.
const SMALL_CHANGES: u64 = 1024;

/// Where a write must be before it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// On disk.
    Synced,
    /// In the log, flushed at least once a second (`batch=ok`, `delayed_commits`).
    Delayed,
    /// On the disks of this number of servers, where there are several.
    Copies(usize),
}

/// Interactive edits check the parent revision and get a new id; replicated ones
/// (`new_edits=false`) add their revisions to the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EditMode {
    /// By a client: the parent revision must be a leaf.
    Interactive,
    /// By a replicator: revisions come with their ids.
    Replicated,
}

/// The outcome of one edit.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// It was applied.
    Ok {
        /// The current revision.
        rev: Rev,
    },
    /// The document is at another revision.
    Conflict,
    /// Error code and reason.
    Refused(Cow<'static, str>, Cow<'static, str>),
}

/// The reason of an edit by a user who may not write the document.
pub(crate) const NOT_A_WRITER: &str = "you may not write this document";

impl Outcome {
    /// Returns the outcome; the texts of a refusal are replaced if the request has no room for them.
    pub(crate) fn kept_in(self, room: &mut RefusalRoom) -> Outcome {
        match self {
            Outcome::Refused(error, reason) => {
                let (error, reason) = room.keep(error, reason);
                Outcome::Refused(error, reason)
            }
            other => other,
        }
    }
}

/// The author of a write, as `validate_doc_update` functions see the user.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// `None` for an anonymous caller.
    pub name: Option<String>,
    /// Roles of the user, `_admin` for server administrators.
    pub roles: Vec<String>,
    /// The requester that the places of functions count to.
    pub requester: Requester,
}

impl Caller {
    /// Whether this is a server administrator.
    pub fn is_server_admin(&self) -> bool {
        self.roles.iter().any(|role| role == "_admin")
    }

    /// The user context object.
    pub(crate) fn json(&self, db: &str) -> Vec<u8> {
        serde_json::json!({"db": db, "name": self.name, "roles": self.roles})
            .to_string()
            .into_bytes()
    }
}

/// The author of edits.
pub(crate) struct Author {
    /// As `validate_doc_update` functions see the author.
    pub caller: Caller,
    /// Whose access sets count; `None` for an author who may write everything.
    pub writer: Option<Reader>,
}

/// The outcomes of edits that their author may not make, with gaps for the others.
type RefusedEdits = Vec<Option<Outcome>>;

/// How edits are committed.
struct Commit<'a> {
    /// The contents of their attachments.
    held: &'a HeldContents,
    mode: EditMode,
    durability: Durability,
    /// The number of the design documents that validated them.
    designs: Option<u64>,
    /// The principals of their writer, if access sets count.
    writer: Option<Arc<Principals>>,
}

/// Time spent in the queue and in the commit, in microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteTiming {
    /// From when it was queued to when its batch began.
    pub wait_us: u64,
    /// From then to when it was on disk or in the log.
    pub commit_us: u64,
    /// Fewer servers have it on disk than requested, where there are several. The others will have
    /// it later.
    pub has_few_copies: bool,
}

impl Database {
    /// Applies the permitted edits: invalid design documents are refused, and so are documents that
    /// a `validate_doc_update` function refuses. Returns one outcome per edit, in order; the
    /// applied ones are committed together. Functions run on a blocking thread of the tokio runtime
    /// that this is called in.
    pub async fn update_as(
        self: &Arc<Self>,
        caller: Caller,
        edits: Vec<EditDoc>,
        mode: EditMode,
        durability: Durability,
    ) -> Result<(Vec<Outcome>, WriteTiming), Error> {
        let author = Author {
            caller,
            writer: None,
        };
        self.update_by(author, edits, mode, durability).await
    }

    /// [`Database::update_as`] by a user who may not write everything.
    pub(crate) async fn update_by(
        self: &Arc<Self>,
        author: Author,
        edits: Vec<EditDoc>,
        mode: EditMode,
        durability: Durability,
    ) -> Result<(Vec<Outcome>, WriteTiming), Error> {
        let done = self.update_by_now(author, edits, mode, durability).await;
        self.lifecycle.explain(done)
    }

    async fn update_by_now(
        self: &Arc<Self>,
        author: Author,
        edits: Vec<EditDoc>,
        mode: EditMode,
        durability: Durability,
    ) -> Result<(Vec<Outcome>, WriteTiming), Error> {
        self.live()?;
        let (edits, refused) = self.admitted(&author, edits, mode).await?;
        self.be_fresh_for(&edits).await?;
        let resolved = self.resolve(completed(edits, mode), mode).await?;
        let done = self
            .update_resolved(author, resolved, mode, durability)
            .await?;
        Ok(with_refused(refused, done))
    }

    /// Returns the edits that their author may make. In a database with access, the outcomes of the
    /// others come with them.
    async fn admitted(
        self: &Arc<Self>,
        author: &Author,
        edits: Vec<EditDoc>,
        mode: EditMode,
    ) -> Result<(Vec<EditDoc>, Option<RefusedEdits>), Error> {
        if !self.has_access() {
            return Ok((edits, None));
        }
        let (edits, refused) = self.admit(edits, mode, author.writer.as_ref()).await?;
        Ok((edits, Some(refused)))
    }

    /// [`Database::update_as`] of edits that came in one request: when one of them has an invalid
    /// attachment, or keeps one that does not exist, none is applied, as in CouchDB.
    ///
    /// # Errors
    /// [`Error::BadRequest`], [`Error::MissingStub`], and those of the update.
    pub async fn update_bulk_as(
        self: &Arc<Self>,
        caller: Caller,
        edits: Vec<EditDoc>,
        mode: EditMode,
        durability: Durability,
    ) -> Result<(Vec<Outcome>, WriteTiming), Error> {
        let author = Author {
            caller,
            writer: None,
        };
        self.update_bulk_by(author, edits, mode, durability).await
    }

    /// [`Database::update_bulk_as`] by a user who may not write everything.
    pub(crate) async fn update_bulk_by(
        self: &Arc<Self>,
        author: Author,
        edits: Vec<EditDoc>,
        mode: EditMode,
        durability: Durability,
    ) -> Result<(Vec<Outcome>, WriteTiming), Error> {
        let done = self.update_bulk_by_now(author, edits, mode, durability);
        self.lifecycle.explain(done.await)
    }

    async fn update_bulk_by_now(
        self: &Arc<Self>,
        author: Author,
        edits: Vec<EditDoc>,
        mode: EditMode,
        durability: Durability,
    ) -> Result<(Vec<Outcome>, WriteTiming), Error> {
        self.live()?;
        let (edits, not_admitted) = self.admitted(&author, edits, mode).await?;
        self.be_fresh_for(&edits).await?;
        let resolved = self.resolve(completed(edits, mode), mode).await?;
        let refused = |name: &str| {
            resolved.0.iter().find_map(|edit| match edit {
                Err(Outcome::Refused(error, reason)) if *error == name => Some(reason.to_string()),
                _ => None,
            })
        };
        if let Some(reason) = refused("bad_request") {
            return Err(Error::BadRequest(reason));
        }
        if let Some(reason) = refused(MISSING_STUB) {
            return Err(Error::MissingStub(reason));
        }
        let done = self
            .update_resolved(author, resolved, mode, durability)
            .await?;
        Ok(with_refused(not_admitted, done))
    }

    /// Refuses clients' edits that the database's properties and limits do not allow.
    async fn refuse_unacceptable(
        self: &Arc<Self>,
        edits: Vec<Result<EditDoc, Outcome>>,
        mode: EditMode,
    ) -> Result<Vec<Result<EditDoc, Outcome>>, Error> {
        self.refuse_overflows(self.refuse_invalid_times(edits, mode), mode)
            .await
    }

    /// Attachments that an edit keeps are looked up here.
    async fn be_fresh_for(&self, edits: &[EditDoc]) -> Result<(), Error> {
        let keeps = |edit: &EditDoc| edit.attachments.is_some() || !edit.files.is_empty();
        match self.sequencer() {
            Some(_) if edits.iter().any(keeps) => self.fresh().await,
            _ => Ok(()),
        }
    }

    async fn update_resolved(
        self: &Arc<Self>,
        Author { caller, writer }: Author,
        (resolved, held): (ResolvedEdits, HeldContents),
        mode: EditMode,
        durability: Durability,
    ) -> Result<(Vec<Outcome>, WriteTiming), Error> {
        let (edits, unresolved) = split(self.refuse_unacceptable(resolved, mode).await?);
        // Found before they are asked: if they are others meanwhile, whoever orders the edits notices.
        let designs = match self.has_sequencer() {
            true => Some(self.designs_hash().await?),
            false => None,
        };
        let mut commit = Commit {
            held: &held,
            mode,
            durability,
            designs,
            writer: writer.map(|writer| writer.user().clone()),
        };
        if !self.needs_validation(&edits) {
            let (done, timing) = self.commit(edits, commit).await?;
            return Ok((join(unresolved, done), timing));
        }
        if commit.designs.is_some() {
            self.fresh().await?;
            commit.designs = Some(self.designs_hash().await?);
        }
        let checked = self.validate(caller, edits, mode).await?;
        let (allowed, refused) = split(checked);
        let (done, timing) = self.commit(allowed, commit).await?;
        Ok((join(unresolved, join(refused, done)), timing))
    }

    /// Applies edits, each with its `id`; `_local/` ids too. Returns one outcome per edit, in
    /// order. Up to 64 edits of up to 256 KiB are committed together: after a crash either all of
    /// them exist or none. More of them are committed in pieces, in their order. Permissions are
    /// not checked.
    pub async fn update(
        self: &Arc<Self>,
        edits: Vec<EditDoc>,
        mode: EditMode,
        durability: Durability,
    ) -> Result<(Vec<Outcome>, WriteTiming), Error> {
        let done = self.update_now(edits, mode, durability).await;
        self.lifecycle.explain(done)
    }

    async fn update_now(
        self: &Arc<Self>,
        edits: Vec<EditDoc>,
        mode: EditMode,
        durability: Durability,
    ) -> Result<(Vec<Outcome>, WriteTiming), Error> {
        self.live()?;
        let (resolved, held) = self.resolve(completed(edits, mode), mode).await?;
        let (edits, unresolved) = split(self.refuse_unacceptable(resolved, mode).await?);
        let commit = Commit {
            held: &held,
            mode,
            durability,
            designs: None,
            writer: None,
        };
        let (done, timing) = self.commit(edits, commit).await?;
        Ok((join(unresolved, done), timing))
    }

    /// The permitted edits, in their final form, and the outcomes of the others. While the caller
    /// waits for a turn or a place, it holds no thread, and nothing that others wait for.
    async fn validate(
        self: &Arc<Self>,
        caller: Caller,
        edits: Vec<EditDoc>,
        mode: EditMode,
    ) -> Result<Vec<Result<EditDoc, Outcome>>, Error> {
        let share = caller.requester.share(self.name());
        let turns = self.slow_writes_for(&caller.requester, &edits);
        let needs = Needs {
            turns: turns.is_some(),
            place: self.needs_place(&edits),
        };
        let admission = |need| match (need, &turns) {
            (Need::Turn, Some(queue)) => queue.admission(&share).patiently(),
            (Need::Place, _) => self.languages().admission(Lane::Writes, &share),
            (Need::Turn | Need::Nothing, _) => Admission::free(),
        };
        let first = edits.first().map_or(Need::Nothing, |e| needs.for_edit(e));
        let held = Held {
            what: first,
            place: admission(first).await?,
        };
        // Dropped with this future, when the caller waits no more.
        let waits = Arc::new(());
        let (db, caller_waits) = (self.clone(), Arc::downgrade(&waits));
        let start = move || Validation::new(db, caller, edits, mode, needs, caller_waits);
        let mut work = blocking(move || {
            let mut validation = start()?;
            let next = validation.go_on(&held)?;
            Ok((validation, next))
        })
        .await?;
        // A request that has begun is not refused, except where it only had a turn.
        let mut is_patient = first != Need::Turn;
        while let (mut validation, Some(need)) = work {
            let next = match is_patient {
                true => admission(need).patiently(),
                false => admission(need),
            };
            let held = Held {
                what: need,
                place: next.await?,
            };
            is_patient |= need != Need::Turn;
            work = blocking(move || {
                let next = validation.go_on(&held)?;
                Ok((validation, next))
            })
            .await?;
        }
        Ok(work.0.into_checked())
    }

    async fn commit(
        self: &Arc<Self>,
        edits: Vec<EditDoc>,
        how: Commit<'_>,
    ) -> Result<(Vec<Outcome>, WriteTiming), Error> {
        if edits.is_empty() {
            return Ok((vec![], WriteTiming::default()));
        }
        let edits = edits
            .into_iter()
            .map(|doc| self.prepare(doc, &how))
            .collect::<Result<Vec<_>, _>>()?;
        if let Some(sequencer) = self.sequencer() {
            let copies = match how.durability {
                Durability::Copies(copies) => Some(copies),
                Durability::Synced | Durability::Delayed => None,
            };
            let (edits, refused) = self.refuse_leaves(edits).await?;
            if edits.is_empty() {
                return Ok((join(refused, vec![]), WriteTiming::default()));
            }
            let done = sequencer.edit(self, edits, copies, how.designs).await;
            // Written is written, whatever became of the shards here.
            let (done, timing) = done.or_else(|e| self.if_live(Err(e)))?;
            return Ok((join(refused, self.as_outcomes(done)), timing));
        }
        let (done, timing) = self.commit_here(edits, how.durability).await?;
        // Deleted meanwhile: the rows are going.
        self.live()?;
        Ok((self.as_outcomes(done), timing))
    }

    fn as_outcomes(&self, outcomes: Vec<storage::Outcome>) -> Vec<Outcome> {
        let mut refusals = RefusalRoom::new();
        let outcomes = outcomes.into_iter().map(|outcome| match outcome {
            storage::Outcome::Written(rev) => Outcome::Ok { rev },
            storage::Outcome::Conflict => Outcome::Conflict,
            storage::Outcome::TooManyLeaves if self.has_access() => {
                access_too_long().kept_in(&mut refusals)
            }
            storage::Outcome::TooManyLeaves => {
                too_many_leaves(self.limits().leaves_max).kept_in(&mut refusals)
            }
            storage::Outcome::NotPermitted => {
                Outcome::Refused("forbidden".into(), NOT_A_WRITER.into())
            }
        });
        outcomes.collect()
    }

    async fn commit_here(
        &self,
        edits: Vec<ShardEdit>,
        durability: Durability,
    ) -> Result<(Vec<storage::Outcome>, WriteTiming), Error> {
        self.load().await?;
        let synced = durability != Durability::Delayed;
        let done = self
            .store()
            .committer
            .edit(edits, self.limits(), synced)
            .await;
        let (outcomes, timing) = done.map_err(|_| Error::ShuttingDown)??;
        let timing = WriteTiming {
            wait_us: timing.wait_us,
            commit_us: timing.commit_us,
            has_few_copies: false,
        };
        Ok((outcomes, timing))
    }

    /// Loads data that the first write after opening needs, on another thread than the one that
    /// writes for all databases.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn load(&self) -> Result<(), Error> {
        if self.is_loaded.load(Relaxed) {
            return Ok(());
        }
        let shards = self.all_shards().to_vec();
        let is_small = shards.iter().all(|s| s.meta().update_seq < SMALL_CHANGES);
        let load = move || {
            let loaded = shards.iter().try_for_each(|shard| shard.load());
            loaded.map_err(Error::from)
        };
        match tokio::runtime::Handle::try_current() {
            Ok(_) if !is_small => {
                let turn = self.loading.clone().lock_owned().await;
                if self.is_loaded.load(Relaxed) {
                    return Ok(());
                }
                let load_in_turn = move || {
                    let _turn = turn;
                    load()
                };
                blocking(load_in_turn).await?;
            }
            _ => load()?,
        }
        self.is_loaded.store(true, Relaxed);
        Ok(())
    }

    fn prepare(&self, doc: EditDoc, how: &Commit<'_>) -> Result<ShardEdit, Error> {
        let (held, mode) = (how.held, how.mode);
        let path = doc.rev_path();
        let access = self.has_access().then(|| {
            Box::new(EditAccess {
                // An invalid one was refused, unless an admin's program wrote it.
                set: AccessSet::of_body(&doc.body).unwrap_or_default(),
                writer: how.writer.clone(),
            })
        });
        let Some(id) = doc.id else {
            return Err(Error::BadRequest("an edit needs an `_id`".into()));
        };
        let shard = self.shard_index(id.as_str());
        let home = self.homes().of_shard(shard).home();
        let files: Vec<File> = doc
            .files
            .into_iter()
            .map(|attachment| File {
                content: held.get(&(home, attachment.content)).cloned(),
                attachment,
            })
            .collect();
        if self.is_partitioned() {
            partition::check_id(&id)?;
        }
        let change = if id.is_local() {
            counters::LOCAL_WRITES.count();
            Change::Local {
                rev: (!doc.deleted).then(|| next_local_rev(doc.rev.as_ref())),
            }
        } else if mode == EditMode::Interactive {
            interactive(path, doc.deleted, doc.body_term, &files)
        } else {
            let path = path.ok_or_else(|| {
                Error::BadRequest(
                    "When `new_edits: false`, the document needs `_rev` or `_revisions` specified"
                        .into(),
                )
            })?;
            Change::Replicated { path }
        };
        Ok(ShardEdit {
            shard: self.all_shards()[shard].clone(),
            edit: Edit {
                id,
                deleted: doc.deleted,
                body: doc.body,
                files,
                home,
                access,
                change,
            },
        })
    }
}

fn interactive(path: Option<RevPath>, deleted: bool, body_term: Vec<u8>, files: &[File]) -> Change {
    let parent = path.and_then(|p| p.newest());
    let rev = revision_id(deleted, parent.as_ref(), &body_term, &hashed(files));
    Change::Interactive {
        parent,
        rev,
        // It is as large as the body, and needed seldom.
        body_term: has_negative_zero(&body_term).then_some(body_term),
    }
}

/// Adds the members that clients' edits get.
fn completed(mut edits: Vec<EditDoc>, mode: EditMode) -> Vec<EditDoc> {
    if mode == EditMode::Interactive {
        add_lucene_versions(&mut edits);
    }
    edits
}

/// Does work on a thread for it.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| Error::ShuttingDown)?
}

/// Divides checked edits into those that remain and the outcomes of the others, with gaps for the
/// former.
fn split(checked: Vec<Result<EditDoc, Outcome>>) -> (Vec<EditDoc>, Vec<Option<Outcome>>) {
    let mut edits = Vec::with_capacity(checked.len());
    let mut outcomes = Vec::with_capacity(checked.len());
    for checked in checked {
        match checked {
            Ok(edit) => {
                edits.push(edit);
                outcomes.push(None);
            }
            Err(outcome) => outcomes.push(Some(outcome)),
        }
    }
    (edits, outcomes)
}

/// Adds the outcomes of edits that were refused before the others were made.
fn with_refused(
    refused: Option<RefusedEdits>,
    (done, timing): (Vec<Outcome>, WriteTiming),
) -> (Vec<Outcome>, WriteTiming) {
    match refused {
        None => (done, timing),
        Some(refused) => (join(refused, done), timing),
    }
}

/// Fills the gaps that [`split`] left.
fn join(outcomes: Vec<Option<Outcome>>, done: Vec<Outcome>) -> Vec<Outcome> {
    let mut done = done.into_iter();
    let fill = |outcome: Option<Outcome>| outcome.or_else(|| done.next());
    outcomes.into_iter().filter_map(fill).collect()
}

/// Returns the next revision of a local document: they count `0-1`, `0-2`, …, from the revision
/// that the client sends.
fn next_local_rev(rev: Option<&Rev>) -> u64 {
    rev.and_then(|r| std::str::from_utf8(r.hash.as_bytes()).ok())
        .and_then(|n| n.parse::<u64>().ok())
        .map_or(1, |n| n.saturating_add(1))
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;
    use crate::{CreateOptions, Databases, Options};

    #[tokio::test]
    async fn first_writes_wait_without_threads_for_the_one_that_loads() {
        let folder = tempfile::tempdir().unwrap();
        let databases = Databases::open(folder.path(), Options::default()).unwrap();
        let options = CreateOptions {
            q: Some(1),
            ..CreateOptions::default()
        };
        let db = databases.create("db", options).await.unwrap();
        let doc =
            |n: u64| document::parse_document(format!(r#"{{"_id":"{n}"}}"#).as_bytes()).unwrap();
        let docs = (0..SMALL_CHANGES).map(doc).collect();
        db.update(docs, EditMode::Interactive, Durability::Synced)
            .await
            .unwrap();
        db.is_loaded.store(false, Relaxed);
        let turn = db.loading.clone().lock_owned().await;
        let mut writes: Vec<_> = (0..20).map(|_| Box::pin(db.load())).collect();
        let mut context = Context::from_waker(Waker::noop());
        for write in &mut writes {
            assert!(write.as_mut().poll(&mut context).is_pending());
        }
        // As the one that loads does.
        db.is_loaded.store(true, Relaxed);
        drop(turn);
        for write in &mut writes {
            assert!(write.as_mut().poll(&mut context).is_ready());
        }
        drop(writes);
        databases.close();
    }
}
