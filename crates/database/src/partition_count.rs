//! Counts and sizes of one partition. It may hold any number of documents, so it is counted in
//! pieces.

use std::sync::Arc;

use storage::{IdIter, RecordHead, ShardNumber, View};

use crate::database::Database;
use crate::partition_room::{ShardSeqs, seqs_of};
use crate::{Error, partition};

/// Ids and records that are read in one piece, in bytes: about 4,000 documents with one revision.
const PIECE_BYTES: usize = 256 << 10;
/// The cost of a row in addition to its id and its record, in bytes.
const ROW_BYTES: usize = 32;

/// Counts and sizes of one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionInfo {
    /// The partition's name.
    pub partition: String,
    /// Documents whose winner is not deleted.
    pub doc_count: u64,
    /// Documents whose winner is deleted.
    pub doc_del_count: u64,
    /// Bytes of live data before compression.
    pub active_bytes: u64,
    /// Length of the leaves' bodies as JSON text, in bytes.
    pub external_bytes: u64,
}

/// A count of one partition, as of one moment.
pub struct PartitionCount {
    db: Arc<Database>,
    view: View,
    shard: ShardNumber,
    /// The id to continue at.
    next: Vec<u8>,
    /// The partition's ids are before this one.
    end: Vec<u8>,
    info: PartitionInfo,
}

impl Database {
    /// Begins to count a partition.
    ///
    /// # Errors
    /// [`Error::Partition`] when the name is invalid.
    pub fn count_partition(self: &Arc<Self>, name: &str) -> Result<PartitionCount, Error> {
        partition::check(name)?;
        self.if_live(self.begin_count(name))
    }

    fn begin_count(self: &Arc<Self>, name: &str) -> Result<PartitionCount, Error> {
        let (from, to) = partition::bounds(name);
        let shard = self.shard_for(&from);
        Ok(PartitionCount {
            db: self.clone(),
            view: shard.view()?,
            shard: shard.number,
            next: from.into(),
            end: to.into(),
            info: PartitionInfo {
                partition: name.to_owned(),
                ..PartitionInfo::default()
            },
        })
    }
}

impl PartitionCount {
    /// Counts the next documents; returns whether there are more. Blocks for about a millisecond.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn next_piece(&mut self) -> Result<bool, Error> {
        let more = self.count_some(PIECE_BYTES);
        self.db.if_live(more)
    }

    fn count_some(&mut self, bytes_max: usize) -> Result<bool, Error> {
        let mut it = IdIter::new(&self.view.snapshot, self.shard);
        it.seek(&self.next);
        let mut bytes = 0;
        let mut next = None;
        while let Some((id, value)) = it.entry().filter(|(id, _)| *id < self.end.as_slice()) {
            if bytes >= bytes_max {
                next = Some(id.to_vec());
                break;
            }
            bytes += id.len() + value.len() + ROW_BYTES;
            self.info.add(id, &RecordHead::decode(value)?)?;
            it.next();
        }
        it.status()?;
        let more = next.is_some();
        self.next = next.unwrap_or_else(|| self.end.clone());
        Ok(more)
    }

    /// Returns the contents of the shard that are counted.
    pub(crate) fn seqs(&self) -> ShardSeqs {
        seqs_of(&self.view.meta)
    }

    /// Returns the counts and sizes of the pieces so far.
    pub fn into_info(self) -> PartitionInfo {
        self.info
    }
}

impl PartitionInfo {
    fn add(&mut self, id: &[u8], record: &RecordHead<'_>) -> Result<(), Error> {
        let bytes = record.leaf_bytes()?;
        self.external_bytes += bytes;
        self.active_bytes += storage::active_bytes(1, id.len() as u64, bytes);
        match record.deleted {
            true => self.doc_del_count += 1,
            false => self.doc_count += 1,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use document::parse_document;

    use super::*;
    use crate::{CreateOptions, Databases, Durability, EditMode, Options};

    /// Creates a database with conflicts, deleted documents and other partitions.
    async fn with_partitions(databases: &Arc<Databases>) -> Arc<Database> {
        let options = CreateOptions {
            q: Some(1),
            partitioned: true,
            ..CreateOptions::default()
        };
        let db = databases.create("db", options).await.unwrap();
        let mut docs = vec![];
        for n in 0..40 {
            for partition in ["a", "b", "bb", "c"] {
                let deleted = n % 3 == 0;
                for branch in 0..=n % 5 {
                    let text = format!(
                        r#"{{"_id":"{partition}:{n}","_deleted":{deleted},"_rev":"{}-{branch:032x}","s":"{}"}}"#,
                        1 + n % 2,
                        "x".repeat(n * branch)
                    );
                    docs.push(parse_document(text.as_bytes()).unwrap());
                }
            }
        }
        let written = db.update(docs, EditMode::Replicated, Durability::Synced);
        written.await.unwrap();
        db
    }

    /// Counts with the records' trees.
    fn naive(db: &Arc<Database>, partition: &str) -> PartitionInfo {
        let mut info = PartitionInfo {
            partition: partition.to_owned(),
            ..PartitionInfo::default()
        };
        for n in 0..40 {
            let id = format!("{partition}:{n}");
            let record = db.shard_for(&id).record(&id).unwrap().unwrap();
            let bytes = record.leaf_bytes();
            info.external_bytes += bytes;
            info.active_bytes += storage::active_bytes(1, id.len() as u64, bytes);
            info.doc_count += u64::from(!record.is_deleted());
            info.doc_del_count += u64::from(record.is_deleted());
        }
        info
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn pieces_of_any_length_count_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let databases = Databases::open(folder.path(), Options::default()).unwrap();
        let db = with_partitions(&databases).await;
        for bytes_max in [1, 100, 1_000, PIECE_BYTES] {
            let mut count = db.count_partition("b").unwrap();
            let mut pieces = 1;
            while count.count_some(bytes_max).unwrap() {
                pieces += 1;
                assert!(pieces <= 40, "a piece without a document");
            }
            assert!(!count.count_some(bytes_max).unwrap(), "counted again");
            match bytes_max {
                1 => assert_eq!(pieces, 40),
                PIECE_BYTES => assert_eq!(pieces, 1),
                _ => assert!(pieces > 1),
            }
            assert_eq!(count.into_info(), naive(&db, "b"));
        }
        let mut none = db.count_partition("none").unwrap();
        assert!(!none.next_piece().unwrap());
        assert_eq!(none.into_info().doc_count, 0);
        databases.close();
    }
}
