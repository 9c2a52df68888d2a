//! When the store was last copied: a file beside the engine's, which its copies do not have.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Holds the time in seconds since 1970, as decimal digits.
const FILE: &str = "LAST_BACKUP";

/// A copy was made now. What cannot be written is not worth the copy's failure.
pub(crate) fn note(store: &Path) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let seconds = now.map_or(0, |now| now.as_secs());
    if let Err(error) = std::fs::write(store.join(FILE), format!("{seconds}\n")) {
        tracing::warn!(%error, "the time of the backup is not remembered");
    }
}

/// When the last copy was made; `None` when none is known of.
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
