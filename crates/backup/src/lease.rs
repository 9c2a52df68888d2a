//! Leases at a target: a backup and a prune, perhaps on different machines, must not remove files
//! under each other.
//!
//! **A backup writes its lease before it lists the files; a prune writes its own before it lists
//! the leases of backups.** So at least one of them sees the other: a prune that sees a backup
//! keeps all files, and a backup that sees a prune waits until it is over, and lists files only
//! then. This needs a store with read-after-write consistent listings, as S3 has.
//!
//! A lease is rewritten every [`REFRESH`] while the work continues. One that has not been rewritten
//! for a while belongs to a process that has ended. Ages are computed from the target's clock
//! alone.

use std::time::Duration;

use object_store::path::Path;
use tokio::time::Instant;

use crate::error::{Error, Result};
use crate::target::Target;

const LEASES: &str = "leases";
const REFRESH: Duration = Duration::from_secs(20);
/// Age of a prune's lease above which the prune has ended: it stops before.
const PRUNE_DEAD: Duration = Duration::from_secs(600);
/// A prune removes nothing more after failing to renew its lease for this time. The difference
/// to [`PRUNE_DEAD`] is the time of requests under way, with all their retries.
const PRUNE_SURE: Duration = Duration::from_secs(60);
/// Age of a backup's lease above which the backup has ended.
const BACKUP_DEAD: Duration = Duration::from_secs(3_600);
/// A backup that could not renew its lease for this time is invalid.
const BACKUP_SURE: Duration = Duration::from_secs(1_800);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Backup,
    Prune,
}

impl Work {
    fn prefix(self) -> &'static str {
        match self {
            Work::Backup => "backup-",
            Work::Prune => "prune-",
        }
    }

    fn dead(self) -> Duration {
        match self {
            Work::Backup => BACKUP_DEAD,
            Work::Prune => PRUNE_DEAD,
        }
    }

    fn sure(self) -> Duration {
        match self {
            Work::Backup => BACKUP_SURE,
            Work::Prune => PRUNE_SURE,
        }
    }
}

/// A lease that is held.
pub(crate) struct Lease<'a> {
    target: &'a Target,
    work: Work,
    path: Path,
    refreshed: std::sync::Mutex<Instant>,
}

impl<'a> Lease<'a> {
    pub(crate) async fn take(target: &'a Target, work: Work) -> Result<Lease<'a>> {
        let id: String = std::iter::repeat_with(fastrand::alphanumeric)
            .take(16)
            .collect();
        let lease = Lease {
            target,
            work,
            path: Path::from_iter([LEASES.to_owned(), format!("{}{id}", work.prefix())]),
            refreshed: std::sync::Mutex::new(Instant::now()),
        };
        lease.refresh().await?;
        Ok(lease)
    }

    async fn refresh(&self) -> Result<()> {
        // The time of sending, as the target may have written it immediately.
        let now = Instant::now();
        let content = format!("{{\"pid\":{}}}\n", std::process::id());
        self.target.put(&self.path, content.into()).await?;
        *self
            .refreshed
            .lock()
            .expect("nothing panics while it is held") = now;
        Ok(())
    }

    /// Rewrites the lease repeatedly while `work` runs.
    pub(crate) async fn during<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let keep = async {
            loop {
                tokio::time::sleep(REFRESH).await;
                if let Err(error) = self.refresh().await {
                    tracing::warn!(%error, "the lease of a backup or prune is written again later");
                }
            }
        };
        tokio::select! {
            done = work => done,
            () = keep => unreachable!("it has no end"),
        }
    }

    /// Fails when other processes may consider this lease expired.
    pub(crate) fn check(&self) -> Result<()> {
        let refreshed = *self
            .refreshed
            .lock()
            .expect("nothing panics while it is held");
        if refreshed.elapsed() < self.work.sure() {
            return Ok(());
        }
        Err(Error::LeaseLost(self.target.name().to_string()))
    }

    /// Returns whether another process does this work now.
    pub(crate) async fn others(&self, work: Work) -> Result<bool> {
        let leases = self.target.list(LEASES).await?;
        // The own lease is the target's clock.
        let own = leases.iter().find(|lease| lease.path == self.path);
        let Some(now) = own.map(|own| own.modified) else {
            return Err(Error::LeaseLost(self.target.name().to_string()));
        };
        let (mut dead, mut alive) = (vec![], false);
        for lease in leases {
            let of = |work: Work| {
                let name = lease.path.filename();
                name.is_some_and(|name| name.starts_with(work.prefix()))
            };
            let age = (now - lease.modified).to_std().unwrap_or_default();
            if of(work) && lease.path != self.path && age < work.dead() {
                alive = true;
            }
            if [Work::Backup, Work::Prune]
                .into_iter()
                .any(|w| of(w) && age >= w.dead())
            {
                dead.push(lease.path.clone());
            }
        }
        self.target.remove(dead).await?;
        Ok(alive)
    }

    /// Ends the lease. One that cannot be removed expires.
    pub(crate) async fn release(self) {
        if let Err(error) = self.target.remove(vec![self.path.clone()]).await {
            tracing::debug!(%error, "a lease stays until it counts as dead");
        }
    }
}
