//! A backup: what of a copy of a store is not at the target yet.

use std::collections::{HashMap, HashSet};
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures_util::{StreamExt as _, TryStreamExt as _};
use tokio::io::AsyncReadExt as _;

use crate::error::{Error, Result};
use crate::hashes::Hashes;
use crate::lease::{Lease, Work};
use crate::manifest::{File, Manifest, TEXTS, format_of, name_of};
use crate::progress::Progress;
use crate::rate::Rate;
use crate::read::PART_BYTES;
use crate::target::Target;

/// Files that are read and copied at a time. Each holds a part, so these and the size of parts
/// bound the memory.
const FILES_AT_ONCE: usize = 3;
/// Bytes of a part when a file is hashed.
const HASH_BYTES: usize = 1 << 20;
/// S3 takes at most 10,000 parts.
const PARTS_MAX: u64 = 9_000;
/// How long a backup waits for a running prune: a little longer than until its lease counts as
/// expired.
const PRUNE_WAIT: Duration = Duration::from_secs(660);
const PRUNE_POLL: Duration = Duration::from_secs(2);

/// A copy of a store on this machine, which does not change.
#[derive(Clone, Debug)]
pub struct Copy {
    /// Its directory.
    pub directory: PathBuf,
    /// Where the hashes of its files are cached.
    pub hashes: PathBuf,
    /// The owner of the backup, as in [`Target::open_or_create`].
    pub server: String,
    /// The server's version.
    pub version: String,
    /// When the copy was started.
    pub begun: DateTime<Utc>,
    /// When the copy was complete.
    pub time: DateTime<Utc>,
}

/// Makes a backup of a copy of a store. Reads at most `bytes_per_s`, and sends as many; 0 for no
/// limit.
///
/// Until it succeeds, the target has no trace of a backup. Copied files stay there, and the next
/// backup does not copy them again.
///
/// # Errors
/// [`Error::Pruning`], [`Error::Changed`], [`Error::LeaseLost`], those of the target and of the
/// copy's files.
pub async fn back_up(
    target: &Target,
    copy: &Copy,
    bytes_per_s: u64,
    progress: &Progress,
) -> Result<Manifest> {
    let lease = Lease::take(target, Work::Backup).await?;
    let made = lease.during(make(target, &lease, copy, bytes_per_s, progress));
    let made = made.await;
    lease.release().await;
    made
}

async fn make(
    target: &Target,
    lease: &Lease<'_>,
    copy: &Copy,
    bytes_per_s: u64,
    progress: &Progress,
) -> Result<Manifest> {
    wait_for_prunes(target, lease).await?;
    let names = names_in(&copy.directory)?;
    let mut bytes = 0;
    for name in &names {
        let path = copy.directory.join(name);
        bytes += std::fs::metadata(&path).map_err(Error::file(&path))?.len();
    }
    progress.expect(bytes);
    let copying = Copying {
        target,
        directory: &copy.directory,
        there: target.files().await?.into_iter().collect(),
        copied: Mutex::default(),
        hashes: Mutex::new(Hashes::open(&copy.hashes)),
        read: Rate::new(bytes_per_s),
        sent: Rate::new(bytes_per_s),
        progress,
    };
    let files: Result<Vec<File>> = futures_util::stream::iter(names.clone())
        .map(|name| copying.file(name))
        .buffered(FILES_AT_ONCE)
        .try_collect()
        .await;
    // Also of a backup that fails: the next one need not read them again.
    let hashes = copying
        .hashes
        .into_inner()
        .expect("nothing panics while it is held");
    if let Err(error) = hashes.keep(&names) {
        tracing::warn!(%error, "the next backup reads all files again");
    }
    let files = files?;
    let manifest = Manifest {
        format: format_of(&files),
        name: free_name(target, copy.time).await?,
        server: copy.server.clone(),
        version: copy.version.clone(),
        begun: copy.begun,
        time: copy.time,
        copied_files: progress.copied_files(),
        copied_bytes: progress.copied_bytes(),
        files,
    };
    lease.check()?;
    let path = Target::manifest_path(&manifest.name);
    target.put(&path, manifest.encode().into()).await?;
    Ok(manifest)
}

async fn wait_for_prunes(target: &Target, lease: &Lease<'_>) -> Result<()> {
    let since = tokio::time::Instant::now();
    while lease.others(Work::Prune).await? {
        if since.elapsed() > PRUNE_WAIT {
            return Err(Error::Pruning(target.name().to_string()));
        }
        tokio::time::sleep(PRUNE_POLL).await;
    }
    Ok(())
}

/// Returns the names of a store's files, and of those of its text indexes with their folders.
///
/// # Errors
/// Errors of the directory.
pub fn names_in(directory: &Path) -> Result<Vec<String>> {
    let name_of = |path: &Path| {
        let name = path.strip_prefix(directory).ok().and_then(Path::to_str);
        name.map(str::to_owned)
    };
    let mut paths = entries_of(directory)?;
    let texts = directory.join(TEXTS);
    if texts.is_dir() {
        for folder in entries_of(&texts)? {
            // Other files do not belong to the store.
            if folder.is_dir() {
                paths.extend(entries_of(&folder)?);
            }
        }
    }
    let files = paths.iter().filter(|path| path.is_file());
    let mut names: Vec<String> = files.filter_map(|path| name_of(path)).collect();
    names.sort_unstable();
    Ok(names)
}

