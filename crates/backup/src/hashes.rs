//! Hashes of files that were read before, so that a backup after little change reads little.
//!
//! They are kept on the server's machine. A file counts as the same while its name, size, time of
//! change and number in the file system are: files of a store never change once they are written.
//! Copied files are hashed again on their way.

use std::collections::HashMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The hashes of a store's files.
pub(crate) struct Hashes {
    path: PathBuf,
    known: HashMap<String, HashEntry>,
}

#[derive(Clone, PartialEq, Serialize, Deserialize)]
struct HashEntry {
    bytes: u64,
    mtime_ns: i128,
    inode: u64,
    blake3: String,
}

impl HashEntry {
    fn of(metadata: &Metadata, blake3: String) -> HashEntry {
        HashEntry {
            bytes: metadata.len(),
            mtime_ns: i128::from(metadata.mtime()) * 1_000_000_000
                + i128::from(metadata.mtime_nsec()),
            inode: metadata.ino(),
            blake3,
        }
    }
}

impl Hashes {
    /// Reads the hashes kept in the file `path`. An unreadable file counts as empty.
    pub(crate) fn open(path: &Path) -> Hashes {
        let kept = std::fs::read(path).ok();
        let known = kept.and_then(|text| serde_json::from_slice(&text).ok());
        Hashes {
            path: path.to_owned(),
            known: known.unwrap_or_default(),
        }
    }

    /// Returns the hash of a file if its metadata has not changed.
    pub(crate) fn of(&self, name: &str, metadata: &Metadata) -> Option<String> {
        let known = self.known.get(name)?;
        let is_same = *known == HashEntry::of(metadata, known.blake3.clone());
        is_same.then(|| known.blake3.clone())
    }

    /// Remembers a file's hash.
    pub(crate) fn insert(&mut self, name: &str, metadata: &Metadata, blake3: &str) {
        let known = HashEntry::of(metadata, blake3.to_owned());
        self.known.insert(name.to_owned(), known);
    }

    /// Writes them to the file, without those of files that the store has no longer.
    pub(crate) fn keep(mut self, files: &[String]) -> Result<()> {
        let there: std::collections::HashSet<&String> = files.iter().collect();
        self.known.retain(|name, _| there.contains(name));
        let text = serde_json::to_vec(&self.known).expect("numbers and texts");
        // A file that a crash left half written is not JSON, and is ignored.
        std::fs::write(&self.path, text).map_err(Error::file(&self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_that_of_the_very_file() {
        let dir = tempfile::tempdir().unwrap();
        let (file, kept) = (dir.path().join("a"), dir.path().join("hashes.json"));
        std::fs::write(&file, "one").unwrap();
        let metadata = std::fs::metadata(&file).unwrap();
        let mut hashes = Hashes::open(&kept);
        assert_eq!(hashes.of("a", &metadata), None);
        hashes.insert("a", &metadata, "h");
        hashes.insert("b", &metadata, "h");
        hashes.keep(&["a".to_owned()]).unwrap();

        let hashes = Hashes::open(&kept);
        assert_eq!(hashes.of("a", &metadata).as_deref(), Some("h"));
        assert_eq!(hashes.of("b", &metadata), None, "it was not there any more");
        std::fs::write(&file, "two or more").unwrap();
        assert_eq!(hashes.of("a", &std::fs::metadata(&file).unwrap()), None);

        std::fs::write(&kept, "{\"a\":").unwrap();
        assert_eq!(Hashes::open(&kept).of("a", &metadata), None);
    }
}
