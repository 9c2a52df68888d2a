//! Converts edits and purges between the forms of records and of the store.

use std::sync::Arc;

use cluster::record::{ChangeRecord, EditRecord, FileRecord, PurgeRecord};
use database::Database;
use document::{ContentId, StoredBody};
use rustc_hash::FxHashSet;
use storage::{Change, Content, Contents, Edit, File, ShardEdit, ShardPurge};

use crate::content::STAGED_FROM_BYTES;

/// Converts an edit for the log, with the contents of its attachments.
///
/// # Errors
/// Errors of the store.
pub fn edit_record(edit: Edit) -> Result<EditRecord, storage::Error> {
    record(edit, |file| {
        let content = file.content.as_ref();
        let content = content.ok_or(storage::Error::Corrupt("attachment"))?;
        read_all(content).map(Some)
    })
}

/// Converts an edit for the log. Contents that all replicas have where the edit has an effect are
/// only named, since the revision that it replaces has them; and so are long ones, which are added
/// to `staged`.
///
/// # Errors
/// Errors of the store.
pub fn named_record(
    edit: ShardEdit,
    staged: &mut Vec<Content>,
) -> Result<EditRecord, storage::Error> {
    let kept = kept_contents(&edit)?;
    record(edit.edit, |file| {
        if kept.contains(&file.attachment.content) {
            return Ok(None);
        }
        let content = file.content.as_ref();
        let content = content.ok_or(storage::Error::Corrupt("attachment"))?;
        if content.length() <= STAGED_FROM_BYTES {
            return read_all(content).map(Some);
        }
        staged.push(content.clone());
        Ok(None)
    })
}

/// Returns the contents of the revision that a client's edit replaces: it has no effect unless that
/// is a leaf, whose contents every replica has.
fn kept_contents(edit: &ShardEdit) -> Result<FxHashSet<ContentId>, storage::Error> {
    let none = FxHashSet::default();
    let Change::Interactive {
        parent: Some(parent),
        ..
    } = &edit.edit.change
    else {
        return Ok(none);
    };
    if edit.edit.files.is_empty() {
        return Ok(none);
    }
    let record = edit
        .shard
        .record(edit.edit.id.as_str())?
        .unwrap_or_default();
    let revision = record.tree.get(parent).and_then(|node| node.revision);
    let Some(revision) = revision.filter(|_| record.tree.is_leaf(parent)) else {
        return Ok(none);
    };
    let Some(stored) = edit.shard.body(revision.seq)? else {
        return Ok(none);
    };
    let attachments = StoredBody::split(&stored).attachments();
    let attachments = attachments.ok_or(storage::Error::Corrupt("attachments"))?;
    Ok(attachments.iter().map(|file| file.content).collect())
}

fn record(
    edit: Edit,
    mut content: impl FnMut(&File) -> Result<Option<Vec<u8>>, storage::Error>,
) -> Result<EditRecord, storage::Error> {
    let file = |file: File| {
        let content = content(&file)?;
        Ok(FileRecord {
            attachment: file.attachment,
            content,
        })
    };
    let files = edit.files.into_iter().map(file);
    Ok(EditRecord {
        id: edit.id,
        deleted: edit.deleted,
        body: edit.body,
        files: files.collect::<Result<_, storage::Error>>()?,
        change: match edit.change {
            Change::Interactive {
                parent,
                rev,
                body_term,
            } => ChangeRecord::Interactive {
                parent,
                rev,
                body_term,
            },
            Change::Replicated { path } => ChangeRecord::Replicated { path },
            Change::Local { rev } => ChangeRecord::Local { rev },
        },
    })
}

fn read_all(content: &Content) -> Result<Vec<u8>, storage::Error> {
    let mut bytes = Vec::with_capacity(content.length() as usize);
    while (bytes.len() as u64) < content.length() {
        let piece = content.read(bytes.len() as u64)?;
        if piece.is_empty() {
            return Err(storage::Error::Corrupt("attachment"));
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

/// Converts a purge for the log.
pub fn purge_record(purge: ShardPurge) -> PurgeRecord {
    PurgeRecord {
        id: purge.id,
        revs: purge.revs,
        uuid: purge.uuid,
    }
}

/// Converts an edit for the store. Stores the contents of its attachments, which blocks.
pub(super) fn shard_edit(db: &Database, edit: EditRecord) -> Result<ShardEdit, storage::Error> {
    let contents = db.contents_of(edit.id.as_str());
    let file = |file: FileRecord| {
        Ok(File {
            content: stored(contents, &file)?,
            attachment: file.attachment,
        })
    };
    let files = edit.files.into_iter().map(file);
    let files = files.collect::<Result<_, storage::Error>>()?;
    let change = match edit.change {
        ChangeRecord::Interactive {
            parent,
            rev,
            body_term,
        } => Change::Interactive {
            parent,
            rev,
            body_term,
        },
        ChangeRecord::Replicated { path } => Change::Replicated { path },
        ChangeRecord::Local { rev } => Change::Local { rev },
    };
    Ok(ShardEdit {
        shard: db.all_shards()[db.shard_index(edit.id.as_str())].clone(),
        edit: Edit {
            home: contents.home(),
            access: None,
            id: edit.id,
            deleted: edit.deleted,
            body: edit.body,
            files,
            change,
        },
    })
}

/// Returns a file's content, which is stored unless it exists; `None` if it is neither here nor in
/// the record.
fn stored(contents: &Arc<Contents>, file: &FileRecord) -> Result<Option<Content>, storage::Error> {
    if let Some(content) = contents.hold(&file.attachment.content)? {
        return Ok(Some(content));
    }
    let Some(bytes) = &file.content else {
        return Ok(None);
    };
    let mut upload = contents.upload();
    upload.write(bytes)?;
    upload.finish().map(Some)
}

/// Converts a purge for the store.
pub(super) fn shard_purge(db: &Database, purge: PurgeRecord) -> ShardPurge {
    ShardPurge {
        shard: db.all_shards()[db.shard_index(purge.id.as_str())].clone(),
        id: purge.id,
        revs: purge.revs,
        uuid: purge.uuid,
    }
}
