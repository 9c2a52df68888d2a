//! Scheduled backups: when the last one is old enough, and sooner after a failure.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use backup::{Retention, TargetName};
use config::settings::Backup;
use document::{UuidAlgorithm, UuidGenerator};
use serde::{Deserialize, Serialize};

use super::{Backups, FinishedBackup};

/// The last scheduled backup, remembered across restarts.
const LAST: &str = "last.json";
/// Least time between two backups, whatever the settings are.
const EVERY_MIN: Duration = Duration::from_secs(1);
/// How long after a failure it is tried again, and how long at most after many.
const RETRY_MIN: Duration = Duration::from_secs(60);
const RETRY_MAX: Duration = Duration::from_secs(3_600);
/// Wait while a requested backup runs.
const BUSY_WAIT: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Last {
    target: String,
    unix_s: u64,
}

impl Last {
    fn read(path: &Path) -> Option<Last> {
        serde_json::from_slice(&std::fs::read(path).ok()?).ok()
    }
}

/// Makes backups until the runtime ends.
pub(super) async fn run(backups: Arc<Backups>) {
    let path = backups.directory.join(LAST);
    let (mut last, mut failures) = (Last::read(&path), Failures::default());
    loop {
        let settings = backups.config.settings();
        let of = &settings.backup;
        failures.forget_unless(of);
        let next = next(of, last.as_ref(), &failures, SystemTime::now());
        backups.state.lock().next = next;
        let Some(next) = next else {
            backups.settings_changed.notified().await;
            continue;
        };
        let wait = next.duration_since(SystemTime::now()).unwrap_or_default();
        if wait > Duration::ZERO {
            tokio::select! {
                () = backups.settings_changed.notified() => continue,
                () = tokio::time::sleep(wait) => {}
            }
        }
        match one(&backups, of).await {
            One::Busy => tokio::time::sleep(BUSY_WAIT).await,
            One::Ended(ended) if ended.result.is_ok() => {
                failures = Failures::default();
                last = Some(keep_last(path.clone(), of, &ended).await);
            }
            One::Ended(_) => failures.add(of),
        }
    }
}

enum One {
    Ended(Arc<FinishedBackup>),
    Busy,
}

/// The settings schedule a backup that cannot be made.
fn impossible(backups: &Backups, target: &str, reason: String) -> One {
    let now = SystemTime::now();
    let ended = Arc::new(FinishedBackup {
        id: UuidGenerator::new(UuidAlgorithm::Random).next(),
        target: target.to_owned(),
        is_scheduled: true,
        started: now,
        ended: now,
        result: Err(reason),
    });
    backups.remember(&ended);
    One::Ended(ended)
}

async fn one(backups: &Arc<Backups>, of: &Backup) -> One {
    let target = match TargetName::parse(&of.target) {
        Ok(target) => target,
        // It may have a password in it, and is not repeated.
        Err(error) => return impossible(backups, "[backup] target", error.to_string()),
    };
    // The base of a relative path is not known: the working directory is chosen by the program that
    // starts the server.
    if !of.target.contains("://") && !of.target.starts_with('/') {
        let reason = "a directory must be named by its absolute path, or else by a URL";
        return impossible(backups, &of.target, reason.into());
    }
    match backups.begin(target, true) {
        Ok(running) => One::Ended(backups.clone().make(running, Some(keep(of))).await),
        Err(_) => One::Busy,
    }
}

fn keep(of: &Backup) -> Retention {
    Retention {
        last: of.keep_last,
        hourly: of.keep_hourly,
        daily: of.keep_daily,
        weekly: of.keep_weekly,
        monthly: of.keep_monthly,
        yearly: of.keep_yearly,
    }
}

async fn keep_last(path: PathBuf, of: &Backup, ended: &FinishedBackup) -> Last {
    // When it began, so that they are `every` apart, however long one takes.
    let since = ended.started.duration_since(UNIX_EPOCH);
    let last = Last {
        target: of.target.clone(),
        unix_s: since.unwrap_or_default().as_secs(),
    };
    let text = serde_json::to_vec(&last).expect("a text and a number");
    // Without it the server makes one more after a restart.
    let written = tokio::task::spawn_blocking(move || std::fs::write(path, text)).await;
    if !matches!(written, Ok(Ok(()))) {
        tracing::warn!("the time of the backup is not remembered");
    }
    last
}

