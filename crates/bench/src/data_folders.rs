//! The folders of a local server's data, and the room that they take.

use std::path::PathBuf;

use crate::error::BenchError;
use crate::procfs;
use crate::system::System;

/// The directories of a local server's documents and indexes, from its configuration; none of a
/// server on another machine.
pub(crate) async fn folders(system: &System) -> Result<Vec<PathBuf>, BenchError> {
    let Some(pid) = system.pid else {
        return Ok(Vec::new());
    };
    let base = procfs::working_directory(pid).unwrap_or_default();
    // Settee's own option wins over its configuration.
    if let Some(data) = procfs::argument(pid, "--data") {
        return Ok(vec![base.join(data)]);
    }
    let mut folders: Vec<PathBuf> = Vec::new();
    for key in ["database_dir", "view_index_dir"] {
        let path = format!("/_node/_local/_config/couchdb/{key}");
        let (status, reply) = system.call("GET", &path, None).await?;
        let folder: Option<String> = serde_json::from_slice(&reply).ok();
        if let Some(folder) = folder.filter(|_| status == 200) {
            let folder = base.join(folder);
            // CouchDB keeps both in one folder by default.
            if !folders.contains(&folder) {
                folders.push(folder);
            }
        }
    }
    Ok(folders)
}

/// Bytes on disk of all files in the folders; `None` without folders that can be read.
pub(crate) fn folder_bytes(folders: &[PathBuf]) -> Option<u64> {
    let bytes: u64 = folders
        .iter()
        .map(|folder| procfs::folder_bytes(folder))
        .sum();
    (bytes > 0).then_some(bytes)
}
