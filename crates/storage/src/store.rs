//! The node's store: all shards of all databases in one engine, and the catalogue of databases.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::SystemTime;

use parking_lot::Mutex;
use rocksdb::WriteBatch;
use tokio::sync::oneshot;

use crate::Error;
use crate::commit::{Committer, OnCommit, Put};
use crate::contents::{self, Contents, Numbers};
use crate::disk::DiskGuard;
use crate::engine::{Engine, StoreOptions, WriteFailure};
use crate::keys::{self, ShardNumber, meta};
use crate::keyspace::Keyspace;
use crate::last_backup;
use crate::meta::ShardMeta;
use crate::shard::Shard;
use crate::snapshot::Snapshot;
use crate::space::{self, Husks};
use crate::time_seq::TimeSeq;

/// Format of everything in the store; a store of another format is refused.
pub(crate) const FORMAT: &[u8] = b"settee 1";
/// A dropped shard with at most this many rows in a keyspace is deleted row by row: range deletions slow readers.
const DROP_ROWS_SINGLY: usize = 1_000;
/// So often a folder is removed into which somebody still writes.
const REMOVALS_MAX: usize = 100;

/// The folder of what indexes keep beside the engine.
const FOLDERS: &str = "text";

/// [`Store::folder`] of the store at `store`, which need not be open.
pub fn folder_in(store: &Path, index: ShardNumber) -> PathBuf {
    folders_in(store).join(index.to_string())
}

/// Where those folders are of all indexes of the store at `store`.
pub fn folders_in(store: &Path) -> PathBuf {
    store.join(FOLDERS)
}

/// What tells the indexes of a shard apart.
pub type Signature = [u8; meta::SIGNATURE_LEN];

/// All shards and indexes of all databases.
pub struct Store {
    engine: Arc<Engine>,
    /// Where writes are queued.
    pub committer: Committer,
    next_shard: Mutex<ShardNumber>,
    dropped: Mutex<Vec<ShardNumber>>,
    husks: Husks,
    contents: Arc<Numbers>,
    reserve_bytes: u64,
    /// What is asked whether the disk is full.
    room: Mutex<DiskGuard>,
}

impl Store {
    /// Opens the store in `path`, creating it when absent.
    pub fn open(path: &Path, options: &StoreOptions, on_commit: OnCommit) -> Result<Store, Error> {
        let engine = Engine::open(path, options)?;
        check_format(&engine, path)?;
        contents::count_bytes(&engine)?;
        contents::discard_unfinished(&engine)?;
        let next_shard = match engine.get(Keyspace::Meta, meta::NEXT_SHARD)? {
            Some(v) => u32::from_be_bytes(
                (*v).try_into()
                    .map_err(|_| Error::Corrupt("shard number"))?,
            ),
            None => 1,
        };
        let committer = Committer::start(engine.clone(), options.reserve_bytes, on_commit)
            .map_err(|e| Error::Directory {
                path: path.into(),
                reason: e.to_string(),
            })?;
        let dropped = dropped_shards(&engine)?;
        Ok(Store {
            contents: Arc::new(Numbers::open(&engine)?),
            reserve_bytes: options.reserve_bytes,
            room: Mutex::new(DiskGuard::new(path, options.reserve_bytes)),
            engine,
            committer,
            next_shard: Mutex::new(next_shard),
            husks: Husks::new(!dropped.is_empty()),
            dropped: Mutex::new(dropped),
        })
    }

    /// Opens a shard. To be done once for each, since it counts in memory.
    pub fn shard(&self, number: ShardNumber) -> Result<Shard, Error> {
        Shard::open(self.engine.clone(), number)
    }

    /// The contents of attachments under the shard `home`. To be made once for each.
    pub fn contents(&self, home: Arc<Shard>) -> Arc<Contents> {
        Contents::new(home, self.contents.clone(), self.reserve_bytes)
    }

