//! The node's store: all shards of all databases in one engine, and the catalogue of databases.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::SystemTime;

use document::ContentId;
use parking_lot::Mutex;
use rocksdb::WriteBatch;
use tokio::sync::oneshot;

use crate::Error;
use crate::commit::{Committer, OnCommit, Put};
use crate::contents::{self, Contents, Numbers, PinnedContent};
use crate::disk::DiskGuard;
use crate::engine::{Engine, StoreOptions, WriteFailure};
use crate::keys::{self, ShardNumber, meta};
use crate::keyspace::Keyspace;
use crate::last_backup;
use crate::meta::ShardMeta;
use crate::shard::Shard;
use crate::snapshot::Snapshot;
use crate::space::{self, DroppedData};
use crate::time_seq::TimeSeq;

/// Format of everything in the store; a store of a format that is not among these is refused.
pub(crate) const FORMATS: [&[u8]; 2] = [FORMAT, FORMAT_WITH_ACCESS];
const FORMAT: &[u8] = b"settee 1";
/// Format of a store that has databases with access by document. Versions without access by document
/// would show every document of these to all members of the database: they refuse this format.
pub(crate) const FORMAT_WITH_ACCESS: &[u8] = b"settee 2";
/// A dropped shard with at most this many rows in a keyspace is deleted row by row: range deletions
/// slow down readers.
const DROP_ROWS_SINGLY: usize = 1_000;
/// Maximum number of attempts to remove a folder that is still being written to.
const REMOVALS_MAX: usize = 100;

/// The folder of index files next to the engine's.
const FOLDERS: &str = "text";

/// Returns [`Store::folder`] of the store at `store`, which need not be open.
pub fn folder_in(store: &Path, index: ShardNumber) -> PathBuf {
    folders_in(store).join(index.to_string())
}

/// Returns the parent of those folders of all indexes of the store at `store`.
pub fn folders_in(store: &Path) -> PathBuf {
    store.join(FOLDERS)
}

/// Identifies an index of a shard.
pub type Signature = [u8; meta::SIGNATURE_LEN];

