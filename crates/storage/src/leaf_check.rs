//! Predicts which edits would be refused because their documents have too many leaves, before they
//! are logged.

use document::{DocId, Revision, weight};
use rustc_hash::FxHashMap;

use crate::Error;
use crate::commit::ShardEdit;
use crate::edit::Change;
use crate::keys::{self, ShardNumber};
use crate::keyspace::Keyspace;
use crate::limits::Limits;
use crate::record::Record;
use crate::tree::Tree;

/// Minimum size of a leaf in a stored record, for each part of its weight, in bytes.
const LEAF_BYTES_MIN: usize = 19;

/// The places of edits that may add leaves, by their documents.
type ByDocument<'a> = FxHashMap<(ShardNumber, &'a DocId), Vec<usize>>;

/// Returns whether [`too_many_leaves`] would have to read a revision tree, which is slow: the
/// lengths of the stored records do not show that all edits can be applied.
///
/// # Errors
/// Errors of the engine.
pub fn may_have_too_many_leaves(edits: &[ShardEdit], limits: &Limits) -> Result<bool, Error> {
    let Some(max) = limits.leaves_max else {
        return Ok(false);
    };
    for ((shard, id), of_document) in by_document(edits) {
        let engine = &edits[of_document[0]].shard.engine;
        let stored = engine.get(Keyspace::ById, &keys::id_key(shard, id.as_str().as_bytes()))?;
        let bytes = stored.map_or(0, |value| value.len());
        if !has_room(bytes, edits, &of_document, max) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns for each edit whether it would exceed the maximum number of leaves, if all of them were
/// applied now. Concurrent writes are not seen: the writer decides. Once `is_wanted` returns false,
/// further documents are not examined.
///
/// # Errors
/// Errors of the engine; [`Error::Corrupt`].
pub fn too_many_leaves(
    edits: &[ShardEdit],
    limits: &Limits,
    is_wanted: impl Fn() -> bool,
) -> Result<Vec<bool>, Error> {
    let mut refused = vec![false; edits.len()];
    let Some(max) = limits.leaves_max else {
        return Ok(refused);
    };
    for ((shard, id), of_document) in by_document(edits) {
        if !is_wanted() {
            break;
        }
        let engine = &edits[of_document[0]].shard.engine;
        let key = keys::id_key(shard, id.as_str().as_bytes());
        let stored = engine.get(Keyspace::ById, &key)?;
        let bytes = stored.as_ref().map_or(0, |value| value.len());
        // Usually this is enough.
        if has_room(bytes, edits, &of_document, max) {
            continue;
        }
        let record = stored.map(|value| Record::decode(&value)).transpose()?;
        let mut tree = Tree::Plain(record.unwrap_or_default().tree);
        for (made, i) in of_document.into_iter().enumerate() {
            tree.prepare_for(made as u32);
            let edit = &edits[i].edit;
            if let Change::Replicated { path } = &edit.change {
                let revision = Revision {
                    deleted: edit.deleted,
                    seq: 0,
                    size: 0,
                };
                let grafted = tree.graft(path, revision, &limits.of_trees());
                refused[i] = grafted == document::GraftResult::TooManyLeaves;
            }
        }
    }
    Ok(refused)
}

fn by_document(edits: &[ShardEdit]) -> ByDocument<'_> {
    let mut by_document = ByDocument::default();
    for (i, edit) in edits.iter().enumerate() {
        if let Change::Replicated { .. } = &edit.edit.change {
            let key = (edit.shard.number, &edit.edit.id);
            by_document.entry(key).or_default().push(i);
        }
    }
    by_document
}

/// Returns whether a document whose record has this length certainly has room for the leaves of its edits.
fn has_room(record_bytes: usize, edits: &[ShardEdit], of_document: &[usize], max: u64) -> bool {
    let new: u64 = of_document.iter().map(|i| new_weight(&edits[*i])).sum();
    (record_bytes / LEAF_BYTES_MIN) as u64 + new <= max
}

fn new_weight(edit: &ShardEdit) -> u64 {
    match &edit.edit.change {
        Change::Replicated { path } => path.ids.first().map_or(0, weight),
        Change::Interactive { .. } | Change::Local { .. } => 0,
    }
}
