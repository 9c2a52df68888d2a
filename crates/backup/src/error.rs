//! Errors of backups.

use std::path::PathBuf;

/// Why an operation failed. The text is for the server's operator; it contains no credentials.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name of a target makes no sense; the words say why.
    #[error("{0}")]
    Name(String),
    /// The target does not exist, or holds no backup.
    #[error("{0} holds no backups")]
    NoBackups(String),
    /// The target holds something else.
    #[error(
        "{0} contains files other than backups: choose an empty place, and use it for backups only"
    )]
    Occupied(String),
    /// The target is another server's.
    #[error(
        "{target} holds backups of another server ({found}, this one is {own}): give each server a place of its own"
    )]
    OtherServer {
        /// The target.
        target: String,
        /// The owner that was found.
        found: String,
        /// The server that asked.
        own: String,
    },
    /// A later version created the target.
    #[error("{0} was made by a later version of Settee, which this one cannot read")]
    Later(String),
    /// No backup has this name.
    #[error("there is no backup named {0}; `settee backup list` shows the existing ones")]
    NoSuchBackup(String),
    /// All backups are younger than that.
    #[error("there is no backup of {at} or before; the oldest is of {oldest}")]
    NoneBefore {
        /// The requested moment.
        at: String,
        /// The time of the oldest backup.
        oldest: String,
    },
    /// A backup's own description cannot be read.
    #[error("the backup {name} cannot be read: {reason}")]
    Manifest {
        /// Which backup.
        name: String,
        /// The problem.
        reason: String,
    },
    /// A file of a backup differs from the copied one.
    #[error("{file} of the backup {name} is {what}: `settee backup verify` lists all such files")]
    Damaged {
        /// Which backup.
        name: String,
        /// The file, as the store calls it.
        file: String,
        /// `missing` or `damaged`.
        what: &'static str,
    },
    /// A file of the store is not what it was when it was read first.
    #[error(
        "{0} changed while it was copied, or the disk returns different content each time: check the disk"
    )]
    Changed(PathBuf),
    /// A prune that was under way at the target did not end.
    #[error("a prune of {0} is under way; the backup is retried later")]
    Pruning(String),
    /// The copied files could have been removed by a prune meanwhile.
    #[error(
        "{0} was unreachable for too long: copied files may have been removed; the next backup copies them again"
    )]
    LeaseLost(String),
    /// A file or directory of this machine.
    #[error("{path}: {source}")]
    File {
        /// Which one.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A directory that this process may not read or write.
    #[error(
        "{target}: {reason}. It must belong to the server's user, and a systemd service can write only to the paths in its unit (ReadWritePaths=)"
    )]
    NotAllowed {
        /// Which one.
        target: String,
        /// The system's error.
        reason: String,
    },
    /// The target.
    #[error("{target}: {source}")]
    Target {
        /// Which one.
        target: String,
        /// The store's or the client's error.
        source: object_store::Error,
    },
}

impl Error {
    /// The text for clients over HTTP: without words of another server.
    pub fn for_clients(&self) -> String {
        let Error::Target { target, source } = self else {
            return self.to_string();
        };
        if !target.starts_with("s3://") {
            return self.to_string();
        }
        let what = match source {
            object_store::Error::NotFound { .. } => "it does not exist",
            object_store::Error::PermissionDenied { .. }
            | object_store::Error::Unauthenticated { .. } => "it refuses access",
            _ => "a request to it failed",
        };
        format!("{target}: {what}. The server's log has its words.")
    }

    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.into();
        |source| Error::File { path, source }
    }
}

/// Result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_another_server_are_not_for_clients() {
        let failed = |target: &str| Error::Target {
            target: target.to_owned(),
            source: object_store::Error::PermissionDenied {
                path: "x".to_owned(),
                source: "<Message>internal</Message>".into(),
            },
        };
        let (remote, local) = (failed("s3://b/x"), failed("/b/x"));
        assert!(remote.to_string().contains("internal"));
        assert!(!remote.for_clients().contains("internal"));
        assert!(remote.for_clients().contains("refuses access"));
        assert!(local.for_clients().contains("internal"));
    }
}