fn entries_of(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(directory).map_err(Error::file(directory))?;
    let paths = entries.map(|entry| Ok(entry.map_err(Error::file(directory))?.path()));
    paths.collect()
}

/// Two backups of one second have different names.
async fn free_name(target: &Target, time: DateTime<Utc>) -> Result<String> {
    let taken: HashSet<String> = target.names().await?.into_iter().collect();
    let name = name_of(time);
    let others = (2..).map(|n| format!("{name}-{n}"));
    let mut names = std::iter::once(name.clone()).chain(others);
    Ok(names
        .find(|name| !taken.contains(name))
        .expect("numbers have no end"))
}

struct Copying<'a> {
    target: &'a Target,
    directory: &'a Path,
    /// Files that were at the target before, with their sizes.
    there: HashMap<String, u64>,
    /// Files being copied now, as equal ones need not be copied twice.
    copied: Mutex<HashSet<String>>,
    hashes: Mutex<Hashes>,
    read: Rate,
    sent: Rate,
    progress: &'a Progress,
}

impl Copying<'_> {
    async fn file(&self, name: String) -> Result<File> {
        let path = self.directory.join(&name);
        let metadata = std::fs::metadata(&path).map_err(Error::file(&path))?;
        let blake3 = self.hash(&name, &path, &metadata).await?;
        let bytes = metadata.len();
        let is_there = self.there.get(&blake3) == Some(&bytes);
        let is_first = || {
            let mut copied = self.copied.lock().expect("nothing panics while it is held");
            copied.insert(blake3.clone())
        };
        if is_there || !is_first() {
            self.progress.there(bytes);
        } else {
            self.send(&path, &blake3, bytes).await?;
            self.progress.file_copied();
        }
        Ok(File {
            name,
            bytes,
            blake3,
        })
    }

    async fn hash(&self, name: &str, path: &Path, metadata: &Metadata) -> Result<String> {
        let lock = || self.hashes.lock().expect("nothing panics while it is held");
        if let Some(known) = lock().of(name, metadata) {
            return Ok(known);
        }
        let mut file = tokio::fs::File::open(path)
            .await
            .map_err(Error::file(path))?;
        let mut hasher = blake3::Hasher::new();
        loop {
            let part = read_part(&mut file, HASH_BYTES)
                .await
                .map_err(Error::file(path))?;
            if part.is_empty() {
                break;
            }
            self.read.pass(part.len()).await;
            hasher.update(&part);
        }
        let blake3 = hasher.finalize().to_hex().to_string();
        lock().insert(name, metadata, &blake3);
        Ok(blake3)
    }

    /// Copies a file. The sent bytes have the hash that names them.
    async fn send(&self, path: &Path, blake3: &str, bytes: u64) -> Result<()> {
        let to = Target::file_path(blake3);
        let mut file = tokio::fs::File::open(path)
            .await
            .map_err(Error::file(path))?;
        let size = PART_BYTES.max(bytes.div_ceil(PARTS_MAX));
        let size = usize::try_from(size).expect("a part fits into memory");
        let mut hasher = blake3::Hasher::new();
        let is_right = |hasher: &blake3::Hasher| hasher.finalize().to_hex().as_str() == blake3;
        let changed = || Error::Changed(path.to_owned());
        if bytes <= size as u64 {
            let content = read_part(&mut file, size)
                .await
                .map_err(Error::file(path))?;
            hasher.update(&content);
            if !is_right(&hasher) {
                return Err(changed());
            }
            self.sent.pass(content.len()).await;
            self.target.put(&to, content).await?;
            self.progress.copied(bytes);
            return Ok(());
        }
        let mut upload = self.target.upload(&to).await?;
        let sent = async {
            loop {
                let part = read_part(&mut file, size)
                    .await
                    .map_err(Error::file(path))?;
                if part.is_empty() {
                    break;
                }
                hasher.update(&part);
                let n = part.len();
                self.sent.pass(n).await;
                let sent = upload.put_part(part.into()).await;
                sent.map_err(|e| self.target.failed(e))?;
                self.progress.copied(n as u64);
            }
            if !is_right(&hasher) {
                return Err(changed());
            }
            upload.complete().await.map_err(|e| self.target.failed(e))
        };
        match sent.await {
            Ok(_) => Ok(()),
            Err(error) => {
                // An upload that cannot be aborted never becomes an object; the bucket's rule for
                // unfinished uploads removes it.
                let _ = upload.abort().await;
                Err(error)
            }
        }
    }
}

/// Returns the next bytes of a file, as many as fit; empty at its end.
async fn read_part(file: &mut tokio::fs::File, size: usize) -> std::io::Result<Bytes> {
    let mut part = Vec::with_capacity(size);
    file.take(size as u64).read_to_end(&mut part).await?;
    Ok(part.into())
}
