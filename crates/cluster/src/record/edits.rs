//! Writes of clients, as a record holds them.

use bytes::Bytes;
use document::varint::{put, take, take_slice};
use document::{Attachment, DocId, Encoding, Rev, RevHash, RevPath};

use super::{RecordVersion, take_array};

/// Approximate size of an edit besides its body, in bytes.
const AROUND_BYTES: usize = 128;

/// A client's write. Repeated proposals carry the same numbers, and it is applied once.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The start of the node that took it from the client, as a random number.
    pub gateway: u64,
    /// Its number at that gateway.
    pub counter: u64,
    /// Its work, by database.
    pub databases: Vec<DatabaseWork>,
}

/// An encoded request, and what has to be known about it.
#[derive(Clone, Debug)]
pub struct EncodedRequest {
    /// Its gateway and counter.
    pub key: (u64, u64),
    /// The least version of the records that may have it.
    pub needs: RecordVersion,
    /// [`Request::to_bytes`].
    pub bytes: Bytes,
    /// Approximate length of the stored documents' records that it rewrites, in bytes.
    pub stored_bytes: usize,
}

/// The work of a request in one database, with the limits that apply: they are part of the record,
/// so that no order between logs is needed.
#[derive(Clone, Debug, PartialEq)]
pub struct DatabaseWork {
    /// The database.
    pub database: [u8; 16],
    /// The catalogue version that first contained it: replicas wait for it before they apply this.
    pub since: u64,
    /// Revisions kept of each branch.
    pub revs_limit: u64,
    /// Number of purges remembered.
    pub purged_infos_limit: u64,
    /// Maximum number of leaves of a document, for edits; `None` in records of nodes without such a
    /// limit.
    pub leaves_max: Option<u64>,
    /// Hash of the design documents that validated it.
    pub designs: u64,
    /// The edits or purges.
    pub work: Work,
}

impl DatabaseWork {
    /// Returns the approximate size, in bytes.
    pub fn bytes(&self) -> usize {
        let inline = |file: &FileRecord| file.content.as_ref().map_or(0, Vec::len);
        let of_edit = |edit: &EditRecord| {
            edit.body.len() + edit.files.iter().map(inline).sum::<usize>() + AROUND_BYTES
        };
        match &self.work {
            Work::Edits(edits) => edits.iter().map(of_edit).sum(),
            Work::Purges(purges) => purges.len() * AROUND_BYTES,
            Work::Entry(json) => json.len(),
        }
    }
}

/// Work in a database.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// Edits, in order.
    Edits(Vec<EditRecord>),
    /// Purges, in order.
    Purges(Vec<PurgeRecord>),
    /// An entry of the control slot, as JSON text; it belongs to no database.
    Entry(Vec<u8>),
}

impl Work {
    /// Returns the least version of the records that may have it. The proposer of an entry checks
    /// the version that the entry needs.
    pub fn needs(&self) -> RecordVersion {
        match self {
            Work::Edits(edits) if edits.iter().any(EditRecord::names_contents) => RecordVersion::V3,
            Work::Edits(_) | Work::Purges(_) | Work::Entry(_) => RecordVersion::V1,
        }
    }
}

/// An edit, before conflict detection, which every replica does alike when it applies the record.
#[derive(Clone, Debug, PartialEq)]
pub struct EditRecord {
    /// The document.
    pub id: DocId,
    /// The new revision is a tombstone.
    pub deleted: bool,
    /// JSON text, normalised, without underscore members.
    pub body: Vec<u8>,
    /// Its attachments, all of them.
    pub files: Vec<FileRecord>,
    /// How the revision is added to the tree.
    pub change: ChangeRecord,
}

/// The relation of an edit to the existing revisions.
#[derive(Clone, Debug, PartialEq)]
pub enum ChangeRecord {
    /// The client edits `parent` (`None`: a new document).
    Interactive {
        /// The leaf that it is based on.
        parent: Option<Rev>,
        /// The new revision, computed for that parent.
        rev: Rev,
        /// Erlang term of the body, where it cannot be derived from the text.
        body_term: Option<Vec<u8>>,
    },
    /// A revision with its ancestry, from a replicator.
    Replicated {
        /// The revision and its ancestors.
        path: RevPath,
    },
    /// A local document: the number of its new revision, or `None` to delete it.
    Local {
        /// The number.
        rev: Option<u64>,
    },
}

