//! Options as hosts pass them: JSON objects. Unknown members are refused, so that no typing error
//! is silent.

use std::path::PathBuf;
use std::time::Duration;

use database::{
    AttachmentSelection, Bound, ChangesQuery, Durability, EditMode, Filter, Grouping, Key, Listing,
    ReadOptions, RowsQuery, ShownAttachments, Since, Style, Update, ViewQuery,
};
use document::Rev;
use functions::js::{Isolation, Options as JavaScript, WorkerCommand};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::{Error, Result};

/// Reads options; no text stands for none.
pub fn read<T: DeserializeOwned + Default>(text: &str) -> Result<T> {
    if text.is_empty() {
        return Ok(T::default());
    }
    serde_json::from_str(text).map_err(|e| Error::bad_request(format!("the options: {e}")))
}

/// Options of [`Directory::open`](crate::Directory::open).
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Open {
    /// Create the directory when it does not exist; defaults to true.
    pub create: Option<bool>,
    /// Shards of a new database.
    pub q: Option<u32>,
    /// Memory for blocks of files that were read, in bytes.
    pub cache_bytes: Option<usize>,
    /// Memory for recently read documents, in bytes.
    pub documents_bytes: Option<usize>,
    /// Memory for writes that are not yet in files, in bytes.
    pub write_buffers_bytes: Option<usize>,
    /// Memory for the rows of index builds, in bytes.
    pub index_builds_bytes: Option<usize>,
    /// Memory for rows of indexes that are read often, in bytes.
    pub index_rows_bytes: Option<usize>,
    /// Build indexes before they are queried; defaults to true.
    pub background_indexing: Option<bool>,
    /// Compact automatically; defaults to true.
    pub auto_compact: Option<bool>,
    /// Open a store with a damaged log: keep the writes before the damage, and lose later ones.
    pub accept_damaged_log: bool,
    /// How JavaScript runs.
    pub functions: Functions,
}

/// How JavaScript runs.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Functions {
    /// The program `settee`, which then runs functions in processes of their own. Without it they
    /// run in threads of this process.
    pub program: Option<PathBuf>,
    /// Time for one document, in milliseconds.
    pub time_limit_ms: Option<u64>,
    /// Memory of one heap, in bytes.
    pub memory_limit_bytes: Option<usize>,
}

impl Open {
    /// Returns the settings of JavaScript.
    pub fn javascript(&self) -> JavaScript {
        let default = JavaScript::default();
        let Functions {
            program,
            time_limit_ms,
            memory_limit_bytes,
        } = &self.functions;
        JavaScript {
            time: time_limit_ms.map_or(default.time, Duration::from_millis),
            memory_bytes: memory_limit_bytes.unwrap_or(default.memory_bytes),
            isolation: match program {
                Some(_) => Isolation::Process,
                None => Isolation::Thread,
            },
            worker: WorkerCommand {
                program: program.clone(),
                ..WorkerCommand::default()
            },
            ..default
        }
    }

    /// Returns the options of databases, without the runner of functions.
    pub fn databases(&self) -> database::Options {
        let default = database::Options::default();
        let store = default.store;
        database::Options {
            store: database::StoreOptions {
                block_cache_bytes: self.cache_bytes.unwrap_or(store.block_cache_bytes),
                documents_bytes: self.documents_bytes.unwrap_or(store.documents_bytes),
                write_buffers_bytes: self
                    .write_buffers_bytes
                    .unwrap_or(store.write_buffers_bytes),
                accept_damaged_log: self.accept_damaged_log,
                ..store
            },
            default_q: self.q.unwrap_or(default.default_q),
            auto_compact: self.auto_compact.unwrap_or(default.auto_compact),
            ken: database::KenOptions {
                enabled: self.background_indexing.unwrap_or(default.ken.enabled),
                ..default.ken
            },
            build_bytes: self.index_builds_bytes.unwrap_or(default.build_bytes),
            index_rows_bytes: self.index_rows_bytes.unwrap_or(default.index_rows_bytes),
            ..default
        }
    }
}

/// Options of a new database.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Create {
    /// Shards.
    pub q: Option<u32>,
    /// Whether ids start with a partition.
    pub partitioned: bool,
}

/// Options of a read.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Get {
    rev: Option<String>,
    latest: bool,
    revs: bool,
    revs_info: bool,
    conflicts: bool,
    deleted_conflicts: bool,
    local_seq: bool,
    attachments: bool,
    att_encoding_info: bool,
}