/// All shards and indexes of all databases.
pub struct Store {
    engine: Arc<Engine>,
    /// The write queue.
    pub committer: Committer,
    next_shard: Mutex<ShardNumber>,
    dropped: Mutex<Vec<ShardNumber>>,
    dropped_data: DroppedData,
    contents: Arc<Numbers>,
    reserve_bytes: u64,
    /// Checks whether the disk is full.
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
            dropped_data: DroppedData::new(!dropped.is_empty()),
            dropped: Mutex::new(dropped),
        })
    }

    /// Opens a shard. Must be called once for each, since it counts in memory.
    pub fn shard(&self, number: ShardNumber) -> Result<Shard, Error> {
        Shard::open(self.engine.clone(), number)
    }

    /// Opens the contents of attachments under the shard `home`. Must be called once for each.
    pub fn contents(&self, home: Arc<Shard>) -> Arc<Contents> {
        Contents::new(home, self.contents.clone(), self.reserve_bytes)
    }

    /// Returns the contents that are kept without a reference. Blocks.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn pinned_contents(&self) -> Result<Vec<PinnedContent>, Error> {
        crate::contents::pinned_contents(&self.engine)
    }

    /// Forgets that a content of a shard that does not exist any more is kept.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn forget_pin(&self, home: ShardNumber, id: &ContentId) -> Result<(), Error> {
        let mut wb = WriteBatch::default();
        let key = crate::contents::keys::pinned(home, id);
        wb.delete_cf(self.engine.cf(Keyspace::Meta), key);
        self.engine.write(wb, false)
    }

    /// Forgets that any content is kept without a reference: there is no log any more whose records
    /// may name it. Blocks.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn forget_pins(&self) -> Result<(), Error> {
        let mut wb = WriteBatch::default();
        contents::forget_pins(&self.engine, &mut wb)?;
        match wb.is_empty() {
            true => Ok(()),
            false => self.engine.write(wb, false),
        }
    }

    /// Queues the record of a new database with `q` shards; `record` gets their numbers.
    pub fn create_database(
        &self,
        name: &str,
        q: u32,
        record: impl FnOnce(&[ShardNumber]) -> Vec<u8>,
    ) -> oneshot::Receiver<Result<(), Error>> {
        self.create(name, q, record, None)
    }

    /// [`Store::create_database`] of a database with access by document.
    ///
    /// **It changes the store's format in the same batch**, so there is no moment at which a version
    /// that does not know such databases could open the store with one.
    pub fn create_database_with_access(
        &self,
        name: &str,
        q: u32,
        record: impl FnOnce(&[ShardNumber]) -> Vec<u8>,
    ) -> oneshot::Receiver<Result<(), Error>> {
        let format = FORMAT_WITH_ACCESS.to_vec();
        let put = (Keyspace::Meta, meta::FORMAT.to_vec(), Some(format));
        self.create(name, q, record, Some(put))
    }

    /// Queues the record of a new database, and `format`, which changes the store's format.
    ///
    /// **Numbers reach the log in the order of their assignment**, so that none is assigned again
    /// after a restart: the put is queued under the lock.
    fn create(
        &self,
        name: &str,
        q: u32,
        record: impl FnOnce(&[ShardNumber]) -> Vec<u8>,
        format: Option<Put>,
    ) -> oneshot::Receiver<Result<(), Error>> {
        let mut next = self.next_shard.lock();
        let numbers: Vec<ShardNumber> = (*next..*next + q).collect();
        *next += q;
        let value = next.to_be_bytes().to_vec();
        let mut puts = vec![
            (Keyspace::Meta, meta::NEXT_SHARD.to_vec(), Some(value)),
            Self::put_database(name, record(&numbers)),
        ];
        puts.extend(format);
        self.committer.put(puts)
    }

    /// Returns whether the store's format is that of stores with databases with access by document.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn has_format_with_access(&self) -> Result<bool, Error> {
        let format = self.engine.get(Keyspace::Meta, meta::FORMAT)?;
        Ok(format.is_some_and(|format| *format == *FORMAT_WITH_ACCESS))
    }

    /// Changes the format back to that of stores without such databases, so that versions without
    /// access by document open the store. Blocks. **There must be no such database, and none may be
    /// created meanwhile.**
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn lower_format(&self) -> Result<(), Error> {
        let mut wb = WriteBatch::default();
        wb.put_cf(self.engine.cf(Keyspace::Meta), meta::FORMAT, FORMAT);
        self.engine.write(wb, true)
    }

    /// Reserves numbers for shards that nothing names yet. Blocks.
    ///
    /// **They are listed as dropped until something names them**, so that a start after a crash
    /// removes what is under them: the first writer removes them from the list in the batch that
    /// names them, or notes them as dropped.
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

    /// Returns the number of the next content.
    pub(crate) fn next_content(&self) -> Result<u64, Error> {
        self.contents.next(&self.engine)
    }

    /// Returns a guard for writes that bypass the commit thread.
    pub(crate) fn disk_guard(&self) -> DiskGuard {
        DiskGuard::new(self.engine.path(), self.reserve_bytes)
    }

    /// Returns the names of all databases.
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

    /// Returns the record of a database.
    pub fn database(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        let record = self.engine.get(Keyspace::Meta, &meta::database(name))?;
        Ok(record.map(|record| record.to_vec()))
    }

    /// Returns the record of a database in a snapshot.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn database_in(snapshot: &Snapshot, name: &str) -> Result<Option<Vec<u8>>, Error> {
        let record = snapshot.get(Keyspace::Meta, &meta::database(name))?;
        Ok(record.map(|record| record.to_vec()))
    }

    /// Returns the put that writes a database's record.
    pub fn put_database(name: &str, record: Vec<u8>) -> Put {
        (Keyspace::Meta, meta::database(name), Some(record))
    }

    /// Queues the drop of a database: its record is removed immediately, its rows in the background
    /// after `note_dropped`. Edits of it that are queued later fail.
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

    /// Removes the rows of dropped shards. Blocks; meant for a background thread. Returns the
    /// number of shards removed.
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

    /// Returns the progress while space of dropped data is being reclaimed: bytes done, and total.
    pub fn reclaiming(&self) -> Option<(u64, u64)> {
        self.dropped_data.progress()
    }

    /// Lets the engine reclaim the space of dropped shards, if it is worth it; returns
    /// approximately how many bytes that was. Blocks; meant for a background thread. `quiet`:
    /// nothing is being written.
    pub fn reclaim(&self, quiet: bool) -> Result<u64, Error> {
        self.dropped_data.end_range_deletions(&self.engine);
        let given_back = self.dropped_data.reclaim(&self.engine, quiet)?;
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
            self.dropped_data.add(index, 0);
            let mut wb = WriteBatch::default();
            let cf = self.engine.cf(Keyspace::Meta);
            wb.put_cf(cf, meta::dropped(index), []);
            wb.delete_cf(cf, meta::index_state(index));
            wb.delete_cf(cf, meta::index(shard, &signature));
            self.engine.write(wb, false)?;
        }
        self.reap_rows(&snapshot, shard)?;
        self.dropped_data.add(shard, contents_bytes);
        let mut wb = WriteBatch::default();
        // An edit in the batch of the drop writes its counters after it.
        wb.delete_cf(self.engine.cf(Keyspace::Meta), meta::shard(shard));
        wb.delete_cf(self.engine.cf(Keyspace::Meta), meta::time_seq(shard));
        wb.delete_cf(self.engine.cf(Keyspace::Meta), meta::purged_to(shard));
        self.engine.write(wb, false)
    }

    /// Returns the folder of an index's files next to the engine's, those of a full-text index; it
    /// exists only if its user created it. It is removed with the index's rows. [`Store::copy`]
    /// does not copy it, so its user rebuilds it where it is missing.
    pub fn folder(&self, index: ShardNumber) -> PathBuf {
        folder_in(self.engine.path(), index)
    }

    /// Returns all existing folders of that kind.
    pub fn folders(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folders_in(self.engine.path()));
        let folders = entries.into_iter().flatten().flatten();
        folders.map(|folder| folder.path()).collect()
    }

    /// Returns the bytes of the files in all those folders. Examines each of them.
    pub fn folders_bytes(&self) -> u64 {
        let entries = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten();
        let folders = entries(&folders_in(self.engine.path()));
        // A file may be removed meanwhile.
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
                // A merge that was not waited for has created one more file meanwhile.
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
                self.dropped_data.add_ranged(k, shard);
            }
            self.engine.write(wb, false)?;
            if k == Keyspace::Attachments {
                self.engine.drop_attachment_files(&start, &end);
            }
        }
        Ok(())
    }

    /// Queues the entry of a new index of `owner` in the catalogue and returns its number. It fails
    /// once the owner is dropped.
    pub fn create_index(
        &self,
        owner: Arc<Shard>,
        signature: &Signature,
    ) -> (ShardNumber, oneshot::Receiver<Result<(), Error>>) {
        let mut next = self.next_shard.lock();
        let number = *next;
        *next += 1;
        let key = meta::index(owner.number, signature);
        // Not synced: the log has it before the index's rows, and files of rows are added once it
        // is on disk.
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

    /// Returns the indexes of a shard, by signature.
    pub fn indexes(&self, owner: ShardNumber) -> Result<Vec<(Signature, ShardNumber)>, Error> {
        indexes_of(&self.engine.snapshot(), owner)
    }

    /// Queues the drop of an index that is no longer written; call `note_dropped` once it is
    /// committed.
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

    /// Returns a reference that lives as long as this store is in use: after that, the directory
    /// may be opened again.
    pub fn held(&self) -> Weak<()> {
        self.engine.held()
    }

    /// Returns the engine, to read and write keyspaces.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Copies the current state of the store to `target`, which must not exist; files are
    /// hard-linked where the file system can. Writes continue meanwhile.
    pub fn copy(&self, target: &Path) -> Result<(), Error> {
        self.committer
            .sync()
            .blocking_recv()
            .map_err(|_| Error::Closed)??;
        self.engine.checkpoint(target)
    }

    /// Reads the counters of a shard, which need not be open.
    ///
    /// # Errors
    /// [`Error::Corrupt`], and those of the engine.
    pub fn counters(&self, shard: ShardNumber) -> Result<ShardMeta, Error> {
        let counters = self.engine.get(Keyspace::Meta, &meta::shard(shard))?;
        counters.map_or(Ok(ShardMeta::default()), |value| ShardMeta::decode(&value))
    }

    /// Reads the newest seq of a shard and its time bins. The shard need not be open.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for the seq, and those of the engine.
    pub fn times_of(&self, shard: ShardNumber) -> Result<(u64, TimeSeq), Error> {
        // Read before the bins: a change between both is not taken to be as old as their newest one.
        let update_seq = self.counters(shard)?.update_seq;
        let bins = self.engine.get(Keyspace::Meta, &meta::time_seq(shard))?;
        Ok((update_seq, TimeSeq::of_stored(shard, bins.as_deref())))
    }

    /// Returns the seq up to which the deleted documents of a shard were purged automatically.
    ///
    /// # Errors
    /// [`Error::Corrupt`], and those of the engine.
    pub fn purged_to(&self, shard: ShardNumber) -> Result<u64, Error> {
        let Some(value) = self.engine.get(Keyspace::Meta, &meta::purged_to(shard))? else {
            return Ok(0);
        };
        let seq: Result<[u8; 8], _> = value[..].try_into();
        seq.map(u64::from_be_bytes)
            .map_err(|_| Error::Corrupt("position of purges"))
    }

    /// Returns the put that records up to which seq a shard's deleted documents were purged.
    pub fn put_purged_to(shard: ShardNumber, seq: u64) -> Put {
        let key = meta::purged_to(shard).to_vec();
        (Keyspace::Meta, key, Some(seq.to_be_bytes().to_vec()))
    }

    /// Changes made before this time, in seconds since 1970, are not recorded in time bins from now on.
    pub fn set_time_seq_min(&self, unix_s: u64) {
        self.engine.recording.set_min(unix_s);
    }

    /// Records that a backup of such a copy was made.
    pub fn note_backup(&self) {
        last_backup::note(self.engine.path());
    }

    /// Returns when the last backup was made, if known.
    pub fn last_backup(&self) -> Option<SystemTime> {
        last_backup::read(self.engine.path())
    }

    /// Returns the memory that the block cache may use, in bytes.
    pub fn block_cache_capacity_bytes(&self) -> u64 {
        self.engine.cache_capacity_bytes()
    }

    /// Returns a snapshot of the current state.
    pub fn snapshot(&self) -> Snapshot {
        self.engine.snapshot()
    }

    /// Returns the free space of the store's file system, and its size, in bytes.
    pub fn disk_space(&self) -> Option<(u64, u64)> {
        crate::disk::space(self.engine.path())
    }

    /// Returns the bytes in memtables that are not flushed yet.
    pub fn memtable_bytes(&self) -> u64 {
        self.engine.memtable_bytes()
    }

    /// Returns the bytes of documents in unflushed memtables, without their attachments.
    pub fn document_memtable_bytes(&self) -> u64 {
        self.engine.document_memtable_bytes()
    }

    /// Returns the bytes of the files of each keyspace, by name.
    pub fn keyspace_bytes(&self) -> Vec<(&'static str, u64)> {
        self.engine.keyspace_bytes()
    }

    /// Returns the memory that the block cache uses, in bytes.
    pub fn block_cache_bytes(&self) -> u64 {
        self.engine.cache_bytes()
    }

    /// Returns the memory of recently read documents, in bytes.
    pub fn documents_bytes(&self) -> u64 {
        self.engine.winners.bytes()
    }

    /// Returns why all writes fail, if they do: the engine stopped them, the writer ended, or the
    /// disk is full, as of at most 200 ms ago. Cheap enough to call for each request.
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

    /// Stops the writer after the queued operations.
    pub fn close(&self) {
        self.engine.begin_closing();
        self.committer.close();
        // Everything acknowledged is in the log: running compactions and flushes may be left for
        // the next start.
        self.engine.cancel_background_work();
    }
}

/// Returns the puts that list shards as dropped.
pub(crate) fn drop_puts(shards: &[Arc<Shard>]) -> impl Iterator<Item = Put> {
    shards.iter().flat_map(|shard| {
        let n = shard.number;
        let listed = (Keyspace::Meta, meta::dropped(n).to_vec(), Some(vec![]));
        let gone = |key: [u8; 5]| (Keyspace::Meta, key.to_vec(), None);
        [
            listed,
            gone(meta::shard(n)),
            gone(meta::time_seq(n)),
            gone(meta::purged_to(n)),
        ]
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
        Some(f) if FORMATS.contains(&&f[..]) => Ok(()),
        Some(f) => Err(Error::Directory {
            path: path.into(),
            reason: format!(
                "written in format '{}', this version reads '{}' and '{}'",
                String::from_utf8_lossy(&f),
                String::from_utf8_lossy(FORMAT),
                String::from_utf8_lossy(FORMAT_WITH_ACCESS)
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
