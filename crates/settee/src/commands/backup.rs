//! `settee backup` and `settee restore`.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::Failure;
use crate::cli::{BackupOptions, RestoreOptions, with_credentials};
use crate::data::STORE;

/// A file that every store has.
const STORE_MARK: &str = "CURRENT";

pub fn backup(options: &BackupOptions) -> Result<(), Failure> {
    // reqwest takes the process's provider; ring builds without a C toolchain of its own. Set already is fine too.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let directory = std::path::absolute(&options.directory).map_err(Failure::new)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::new)?;
    runtime.block_on(ask(&with_credentials(&options.url), &directory))?;
    say!("backed up to {}", directory.display());
    Ok(())
}

async fn ask(url: &str, directory: &Path) -> Result<(), Failure> {
    let mut url = reqwest::Url::parse(url).map_err(|e| Failure::usage(format!("{url}: {e}")))?;
    let (name, password) = super::take_credentials(&mut url);
    url.set_path("/_settee/backup");
    let response = reqwest::Client::new()
        .post(url.clone())
        .basic_auth(name, password)
        .json(&serde_json::json!({"directory": directory}))
        .send()
        .await
        .map_err(|e| Failure::new(format!("{url}: {e}")))?;
    if response.status().is_success() {
        return Ok(());
    }
    let status = response.status();
    let body: serde_json::Value = response.json().await.unwrap_or_default();
    let reason = body["reason"].as_str().unwrap_or("no reason was given");
    Err(Failure::new(format!(
        "the server refused ({status}): {reason}"
    )))
}

pub fn restore(options: &RestoreOptions) -> Result<(), Failure> {
    let at = |p: &Path, e: std::io::Error| Failure::new(format!("{}: {e}", p.display()));
    if !options.backup.join(STORE_MARK).is_file() {
        return Err(Failure::new(format!(
            "{} is no backup: it holds no file {STORE_MARK}",
            options.backup.display()
        )));
    }
    let store = options.data.join(STORE);
    if store.exists() {
        return Err(Failure::new(format!(
            "{} holds data already; restore to another directory, or move it away",
            store.display()
        )));
    }
    std::fs::create_dir_all(&options.data).map_err(|e| at(&options.data, e))?;
    // Renamed last: an interrupted restore leaves no half store under the store's name.
    let unfinished = options.data.join("store.restoring");
    if unfinished.exists() {
        std::fs::remove_dir_all(&unfinished).map_err(|e| at(&unfinished, e))?;
    }
    std::fs::create_dir(&unfinished).map_err(|e| at(&unfinished, e))?;
    let files: Vec<PathBuf> = std::fs::read_dir(&options.backup)
        .and_then(|d| d.map(|e| e.map(|e| e.path())).collect())
        .map_err(|e| at(&options.backup, e))?;
    let mut bytes = 0;
    for file in files.iter().filter(|f| f.is_file()) {
        let Some(name) = file.file_name() else {
            continue;
        };
        let to = unfinished.join(name);
        bytes += std::fs::copy(file, &to).map_err(|e| at(file, e))?;
        // The copy has the backup's mode, and an older version's backups are for everybody to read.
        std::fs::set_permissions(&to, std::fs::Permissions::from_mode(0o600))
            .map_err(|e| at(&to, e))?;
        std::fs::File::open(&to)
            .and_then(|f| f.sync_all())
            .map_err(|e| at(&to, e))?;
    }
    std::fs::rename(&unfinished, &store).map_err(|e| at(&store, e))?;
    say!(
        "restored {} files, {bytes} bytes; start with: settee serve --data {}",
        files.len(),
        options.data.display()
    );
    Ok(())
}
