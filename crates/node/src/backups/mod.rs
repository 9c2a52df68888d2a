//! The backups that this server makes: one at a time, on request, and on a schedule
//! (`schedule.rs`).
//!
//! A backup is a checkpoint of the store, whose files are then copied to a target (`run.rs`); the
//! crate `backup` defines the contents of a target.

pub mod counters;
mod run;
mod schedule;
mod store_copy;
mod targets;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use backup::{Progress, S3Options, TargetName};
use config::Config;
use database::Databases;
use document::{UuidAlgorithm, UuidGenerator};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::error::{Error, Result};

/// Backups that have ended and are remembered.
const ENDED_MAX: usize = 16;

/// Makes the backups of a server.
pub struct Backups {
    databases: Arc<Databases>,
    config: Config,
    uuid: String,
    /// Directory for the files of backups, next to the store.
    directory: PathBuf,
    state: Mutex<State>,
    /// The runtime of backups.
    runtime: OnceLock<Handle>,
    settings_changed: Notify,
}

#[derive(Default)]
struct State {
    running: Option<Arc<RunningBackup>>,
    /// The last one last.
    ended: VecDeque<Arc<FinishedBackup>>,
    last_success: Option<Arc<FinishedBackup>>,
    last_failure: Option<Arc<FinishedBackup>>,
    next: Option<SystemTime>,
}

/// A running backup.
#[derive(Debug)]
pub struct RunningBackup {
    /// Its unique id.
    pub id: String,
    /// Its target.
    pub target: TargetName,
    /// By the server itself.
    pub is_scheduled: bool,
    /// When it began.
    pub started: SystemTime,
    /// How far the copying is.
    pub progress: Progress,
    phase: Mutex<Phase>,
}

impl RunningBackup {
    /// The current phase.
    pub fn phase(&self) -> Phase {
        *self.phase.lock()
    }

    fn enter(&self, phase: Phase) {
        *self.phase.lock() = phase;
    }
}

/// The phase of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It connects to its target.
    Connecting,
    /// The store is written to files, which are then linked.
    Checkpoint,
    /// Files are compared and copied.
    Copying,
    /// Backups that are not to be kept are removed.
    Pruning,
}

impl Phase {
    /// A word for it.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Connecting => "connecting",
            Phase::Checkpoint => "checkpoint",
            Phase::Copying => "copying",
            Phase::Pruning => "pruning",
        }
    }
}

/// A finished backup.
#[derive(Debug)]
pub struct FinishedBackup {
    /// As of [`RunningBackup::id`].
    pub id: String,
    /// The name of its target.
    pub target: String,
    /// By the server itself.
    pub is_scheduled: bool,
    /// When it began.
    pub started: SystemTime,
    /// When it ended.
    pub ended: SystemTime,
    /// The result, or the error as text.
    pub result: std::result::Result<BackupFigures, String>,
}

impl FinishedBackup {
    /// How long it took.
    pub fn took(&self) -> Duration {
        let took = self.ended.duration_since(self.started);
        took.unwrap_or_default()
    }
}

/// The figures of a finished backup.
#[derive(Clone, Debug)]
pub struct BackupFigures {
    /// Its name at the target.
    pub name: String,
    /// The moment that it is of.
    pub time: String,
    /// Its files.
    pub files: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Files that were not at the target before.
    pub copied_files: u64,
    /// Bytes of these.
    pub copied_bytes: u64,
}

/// The backups of a server since it started.
#[derive(Clone, Debug, Default)]
pub struct BackupHistory {
    /// The running one.
    pub running: Option<Arc<RunningBackup>>,
    /// Ended ones, the last one last; at most a few.
    pub ended: Vec<Arc<FinishedBackup>>,
    /// The last successful one.
    pub last_success: Option<Arc<FinishedBackup>>,
    /// The last that was not.
    pub last_failure: Option<Arc<FinishedBackup>>,
    /// Time of the next scheduled backup.
    pub next: Option<SystemTime>,
}