    /// Queues the record of a new database with `q` shards; `record` gets their numbers.
    ///
    /// **Numbers reach the log in the order in which they are given out**, so that none is given out again after a
    /// restart: the put is queued under the lock.
    pub fn create_database(
        &self,
        name: &str,
        q: u32,
        record: impl FnOnce(&[ShardNumber]) -> Vec<u8>,
    ) -> oneshot::Receiver<Result<(), Error>> {
        let mut next = self.next_shard.lock();
        let numbers: Vec<ShardNumber> = (*next..*next + q).collect();
        *next += q;
        let value = next.to_be_bytes().to_vec();
        self.committer.put(vec![
            (Keyspace::Meta, meta::NEXT_SHARD.to_vec(), Some(value)),
            Self::put_database(name, record(&numbers)),
        ])
    }

    /// Numbers for shards that nothing names yet. Blocking.
    ///
    /// **They are listed as dropped until something names them**, so that a start after a crash removes what is under them: whoever writes there
    /// first takes them off the list in the batch that names them, or notes them as dropped.
    pub(crate) fn reserve_shards(&self, n: u32) -> Result<Vec<ShardNumber>, Error> {
        let mut next = self.next_shard.lock();
        let end = next.checked_add(n).ok_or(Error::Corrupt("shard number"))?;
        let numbers: Vec<ShardNumber> = (*next..end).collect();
        *next = end;
        let value = end.to_be_bytes().to_vec();
        let mut puts = vec![(Keyspace::Meta, meta::NEXT_SHARD.to_vec(), Some(value))];
        let listed = |&n| (Keyspace::Meta, meta::dropped(n).to_vec(), Some(vec![]));
        puts.extend(numbers.iter().map(listed));
        let done = self.committer.put(puts);
        drop(next);
        done.blocking_recv().map_err(|_| Error::Closed)??;
        Ok(numbers)
    }

    /// Gives the next content its number.
    pub(crate) fn next_content(&self) -> Result<u64, Error> {
        self.contents.next(&self.engine)
    }

    /// Says whether there is room for what is written past the commit thread.
    pub(crate) fn disk_guard(&self) -> DiskGuard {
        DiskGuard::new(self.engine.path(), self.reserve_bytes)
    }

    /// The names of all databases.
    pub fn databases(&self) -> Result<Vec<String>, Error> {
        let snapshot = self.engine.snapshot();
        let mut it = snapshot.iter_all(Keyspace::Meta);
        let mut all = vec![];
        it.seek([meta::DATABASE]);
        while let Some((&meta::DATABASE, name)) = it.key().and_then(<[u8]>::split_first) {
            let name = std::str::from_utf8(name).map_err(|_| Error::Corrupt("database name"))?;
            all.push(name.to_owned());
            it.next();
        }
        it.status()?;
        Ok(all)
    }

    /// The record of a database.
    pub fn database(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        let record = self.engine.get(Keyspace::Meta, &meta::database(name))?;
        Ok(record.map(|record| record.to_vec()))
    }

