//! Measurements of the disk itself: the bound of durable serial writes.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::slice::Slice;

const APPEND_BYTES: usize = 1_024;

/// Repeatedly appends a kilobyte and calls fdatasync, in a separate file that is deleted
/// afterwards.
pub(crate) fn append_and_sync(dir: &Path, length: Duration) -> io::Result<Slice> {
    let path = dir.join(format!("settee-bench-{:016x}.tmp", fastrand::u64(..)));
    let measured = append_and_sync_in(&path, length);
    std::fs::remove_file(&path)?;
    measured
}

fn append_and_sync_in(path: &Path, length: Duration) -> io::Result<Slice> {
    let mut file = OpenOptions::new()
        .create_new(true)
        .append(true)
        .open(path)?;
    let bytes = [0x5e; APPEND_BYTES];
    let mut slice = Slice::new();
    let start = Instant::now();
    while start.elapsed() < length {
        let write = Instant::now();
        file.write_all(&bytes)?;
        file.sync_data()?;
        slice.record(1, write.elapsed());
    }
    slice.seconds = start.elapsed().as_secs_f64();
    Ok(slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_gone_after_the_measurement() {
        let dir = tempfile::tempdir().unwrap();
        let slice = append_and_sync(dir.path(), Duration::from_millis(200)).unwrap();
        assert!(slice.count > 0);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