impl Get {
    /// Returns the options of the read.
    pub fn read_options(self) -> Result<ReadOptions> {
        Ok(ReadOptions {
            rev: self.rev.as_deref().map(Rev::parse).transpose()?,
            latest: self.latest,
            revs: self.revs,
            revs_max: None,
            revs_info: self.revs_info,
            conflicts: self.conflicts,
            deleted_conflicts: self.deleted_conflicts,
            local_seq: self.local_seq,
            attachments: match self.attachments {
                true => AttachmentSelection::All,
                false => AttachmentSelection::None,
            },
            att_encoding_info: self.att_encoding_info,
            sorted: false,
        })
    }
}

/// Options of a write.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Put {
    /// `false`: revisions come with their ids, as from a replicator.
    new_edits: Option<bool>,
    /// Acknowledge before it is on the disk, where it is within a second.
    delayed: bool,
}

impl Put {
    pub fn mode(&self) -> EditMode {
        match self.new_edits {
            Some(false) => EditMode::Replicated,
            _ => EditMode::Interactive,
        }
    }

    pub fn durability(&self) -> Durability {
        match self.delayed {
            true => Durability::Delayed,
            false => Durability::Synced,
        }
    }
}

/// JSON text of a key.
type RawKey = Option<Box<RawValue>>;

/// Returns a key that is given, `null` too.
fn given<'de, D: serde::Deserializer<'de>>(member: D) -> std::result::Result<RawKey, D::Error> {
    Box::<RawValue>::deserialize(member).map(Some)
}

