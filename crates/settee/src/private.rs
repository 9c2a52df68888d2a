//! Permissions of the files that the program writes: no other user of the machine may read them.

use std::fs::{self, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use config::Config;
use config::settings::LogWriter;

/// Removes the rights of others to the store, which an older version created with public
/// permissions. The mode of its directory is enough; the files may be linked from backups
/// elsewhere.
pub fn tighten_store(store: &Path) {
    let tightened = tighten(store, 0o700).and_then(|was_open| {
        if !was_open {
            return Ok(());
        }
        tracing::warn!(
            "other users of this machine could read {}; now they cannot",
            store.display()
        );
        for entry in fs::read_dir(store)? {
            let path = entry?.path();
            let mode = if path.is_dir() { 0o700 } else { 0o600 };
            tighten(&path, mode)?;
        }
        Ok(())
    });
    if let Err(e) = tightened {
        tracing::warn!(
            "other users of this machine may be able to read {}: {e}",
            store.display()
        );
    }
}

/// Sets a stricter mode; returns whether others had access. Links and their targets are not
/// changed.
fn tighten(path: &Path, mode: u32) -> io::Result<bool> {
    let metadata = match fs::symlink_metadata(path) {
        // Engines remove files of their own accord.
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        other => other?,
    };
    if metadata.is_symlink() || metadata.mode() & 0o077 == 0 {
        return Ok(false);
    }
    fs::set_permissions(path, Permissions::from_mode(mode))?;
    Ok(true)
}

/// Warns when others have access to directories or files that the server did not create, by intent
/// or by mistake: the data directory, configuration files with secrets, the key of the certificate.
pub fn warn_of_others(data: &Path, config: &Config) {
    warn_if_open(data, "the data directory", "700");
    // A folder that cannot be listed was an error when it was read.
    for ini in config.files_with_secrets().unwrap_or_default() {
        warn_if_open(&ini, "a configuration file with secrets", "600");
    }
    let settings = config.settings();
    if settings.log.writer == LogWriter::File {
        let log = Path::new(&settings.log.file);
        warn_if_open(log, "the log, with names of users", "600");
    }
    if let Some(key) = &settings.ssl.key_file {
        warn_if_open(Path::new(key), "the key of the certificate", "600");
    }
}

fn warn_if_open(path: &Path, what: &str, mode: &str) {
    // A missing file, or one that this process may not examine, fails elsewhere or not at all.
    if let Ok(metadata) = fs::metadata(path)
        && is_open(&metadata)
    {
        tracing::warn!(
            "{} ({what}) is open to other users of this machine: chmod {mode} {0}",
            path.display()
        );
    }
}

/// Whether others have access. A file of another user, mostly root, is only readable by this
/// process through its group, so that is intended.
fn is_open(metadata: &Metadata) -> bool {
    let own = metadata.uid() == rustix::process::geteuid().as_raw();
    let others = if own { 0o077 } else { 0o007 };
    metadata.mode() & others != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn a_store_that_everybody_could_read_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("store");
        let within = store.join("ingest");
        fs::create_dir_all(&within).unwrap();
        let file = store.join("000001.sst");
        fs::write(&file, "").unwrap();
        let outside = dir.path().join("outside");
        fs::write(&outside, "").unwrap();
        std::os::unix::fs::symlink(&outside, store.join("link")).unwrap();
        for (path, open) in [
            (&store, 0o755),
            (&within, 0o755),
            (&file, 0o644),
            (&outside, 0o644),
        ] {
            fs::set_permissions(path, Permissions::from_mode(open)).unwrap();
        }
        tighten_store(&store);
        let closed = [&store, &within, &file, &outside].map(|path| mode(path));
        assert_eq!(closed, [0o700, 0o700, 0o600, 0o644]);
        tighten_store(&dir.path().join("none"));
    }
}