/// An attachment of an edit.
#[derive(Clone, Debug, PartialEq)]
pub struct FileRecord {
    /// Its metadata.
    pub attachment: Attachment,
    /// Its stored bytes. Without them, a majority of the replicas had the content before the record
    /// was appended, and a replica that lacks it fetches it before it applies the record.
    pub content: Option<Vec<u8>>,
}

/// A purge of revisions of one document.
#[derive(Clone, Debug, PartialEq)]
pub struct PurgeRecord {
    /// The document.
    pub id: DocId,
    /// Leaves to remove.
    pub revs: Vec<Rev>,
    /// The id of the purge request.
    pub uuid: [u8; 16],
}

const EDITS: u8 = b'e';
/// Edits with a limit of leaves, which comes first.
const LIMITED_EDITS: u8 = b'l';
const PURGES: u8 = b'p';
const ENTRY: u8 = b'n';

const DELETED: u8 = 1;
const HAS_FILES: u8 = 2;
/// The two bits of the kind of change.
const INTERACTIVE: u8 = 0;
const REPLICATED: u8 = 4;
const LOCAL: u8 = 8;
const CHANGES: u8 = 12;
/// It has a parent, or a number.
const HAS_BASE: u8 = 16;
const HAS_TERM: u8 = 32;

const GZIP: u8 = 1;
const LENGTH_UNSURE: u8 = 2;
const HAS_REVPOS: u8 = 4;
const HAS_CONTENT: u8 = 8;

impl Request {
    /// Returns the least version of the records that may have it.
    pub fn needs(&self) -> RecordVersion {
        let needs = self.databases.iter().map(|part| part.work.needs());
        needs.max().unwrap_or(RecordVersion::V1)
    }

    /// Encodes it, for a record or, if it is long, for the parts of several.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![];
        self.encode(&mut out);
        out
    }

    /// Encodes it for a proposal. It is taken to rewrite nothing long in the store.
    pub fn encoded(&self) -> EncodedRequest {
        EncodedRequest {
            key: (self.gateway, self.counter),
            needs: self.needs(),
            bytes: self.to_bytes().into(),
            stored_bytes: 0,
        }
    }

    /// Decodes it; `None` for invalid bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Request> {
        let mut rest = bytes;
        Request::decode(&mut rest).filter(|_| rest.is_empty())
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put(self.gateway, out);
        put(self.counter, out);
        put(self.databases.len() as u64, out);
        self.databases.iter().for_each(|d| d.encode(out));
    }

    pub(super) fn decode(rest: &mut &[u8]) -> Option<Request> {
        let (gateway, counter, count) = (take(rest)?, take(rest)?, take(rest)?);
        let databases = (0..count).map(|_| DatabaseWork::decode(rest));
        Some(Request {
            gateway,
            counter,
            databases: databases.collect::<Option<_>>()?,
        })
    }
}