    /// The record of a database as it was in a snapshot.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn database_in(snapshot: &Snapshot, name: &str) -> Result<Option<Vec<u8>>, Error> {
        let record = snapshot.get(Keyspace::Meta, &meta::database(name))?;
        Ok(record.map(|record| record.to_vec()))
    }

    /// The put that writes a database's record.
    pub fn put_database(name: &str, record: Vec<u8>) -> Put {
        (Keyspace::Meta, meta::database(name), Some(record))
    }

    /// Queues the drop of a database: its record goes at once, its rows in the background after `note_dropped`.
    /// Edits of it that are queued later fail.
    pub fn drop_database(
        &self,
        name: &str,
        shards: Vec<Arc<Shard>>,
    ) -> oneshot::Receiver<Result<(), Error>> {
        let mut puts = vec![(Keyspace::Meta, meta::database(name), None)];
        puts.extend(drop_puts(&shards));
        self.committer.put_dropping(puts, shards)
    }

    /// Notes shards whose drop was committed, for `reap`.
    pub fn note_dropped(&self, shards: &[ShardNumber]) {
        self.dropped.lock().extend(shards);
    }

    /// Removes the rows of dropped shards. Blocking; meant for a background thread. Returns how many shards went.
    pub fn reap(&self) -> Result<usize, Error> {
        let mut n = 0;
        while !self.engine.is_closing() {
            let Some(shard) = self.dropped.lock().pop() else {
                break;
            };
            if let Err(e) = self.reap_shard(shard) {
                self.dropped.lock().push(shard);
                return Err(e);
            }
            n += 1;
        }
        Ok(n)
    }

    /// While room of what was dropped is given back: how many bytes have been, and of how many.
    pub fn reclaiming(&self) -> Option<(u64, u64)> {
        self.husks.progress()
    }

    /// Has the engine give back the room of shards that were dropped, if that is worth it; answers about how many bytes that
    /// was. Blocking; meant for a background thread. `quiet`: nobody writes.
    pub fn reclaim(&self, quiet: bool) -> Result<u64, Error> {
        self.husks.end_range_deletions(&self.engine);
        let given_back = self.husks.reclaim(&self.engine, quiet)?;
        if quiet {
            space::shorten_log(&self.engine)?;
        }
        Ok(given_back)
    }

    fn reap_shard(&self, shard: ShardNumber) -> Result<(), Error> {
        let snapshot = self.engine.snapshot();
        let contents_bytes = contents::bytes_of(&self.engine, shard)?;
        for (signature, index) in indexes_of(&snapshot, shard)? {
            self.reap_rows(&snapshot, index)?;
            self.husks.add(index, 0);
            let mut wb = WriteBatch::default();
            let cf = self.engine.cf(Keyspace::Meta);
            wb.put_cf(cf, meta::dropped(index), []);
            wb.delete_cf(cf, meta::index_state(index));
            wb.delete_cf(cf, meta::index(shard, &signature));
            self.engine.write(wb, false)?;
        }
        self.reap_rows(&snapshot, shard)?;
        self.husks.add(shard, contents_bytes);
        let mut wb = WriteBatch::default();
        // An edit in the batch of the drop writes its counters after it.
        wb.delete_cf(self.engine.cf(Keyspace::Meta), meta::shard(shard));
        wb.delete_cf(self.engine.cf(Keyspace::Meta), meta::time_seq(shard));
        self.engine.write(wb, false)
    }

    /// The folder of what an index keeps beside the engine, a text index's files; it is not there unless somebody made it. It goes
    /// with the index's rows. [`Store::copy`] does not copy it, so whoever uses it makes it anew where it is not there.
    pub fn folder(&self, index: ShardNumber) -> PathBuf {
        folder_in(self.engine.path(), index)
    }

    /// All those folders that are there.
    pub fn folders(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folders_in(self.engine.path()));
        let folders = entries.into_iter().flatten().flatten();
        folders.map(|folder| folder.path()).collect()
    }

    /// Bytes of the files in all those folders. Looks at each of them.
    pub fn folders_bytes(&self) -> u64 {
        let entries = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten();
        let folders = entries(&folders_in(self.engine.path()));
        // A file may go while it is looked at.
        let files = folders.flat_map(|folder| entries(&folder.path()));
        files
            .filter_map(|file| file.metadata().ok())
            .map(|m| m.len())
            .sum()
    }

    fn remove_folder(&self, index: ShardNumber) -> Result<(), Error> {
        let folder = self.folder(index);
        let mut removed = std::fs::remove_dir_all(&folder);
        for _ in 0..REMOVALS_MAX {
            match &removed {
                // A merge that nobody waited for has made one more file meanwhile.
                Err(e) if e.kind() == ErrorKind::DirectoryNotEmpty => {}
                _ => break,
            }
            removed = std::fs::remove_dir_all(&folder);
        }
        match removed {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(Error::Directory {
                path: folder,
                reason: e.to_string(),
            }),
            _ => Ok(()),
        }
    }

    fn reap_rows(&self, snapshot: &Snapshot, shard: ShardNumber) -> Result<(), Error> {
        self.remove_folder(shard)?;
        let (start, end) = (shard.to_be_bytes(), keys::shard_end(shard));
        for k in Keyspace::SHARDED {
            let cf = self.engine.cf(k);
            let mut wb = WriteBatch::default();
            let mut it = snapshot.iter(k, shard);
            it.seek_to_first();
            while let Some(key) = it.key() {
                if wb.len() >= DROP_ROWS_SINGLY {
                    break;
                }
                wb.delete_cf(cf, key);
                it.next();
            }
            if wb.is_empty() {
                continue;
            }
            if it.valid() {
                wb.clear();
                wb.delete_range_cf(cf, &start[..], &end[..]);
                self.husks.add_ranged(k, shard);
            }
            self.engine.write(wb, false)?;
            if k == Keyspace::Attachments {
                self.engine.drop_attachment_files(&start, &end);
            }
        }
        Ok(())
    }

    /// Queues the entry of a new index of `owner` in the catalogue and answers its number. It fails once the owner is
    /// dropped.
    pub fn create_index(
        &self,
        owner: Arc<Shard>,
        signature: &Signature,
    ) -> (ShardNumber, oneshot::Receiver<Result<(), Error>>) {
        let mut next = self.next_shard.lock();
        let number = *next;
        *next += 1;
        let key = meta::index(owner.number, signature);
        // Not synced: the log has it before the index's rows, and files of rows are added once it is on disk.
        let done = self.committer.put_for_later(
            owner,
            vec![
                (
                    Keyspace::Meta,
                    meta::NEXT_SHARD.to_vec(),
                    Some(next.to_be_bytes().to_vec()),
                ),
                (Keyspace::Meta, key, Some(number.to_be_bytes().to_vec())),
            ],
        );
        (number, done)
    }

    /// The indexes of a shard, by signature.
    pub fn indexes(&self, owner: ShardNumber) -> Result<Vec<(Signature, ShardNumber)>, Error> {
        indexes_of(&self.engine.snapshot(), owner)
    }

    /// Queues the drop of an index, to which nobody writes any more; call `note_dropped` once it is committed.
    pub fn drop_index(
        &self,
        owner: ShardNumber,
        signature: &Signature,
        number: ShardNumber,
    ) -> oneshot::Receiver<Result<(), Error>> {
        self.committer.put(vec![
            (Keyspace::Meta, meta::dropped(number).to_vec(), Some(vec![])),
            (Keyspace::Meta, meta::index_state(number).to_vec(), None),
            (Keyspace::Meta, meta::index(owner, signature), None),
        ])
    }

    /// Alive as long as anything holds this store: once it is not, the directory may be opened again.
    pub fn held(&self) -> Weak<()> {
        self.engine.held()
    }

    /// The engine, to read and write keyspaces.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Copies the store as it is now to `target`, which must not exist; files are linked where the file system can. Writes go on meanwhile.
    pub fn copy(&self, target: &Path) -> Result<(), Error> {
        self.committer
            .sync()
            .blocking_recv()
            .map_err(|_| Error::Closed)??;
        self.engine.checkpoint(target)
    }

    /// Reads the newest seq of a shard and its time bins. The shard need not be open.
    ///
    /// # Errors
    /// [`Error::Corrupt`], and those of the engine.
    pub fn times_of(&self, shard: ShardNumber) -> Result<(u64, TimeSeq), Error> {
        let bins = match self.engine.get(Keyspace::Meta, &meta::time_seq(shard))? {
            Some(value) => TimeSeq::decode(&value)?,
            None => TimeSeq::default(),
        };
        // Read after the bins, so that it is not less than theirs.
        let counters = self.engine.get(Keyspace::Meta, &meta::shard(shard))?;
        let counters = counters
            .map(|value| ShardMeta::decode(&value))
            .transpose()?;
        Ok((counters.map_or(0, |meta| meta.update_seq), bins))
    }

    /// Changes made before this time, in seconds since 1970, are not recorded in time bins from now on.
    pub fn set_time_seq_min(&self, unix_s: u64) {
        self.engine.recording.set_min(unix_s);
    }

    /// A backup of such a copy was made.
    pub fn note_backup(&self) {
        last_backup::note(self.engine.path());
    }

    /// When the last backup was made, as far as is known.
    pub fn last_backup(&self) -> Option<SystemTime> {
        last_backup::read(self.engine.path())
    }

    /// Memory that the block cache may use, in bytes.
    pub fn block_cache_capacity_bytes(&self) -> u64 {
        self.engine.cache_capacity_bytes()
    }

    /// Everything as it is now.
    pub fn snapshot(&self) -> Snapshot {
        self.engine.snapshot()
    }

    /// Free space of the store's file system, and all of it, in bytes.
    pub fn disk_space(&self) -> Option<(u64, u64)> {
        crate::disk::space(self.engine.path())
    }

    /// Bytes in memtables not yet written to files.
    pub fn memtable_bytes(&self) -> u64 {
        self.engine.memtable_bytes()
    }

    /// Bytes of documents in memtables not yet written to files, without their attachments.
    pub fn document_memtable_bytes(&self) -> u64 {
        self.engine.document_memtable_bytes()
    }

    /// Bytes of the files of each keyspace, by name.
    pub fn keyspace_bytes(&self) -> Vec<(&'static str, u64)> {
        self.engine.keyspace_bytes()
    }

    /// Memory that the block cache uses, in bytes.
    pub fn block_cache_bytes(&self) -> u64 {
        self.engine.cache_bytes()
    }

    /// Memory of documents that were read lately, in bytes.
    pub fn documents_bytes(&self) -> u64 {
        self.engine.winners.bytes()
    }

    /// Why all writes fail, if they do: the engine stopped them, the writer ended, or the disk is full, as it was a fifth of a second ago. Cheap
    /// enough for each request.
    pub fn write_failure(&self) -> Option<WriteFailure> {
        if let Some(failure) = self.engine.write_failure() {
            return Some(failure);
        }
        if self.committer.has_failed() {
            let reason = "a thread panicked while it wrote; the log has its words".to_owned();
            return Some(WriteFailure::of(
                "the thread that writes failed",
                reason,
                true,
            ));
        }
        let full = self.room.lock().admit(&self.engine, 0).err()?;
        Some(WriteFailure::of(
            "the disk is full",
            full.to_string(),
            false,
        ))
    }

    /// Stops the writer after what is queued.
    pub fn close(&self) {
        self.engine.begin_closing();
        self.committer.close();
        // Everything acknowledged is in the log: compactions and flushes under way may be left for the next start.
        self.engine.cancel_background_work();
    }
}

