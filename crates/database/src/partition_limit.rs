//! How large a partition may become: `[couchdb] max_partition_size`.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use document::{DocId, EditDoc};
use storage::ShardMeta;

use crate::database::Database;
use crate::databases::to_the_end;
use crate::partition_count::PartitionCount;
use crate::partition_room::{CountTurn, Judged, ShardSeqs, seqs_of};
use crate::refusals::RefusalRoom;
use crate::{EditMode, Error, Outcome};

/// A document that may enlarge a partition: its id, and the partition.
fn enlarging(doc: &EditDoc) -> Option<(&DocId, &str)> {
    let id = doc
        .id
        .as_ref()
        .filter(|id| !id.is_design() && !id.is_local() && !doc.deleted)?;
    let (partition, _) = id.as_str().split_once(':')?;
    Some((id, partition))
}

impl Database {
    /// Replaces edits that a full partition cannot hold by their refusal. Deletions are accepted,
    /// and edits that do not enlarge a document; so are edits that other servers accepted, which
    /// are the replicated ones.
    pub(crate) async fn refuse_overflows(
        self: &Arc<Self>,
        mut edits: Vec<Result<EditDoc, Outcome>>,
        mode: EditMode,
    ) -> Result<Vec<Result<EditDoc, Outcome>>, Error> {
        if !self.is_partitioned() || mode == EditMode::Replicated {
            return Ok(edits);
        }
        let mut refusals = RefusalRoom::new();
        // A count is as good for all of the request.
        let mut metas: HashMap<usize, ShardMeta> = HashMap::new();
        for edit in &mut edits {
            let Ok(doc) = edit else {
                continue;
            };
            let Some((id, partition)) = enlarging(doc) else {
                continue;
            };
            let shard = self.shard_index(id.as_str());
            let meta = metas.entry(shard);
            let meta = meta.or_insert_with(|| self.all_shards()[shard].meta());
            let refused = self.overflow(doc, (id, partition), meta).await?;
            if let Some(refused) = refused {
                *edit = Err(refused.kept_in(&mut refusals));
            }
        }
        Ok(edits)
    }

    /// The refusal of a document whose partition has no room for it. `meta`: the counters of its shard
    /// since the request began.
    async fn overflow(
        self: &Arc<Self>,
        doc: &EditDoc,
        (id, partition): (&DocId, &str),
        meta: &ShardMeta,
    ) -> Result<Option<Outcome>, Error> {
        let max_bytes = self.partition_limit().load(Relaxed);
        let bytes = doc.body.len() as u64;
        // A partition is no larger than the shard that it is in.
        if meta.external_bytes < max_bytes {
            return Ok(None);
        }
        let limit = (max_bytes, seqs_of(meta));
        let judged = self.partition_room().lock().judge(partition, bytes, limit);
        let has_room = match judged {
            Judged::HasRoom(has_room) => has_room,
            Judged::Unknown(turn) => {
                let (me, partition) = (self.clone(), partition.to_owned());
                // The count is of use to the next request, also when the client does not wait for it.
                let counting = async move { me.count_room(&partition, bytes, limit, turn).await };
                // Rare, and long: other writes need not have room for it.
                Box::pin(to_the_end(counting)).await?
            }
        };
        if has_room {
            return Ok(None);
        }
        let record = self.shard_for(id.as_str()).record(id.as_str())?;
        let old_bytes = record.map_or(0, |record| record.leaf_bytes());
        // A request may have many of them.
        tokio::task::yield_now().await;
        Ok((bytes > old_bytes).then(|| {
            Outcome::Refused(
                "partition_overflow".into(),
                format!("Partition limit exceeded due to update on '{id}'").into(),
            )
        }))
    }

    /// Counts a partition; returns whether it has room for a document of `bytes`.
    async fn count_room(
        self: &Arc<Self>,
        partition: &str,
        bytes: u64,
        limit: (u64, ShardSeqs),
        turn: CountTurn,
    ) -> Result<bool, Error> {
        let _turn = turn.lock_owned().await;
        // Another request may have counted it meanwhile.
        let judged = self.partition_room().lock().judge(partition, bytes, limit);
        if let Judged::HasRoom(has_room) = judged {
            return Ok(has_room);
        }
        let counted = self.held_bytes(partition).await?;
        let mut room = self.partition_room().lock();
        Ok(room.note(partition, bytes, limit.0, counted))
    }

