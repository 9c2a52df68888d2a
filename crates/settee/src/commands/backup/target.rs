//! Commands on a target without a server: `settee backup list`, `prune` and `verify`.

use backup::{Manifest, Retention, S3Options, Target, TargetName, time_text};
use command_line::counted;
use serde_json::json;

use super::size;
use crate::Failure;
use crate::cli::{ListOptions, PruneOptions, VerifyOptions};

/// The target of this name, with keys of the environment.
pub async fn open(name: &str) -> Result<Target, Failure> {
    let name = TargetName::parse(name).map_err(Failure::usage)?;
    let target = Target::open(&name, &S3Options::default()).await;
    target.map_err(Failure::new)
}

pub async fn list(options: &ListOptions) -> Result<(), Failure> {
    let (backups, broken) = open(&options.target)
        .await?
        .backups()
        .await
        .map_err(Failure::new)?;
    if options.json {
        let all: Vec<_> = backups.iter().map(told).collect();
        say!("{}", serde_json::Value::from(all));
    } else {
        let width = backups.iter().map(|backup| backup.name.len()).max();
        let width = width.unwrap_or(0).max("NAME".len());
        say!(
            "{:width$}  {:24}  {:>8}  {:>10}  {:>10}",
            "NAME",
            "TIME",
            "FILES",
            "SIZE",
            "NEW"
        );
        for backup in &backups {
            say!(
                "{:width$}  {:24}  {:>8}  {:>10}  {:>10}",
                backup.name,
                time_text(backup.time),
                backup.files.len(),
                size(backup.bytes()),
                size(backup.copied_bytes)
            );
        }
    }
    match broken.first() {
        None => Ok(()),
        Some(error) => Err(Failure::new(error)),
    }
}

fn told(backup: &Manifest) -> serde_json::Value {
    json!({
        "name": backup.name,
        "time": time_text(backup.time),
        "begun": time_text(backup.begun),
        "server": backup.server,
        "version": backup.version,
        "files": backup.files.len(),
        "bytes": backup.bytes(),
        "copied_files": backup.copied_files,
        "copied_bytes": backup.copied_bytes,
    })
}

pub async fn prune(options: &PruneOptions) -> Result<(), Failure> {
    let keep = Retention {
        last: options.keep_last.unwrap_or(0),
        hourly: options.keep_hourly.unwrap_or(0),
        daily: options.keep_daily.unwrap_or(0),
        weekly: options.keep_weekly.unwrap_or(0),
        monthly: options.keep_monthly.unwrap_or(0),
        yearly: options.keep_yearly.unwrap_or(0),
    };
    if keep.is_all() {
        return Err(Failure::usage("say how many backups are to be kept"));
    }
    let target = open(&options.target).await?;
    let pruned = backup::prune(&target, &keep, options.dry_run).await;
    let pruned = pruned.map_err(Failure::new)?;
    let done = if options.dry_run {
        "would be removed"
    } else {
        "removed"
    };
    for backup in &pruned.removed {
        say!("{done}: {}", backup.name);
    }
    say!(
        "{done}: {}, {}, {}; kept: {}",
        counted(pruned.removed.len(), "backups"),
        counted(pruned.files, "files"),
        size(pruned.bytes),
        counted(pruned.kept, "backups")
    );
    if pruned.postponed {
        say!("a backup is under way: files are left alone until the next prune");
    }
    Ok(())
}

pub async fn verify(options: &VerifyOptions) -> Result<(), Failure> {
    let target = open(&options.target).await?;
    let verified = backup::verify(&target, options.name.as_deref()).await;
    let verified = verified.map_err(Failure::new)?;
    for fault in &verified.faults {
        eprintln!("{fault}");
    }
    let of = format!(
        "{}, {}, {}",
        counted(verified.backups.len(), "backups"),
        counted(verified.files, "files"),
        size(verified.bytes)
    );
    match verified.faults.len() {
        0 => {
            say!("whole: {of}");
            Ok(())
        }
        n => Err(Failure::new(format!("{} in {of}", counted(n, "faults")))),
    }
}