/// The puts that list shards as dropped.
pub(crate) fn drop_puts(shards: &[Arc<Shard>]) -> impl Iterator<Item = Put> {
    shards.iter().flat_map(|shard| {
        let n = shard.number;
        let listed = (Keyspace::Meta, meta::dropped(n).to_vec(), Some(vec![]));
        let gone = |key: [u8; 5]| (Keyspace::Meta, key.to_vec(), None);
        [listed, gone(meta::shard(n)), gone(meta::time_seq(n))]
    })
}

fn check_format(engine: &Engine, path: &Path) -> Result<(), Error> {
    let found = engine
        .get(Keyspace::Meta, meta::FORMAT)?
        .map(|v| v.to_vec());
    match found {
        None => {
            let mut wb = WriteBatch::default();
            wb.put_cf(engine.cf(Keyspace::Meta), meta::FORMAT, FORMAT);
            engine.write(wb, true)
        }
        Some(f) if f == FORMAT => Ok(()),
        Some(f) => Err(Error::Directory {
            path: path.into(),
            reason: format!(
                "written in format '{}', this version reads '{}'",
                String::from_utf8_lossy(&f),
                String::from_utf8_lossy(FORMAT)
            ),
        }),
    }
}

fn indexes_of(
    snapshot: &Snapshot,
    owner: ShardNumber,
) -> Result<Vec<(Signature, ShardNumber)>, Error> {
    let prefix = meta::indexes(owner);
    let mut it = snapshot.iter_all(Keyspace::Meta);
    let mut all = vec![];
    it.seek(prefix);
    while let (Some(k), Some(v)) = (it.key(), it.value()) {
        let Some(signature) = k.strip_prefix(&prefix[..]) else {
            break;
        };
        let signature = signature
            .try_into()
            .map_err(|_| Error::Corrupt("index signature"))?;
        let number = v.try_into().map_err(|_| Error::Corrupt("index number"))?;
        all.push((signature, u32::from_be_bytes(number)));
        it.next();
    }
    it.status()?;
    Ok(all)
}

fn dropped_shards(engine: &Arc<Engine>) -> Result<Vec<ShardNumber>, Error> {
    let snapshot = engine.snapshot();
    let mut it = snapshot.iter_all(Keyspace::Meta);
    let mut all = vec![];
    it.seek([meta::DROPPED]);
    while let Some((&meta::DROPPED, n)) = it.key().and_then(<[u8]>::split_first) {
        let n = n.try_into().map_err(|_| Error::Corrupt("dropped shard"))?;
        all.push(u32::from_be_bytes(n));
        it.next();
    }
    it.status()?;
    Ok(all)
}
