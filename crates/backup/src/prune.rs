//! Retention of backups, and removal of the files that no backup needs.

use std::collections::HashSet;
use std::path::Path as FilePath;
use std::time::{Duration, SystemTime};

use chrono::{DateTime, Datelike as _, Timelike as _, Utc};

use crate::error::Result;
use crate::lease::{Lease, Work};
use crate::manifest::Manifest;
use crate::target::{Target, TargetName};

/// Objects removed between two checks of the lease.
const AT_ONCE: usize = 500;
/// Age above which the remains of an interrupted write to a directory are removed.
const UNFINISHED_AGE: Duration = Duration::from_secs(86_400);

/// Retention. A backup kept by any rule stays, and so does the last one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Number of last backups.
    pub last: u64,
    /// Number of hours with a backup; the last one of each stays.
    pub hourly: u64,
    /// Number of days with a backup, from midnight UTC; the last one of each stays.
    pub daily: u64,
    /// Number of weeks with a backup, from Monday; the last one of each stays.
    pub weekly: u64,
    /// Number of months with a backup; the last one of each stays.
    pub monthly: u64,
    /// Number of years with a backup; the last one of each stays.
    pub yearly: u64,
}

impl Retention {
    /// Returns whether no rule is set, so that all backups stay.
    pub fn is_all(&self) -> bool {
        *self == Retention::default()
    }

    /// Which of the backups of these times stay; the times are in order, the oldest first.
    fn of(&self, times: &[DateTime<Utc>]) -> Vec<bool> {
        let mut kept = vec![self.is_all(); times.len()];
        let day = |t: &DateTime<Utc>| i64::from(t.num_days_from_ce());
        let rules: [Rule<'_>; 5] = [
            (self.hourly, &|t| (day(t), i64::from(t.hour()))),
            (self.daily, &|t| (day(t), 0)),
            (self.weekly, &|t| {
                let week = t.iso_week();
                (i64::from(week.year()), i64::from(week.week()))
            }),
            (self.monthly, &|t| {
                (i64::from(t.year()), i64::from(t.month()))
            }),
            (self.yearly, &|t| (i64::from(t.year()), 0)),
        ];
        for (n, period) in rules {
            let (mut left, mut last) = (n, None);
            for (time, kept) in times.iter().zip(&mut kept).rev() {
                let period = Some(period(time));
                if left > 0 && period != last {
                    *kept = true;
                    left -= 1;
                }
                last = period;
            }
        }
        let last = usize::try_from(self.last.max(1)).unwrap_or(usize::MAX);
        kept.iter_mut()
            .rev()
            .take(last)
            .for_each(|kept| *kept = true);
        kept
    }
}

/// The number of periods, and the period of a time.
type Rule<'a> = (u64, &'a dyn Fn(&DateTime<Utc>) -> (i64, i64));

/// Result of a prune.
#[derive(Debug, Default)]
pub struct PruneResult {
    /// The removed backups.
    pub removed: Vec<Manifest>,
    /// Backups that are.
    pub kept: usize,
    /// Files that no backup needs any more.
    pub files: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// The files stay for now, since a backup is under way; the next prune removes them.
    pub postponed: bool,
}

/// Removes the backups that no rule keeps, and the files that no backup needs any more. Files are
/// kept while a backup is under way. `dry_run`: only reports what it would remove.
///
/// # Errors
/// [`crate::Error::Manifest`] when a backup cannot be read, as the files that it needs are unknown,
/// and those of the target.
pub async fn prune(target: &Target, keep: &Retention, dry_run: bool) -> Result<PruneResult> {
    let lease = Lease::take(target, Work::Prune).await?;
    let pruned = lease
        .during(prune_with(target, &lease, keep, dry_run))
        .await;
    lease.release().await;
    pruned
}