impl DatabaseWork {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.database);
        put(self.since, out);
        put(self.revs_limit, out);
        put(self.purged_infos_limit, out);
        put(self.designs, out);
        match &self.work {
            Work::Edits(edits) => {
                match self.leaves_max {
                    Some(max) => {
                        out.push(LIMITED_EDITS);
                        put(max, out);
                    }
                    None => out.push(EDITS),
                }
                put(edits.len() as u64, out);
                edits.iter().for_each(|edit| edit.encode(out));
            }
            Work::Purges(purges) => {
                out.push(PURGES);
                put(purges.len() as u64, out);
                purges.iter().for_each(|purge| purge.encode(out));
            }
            Work::Entry(entry) => {
                out.push(ENTRY);
                put_slice(entry, out);
            }
        }
    }

    fn decode(rest: &mut &[u8]) -> Option<DatabaseWork> {
        let (database, since) = (take_array(rest)?, take(rest)?);
        let (revs_limit, purged_infos_limit, designs) = (take(rest)?, take(rest)?, take(rest)?);
        let kind = *rest.split_off_first()?;
        if kind == ENTRY {
            let work = Work::Entry(take_slice(rest)?.to_vec());
            return Some(DatabaseWork {
                database,
                since,
                revs_limit,
                purged_infos_limit,
                leaves_max: None,
                designs,
                work,
            });
        }
        let leaves_max = optional(kind == LIMITED_EDITS, || take(rest))?;
        let count = take(rest)?;
        let work = match kind {
            EDITS | LIMITED_EDITS => Work::Edits(
                (0..count)
                    .map(|_| EditRecord::decode(rest))
                    .collect::<Option<_>>()?,
            ),
            PURGES => Work::Purges(
                (0..count)
                    .map(|_| PurgeRecord::decode(rest))
                    .collect::<Option<_>>()?,
            ),
            _ => return None,
        };
        Some(DatabaseWork {
            database,
            since,
            revs_limit,
            purged_infos_limit,
            leaves_max,
            designs,
            work,
        })
    }
}

impl EditRecord {
    /// Returns whether it names contents without their bytes.
    pub fn names_contents(&self) -> bool {
        self.files.iter().any(|file| file.content.is_none())
    }

    fn flags(&self) -> u8 {
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        let change = match &self.change {
            ChangeRecord::Interactive {
                parent, body_term, ..
            } => {
                INTERACTIVE | flag(parent.is_some(), HAS_BASE) | flag(body_term.is_some(), HAS_TERM)
            }
            ChangeRecord::Replicated { .. } => REPLICATED,
            ChangeRecord::Local { rev } => LOCAL | flag(rev.is_some(), HAS_BASE),
        };
        change | flag(self.deleted, DELETED) | flag(!self.files.is_empty(), HAS_FILES)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_slice(self.id.as_str().as_bytes(), out);
        out.push(self.flags());
        match &self.change {
            ChangeRecord::Interactive {
                parent,
                rev,
                body_term,
            } => {
                put_rev(rev, out);
                parent.iter().for_each(|parent| put_rev(parent, out));
                body_term.iter().for_each(|term| put_slice(term, out));
            }
            ChangeRecord::Replicated { path } => {
                put(path.start, out);
                put(path.ids.len() as u64, out);
                path.ids.iter().for_each(|hash| put_hash(hash, out));
            }
            ChangeRecord::Local { rev } => rev.iter().for_each(|rev| put(*rev, out)),
        }
        put_slice(&self.body, out);
        if !self.files.is_empty() {
            put(self.files.len() as u64, out);
            self.files.iter().for_each(|file| file.encode(out));
        }
    }

    fn decode(rest: &mut &[u8]) -> Option<EditRecord> {
        let id = DocId::new(std::str::from_utf8(take_slice(rest)?).ok()?).ok()?;
        let flags = *rest.split_off_first()?;
        let has = |flag: u8| flags & flag != 0;
        let change = match flags & CHANGES {
            INTERACTIVE => ChangeRecord::Interactive {
                rev: take_rev(rest)?,
                parent: optional(has(HAS_BASE), || take_rev(rest))?,
                body_term: optional(has(HAS_TERM), || take_slice(rest).map(<[u8]>::to_vec))?,
            },
            REPLICATED => {
                let (start, count) = (take(rest)?, take(rest)?);
                let ids = (0..count).map(|_| take_hash(rest)).collect::<Option<_>>()?;
                ChangeRecord::Replicated {
                    path: RevPath { start, ids },
                }
            }
            LOCAL => ChangeRecord::Local {
                rev: optional(has(HAS_BASE), || take(rest))?,
            },
            _ => return None,
        };
        let body = take_slice(rest)?.to_vec();
        let count = if has(HAS_FILES) { take(rest)? } else { 0 };
        let files = (0..count)
            .map(|_| FileRecord::decode(rest))
            .collect::<Option<_>>()?;
        Some(EditRecord {
            id,
            deleted: has(DELETED),
            body,
            files,
            change,
        })
    }
}

