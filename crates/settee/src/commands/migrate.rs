//! `settee migrate`.

use command_line::counted;
use std::path::Path;

use crate::Failure;
use crate::cli::MigrateOptions;
use crate::commands::runtime;
use crate::owner::work_as_owner_of;
use crate::serve;

/// Differences shown; all are counted.
const SHOWN_MAX: usize = 200;

pub fn run(options: MigrateOptions) -> Result<(), Failure> {
    match (&options.to, &options.data) {
        (Some(to), _) => runtime()?.block_on(migrate(&options, to.clone())),
        (None, Some(data)) => into_directory(&options, data),
        // clap requires one of them.
        (None, None) => Err(Failure::usage("--to or --data is needed")),
    }
}

/// Serves the directory, to this process alone, while it is filled.
fn into_directory(options: &MigrateOptions, data: &Path) -> Result<(), Failure> {
    work_as_owner_of(data)?;
    serve::while_serving(data, |url| migrate(options, url))
}

/// Prints the migrated data, and the failures.
pub fn show(summary: &migrate::Summary, verify_only: bool) {
    let done = match verify_only {
        true => "compared",
        false => "copied and compared",
    };
    for note in &summary.notes {
        say!("note: {note}");
    }
    for (what, list) in [
        ("not migrated", &summary.failures),
        ("difference", &summary.differences),
    ] {
        for text in list.iter().take(SHOWN_MAX) {
            say!("{what}: {text}");
        }
        if list.len() > SHOWN_MAX {
            say!("{what}: {} more", list.len() - SHOWN_MAX);
        }
    }
    say!(
        "{done} {} with {} in {}: {}",
        counted(summary.databases, "databases"),
        counted(summary.documents, "documents"),
        migrate::duration(summary.elapsed),
        match summary.differences.len() {
            0 => "no difference".to_owned(),
            n => counted(n, "differences"),
        }
    );
}

async fn migrate(options: &MigrateOptions, target: String) -> Result<(), Failure> {
    let summary = migrate::run(&migrate::Options {
        source: options.source.clone(),
        target,
        only: options.only.clone(),
        except: options.except.clone(),
        resume: options.resume,
        jobs: options.jobs,
        pause_replications: options.pause_replications,
        settings: !options.no_settings,
        verify_only: options.verify_only,
        sample: options.sample,
    })
    .await
    .map_err(|e| match e {
        migrate::Error::Url(_) => Failure::usage(e),
        e => Failure::new(e),
    })?;
    show(&summary, options.verify_only);
    if !summary.failures.is_empty() {
        return Err(Failure::new(format!(
            "not migrated: {}; resume with --continue",
            counted(summary.failures.len(), "databases")
        )));
    }
    if !summary.differences.is_empty() {
        return Err(Failure {
            message: "source and target differ".into(),
            status: 3,
        });
    }
    Ok(())
}
