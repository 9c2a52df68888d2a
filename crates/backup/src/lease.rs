//! Who is at work at a target: a backup and a prune, perhaps of different machines, must not take files from under each other.
//!
//! **A backup writes its lease before it looks which files are there; a prune writes its own before it looks for leases of backups.**
//! So one of both sees the other: a prune that sees a backup leaves all files alone, and a backup that sees a prune waits until
//! that is over, and looks for files only then. This needs a store whose lists have what was written before, as S3 has.
//!
//! A lease is written again every [`REFRESH`] while the work goes on. One that was not for a while is of somebody who is gone. How old
//! it is, the target's clock says: both ages are its own.

use std::time::Duration;

use object_store::path::Path;
use tokio::time::Instant;

use crate::error::{Error, Result};
use crate::target::Target;

const LEASES: &str = "leases";
const REFRESH: Duration = Duration::from_secs(20);
/// A prune whose lease is older is gone: it stops before.
const PRUNE_DEAD: Duration = Duration::from_secs(600);
/// A prune removes nothing more when its lease could not be written for so long. What is between both is the time of the requests
/// that are under way, with all their retries.
const PRUNE_SURE: Duration = Duration::from_secs(60);
/// A backup whose lease is older is gone.
const BACKUP_DEAD: Duration = Duration::from_secs(3_600);
/// A backup that could not write its lease for so long does not count.
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
        // When it was sent, as the target may have had it at once.
        let now = Instant::now();
        let content = format!("{{\"pid\":{}}}\n", std::process::id());
        self.target.put(&self.path, content.into()).await?;
        *self
            .refreshed
            .lock()
            .expect("nothing panics while it is held") = now;
        Ok(())
    }

    /// Writes it again and again while `work` goes on.
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

    /// Fails when others may think by now that nobody is at work.
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

    /// Whether others do this work now.
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

    /// The work is done, or given up. What cannot be removed is dead after a while.
    pub(crate) async fn release(self) {
        if let Err(error) = self.target.remove(vec![self.path.clone()]).await {
            tracing::debug!(%error, "a lease stays until it counts as dead");
        }
    }
}