async fn prune_with(
    target: &Target,
    lease: &Lease<'_>,
    keep: &Retention,
    dry_run: bool,
) -> Result<PruneResult> {
    // Before the backups are read: a backup that ends in between is read.
    let mut pruned = PruneResult {
        postponed: lease.others(Work::Backup).await?,
        ..PruneResult::default()
    };
    let (backups, mut broken) = target.backups().await?;
    if let Some(error) = broken.pop() {
        return Err(error);
    }
    let times: Vec<_> = backups.iter().map(|backup| backup.time).collect();
    let (mut kept, mut removed) = (vec![], vec![]);
    for (backup, stays) in backups.into_iter().zip(keep.of(&times)) {
        if stays { &mut kept } else { &mut removed }.push(backup);
    }
    if !dry_run {
        // Before their files: a crash leaves files that no backup needs, and no backups without
        // files.
        let paths = removed
            .iter()
            .map(|backup| Target::manifest_path(&backup.name));
        target.remove(paths.collect()).await?;
    }
    (pruned.removed, pruned.kept) = (removed, kept.len());
    if pruned.postponed {
        return Ok(pruned);
    }
    let needed = kept.iter().flat_map(|backup| &backup.files);
    let needed: HashSet<&str> = needed.map(|file| file.blake3.as_str()).collect();
    let mut files = target.files().await?;
    files.retain(|(blake3, _)| !needed.contains(blake3.as_str()));
    for files in files.chunks(AT_ONCE) {
        lease.check()?;
        if !dry_run {
            let paths = files.iter().map(|(blake3, _)| Target::file_path(blake3));
            target.remove(paths.collect()).await?;
        }
        pruned.files += files.len() as u64;
        pruned.bytes += files.iter().map(|(_, bytes)| bytes).sum::<u64>();
    }
    if let (TargetName::Directory(path), false) = (target.name(), dry_run) {
        remove_unfinished(&path.join("files"));
    }
    Ok(pruned)
}

/// Removes what writes left that were ended in between: `…#1`, which lists do not show.
fn remove_unfinished(files: &FilePath) {
    let of = |directory: &FilePath| std::fs::read_dir(directory).into_iter().flatten().flatten();
    for folder in of(files) {
        for file in of(&folder.path()) {
            let is_unfinished = file.file_name().to_string_lossy().contains('#');
            let modified = file.metadata().and_then(|metadata| metadata.modified());
            let age = modified.map(|at| SystemTime::now().duration_since(at).unwrap_or_default());
            if is_unfinished && age.is_ok_and(|age| age > UNFINISHED_AGE) {
                // The next prune tries again.
                let _ = std::fs::remove_file(file.path());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::parse_time;
    use proptest::prelude::*;

    fn kept(keep: Retention, times: &[&str]) -> Vec<String> {
        let parsed: Vec<_> = times.iter().map(|t| parse_time(t).unwrap()).collect();
        let kept = keep.of(&parsed);
        let pairs = times.iter().zip(kept);
        pairs
            .filter(|(_, kept)| *kept)
            .map(|(t, _)| (*t).to_owned())
            .collect()
    }

    const TIMES: [&str; 7] = [
        "2025-12-31T23:00:00Z",
        "2026-11-01T10:00:00Z",
        "2026-11-22T10:00:00Z",
        "2026-11-23T10:00:00Z",
        "2026-11-23T22:00:00Z",
        "2026-11-24T10:05:00Z",
        "2026-11-24T10:50:00Z",
    ];

    #[test]
    fn the_last_of_each_period_stays() {
        let none = Retention::default();
        assert_eq!(kept(none, &TIMES).len(), 7);
        assert_eq!(kept(Retention { last: 2, ..none }, &TIMES), TIMES[5..]);
        let daily = kept(Retention { daily: 3, ..none }, &TIMES);
        assert_eq!(daily, [TIMES[2], TIMES[4], TIMES[6]]);
        let hourly = kept(Retention { hourly: 2, ..none }, &TIMES);
        assert_eq!(hourly, [TIMES[4], TIMES[6]]);
        // 22 November 2026 is a Sunday.
        let weekly = kept(Retention { weekly: 2, ..none }, &TIMES);
        assert_eq!(weekly, [TIMES[2], TIMES[6]]);
        let monthly = kept(Retention { monthly: 9, ..none }, &TIMES);
        assert_eq!(monthly, [TIMES[0], TIMES[6]]);
        let yearly = kept(Retention { yearly: 1, ..none }, &TIMES);
        assert_eq!(yearly, [TIMES[6]]);
        let both = kept(
            Retention {
                last: 1,
                yearly: 2,
                ..none
            },
            &TIMES,
        );
        assert_eq!(both, [TIMES[0], TIMES[6]]);
    }

    proptest! {
        #[test]
        fn the_last_one_always_stays(hours in prop::collection::vec(0..1_000i64, 1..20), daily in 0..4u64, hourly in 0..4u64) {
            let begin = parse_time("2026-01-01T00:00:00Z").unwrap();
            let mut hours = hours;
            hours.sort_unstable();
            let times: Vec<_> = hours.iter().map(|h| begin + chrono::Duration::hours(*h)).collect();
            let keep = Retention { daily, hourly, ..Retention::default() };
            let kept = keep.of(&times);
            prop_assert!(kept.last().unwrap());
            // At most the number of the rule.
            let n = kept.iter().filter(|kept| **kept).count() as u64;
            prop_assert!(keep.is_all() || n <= (daily + hourly).max(1));
        }
    }
}
