//! One backup, from its checkpoint to the removal of older ones.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use backup::{Copy, Manifest, Retention, Target, time_text};
use chrono::Utc;

use super::{BackupFigures, Backups, ENDED_MAX, FinishedBackup, Phase, RunningBackup, counters};

/// The checkpoint of the store, while its files are copied: links, where the file system has them.
const CHECKPOINT: &str = "checkpoint";
/// Hashes of the store's files.
const HASHES: &str = "hashes.json";

/// Removes the files of an interrupted backup.
pub(super) fn remove_rest(directory: &Path) {
    let checkpoint = directory.join(CHECKPOINT);
    for rest in [database::text_index_folder(&checkpoint), checkpoint] {
        if let Err(error) = std::fs::remove_dir_all(&rest)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "{} stays", rest.display());
        }
    }
}

impl Backups {
    /// Makes a backup that was started, and with `keep` removes older ones then. Returns its
    /// figures.
    pub(super) async fn make(
        self: Arc<Self>,
        running: Arc<RunningBackup>,
        keep: Option<Retention>,
    ) -> Arc<FinishedBackup> {
        let (me, of) = (self.clone(), running.clone());
        // Of its own, so that one that panics ends too.
        let made = tokio::spawn(async move { me.copy(&of, keep).await }).await;
        let result = made.unwrap_or_else(|e| Err(e.to_string().into()));
        let result = result.map_err(|failure| {
            if let Some(details) = &failure.details {
                tracing::error!(target = %running.target, "the backup's target: {details}");
            }
            failure.reason
        });
        let ended = Arc::new(FinishedBackup {
            id: running.id.clone(),
            target: running.target.to_string(),
            is_scheduled: running.is_scheduled,
            started: running.started,
            ended: SystemTime::now(),
            result,
        });
        self.remember(&ended);
        ended
    }

    /// Logs a finished backup, and remembers it.
    pub(super) fn remember(&self, ended: &Arc<FinishedBackup>) {
        tell(ended);
        let mut state = self.state.lock();
        if state
            .running
            .as_ref()
            .is_some_and(|running| running.id == ended.id)
        {
            state.running = None;
        }
        match &ended.result {
            Ok(_) => state.last_success = Some(ended.clone()),
            Err(_) => state.last_failure = Some(ended.clone()),
        }
        state.ended.push_back(ended.clone());
        if state.ended.len() > ENDED_MAX {
            state.ended.pop_front();
        }
    }

    async fn copy(
        self: Arc<Self>,
        running: &RunningBackup,
        keep: Option<Retention>,
    ) -> Result<BackupFigures, Failure> {
        // reqwest takes the process's provider. Set already is fine too.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let target = Target::open_or_create(&running.target, &self.s3(), &self.server()).await;
        let target = target?;
        running.enter(Phase::Checkpoint);
        let me = self.clone();
        let copied = tokio::task::spawn_blocking(move || me.checkpoint()).await;
        let copy = copied.map_err(|e| e.to_string())??;
        running.enter(Phase::Copying);
        let max_rate = self.config.settings().backup.max_rate;
        let made = backup::back_up(&target, &copy, max_rate, &running.progress).await;
        let me = self.clone();
        let removed = tokio::task::spawn_blocking(move || remove_rest(&me.directory));
        removed.await.map_err(|e| e.to_string())?;
        let made = made_of(&made?);
        self.databases.store().note_backup();
        if let Some(keep) = keep.filter(|keep| !keep.is_all()) {
            running.enter(Phase::Pruning);
            prune(&target, &keep).await;
        }
        Ok(made)
    }

    fn checkpoint(&self) -> Result<Copy, String> {
        let at = |e: std::io::Error| format!("{}: {e}", self.directory.display());
        std::fs::create_dir_all(&self.directory).map_err(at)?;
        remove_rest(&self.directory);
        let directory = self.directory.join(CHECKPOINT);
        let begun = Utc::now();
        self.databases.copy(&directory).map_err(|e| match e {
            // The words are for an admin, who may know what is wrong.
            database::Error::Storage(e) => e.to_string(),
            e => e.to_string(),
        })?;
        Ok(Copy {
            directory,
            hashes: self.directory.join(HASHES),
            server: self.server(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            begun,
            time: Utc::now(),
        })
    }
}

/// Why a backup was not made.
struct Failure {
    /// For clients.
    reason: String,
    /// For the log alone: words of another server.
    details: Option<String>,
}

impl From<String> for Failure {
    fn from(reason: String) -> Failure {
        Failure {
            reason,
            details: None,
        }
    }
}

impl From<backup::Error> for Failure {
    fn from(error: backup::Error) -> Failure {
        let (reason, text) = (error.for_clients(), error.to_string());
        Failure {
            details: (text != reason).then_some(text),
            reason,
        }
    }
}

fn made_of(manifest: &Manifest) -> BackupFigures {
    BackupFigures {
        name: manifest.name.clone(),
        time: time_text(manifest.time),
        files: manifest.files.len() as u64,
        bytes: manifest.bytes(),
        copied_files: manifest.copied_files,
        copied_bytes: manifest.copied_bytes,
    }
}

/// Removes older backups. A failure does not affect the new one: the next backup tries again.
async fn prune(target: &Target, keep: &Retention) {
    match backup::prune(target, keep, false).await {
        Ok(pruned) if pruned.removed.is_empty() && pruned.files == 0 => {}
        Ok(pruned) => tracing::info!(
            target = %target.name(),
            backups = pruned.removed.len(),
            files = pruned.files,
            bytes = pruned.bytes,
            "older backups were removed"
        ),
        Err(error) => tracing::warn!(%error, "older backups were not removed"),
    }
}

fn tell(ended: &FinishedBackup) {
    let (target, seconds) = (&ended.target, ended.took().as_secs_f64());
    match &ended.result {
        Ok(made) => {
            counters::MADE.add(1);
            counters::COPIED_BYTES.add(made.copied_bytes);
            tracing::info!(
                %target,
                name = made.name,
                bytes = made.bytes,
                copied_bytes = made.copied_bytes,
                seconds,
                "backed up"
            );
        }
        Err(reason) => {
            counters::FAILED.add(1);
            tracing::error!(%target, seconds, "the backup failed: {reason}");
        }
    }
}