/// Failures one after another, with one setting.
#[derive(Default)]
struct Failures {
    of: Option<Backup>,
    count: u32,
    last: Option<SystemTime>,
}

impl Failures {
    fn add(&mut self, of: &Backup) {
        self.of = Some(of.clone());
        self.count += 1;
        self.last = Some(SystemTime::now());
    }

    /// Forgets a failure after a change of the settings, so that the next backup shows soon whether
    /// the change helps.
    fn forget_unless(&mut self, of: &Backup) {
        if self.of.as_ref().is_some_and(|was| was != of) {
            *self = Failures::default();
        }
    }
}

/// When the next one is due; `None` for never.
fn next(
    of: &Backup,
    last: Option<&Last>,
    failures: &Failures,
    now: SystemTime,
) -> Option<SystemTime> {
    if of.target.is_empty() {
        return None;
    }
    let every = of.every.max(EVERY_MIN);
    if let Some(failed) = failures.last {
        let factor = 1 << (failures.count - 1).min(10);
        let wait = (RETRY_MIN * factor).min(RETRY_MAX).min(every);
        return Some(failed + wait);
    }
    let Some(last) = last.filter(|last| last.target == of.target) else {
        return Some(now);
    };
    let due = UNIX_EPOCH + Duration::from_secs(last.unix_s) + every;
    // A clock that was wrong does not put it off for ever.
    Some(due.min(now + every))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backup(target: &str, every_s: u64) -> Backup {
        Backup {
            target: target.to_owned(),
            every: Duration::from_secs(every_s),
            ..config::Settings::default().backup
        }
    }

    const NOW_S: u64 = 1_800_000_000;

    fn now() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(NOW_S)
    }

    fn last(target: &str, ago_s: u64) -> Last {
        Last {
            target: target.to_owned(),
            unix_s: NOW_S - ago_s,
        }
    }

    fn seconds_to(next: Option<SystemTime>) -> Option<i64> {
        next.map(|next| match next.duration_since(now()) {
            Ok(wait) => wait.as_secs() as i64,
            Err(e) => -(e.duration().as_secs() as i64),
        })
    }

    #[test]
    fn backups_are_made_where_and_as_often_as_the_settings_say() {
        let none = Failures::default();
        let of = backup("/b", 3_600);
        let next =
            |of: &Backup, last: Option<Last>| seconds_to(next(of, last.as_ref(), &none, now()));
        assert_eq!(next(&backup("", 3_600), None), None);
        assert_eq!(next(&of, None), Some(0), "the first at once");
        assert_eq!(next(&of, Some(last("/b", 600))), Some(3_000));
        assert_eq!(next(&of, Some(last("/b", 7_200))), Some(-3_600));
        assert_eq!(next(&of, Some(last("/other", 600))), Some(0));
        let mut tomorrow = last("/b", 0);
        tomorrow.unix_s += 864_000;
        assert_eq!(next(&of, Some(tomorrow)), Some(3_600), "a clock was wrong");
    }

    #[test]
    fn a_failure_is_tried_again_sooner_and_then_less_often() {
        let of = backup("/b", 86_400);
        let failed = |count| Failures {
            of: Some(of.clone()),
            count,
            last: Some(now()),
        };
        let wait = |of: &Backup, count| seconds_to(next(of, None, &failed(count), now()));
        assert_eq!(wait(&of, 1), Some(60));
        assert_eq!(wait(&of, 2), Some(120));
        assert_eq!(wait(&of, 99), Some(3_600));
        assert_eq!(wait(&backup("/b", 5), 1), Some(5));
        let mut failures = failed(3);
        failures.forget_unless(&of);
        assert_eq!(failures.count, 3);
        failures.forget_unless(&backup("/c", 86_400));
        assert_eq!(failures.count, 0);
    }
}