/// Options of rows by their keys: own ones, and those that all such rows have. A macro, as serde's
/// `flatten` takes whatever is unknown, and does not keep the text of keys.
macro_rules! of_rows {
    ($(#[$about:meta])* $name:ident { $($(#[$of:meta])* $own:ident: $kind:ty,)* }) => {
        $(#[$about])*
        #[derive(Debug, Default, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct $name {
            $($(#[$of])* $own: $kind,)*
            inclusive_end: Option<bool>,
            limit: Option<u64>,
            skip: u64,
            descending: bool,
            include_docs: bool,
            attachments: bool,
            update_seq: bool,
            partition: Option<String>,
        }
    };
}

/// Returns how attachments appear in documents that rows include: with their bytes or as stubs.
fn shown(bytes: bool) -> ShownAttachments {
    ShownAttachments {
        bytes,
        encoding_info: false,
    }
}

of_rows! {
    /// Options of a listing by id.
    AllDocs {
        key: Option<String>,
        keys: Option<Vec<String>>,
        startkey: Option<String>,
        endkey: Option<String>,
        conflicts: bool,
        /// `_design_docs`, or `_local_docs`.
        only: Option<String>,
    }
}

impl AllDocs {
    /// Returns the query.
    pub fn query(self) -> Result<RowsQuery> {
        let listing = match (self.only.as_deref(), self.partition) {
            (None, None) => Listing::AllDocs,
            (None, Some(partition)) => Listing::Partition(partition),
            (Some("_design_docs"), None) => Listing::DesignDocs,
            (Some("_local_docs"), None) => Listing::LocalDocs,
            _ => {
                return Err(Error::bad_request(
                    "`only` is \"_design_docs\" or \"_local_docs\", of a whole database",
                ));
            }
        };
        let start = self.startkey.or_else(|| self.key.clone());
        let end = self.endkey.or(self.key);
        if self.keys.is_some() && (start.is_some() || end.is_some()) {
            return Err(Error::new(
                400,
                "query_parse_error",
                "`keys` is incompatible with `key`, `startkey` and `endkey`",
            ));
        }
        Ok(RowsQuery {
            listing,
            start: start.map(Bound::Id),
            end: end.map(Bound::Id),
            inclusive_end: self.inclusive_end.unwrap_or(true),
            keys: self.keys.map(|k| k.into_iter().map(Key::Id).collect()),
            limit: self.limit,
            skip: self.skip,
            descending: self.descending,
            include_docs: self.include_docs,
            conflicts: self.conflicts,
            attachments: shown(self.attachments),
            update_seq: self.update_seq,
        })
    }
}

of_rows! {
    /// Options of a view.
    View {
        #[serde(deserialize_with = "given")]
        key: RawKey,
        keys: Option<Vec<Box<RawValue>>>,
        #[serde(deserialize_with = "given")]
        startkey: RawKey,
        #[serde(deserialize_with = "given")]
        endkey: RawKey,
        startkey_docid: Option<String>,
        endkey_docid: Option<String>,
        conflicts: Option<bool>,
        reduce: Option<bool>,
        group: Option<bool>,
        group_level: Option<u64>,
        /// `true`, `false`, or `"lazy"`.
        update: Option<serde_json::Value>,
    }
}

impl View {
    /// Returns the query.
    pub fn query(self) -> Result<ViewQuery> {
        let text = |raw: Box<RawValue>| document::normalise(raw.get().as_bytes());
        let key = self.key.map(text).transpose()?;
        let start = self.startkey.map(text).transpose()?;
        let end = self.endkey.map(text).transpose()?;
        let keys = self.keys.map(|keys| keys.into_iter().map(text).collect());
        let update = match self.update {
            None => Update::True,
            Some(said) if said == true => Update::True,
            Some(said) if said == false => Update::False,
            Some(said) if said == "lazy" => Update::Lazy,
            Some(_) => {
                return Err(Error::new(
                    400,
                    "query_parse_error",
                    "`update` is true, false or \"lazy\"",
                ));
            }
        };
        Ok(ViewQuery {
            start: start.or_else(|| key.clone()),
            start_id: self.startkey_docid,
            end: end.or(key),
            end_id: self.endkey_docid,
            inclusive_end: self.inclusive_end.unwrap_or(true),
            keys: keys.transpose()?,
            limit: self.limit,
            skip: self.skip,
            descending: self.descending,
            include_docs: self.include_docs,
            conflicts: self.conflicts,
            attachments: shown(self.attachments),
            reduce: self.reduce,
            grouping: Grouping::of(self.group, self.group_level)?,
            update,
            update_seq: self.update_seq,
            partition: self.partition,
        })
    }
}

/// Options of a changes feed.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Changes {
    since: Option<String>,
    /// Wait for new changes.
    pub live: bool,
    descending: bool,
    limit: Option<u64>,
    all_leaves: bool,
    include_docs: bool,
    conflicts: bool,
    attachments: bool,
    doc_ids: Option<Vec<String>>,
    selector: Option<Box<RawValue>>,
    fields: Option<serde_json::Value>,
    design: bool,
}

impl Changes {
    /// Returns the query.
    pub fn query(self) -> Result<ChangesQuery> {
        if self.live && self.descending {
            return Err(Error::bad_request(
                "a feed that waits for changes cannot be `descending`",
            ));
        }
        Ok(ChangesQuery {
            since: match self.since.as_deref() {
                None | Some("0" | "") => Since::Start,
                Some("now") => Since::Now,
                Some(seq) => Since::Seq(seq.to_owned()),
            },
            descending: self.descending,
            limit: self.limit,
            style: match self.all_leaves {
                true => Style::AllDocs,
                false => Style::MainOnly,
            },
            include_docs: self.include_docs,
            conflicts: self.conflicts,
            attachments: shown(self.attachments),
            filter: filter(
                self.doc_ids,
                self.selector,
                self.fields.as_ref(),
                self.design,
            )?,
            seq_interval: None,
        })
    }
}

fn filter(
    doc_ids: Option<Vec<String>>,
    selector: Option<Box<RawValue>>,
    fields: Option<&serde_json::Value>,
    design: bool,
) -> Result<Filter> {
    let bad = |e: mango::SelectorError| Error::bad_request(e.to_string());
    match (doc_ids, selector, design) {
        (None, None, false) => Ok(Filter::None),
        (Some(ids), None, false) => Ok(Filter::of_ids(ids.into_iter().collect())),
        (None, None, true) => Ok(Filter::Design),
        (None, Some(selector), false) => {
            let body = [b"{\"selector\":", selector.get().as_bytes(), b"}"].concat();
            let body = document::normalise(&body)?;
            let selector = mango::Selector::of_body(&body, &mango::Limits::default());
            let fields = fields.map(mango::Fields::parse).transpose();
            let fields = fields.map_err(bad)?;
            Ok(Filter::of_selector(selector.map_err(bad)?, fields))
        }
        _ => Err(Error::bad_request(
            "a feed has one of `doc_ids`, `selector` and `design`",
        )),
    }
}

/// Options of an attachment.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Attachment {
    pub rev: Option<String>,
    /// For writes.
    pub content_type: Option<String>,
    /// For reads: start and end of the range, in bytes.
    pub start: Option<u64>,
    pub end: Option<u64>,
}
