//! Everything that must be equal on replicas of a slot.

use std::collections::BTreeMap;
use std::sync::Arc;

use document::RevTree;
use storage::{
    ChangeIter, IdIter, Keyspace, PurgeInfo, Record, Row, Shard, ShardMeta, Store, decode_local,
    list_purges,
};

/// Seq, document, winner and other leaves, with whether they are deleted.
type ChangeRow = (u64, String, Vec<(String, bool)>);

#[derive(Debug, PartialEq)]
pub struct ShardDump {
    /// Seq, revisions, and the bodies of all leaves.
    pub docs: BTreeMap<String, (u64, RevTree, Vec<Vec<u8>>)>,
    pub locals: BTreeMap<String, (u64, Vec<u8>)>,
    pub changes: Vec<ChangeRow>,
    /// Without superseded rows, which depend on compaction.
    pub meta: ShardMeta,
    pub purges: Vec<PurgeInfo>,
    /// Live documents and listed seqs of the summary.
    pub summary: (u64, u64),
}

pub fn shard(shard: &Arc<Shard>) -> ShardDump {
    let (view, summary) = shard.view_with(Clone::clone).unwrap();
    let mut docs = BTreeMap::new();
    let mut it = IdIter::new(&view.snapshot, shard.number);
    it.seek(&[]);
    while let Some((id, value)) = it.entry() {
        let record = Record::decode(value).unwrap();
        let leaves = record.tree.leaves();
        let bodies = leaves
            .iter()
            .map(|l| shard.body(l.revision.seq).unwrap().unwrap());
        let bodies = bodies.collect();
        let id = String::from_utf8(id.to_vec()).unwrap();
        docs.insert(id, (record.seq, record.tree.clone(), bodies));
        it.next();
    }
    let mut locals = BTreeMap::new();
    let mut it = IdIter::local(&view.snapshot, shard.number);
    it.seek(&[]);
    while let Some((id, value)) = it.entry() {
        let id = String::from_utf8(id.to_vec()).unwrap();
        let (rev, body) = decode_local(value).unwrap();
        locals.insert(id, (rev, body.to_vec()));
        it.next();
    }
    let changes = changes(shard, &view);
    let mut meta = view.meta.clone();
    meta.superseded_rows = 0;
    ShardDump {
        docs,
        locals,
        changes,
        purges: list_purges(shard, &view).unwrap(),
        summary: (summary.ids.live_total(), summary.seqs.total()),
        meta,
    }
}

fn changes(shard: &Shard, view: &storage::View) -> Vec<ChangeRow> {
    let mut changes = vec![];
    let mut feed = ChangeIter::new(&view.snapshot, shard.number, 0, false);
    while let Some((seq, value)) = feed.entry() {
        let row = Row::decode(seq, value).unwrap();
        let winner = (row.winner.to_rev().to_string(), row.deleted);
        let others = row.other_leaves().unwrap().into_iter();
        let others = others.map(|(rev, deleted)| (rev.to_rev().to_string(), deleted));
        let leaves = std::iter::once(winner).chain(others).collect();
        changes.push((seq, row.id.to_owned(), leaves));
        feed.next();
    }
    changes
}

/// The digest matches the rows, in memory and on disk; so do counters and summary.
pub fn check(shard: &Arc<Shard>, dump: &ShardDump) {
    let recount = shard.recount_digest().unwrap();
    assert_eq!(recount.kept, shard.digest());
    assert_eq!(dump.meta.digest, shard.digest());
    if let Some(kept) = recount.kept {
        assert_eq!(kept, recount.counted, "digest of shard {}", shard.number);
    } else {
        assert!(dump.docs.is_empty() && dump.locals.is_empty());
    }
    let is_live = |tree: &RevTree| !tree.winner().unwrap().revision.deleted;
    let live = dump.docs.values().filter(|(_, tree, _)| is_live(tree));
    let live = live.count() as u64;
    let rows = dump.docs.len() as u64;
    assert_eq!(dump.meta.doc_count, live);
    assert_eq!(dump.meta.doc_del_count, rows - live);
    assert_eq!(dump.summary, (live, rows));
    assert_eq!(dump.changes.len() as u64, rows);
}

/// Returns the stored rows of all slots.
pub fn slot_rows(store: &Store) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let snapshot = store.snapshot();
    let mut it = snapshot.iter_range(Keyspace::Meta, vec![b'l'], vec![b'm']);
    let mut rows = BTreeMap::new();
    it.seek_to_first();
    while let Some((key, value)) = it.item() {
        rows.insert(key.to_vec(), value.to_vec());
        it.next();
    }
    rows
}
