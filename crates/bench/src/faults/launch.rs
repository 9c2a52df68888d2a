//! How a server is started that may be killed.

use std::path::{Path, PathBuf};

use crate::error::BenchError;

/// How to start a server that may be killed.
#[derive(Debug, Clone)]
pub struct Launch {
    /// The program.
    pub program: PathBuf,
    /// Its arguments, in which `{data}` stands for the folder of its data and `{port}` for the port on 127.0.0.1 that it listens on.
    pub args: Vec<String>,
    /// Environment variables that it gets in addition.
    pub envs: Vec<(String, String)>,
    /// `name:password` of an admin that it has by these.
    pub credentials: String,
    /// Parent directory of the data directories; each is removed at the end.
    pub dir: PathBuf,
}

/// A directory that is removed when dropped.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(launch: &Launch) -> Result<Self, BenchError> {
        let name = format!("settee-faults-{:016x}", fastrand::u64(..));
        let path = launch.dir.join(name);
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("settee: {} stays: {error}", self.0.display());
        }
    }
}
