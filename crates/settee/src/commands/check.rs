//! `settee check`: whether a store is sound.

use command_line::counted;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use database::check::{CheckOptions, LocatedFinding, Report, Totals, Watch, check};

use super::doctor::plain;
use crate::Failure;
use crate::cli::StoreCheckOptions;
use crate::data::{STORE, require_directory};
use crate::owner::work_as_owner_of;
use crate::serve::functions_of;

/// The exit status when the store is damaged, and when it could not be checked.
const DAMAGED: u8 = 1;
const NOT_LOOKED_AT: u8 = 2;

const PROGRESS_EVERY: Duration = Duration::from_millis(500);
/// Shortest check that reports a rate, in seconds.
const RATE_AFTER_S: f64 = 1.0;

pub fn run(options: &StoreCheckOptions) -> ExitCode {
    match look(options) {
        Ok(report) => {
            match options.json {
                true => say!("{}", report.json()),
                false => print(&report, options),
            }
            match report.is_sound() {
                true => ExitCode::SUCCESS,
                false => ExitCode::from(DAMAGED),
            }
        }
        Err(e) => {
            eprintln!("settee: {}", e.message);
            ExitCode::from(NOT_LOOKED_AT)
        }
    }
}

fn look(options: &StoreCheckOptions) -> Result<Report, Failure> {
    require_directory(&options.data)?;
    // Its settings name programs that are started.
    work_as_owner_of(&options.data)?;
    let store = store_in(&options.data);
    if !store.exists() && backup::holds_backups(&options.data) {
        let place = options.data.display();
        return Err(Failure::usage(format!(
            "{place} holds backups: check them with `settee backup verify {place}`"
        )));
    }
    let languages = functions_of(&options.data)?;
    let (sender, receiver) = std::sync::mpsc::channel();
    let shown = Shown::start(receiver);
    let report = check(
        &store,
        CheckOptions {
            temporary: options.temporary.clone().unwrap_or_else(std::env::temp_dir),
            time_zone: languages.time_zone().to_owned(),
            languages: options.indexes.then_some(languages),
            begun: Box::new(move |watch| {
                // Without a terminal the receiver is gone.
                let _ = sender.send(watch);
            }),
        },
    );
    shown.end();
    report.map_err(Failure::new)
}

/// The store of a data directory; a backup is a store itself.
pub(super) fn store_in(data: &Path) -> PathBuf {
    let store = data.join(STORE);
    match store.is_dir() || !data.join("CURRENT").exists() {
        true => store,
        false => data.to_owned(),
    }
}

/// The line of a terminal that shows the progress.
struct Shown {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Shown {
    fn start(watches: std::sync::mpsc::Receiver<Arc<Watch>>) -> Shown {
        let ended = Arc::new(AtomicBool::new(false));
        let seen = ended.clone();
        let thread = std::io::stderr().is_terminal().then(|| {
            std::thread::spawn(move || {
                if let Ok(watch) = watches.recv() {
                    while !seen.load(Relaxed) {
                        let mut err = std::io::stderr().lock();
                        // The line is rewritten from its start, and the rest of the previous one is
                        // cleared.
                        let _ = write!(err, "\r{}\x1b[K", line(&watch));
                        let _ = err.flush();
                        drop(err);
                        std::thread::park_timeout(PROGRESS_EVERY);
                    }
                    eprint!("\r\x1b[K");
                }
            })
        });
        Shown { ended, thread }
    }

    fn end(mut self) {
        self.ended.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

fn line(watch: &Watch) -> String {
    format!(
        "{}, {}, {} MB of attachments: {}",
        counted(watch.rows.load(Relaxed), "rows"),
        counted(watch.documents.load(Relaxed), "documents"),
        watch.attachment_bytes.load(Relaxed) >> 20,
        plain(&watch.what())
    )
}

fn print(report: &Report, options: &StoreCheckOptions) {
    for found in &report.found {
        if found.finding.is_damage || !options.quiet {
            print_found(found, options);
        }
    }
    let damage = report.damage().count();
    if options.quiet {
        return;
    }
    let t = &report.totals;
    say!("{}", totals(t));
    match damage {
        0 => say!("sound"),
        n => say!("{} of damage", counted(n, "findings")),
    }
}

fn print_found(found: &LocatedFinding, options: &StoreCheckOptions) {
    let severity = if found.finding.is_damage {
        "DAMAGED"
    } else {
        "NOTE"
    };
    say!(
        "{severity}: {}: {}",
        plain(&found.subject()),
        plain(&found.finding.says)
    );
    if let Some(act) = found.act() {
        let database = found.database.as_deref().unwrap_or("db");
        let act = act
            .replace("DATA", &options.data.display().to_string())
            .replace("{db}", database);
        say!("  do: {}", plain(&act));
    }
}

fn totals(t: &Totals) -> String {
    let documents = t.documents + t.deleted_documents;
    // For a small store it would measure the start.
    let rate = match t.seconds < RATE_AFTER_S {
        true => String::new(),
        false => format!(": {:.0} documents a second", documents as f64 / t.seconds),
    };
    format!(
        "{}, {} and {} deleted ones, {} with {}, {} of attachments of {} MB, {} of {} MB, in {:.1} s{rate}",
        counted(t.databases, "databases"),
        counted(t.documents, "documents"),
        t.deleted_documents,
        match t.indexes {
            1 => "1 index".to_owned(),
            n => format!("{n} indexes"),
        },
        counted(t.index_rows, "rows"),
        counted(t.attachments, "contents"),
        t.attachment_bytes >> 20,
        counted(t.files, "files"),
        t.file_bytes >> 20,
        t.seconds
    )
}
