//! From the entries of an edit's `_attachments` to attachments whose content is stored.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use document::{Attachment, ContentId, DocId, EditDoc, Rev, StoredBody};
use rustc_hash::FxHashMap;
use serde::Deserialize;
use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde_json::value::RawValue;
use storage::{Content, Contents, Record, ShardNumber};

use super::{check_name, sink};
use crate::Error;
use crate::database::Database;
use crate::last_record::LastRecord;
use crate::refusals::RefusalRoom;
use crate::turn::Turn;
use crate::update::{EditMode, Outcome, blocking};

/// Contents that are kept until the edits that name them are committed, by the shard under which they are.
pub(crate) type HeldContents = FxHashMap<(ShardNumber, ContentId), Content>;

/// Error of an edit that keeps a missing attachment.
pub(crate) const MISSING_STUB: &str = "missing_stub";

/// Longer texts about attachments, in bytes, are not resolved on the thread that serves.
const SHORT_BYTES_MAX: usize = 64 << 10;

/// The outcome of each edit.
pub(crate) type ResolvedEdits = Vec<Result<EditDoc, Outcome>>;

impl Database {
    /// Puts into [`EditDoc::files`] the attachments that each edit's document will have: those uploaded, those inline, and
    /// those kept from the revision that it replaces.
    pub(crate) async fn resolve(
        self: &Arc<Self>,
        edits: Vec<EditDoc>,
        mode: EditMode,
    ) -> Result<(ResolvedEdits, HeldContents), Error> {
        if !edits.iter().any(has_attachments) {
            let edits = edits.into_iter().map(Ok).collect();
            return Ok((edits, HeldContents::default()));
        }
        let mut resolution = Resolution::new(self.clone(), edits, mode)?;
        loop {
            let thread = resolution.next_thread();
            let piece = move || -> Result<(Resolution, bool), Error> {
                let more = resolution.go_on(thread, Turn::begin())?;
                Ok((resolution, more))
            };
            let (rest, more) = match thread {
                PieceThread::Serving => piece()?,
                PieceThread::Blocking => blocking(piece).await?,
                PieceThread::LowPriority => self.run_low_priority(piece).await?,
            };
            if !more {
                return Ok((rest.done, rest.held));
            }
            resolution = rest;
        }
    }
}

fn has_attachments(edit: &EditDoc) -> bool {
    edit.attachments.is_some() || !edit.files.is_empty()
}

/// The kind of thread that a piece of a resolution runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PieceThread {
    /// The thread that serves the request.
    Serving,
    /// One that may store content, and wait for others.
    Blocking,
    /// One for slow reads.
    LowPriority,
}

/// The attachments of one request's edits, which are resolved in pieces: a stub takes a read of its document's revision tree,
/// which can be large. Nothing continues for a client that has gone.
struct Resolution {
    db: Arc<Database>,
    mode: EditMode,
    todo: std::vec::IntoIter<EditDoc>,
    done: ResolvedEdits,
    held: HeldContents,
    /// Whether the contents of all files that the edits bring are where those of their documents are.
    all_here: bool,
    /// Whether the first piece may run on the thread that serves.
    is_short: bool,
    /// Whether the edit that follows the last piece stores content.
    next_stores: bool,
    refusals: RefusalRoom,
    recent: Recent,
}

impl Resolution {
    fn new(db: Arc<Database>, edits: Vec<EditDoc>, mode: EditMode) -> Result<Resolution, Error> {
        let mut held = HeldContents::default();
        let all_here = hold_given(&db, &edits, &mut held)?;
        let said_bytes = |edit: &EditDoc| edit.attachments.as_ref().map_or(0, |said| said.len());
        let is_short = edits.iter().map(said_bytes).sum::<usize>() <= SHORT_BYTES_MAX;
        let mut resolution = Resolution {
            db,
            mode,
            done: Vec::with_capacity(edits.len()),
            todo: edits.into_iter(),
            held,
            all_here,
            is_short,
            next_stores: false,
            refusals: RefusalRoom::new(),
            recent: Recent::default(),
        };
        if is_short {
            let edits = resolution.todo.as_slice();
            let stores = edits.iter().any(|edit| resolution.stores(edit));
            resolution.is_short = !stores;
        }
        Ok(resolution)
    }