    /// Counts the bytes of a partition, on threads that do not serve.
    async fn held_bytes(self: &Arc<Self>, partition: &str) -> Result<(ShardSeqs, u64), Error> {
        let go_on = |mut count: PartitionCount| {
            let more = count.next_piece()?;
            Ok::<_, Error>((count, more))
        };
        let (db, name) = (self.clone(), partition.to_owned());
        let begin = move || go_on(db.count_partition(&name)?);
        let (mut count, mut more) = self.run_low_priority(begin).await?;
        // The next piece waits for the turns of others.
        while more {
            (count, more) = self.run_low_priority(move || go_on(count)).await?;
        }
        Ok((count.seqs(), count.into_info().external_bytes))
    }
}

#[cfg(test)]
mod tests {
    use document::{Rev, parse_document};

    use super::*;
    use crate::{CreateOptions, Databases, Durability, Options};

    const MAX_BYTES: u64 = 10_000;

    async fn partitioned(databases: &Arc<Databases>) -> Arc<Database> {
        databases.set_partition_limit(MAX_BYTES);
        let options = CreateOptions {
            q: Some(1),
            partitioned: true,
            ..CreateOptions::default()
        };
        databases.create("db", options).await.unwrap()
    }

    fn doc(id: &str, bytes: usize, rev: Option<Rev>) -> EditDoc {
        let text = format!(r#"{{"_id":"{id}","s":"{}"}}"#, "x".repeat(bytes));
        let mut doc = parse_document(text.as_bytes()).unwrap();
        doc.rev = rev;
        doc
    }

    async fn write(db: &Arc<Database>, docs: Vec<EditDoc>) -> Vec<Outcome> {
        let written = db.update(docs, EditMode::Interactive, Durability::Delayed);
        written.await.unwrap().0
    }

    fn refused(outcomes: &[Outcome]) -> usize {
        let is_refused = |outcome: &&Outcome| matches!(outcome, Outcome::Refused(..));
        outcomes.iter().filter(is_refused).count()
    }

    fn counts(db: &Database) -> usize {
        db.partition_room().lock().counts()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_full_partition_is_counted_once_for_many_documents() {
        let folder = tempfile::tempdir().unwrap();
        let databases = Databases::open(folder.path(), Options::default()).unwrap();
        let db = partitioned(&databases).await;
        let full: Vec<EditDoc> = (0..20)
            .map(|n| doc(&format!("full:{n}"), 1_000, None))
            .collect();
        let written = write(&db, full).await;
        assert_eq!((refused(&written), counts(&db)), (0, 0));
        let more = |prefix: &str| -> Vec<EditDoc> {
            let docs = (0..200).map(|n| doc(&format!("full:{prefix}{n}"), 10, None));
            docs.collect()
        };
        assert_eq!(refused(&write(&db, more("a")).await), 200);
        assert_eq!(counts(&db), 1);
        // Of requests at the same time, one counts.
        let requests = (0..10).map(|n| {
            let (db, docs) = (db.clone(), more(&format!("b{n}-")));
            tokio::spawn(async move { refused(&write(&db, docs).await) })
        });
        for request in requests.collect::<Vec<_>>() {
            assert_eq!(request.await.unwrap(), 200);
        }
        assert_eq!(counts(&db), 1, "nothing has changed");

        // Others have room, and are counted once too.
        let other = (0..20).map(|n| doc(&format!("other:{n}"), 10, None));
        assert_eq!(refused(&write(&db, other.collect()).await), 0);
        assert_eq!(counts(&db), 2);
        // The shard has changed.
        assert_eq!(refused(&write(&db, more("c")).await), 200);
        assert_eq!(counts(&db), 3);
        // Edits that make a document shorter are accepted, and make room.
        for (n, outcome) in written.into_iter().enumerate() {
            let Outcome::Ok { rev } = outcome else {
                panic!("{outcome:?}");
            };
            let shorter = doc(&format!("full:{n}"), 10, Some(rev));
            assert_eq!(refused(&write(&db, vec![shorter]).await), 0, "{n}");
        }
        let again = write(&db, more("d")).await;
        assert_eq!(refused(&again), 0);
        databases.close();
    }
}
