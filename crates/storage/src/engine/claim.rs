//! The directories that this process has open. The engine's file lock excludes other processes;
//! this one is checked before anything in a directory is examined or repaired.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use crate::Error;

static CLAIMED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Exclusive use of a directory within this process, until it is dropped.
#[derive(Debug)]
pub(super) struct Claim(PathBuf);

impl Claim {
    /// # Errors
    /// [`Error::InUse`]; [`Error::Directory`] when it does not exist.
    pub fn of(path: &Path) -> Result<Claim, Error> {
        let whole = path.canonicalize().map_err(|e| Error::Directory {
            path: path.into(),
            reason: e.to_string(),
        })?;
        match CLAIMED.lock().insert(whole.clone()) {
            true => Ok(Claim(whole)),
            false => Err(Error::InUse { path: path.into() }),
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        CLAIMED.lock().remove(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_claimed_once_by_whatever_name_until_it_is_let_go() {
        let dir = tempfile::tempdir().expect("a directory");
        let claim = Claim::of(dir.path()).expect("nobody has it");
        let other_name = dir
            .path()
            .join("../")
            .join(dir.path().file_name().expect("a name"));
        assert!(matches!(Claim::of(&other_name), Err(Error::InUse { .. })));
        drop(claim);
        Claim::of(&other_name).expect("it was let go");
    }
}