    /// Returns whether an edit stores content, which takes time and may wait for others; the rest are a few reads.
    fn stores(&self, edit: &EditDoc) -> bool {
        let said = edit.attachments.as_deref().unwrap_or_default();
        let is_copied = !self.all_here && !edit.files.is_empty();
        is_copied || said.windows(6).any(|text| text == b"\"data\"")
    }

    /// Returns where the next piece runs.
    fn next_thread(&self) -> PieceThread {
        let is_first = self.done.is_empty();
        if is_first && self.is_short {
            PieceThread::Serving
        } else if is_first || self.next_stores {
            PieceThread::Blocking
        } else {
            PieceThread::LowPriority
        }
    }

    /// Resolves edits until the turn is over, at least one. Returns whether some are left.
    fn go_on(&mut self, thread: PieceThread, mut turn: Turn) -> Result<bool, Error> {
        let elsewhere = match thread {
            PieceThread::Blocking => Elsewhere::IsCopied,
            PieceThread::Serving | PieceThread::LowPriority => Elsewhere::IsNotThere,
        };
        while let Some(next) = self.todo.as_slice().first() {
            if thread == PieceThread::LowPriority && self.stores(next) {
                break;
            }
            let Some(mut edit) = self.todo.next() else {
                break;
            };
            let takes_reads = has_attachments(&edit);
            let refusal = self.resolve_one(&mut edit, elsewhere)?;
            self.done.push(match refusal {
                None => Ok(edit),
                Some(outcome) => Err(outcome.kept_in(&mut self.refusals)),
            });
            if turn.is_over(takes_reads) {
                break;
            }
        }
        let next = self.todo.as_slice().first();
        self.next_stores = next.is_some_and(|next| self.stores(next));
        // They take no memory while the next piece waits for its thread.
        self.recent = Recent::default();
        Ok(self.todo.len() > 0)
    }

    fn resolve_one(
        &mut self,
        edit: &mut EditDoc,
        elsewhere: Elsewhere,
    ) -> Result<Option<Outcome>, Error> {
        if !has_attachments(edit) {
            return Ok(None);
        }
        let said = edit.attachments.take();
        let Some(id) = edit.id.clone().filter(|id| !id.is_local()) else {
            edit.files.clear();
            return Ok(None);
        };
        let entries = match &said {
            Some(said) => read_entries(said)?,
            None => vec![],
        };
        let count_max = self.db.attachment_options().read().count_max;
        if (entries.len().max(edit.files.len())) as u64 > count_max {
            edit.files.clear();
            return Ok(Some(too_many(count_max)));
        }
        let mut resolving = Resolving {
            db: &self.db,
            id: &id,
            contents: self.db.contents_of(id.as_str()),
            mode: self.mode,
            held: &mut self.held,
            elsewhere,
            parent: None,
            recent: &mut self.recent,
        };
        let mut given = EditAttachments::new(std::mem::take(&mut edit.files));
        let mut files = Vec::with_capacity(entries.len());
        for (name, entry) in entries {
            if let Err(reason) = check_name(&name) {
                return Ok(Some(refused(reason)));
            }
            let file = match given.take(&name) {
                Some(file) => Ok(file),
                None => resolving.attachment(name.into_owned(), &entry, edit)?,
            };
            match file {
                Ok(file) => files.push(file),
                Err(outcome) => return Ok(Some(outcome)),
            }
        }
        let mut given = given.rest();
        given.append(&mut files);
        if given.len() as u64 > count_max {
            return Ok(Some(too_many(count_max)));
        }
        for file in &given {
            if !resolving.hold(file)? {
                return Ok(Some(missing_stub(&id, &file.name)));
            }
        }
        edit.files = given;
        Ok(None)
    }
}

