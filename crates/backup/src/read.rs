//! Files of a target, read in parts.

use bytes::Bytes;
use futures_util::StreamExt as _;

use crate::error::Result;
use crate::target::Target;

/// Size of a part, in bytes. S3 requires at least 5 MiB.
pub(crate) const PART_BYTES: u64 = 8 << 20;
/// Parts of a file that are on their way at a time.
const PARTS_AT_ONCE: usize = 2;

/// State of a file at a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileState {
    Whole,
    Missing,
    Damaged,
}

/// Passes a file's bytes to `with`, in order, and returns whether they match the hash.
pub(crate) async fn read<E: From<crate::Error>>(
    target: &Target,
    blake3: &str,
    bytes: u64,
    mut with: impl AsyncFnMut(Bytes) -> std::result::Result<(), E>,
) -> std::result::Result<FileState, E> {
    let path = Target::file_path(blake3);
    let mut hasher = blake3::Hasher::new();
    let mut read = 0;
    let starts = (0..bytes).step_by(PART_BYTES as usize);
    let mut parts = futures_util::stream::iter(starts)
        .map(|from| target.part(&path, from, bytes.min(from + PART_BYTES)))
        .buffered(PARTS_AT_ONCE);
    while let Some(part) = parts.next().await {
        let Some(part) = part? else {
            return Ok(FileState::Missing);
        };
        hasher.update(&part);
        read += part.len() as u64;
        with(part).await?;
    }
    drop(parts);
    if bytes == 0 && !exists(target, blake3).await? {
        return Ok(FileState::Missing);
    }
    let is_whole = read == bytes && hasher.finalize().to_hex().as_str() == blake3;
    Ok(if is_whole {
        FileState::Whole
    } else {
        FileState::Damaged
    })
}

async fn exists(target: &Target, blake3: &str) -> Result<bool> {
    let found = target.get(&Target::file_path(blake3)).await?;
    Ok(found.is_some())
}
