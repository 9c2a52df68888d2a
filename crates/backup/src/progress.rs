//! Progress of a copy.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Numbers that grow while something is copied.
#[derive(Debug, Default)]
pub struct Progress {
    bytes: AtomicU64,
    done_bytes: AtomicU64,
    copied_bytes: AtomicU64,
    copied_files: AtomicU64,
}

impl Progress {
    /// Returns the bytes of all files, 0 until they are listed.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Bytes of files that are at their place, copied now or before.
    pub fn done_bytes(&self) -> u64 {
        self.done_bytes.load(Relaxed)
    }

    /// Bytes that were copied now.
    pub fn copied_bytes(&self) -> u64 {
        self.copied_bytes.load(Relaxed)
    }

    /// Files that were copied now, whole.
    pub fn copied_files(&self) -> u64 {
        self.copied_files.load(Relaxed)
    }

    pub(crate) fn expect(&self, bytes: u64) {
        self.bytes.store(bytes, Relaxed);
    }

    pub(crate) fn there(&self, bytes: u64) {
        self.done_bytes.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn copied(&self, bytes: u64) {
        self.copied_bytes.fetch_add(bytes, Relaxed);
        self.done_bytes.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn file_copied(&self) {
        self.copied_files.fetch_add(1, Relaxed);
    }
}