/// Keeps the contents of the files that the edits bring; false when one is not where its document's contents are.
fn hold_given(db: &Database, edits: &[EditDoc], held: &mut HeldContents) -> Result<bool, Error> {
    let mut all_here = true;
    for edit in edits.iter().filter(|edit| !edit.files.is_empty()) {
        let Some(id) = edit.id.as_ref().filter(|id| !id.is_local()) else {
            continue;
        };
        let contents = db.contents_of(id.as_str());
        for file in &edit.files {
            all_here &= hold(contents, file, held)?;
        }
    }
    Ok(all_here)
}

/// Recent reads, for the next edits of the same documents.
#[derive(Default)]
struct Recent {
    record: LastRecord,
    /// The attachments that the body of a change names, with its shard and seq.
    attachments: Option<((ShardNumber, u64), Arc<AttachmentsByName>)>,
}

/// A document may have 100,000 of them.
type AttachmentsByName = FxHashMap<String, Attachment>;

/// The state of a file whose content only other shards have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Elsewhere {
    /// Its content is being copied, on a thread for slow work.
    IsCopied,
    IsNotThere,
}

/// Keeps a file's content, if it exists.
fn hold(
    contents: &Arc<Contents>,
    file: &Attachment,
    held: &mut HeldContents,
) -> Result<bool, Error> {
    let key = (contents.home(), file.content);
    if held.contains_key(&key) {
        return Ok(true);
    }
    let Some(content) = contents.hold(&file.content)? else {
        return Ok(false);
    };
    held.insert(key, content);
    Ok(true)
}

/// The attachments of one edit.
struct Resolving<'a> {
    db: &'a Database,
    id: &'a DocId,
    /// Where the contents of the document's attachments are.
    contents: &'a Arc<Contents>,
    mode: EditMode,
    held: &'a mut HeldContents,
    elsewhere: Elsewhere,
    /// Read when it is first needed.
    parent: Option<Parent>,
    recent: &'a mut Recent,
}

/// Attachments that came with an edit, by name.
struct EditAttachments {
    files: Vec<Option<Attachment>>,
    /// The positions of each name, the first one last.
    by_name: FxHashMap<String, Vec<usize>>,
}

impl EditAttachments {
    fn new(files: Vec<Attachment>) -> EditAttachments {
        let mut by_name: FxHashMap<String, Vec<usize>> = FxHashMap::default();
        for (position, file) in files.iter().enumerate().rev() {
            let name = file.name.to_string();
            by_name.entry(name).or_default().push(position);
        }
        EditAttachments {
            files: files.into_iter().map(Some).collect(),
            by_name,
        }
    }

    fn take(&mut self, name: &str) -> Option<Attachment> {
        let position = self.by_name.get_mut(name)?.pop()?;
        self.files[position].take()
    }

    /// Returns those that were not taken.
    fn rest(self) -> Vec<Attachment> {
        self.files.into_iter().flatten().collect()
    }
}

/// The revision whose attachments stubs stand for.
enum Parent {
    None,
    /// Its attachments.
    Is(Arc<AttachmentsByName>),
    /// The revision is there with its body, and its attachments with it.
    Known,
    Conflict,
}