impl BackupHistory {
    /// The last failure, if no backup succeeded after it.
    pub fn failed_since_success(&self) -> Option<&FinishedBackup> {
        let failed = self.last_failure.as_deref()?;
        let made = self.last_success.as_deref();
        made.is_none_or(|made| made.ended < failed.ended)
            .then_some(failed)
    }
}

impl Backups {
    pub(crate) fn new(databases: Arc<Databases>, config: Config, uuid: String) -> Arc<Backups> {
        let store = databases.store().engine().path();
        let directory = store.parent().unwrap_or(store).join("backup");
        Arc::new(Backups {
            databases,
            config,
            uuid,
            directory,
            state: Mutex::default(),
            runtime: OnceLock::new(),
            settings_changed: Notify::new(),
        })
    }

    /// Sets the runtime of backups, and starts those that the settings schedule. Called once,
    /// before requests are served.
    pub fn run_on(self: &Arc<Self>, runtime: &Handle) {
        // A second time changes nothing.
        if self.runtime.set(runtime.clone()).is_ok() {
            run::remove_rest(&self.directory);
            runtime.spawn(schedule::run(self.clone()));
        }
    }

    pub(crate) fn reread(&self) {
        self.settings_changed.notify_one();
    }

    /// Begins a backup that a client requests, and answers its id. `target` is a directory, absolute, or a URL. `permit`: the name
    /// of a file that the client made there, if it did.
    ///
    /// # Errors
    /// [`Error::BackupTarget`], [`Error::BackupForbidden`], and [`Error::BackupRunning`].
    pub fn start(self: &Arc<Self>, target: &str, permit: Option<&str>) -> Result<String> {
        let target = TargetName::parse(target).map_err(|e| Error::BackupTarget(e.to_string()))?;
        self.admit(&target, permit)?;
        let running = self.begin(target, false)?;
        let id = running.id.clone();
        let runtime = self.runtime.get().cloned().unwrap_or_else(Handle::current);
        let me = self.clone();
        runtime.spawn(async move { me.make(running, None).await });
        Ok(id)
    }

    /// Returns the backups since the start of the server.
    pub fn history(&self) -> BackupHistory {
        let state = self.state.lock();
        BackupHistory {
            running: state.running.clone(),
            ended: state.ended.iter().cloned().collect(),
            last_success: state.last_success.clone(),
            last_failure: state.last_failure.clone(),
            next: state.next,
        }
    }

    /// Where backups go by the settings, if they do.
    pub fn scheduled_target(&self) -> Option<String> {
        let target = self.config.settings().backup.target.clone();
        (!target.is_empty()).then_some(target)
    }

    fn begin(&self, target: TargetName, is_scheduled: bool) -> Result<Arc<RunningBackup>> {
        let mut state = self.state.lock();
        if let Some(running) = &state.running {
            return Err(Error::BackupRunning(running.target.to_string()));
        }
        let running = Arc::new(RunningBackup {
            id: UuidGenerator::new(UuidAlgorithm::Random).next(),
            target,
            is_scheduled,
            started: SystemTime::now(),
            progress: Progress::default(),
            phase: Mutex::new(Phase::Connecting),
        });
        state.running = Some(running.clone());
        Ok(running)
    }

    /// The server whose backups they are. The nodes of a cluster have one uuid, but separate
    /// stores.
    fn server(&self) -> String {
        if self.databases.sequencer().is_none() {
            return self.uuid.clone();
        }
        let name = &self.config.settings().couchdb.node_name;
        format!("{} {name}", self.uuid)
    }

    fn s3(&self) -> S3Options {
        let settings = self.config.settings();
        let of = &settings.backup;
        S3Options {
            endpoint: of.s3_endpoint.clone(),
            region: of.s3_region.clone(),
            access_key_id: of.s3_access_key_id.clone(),
            secret_access_key: of.s3_secret_access_key.clone(),
        }
    }
}
