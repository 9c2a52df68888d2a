//! Clients' edits as records of the log, and the contents of attachments that these name.

use std::sync::Arc;

use cluster::SlotNumber;
use cluster::record::EditRecord;
use database::Database;
use futures_util::{StreamExt as _, TryStreamExt as _};
use rustc_hash::FxHashSet;
use storage::{Change, Content, ShardEdit};

use crate::content::{ContentExchange, ContentName, STAGED_FROM_BYTES};
use crate::slot::{edit_record, named_record};

/// Maximum number of contents of one request that are copied to other nodes at a time.
const STAGED_AT_ONCE_MAX: usize = 4;
/// Maximum size of one edit with its attachments, in bytes: it is sent to other nodes in one piece.
const ONE_BYTES_MAX: usize = 200 << 20;

/// Edits as a record has them, and the contents that it names and that other nodes may lack, each
/// with the index of its shard.
type NamingRecords = (Vec<EditRecord>, Vec<(usize, Content)>);

/// Converts edits for a record. If the record `names_contents`, copies those that other nodes may
/// lack to a majority.
pub(crate) async fn to_records(
    exchange: &Arc<ContentExchange>,
    (db, since): (&Database, u64),
    slot: SlotNumber,
    edits: Vec<ShardEdit>,
    names_contents: bool,
) -> Result<Vec<EditRecord>, database::Error> {
    let (records, staged) = records_of(db, edits, names_contents).await?;
    let (mut named, mut to_stage) = (FxHashSet::default(), vec![]);
    for (shard, content) in staged {
        let name = ContentName {
            database: *db.uuid().as_bytes(),
            since,
            shard,
            id: content.id,
            length: content.length(),
        };
        if named.insert(name) {
            to_stage.push((name, content));
        }
    }
    if to_stage.is_empty() {
        return Ok(records);
    }
    let names: Vec<ContentName> = to_stage.iter().map(|(name, _)| *name).collect();
    let stage = |(name, content)| exchange.stage(slot, name, content);
    let staging = futures_util::stream::iter(to_stage.into_iter().map(stage));
    let staging = staging.buffer_unordered(STAGED_AT_ONCE_MAX);
    let staging = staging.try_collect::<Vec<()>>();
    tokio::select! {
        done = staging => done.map(|_| records),
        () = exchange.keep_at_times(slot, &names) => Err(database::Error::ShuttingDown),
    }
}

/// Returns the approximate size of an edit in a record. Long contents are not part of it if the
/// record `names_contents`.
pub(crate) fn edit_bytes(edit: &ShardEdit, names_contents: bool) -> usize {
    let files = edit.edit.files.iter().map(|file| {
        let length = file.attachment.stored_length;
        let is_named = names_contents && length > STAGED_FROM_BYTES;
        256 + if is_named { 0 } else { length as usize }
    });
    let path: usize = match &edit.edit.change {
        Change::Replicated { path } => path.ids.iter().map(|id| id.as_bytes().len() + 8).sum(),
        Change::Interactive { .. } | Change::Local { .. } => 0,
    };
    edit.edit.body.len() + path + files.sum::<usize>() + 256
}

/// Converts edits for a record. Blocks a thread for slow work while it reads contents.
async fn records_of(
    db: &Database,
    edits: Vec<ShardEdit>,
    names_contents: bool,
) -> Result<NamingRecords, database::Error> {
    let bytes = |edit: &ShardEdit| edit_bytes(edit, names_contents);
    if edits.iter().map(bytes).sum::<usize>() > ONE_BYTES_MAX {
        return Err(database::Error::AttachmentTooLarge);
    }
    let has_files = edits.iter().any(|edit| !edit.edit.files.is_empty());
    let shards: Vec<usize> = edits
        .iter()
        .map(|edit| db.shard_index(edit.edit.id.as_str()))
        .collect();
    let translate = move || {
        let (mut records, mut all_staged) = (vec![], vec![]);
        for (edit, shard) in edits.into_iter().zip(shards) {
            let mut staged = vec![];
            records.push(match names_contents {
                true => named_record(edit, &mut staged)?,
                false => edit_record(edit.edit)?,
            });
            all_staged.extend(staged.into_iter().map(|content| (shard, content)));
        }
        Ok::<_, storage::Error>((records, all_staged))
    };
    let records = match has_files {
        false => translate(),
        true => {
            let done = tokio::task::spawn_blocking(translate).await;
            done.map_err(|_| database::Error::ShuttingDown)?
        }
    };
    Ok(records?)
}