impl Resolving<'_> {
    /// Keeps the file's content; copies it if it belongs to another document. Returns false if it
    /// does not exist.
    fn hold(&mut self, file: &Attachment) -> Result<bool, Error> {
        if hold(self.contents, file, self.held)? {
            return Ok(true);
        }
        if self.elsewhere == Elsewhere::IsNotThere {
            return Ok(false);
        }
        let Some(copy) = self.db.homes().copy_to(self.contents, &file.content)? else {
            return Ok(false);
        };
        self.keep(copy);
        Ok(true)
    }

    fn keep(&mut self, content: Content) {
        self.held
            .insert((self.contents.home(), content.id), content);
    }

    fn attachment(
        &mut self,
        name: String,
        entry: &Entry<'_>,
        edit: &EditDoc,
    ) -> Result<Result<Attachment, Outcome>, Error> {
        if entry.is_true("stub") {
            return self.kept(name, entry, edit);
        }
        if entry.is_true("follows") {
            return Ok(Err(refused(format!(
                "The content of attachment {name} does not follow"
            ))));
        }
        let content_type = match entry.get("content_type") {
            None => Cow::Borrowed("application/octet-stream"),
            Some(raw) => match serde_json::from_str::<Cow<'_, str>>(raw.get()) {
                Ok(content_type) => content_type,
                Err(_) => {
                    let reason = format!("The content_type of attachment {name} is not a string");
                    return Ok(Err(refused(reason)));
                }
            },
        };
        let Some(bytes) = entry.data() else {
            return Ok(Err(refused(format!("Invalid attachment data for {name}"))));
        };
        let (level, bytes_max) = {
            let options = self.db.attachment_options().read();
            let gzips = options.compresses(&content_type);
            (
                gzips.then_some(options.compression_level),
                options.bytes_max,
            )
        };
        if bytes.len() as u64 > bytes_max {
            return Ok(Err(too_large(format!(
                "{name}: the attachment exceeds max_attachment_size ({bytes_max})"
            ))));
        }
        let uploaded = sink::store(self.contents.upload(), level, &bytes)?;
        let revpos = match self.mode {
            EditMode::Interactive => None,
            EditMode::Replicated => Some(entry.number("revpos").unwrap_or(0)),
        };
        let file = uploaded.attachment(&name, &content_type, revpos);
        self.keep(uploaded.content);
        Ok(Ok(file))
    }

    /// The parent's attachment that a stub stands for.
    fn kept(
        &mut self,
        name: String,
        entry: &Entry<'_>,
        edit: &EditDoc,
    ) -> Result<Result<Attachment, Outcome>, Error> {
        let parent = match self.parent.take() {
            Some(parent) => parent,
            None => self.find_parent(edit)?,
        };
        let parent = self.parent.insert(parent);
        let found = match parent {
            Parent::Conflict => return Ok(Err(Outcome::Conflict)),
            Parent::Known => {
                let rev = edit.rev_path().and_then(|path| path.newest());
                return Ok(Err(rev.map_or(Outcome::Conflict, |rev| Outcome::Ok { rev })));
            }
            Parent::None => None,
            Parent::Is(attachments) => attachments.get(&name),
        };
        let same_revpos = |a: &&Attachment| {
            entry.get("revpos").is_none()
                || entry.number("revpos").is_some_and(|n| a.revpos == Some(n))
        };
        Ok(match found.filter(same_revpos) {
            Some(attachment) => Ok(attachment.clone()),
            None => Err(missing_stub(self.id, &name)),
        })
    }

    fn find_parent(&mut self, edit: &EditDoc) -> Result<Parent, Error> {
        let shard = self.db.shard_for(self.id.as_str());
        let record = self.recent.record.of(shard, self.id)?;
        let path = edit.rev_path();
        if self.mode == EditMode::Interactive {
            return match path.and_then(|path| path.newest()) {
                Some(parent) if record.tree.is_leaf(&parent) => self.read(&record, &parent),
                Some(_) => Ok(Parent::Conflict),
                None if record.tree.winner().is_some_and(|w| !w.revision.deleted) => {
                    Ok(Parent::Conflict)
                }
                None => Ok(Parent::None),
            };
        }
        let Some(path) = path else {
            return Ok(Parent::None);
        };
        let generations = (0..=path.start).rev();
        for (nth, (hash, generation)) in path.ids.iter().zip(generations).enumerate() {
            let rev = Rev {
                generation,
                hash: hash.clone(),
            };
            let Some(node) = record.tree.get(&rev) else {
                continue;
            };
            if nth == 0 && node.revision.is_some() {
                return Ok(Parent::Known);
            }
            if let found @ Parent::Is(_) = self.read(&record, &rev)? {
                return Ok(found);
            }
        }
        Ok(Parent::None)
    }

    fn read(&mut self, record: &Record, rev: &Rev) -> Result<Parent, Error> {
        let Some(revision) = record.tree.get(rev).and_then(|node| node.revision) else {
            return Ok(Parent::None);
        };
        let shard = self.db.shard_for(self.id.as_str());
        let place = (shard.number, revision.seq);
        if let Some((_, attachments)) = self
            .recent
            .attachments
            .as_ref()
            .filter(|(of, _)| *of == place)
        {
            return Ok(Parent::Is(attachments.clone()));
        }
        let Some(stored) = shard.body(revision.seq)? else {
            // Replaced and compacted away meanwhile, if it was a leaf.
            return Ok(Parent::Conflict);
        };
        let attachments = StoredBody::split(&stored).attachments();
        let attachments = attachments.ok_or(storage::Error::Corrupt("attachments"))?;
        let by_name = attachments.into_iter().map(|a| (a.name.to_string(), a));
        let by_name = Arc::new(by_name.collect::<AttachmentsByName>());
        self.recent.attachments = Some((place, by_name.clone()));
        Ok(Parent::Is(by_name))
    }
}

