//! Bulks of 1,000 written in process: the database without HTTP.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::documents::{Ids, Order};
use crate::error::BenchError;
use crate::options::{BenchOptions, Embedded};
use crate::slice::Slice;
use crate::system::{BULK_DOCS, Watch, WorkloadPart};

/// Measures `rounds` rounds on a new database, whose directory is deleted afterwards unless it is
/// kept.
pub(crate) fn measure(
    embedded: &mut dyn Embedded,
    options: &BenchOptions,
    length: Duration,
    rounds: u32,
) -> Result<Vec<WorkloadPart>, BenchError> {
    let parent = options
        .embedded_dir
        .clone()
        .unwrap_or_else(std::env::temp_dir);
    let dir = parent.join(format!("settee-bench-{:016x}", fastrand::u64(..)));
    std::fs::create_dir_all(&dir)?;
    let folder = Folder {
        path: dir,
        keep: options.keep,
    };
    measure_in(embedded, &folder.path, length, rounds)
}

/// A directory that is removed when this value is dropped.
struct Folder {
    path: PathBuf,
    keep: bool,
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.keep {
            // A folder that cannot be deleted does no harm, and its name shows its origin.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

fn measure_in(
    embedded: &mut dyn Embedded,
    dir: &Path,
    length: Duration,
    rounds: u32,
) -> Result<Vec<WorkloadPart>, BenchError> {
    embedded.open(dir).map_err(BenchError::Embedded)?;
    let ids = Ids::new(Order::Sequential);
    (0..rounds)
        .map(|_| {
            let watch = Watch::start(&[embedded.process_id()]);
            let slice = round(embedded, &ids, length)?;
            Ok(watch.part("lightning", "docs", slice))
        })
        .collect()
}

fn round(embedded: &mut dyn Embedded, ids: &Ids, length: Duration) -> Result<Slice, BenchError> {
    let mut slice = Slice::new();
    let start = Instant::now();
    while start.elapsed() < length {
        let documents: Vec<(String, String)> = (0..BULK_DOCS)
            .map(|_| (ids.next_text(), r#"{"foo":"bar"}"#.to_owned()))
            .collect();
        let bulk = Instant::now();
        embedded.bulk(documents).map_err(BenchError::Embedded)?;
        slice.record(BULK_DOCS, bulk.elapsed());
    }
    slice.seconds = start.elapsed().as_secs_f64();
    Ok(slice)
}