impl FileRecord {
    fn encode(&self, out: &mut Vec<u8>) {
        let attachment = &self.attachment;
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        out.push(
            flag(attachment.encoding == Encoding::Gzip, GZIP)
                | flag(attachment.length_unsure, LENGTH_UNSURE)
                | flag(attachment.revpos.is_some(), HAS_REVPOS)
                | flag(self.content.is_some(), HAS_CONTENT),
        );
        put_slice(attachment.name.as_bytes(), out);
        put_slice(attachment.content_type.as_bytes(), out);
        out.extend_from_slice(&attachment.md5);
        out.extend_from_slice(&attachment.content);
        put(attachment.length, out);
        put(attachment.stored_length, out);
        attachment
            .revpos
            .iter()
            .for_each(|revpos| put(*revpos, out));
        self.content
            .iter()
            .for_each(|content| put_slice(content, out));
    }

    fn decode(rest: &mut &[u8]) -> Option<FileRecord> {
        let flags = *rest.split_off_first()?;
        let has = |flag: u8| flags & flag != 0;
        let attachment = Attachment {
            name: take_string(rest)?,
            content_type: take_string(rest)?,
            md5: take_array(rest)?,
            content: take_array(rest)?,
            length: take(rest)?,
            stored_length: take(rest)?,
            encoding: if has(GZIP) {
                Encoding::Gzip
            } else {
                Encoding::Identity
            },
            length_unsure: has(LENGTH_UNSURE),
            revpos: optional(has(HAS_REVPOS), || take(rest))?,
        };
        let content = optional(has(HAS_CONTENT), || take_slice(rest).map(<[u8]>::to_vec))?;
        Some(FileRecord {
            attachment,
            content,
        })
    }
}

impl PurgeRecord {
    fn encode(&self, out: &mut Vec<u8>) {
        put_slice(self.id.as_str().as_bytes(), out);
        out.extend_from_slice(&self.uuid);
        put(self.revs.len() as u64, out);
        self.revs.iter().for_each(|rev| put_rev(rev, out));
    }

    fn decode(rest: &mut &[u8]) -> Option<PurgeRecord> {
        let id = DocId::new(std::str::from_utf8(take_slice(rest)?).ok()?).ok()?;
        let (uuid, count) = (take_array(rest)?, take(rest)?);
        let revs = (0..count).map(|_| take_rev(rest)).collect::<Option<_>>()?;
        Some(PurgeRecord { id, revs, uuid })
    }
}

/// Takes a value if `is` is true; the outer `None` means truncated bytes.
fn optional<T>(is: bool, take: impl FnOnce() -> Option<T>) -> Option<Option<T>> {
    match is {
        true => take().map(Some),
        false => Some(None),
    }
}

fn put_slice(bytes: &[u8], out: &mut Vec<u8>) {
    put(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn take_string(rest: &mut &[u8]) -> Option<String> {
    String::from_utf8(take_slice(rest)?.to_vec()).ok()
}

fn put_rev(rev: &Rev, out: &mut Vec<u8>) {
    put(rev.generation, out);
    put_hash(&rev.hash, out);
}

fn take_rev(rest: &mut &[u8]) -> Option<Rev> {
    Some(Rev {
        generation: take(rest)?,
        hash: take_hash(rest)?,
    })
}

/// Encodes 0 and the bytes of an MD5 sum, or the length of a text plus one, and the text.
fn put_hash(hash: &RevHash, out: &mut Vec<u8>) {
    match hash {
        RevHash::Md5(bytes) => {
            out.push(0);
            out.extend_from_slice(bytes);
        }
        RevHash::Text(text) => {
            put(text.len() as u64 + 1, out);
            out.extend_from_slice(text);
        }
    }
}

fn take_hash(rest: &mut &[u8]) -> Option<RevHash> {
    match take(rest)? {
        0 => take_array(rest).map(RevHash::Md5),
        length => {
            let length = usize::try_from(length - 1).ok()?;
            Some(RevHash::Text(rest.split_off(..length)?.into()))
        }
    }
}