fn refused(reason: String) -> Outcome {
    Outcome::Refused("bad_request".into(), reason.into())
}

fn too_large(reason: String) -> Outcome {
    Outcome::Refused("attachment_too_large".into(), reason.into())
}

fn too_many(count_max: u64) -> Outcome {
    let reason = format!("the document exceeds max_attachments_per_document ({count_max})");
    too_large(reason)
}

fn missing_stub(id: &DocId, name: &str) -> Outcome {
    let reason = format!("Invalid attachment stub in {} for {name}", id.as_str());
    Outcome::Refused(MISSING_STUB.into(), reason.into())
}

/// An entry of a document's `_attachments`: those of its members that are used.
struct Entry<'a>(Vec<Member<'a>>);

/// Name and value of an object's member.
type Member<'a> = (Cow<'a, str>, &'a RawValue);

/// Members of entries that are used. Clients may send any number of others.
const ENTRY_MEMBERS: [&str; 5] = ["stub", "follows", "content_type", "data", "revpos"];

impl<'a> Entry<'a> {
    fn get(&self, name: &str) -> Option<&'a RawValue> {
        let found = self.0.iter().find(|(n, _)| n == name)?;
        Some(found.1)
    }

    fn is_true(&self, name: &str) -> bool {
        self.get(name).is_some_and(|raw| raw.get() == "true")
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.get().parse().ok()
    }

    /// The bytes of `data`. Like Erlang's decoder, this passes over white space.
    fn data(&self) -> Option<Vec<u8>> {
        let text: Cow<'_, str> = serde_json::from_str(self.get("data")?.get()).ok()?;
        let engine = base64::engine::general_purpose::STANDARD;
        let is_space = |byte: u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        if !text.bytes().any(is_space) {
            return engine.decode(text.as_bytes()).ok();
        }
        let dense: Vec<u8> = text.bytes().filter(|&byte| !is_space(byte)).collect();
        engine.decode(dense).ok()
    }
}

/// Name and entry of each attachment, in their order. Skips entries that are not objects, as
/// CouchDB does.
fn read_entries(said: &[u8]) -> Result<Vec<(Cow<'_, str>, Entry<'_>)>, Error> {
    let entries = some_members(said, |_, value| value.get().starts_with('{'))?;
    let is_used = |name: &str, _: &RawValue| ENTRY_MEMBERS.contains(&name);
    entries
        .into_iter()
        .map(|(name, raw)| Ok((name, Entry(some_members(raw.get().as_bytes(), is_used)?))))
        .collect()
}

/// Returns those members of an object that are wanted, in their order. Others take no memory.
fn some_members(
    object: &[u8],
    is_wanted: impl Fn(&str, &RawValue) -> bool,
) -> Result<Vec<Member<'_>>, Error> {
    let unreadable = |e: serde_json::Error| Error::BadRequest(e.to_string());
    let mut deserializer = serde_json::Deserializer::from_slice(object);
    let members = deserializer.deserialize_map(SomeMembers(is_wanted));
    let members = members.map_err(unreadable)?;
    deserializer.end().map_err(unreadable)?;
    Ok(members)
}

/// Reads the members that the function accepts.
struct SomeMembers<F>(F);

impl<'de, F: Fn(&str, &RawValue) -> bool> Visitor<'de> for SomeMembers<F> {
    type Value = Vec<Member<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some((Name(name), value)) = map.next_entry::<Name<'de>, &'de RawValue>()? {
            if (self.0)(&name, value) {
                members.push((name, value));
            }
        }
        Ok(members)
    }
}

/// A name, borrowed where it has no escapes.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests;
