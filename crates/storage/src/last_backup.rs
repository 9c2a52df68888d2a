//! The time of the store's last copy: a file next to the engine's, which its copies do not have.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Contains the time in seconds since 1970, as decimal digits.
const FILE: &str = "LAST_BACKUP";

/// Records a copy. Failures are ignored: they are not worth failing the copy.
pub(crate) fn note(store: &Path) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let seconds = now.map_or(0, |now| now.as_secs());
    if let Err(error) = std::fs::write(store.join(FILE), format!("{seconds}\n")) {
        tracing::warn!(%error, "storing the time of the backup failed");
    }
}

/// Returns the time of the last copy; `None` when none is known.
pub(crate) fn read(store: &Path) -> Option<SystemTime> {
    let text = std::fs::read_to_string(store.join(FILE)).ok()?;
    let seconds = text.trim().parse().ok()?;
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_backup_is_remembered() {
        let store = tempfile::tempdir().unwrap();
        assert_eq!(read(store.path()), None);
        note(store.path());
        let age = read(store.path()).unwrap().elapsed().unwrap();
        assert!(age < Duration::from_secs(60), "{age:?}");
        std::fs::write(store.path().join(FILE), "yesterday").unwrap();
        assert_eq!(read(store.path()), None);
    }
}
