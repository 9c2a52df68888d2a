//! A database as a set of shards: the update pipeline, reads, listings and change feeds. This is the embedded API:
//! everything that the server does with documents, without HTTP. Start at [`Databases::open`].
//!
//! Reads are synchronous and short; writes are futures that resolve when the commit queue has
//! acknowledged them. Listings and feeds hold a snapshot, not a thread: the caller pulls the next
//! piece when it needs it.

#![forbid(unsafe_code)]

mod access_key;
mod access_reads;
mod access_watch;
mod access_writes;
mod adoption;
mod attachments;
mod auto_purge;
mod catalogue;
mod changes;
pub mod check;
pub mod counters;
mod database;
mod databases;
mod design;
mod design_cache;
mod design_limits;
mod design_summaries;
mod designs;
mod error;
mod events;
mod examine;
mod examine_functions;
mod expiry;
mod find;
#[cfg(test)]
mod fixture;
mod global_changes;
mod hash_ranges;
mod keeper;
mod last_record;
mod leaf_limit;
mod lifecycle;
mod long_selectors;
mod low_priority;
mod maintenance;
mod name;
mod open_databases;
mod open_revs;
mod partition;
mod partition_count;
mod partition_limit;
mod partition_room;
mod preview;
mod ranges;
mod read;
mod reader;
mod refusals;
pub mod repair;
mod replicas;
mod revision_cache;
mod rows;
mod rules;
mod security;
mod select;
mod seq;
mod sequenced_changes;
mod sequencer;
mod text;
mod time_seq;
mod time_text;
mod ttl;
mod turn;
mod update;
mod validate;
mod validators;
mod views;

pub use access_key::DefaultAccess;
pub use adoption::{AdoptionError, KnownSeqs, OwnDatabase, own_databases};
pub use attachments::{
    AttachmentOptions, AttachmentReader, AttachmentSink, Base64Reader, ContentPlacement,
    LateContents, ShownAttachments, SinkOptions, UploadedContent,
};
pub use auto_purge::{DeletedDocuments, OldChanges};
pub use catalogue::DatabaseUuid;
pub use changes::{
    BatchFilter, ChangeFilter, Changes, ChangesQuery, Filter, Framing, Since, Style,
};
pub use database::{Database, Info, PurgeOutcome, PurgePlace, RevsDiff};
pub use databases::{
    CreateOptions, Databases, NameRange, Options, PURGED_INFOS_LIMIT, REVS_LIMIT, SHARDS_MAX, Stats,
};
pub use document::collation::VERSION as COLLATOR_VERSION;
pub use error::Error;
pub use events::{DbEvent, DbEventKind};
pub use examine::{
    DesignFacts, Garbage, IdOrder, OpenIndexFacts, OpenTextFacts, Sample, TextFacts, ViewFacts,
    VisitedDocuments,
};
pub use examine_functions::{FunctionFacts, SomeFunctions};
pub use expiry::{DueDocuments, ExpiredDocument, ExpiredDocuments, Expiry, ExpiryWatch};
pub use find::{
    FindAnswer, FindExplanation, FindIndex, FindIndexes, FindLimits, FindReport, FindUse, IndexKey,
};
pub use functions::{DesignDoc, Requester};
pub use global_changes::{EventWriter, GLOBAL_CHANGES, GlobalChangesOptions};
pub use index::{GroupLevel, ReduceLimit, ReduceSpec, write_key_sort};
pub use keeper::OpenMemory;
pub use low_priority::{WorkOwner, run_low_priority};
pub use name::{NAME_LENGTH_MAX, is_system};
pub use open_revs::{OpenRevs, RevsReader};
pub use partition::check as check_partition;
pub use partition_count::{PartitionCount, PartitionInfo};
pub use preview::{
    PREVIEW_BYTES_MAX, PREVIEW_DOCS_MAX, PREVIEW_ROWS_MAX, Preview, PreviewDocs, PreviewError,
    PreviewFunctions, PreviewRow, TrialWrite,
};
pub use ranges::ShardRange;
pub use read::{AttachmentSelection, Read, ReadAttachment, ReadDoc, ReadOptions, RevSelection};
pub use revision_cache::RevisionCache;
pub use rows::{Bound, Key, Keys, Listing, Rows, RowsQuery};
pub use rules::{CallerContext, DatabaseAs, PriorDocument, Refusal, SystemRules, Visibility};
pub use security::SecurityObject;
pub use sequenced_changes::{NewShards, Replacement, StoredDatabase};
pub use sequencer::{NewDatabase, Property, Sequencer, SequencerFuture};
pub use storage::{OPEN_FILES_MAX, PurgeInfo, StoreOptions, WriteFailure, commit_on_this_thread};
pub use text::{
    AnswerThreads, TEXT_ANSWER_BYTES_MAX, TextAnswer, TextCost, TextCounts, TextDistance,
    TextExplanation, TextFlavour, TextGroup, TextGrouping, TextHighlight, TextHighlightOptions,
    TextHit, TextIndex, TextInfo, TextMemory, TextOrder, TextQuery, TextRange, TextSortBy,
    TextSortKey, TextSortValue, TextSpec, TextTurn, text_bounds, text_flag, text_index_folder,
};
pub use time_seq::TimeBin;
pub use ttl::Ttl;
pub use turn::Turn;
pub use update::{Caller, Durability, EditMode, Outcome, WriteTiming};
pub use views::{
    Design, Grouping, KenOptions, Update, ViewAt, ViewIndex, ViewInfo, ViewQuery, ViewRows,
};

/// A long job, for `/_active_tasks`.
#[derive(Clone, Debug)]
pub struct Task {
    /// CouchDB's name of the kind: `database_compaction`, `indexer`.
    pub kind: &'static str,
    /// The database's name.
    pub database: String,
    /// The design document, for tasks of indexes.
    pub design_document: Option<String>,
    /// The index's name, for tasks of text indexes.
    pub index: Option<String>,
    /// Rows or changes done.
    pub done: u64,
    /// The total number.
    pub total: u64,
    /// When it began, in seconds since 1970.
    pub started_unix_s: u64,
    /// When `done` was counted last, in seconds since 1970.
    pub updated_unix_s: u64,
}

fn unix_seconds() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |d| d.as_secs())
}
