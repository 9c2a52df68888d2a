//! Everything of a CouchDB, brought to a Settee: databases with all their revisions, users,
//! security objects, replications and settings. The target fetches the documents itself, by
//! replications, so it has to reach the source.
//!
//! | module | answers |
//! |---|---|
//! | `server` | how is a server asked? |
//! | `names` | which databases are meant? |
//! | `database` | what happens to a database? |
//! | `replications`, `locals` | and to documents that are not replicated? |
//! | `settings` | which settings have a meaning here? |
//! | `compare` | is it the same on both sides? |
//! | `progress` | how far is it? |
//! | [`merge`] | how do databases of one user each become one? |

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod compare;
mod database;
mod error;
mod locals;
pub mod merge;
mod names;
mod progress;
mod replications;
mod server;
mod settings;

use std::time::Duration;

use command_line::{MIGRATION_SOURCE, MIGRATION_TARGET};
use futures_util::{StreamExt, stream};

use crate::database::{Migration, Outcome};
pub use crate::error::Error;
use crate::progress::Progress;
pub use crate::progress::duration;
use crate::server::Server;

/// Interval at which the target's progress is polled.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The options of a migration.
#[derive(Clone, Debug)]
pub struct Options {
    /// URL with name and password of an admin.
    pub source: String,
    /// The URL of a running Settee, likewise.
    pub target: String,
    /// Name patterns with `*`; all databases when empty.
    pub only: Vec<String>,
    /// Patterns of names that are left out.
    pub except: Vec<String>,
    /// Databases may hold documents at the target already.
    pub resume: bool,
    /// Databases copied at a time.
    pub jobs: usize,
    /// Copy replications without starting them.
    pub pause_replications: bool,
    /// Settings are copied, if no databases are chosen.
    pub settings: bool,
    /// Nothing is changed.
    pub verify_only: bool,
    /// Documents of each database whose content is compared.
    pub sample: usize,
}

/// Result of a migration.
#[derive(Debug, Default)]
pub struct Summary {
    /// Databases that were copied, or only compared.
    pub databases: usize,
    /// Documents in them, deleted ones included.
    pub documents: u64,
    /// The differences between source and target, one text each.
    pub differences: Vec<String>,
    /// Databases that were not migrated, and why.
    pub failures: Vec<String>,
    /// Manual steps, and other notes.
    pub notes: Vec<String>,
    /// The duration.
    pub elapsed: Duration,
}

impl Summary {
    fn add(&mut self, db: &str, outcome: Result<Outcome, Error>) {
        let named = |text: String| format!("{db}: {text}");
        match outcome {
            Ok(outcome) => {
                self.databases += 1;
                self.documents += outcome.documents;
                self.differences
                    .extend(outcome.differences.into_iter().map(named));
                self.notes.extend(outcome.notes.into_iter().map(named));
            }
            Err(e) => self.failures.push(named(e.to_string())),
        }
    }
}

/// Migrates, with progress on stderr.
///
/// # Errors
/// Why the migration could not start. Errors of single databases are in the summary.
pub async fn run(options: &Options) -> Result<Summary, Error> {
    let source = Server::new(&options.source, MIGRATION_SOURCE)?;
    let target = Server::new(&options.target, MIGRATION_TARGET)?;
    check(&source, &target).await?;
    let progress = Progress::new();
    let mut summary = Summary::default();
    let choice = names::Choice {
        only: options.only.clone(),
        except: options.except.clone(),
    };
    if options.settings && choice.is_all() {
        settings(&source, &target, options, &mut summary).await?;
    }
    let plan = plan(&source, &choice, &progress).await?;
    let copy = async {
        // Users come first, and databases that replications copy exist before they start.
        for group in [&plan.users, &plan.others, &plan.replicators] {
            let mut outcomes = stream::iter(group)
                .map(|db| {
                    let migration = Migration {
                        source: &source,
                        target: &target,
                        db,
                        options,
                        progress: &progress,
                    };
                    async move { (db, migration.run().await) }
                })
                .buffer_unordered(options.jobs.max(1));
            while let Some((db, outcome)) = outcomes.next().await {
                progress.finish();
                summary.add(db, outcome);
            }
        }
    };
    if options.verify_only {
        progress.phase("comparing");
    }
    tokio::select! {
        () = copy => {}
        () = watch(&target, &progress) => {}
    }
    summary.elapsed = progress.end();
    Ok(summary)
}

/// Checks that both servers answer, are different ones, and grant this user all rights.
async fn check(source: &Server, target: &Server) -> Result<(), Error> {
    let mut ids = vec![];
    for (server, side) in [(source, "source"), (target, "target")] {
        // Other mistakes in the URL are reported immediately.
        let welcome = server.welcome().await?;
        if welcome["couchdb"].as_str() != Some("Welcome") {
            return Err(Error::Cannot(format!(
                "{} is not a CouchDB server: its response to GET / has no welcome message",
                server.shown()
            )));
        }
        ids.push(welcome["uuid"].clone());
        let session = server.get(&["_session"], &[]).await?;
        let roles = session["userCtx"]["roles"].as_array();
        if !roles.is_some_and(|roles| roles.iter().any(|role| role == "_admin")) {
            return Err(Error::Cannot(format!(
                "{}: name and password of a server admin are needed at the {side}, as in http://NAME:PASSWORD@HOST:5984",
                server.shown()
            )));
        }
    }
    if ids[0].is_string() && ids[0] == ids[1] {
        return Err(Error::Cannot(
            "source and target are the same server".into(),
        ));
    }
    if source.is_loopback() && !target.is_loopback() {
        return Err(Error::Cannot(format!(
            "the target fetches the documents, and {} is the target's own address: give the address at which the target reaches the source",
            source.shown()
        )));
    }
    Ok(())
}

/// The databases to migrate, in groups.
#[derive(Default)]
struct Plan {
    users: Vec<String>,
    others: Vec<String>,
    replicators: Vec<String>,
}

async fn plan(source: &Server, choice: &names::Choice, progress: &Progress) -> Result<Plan, Error> {
    let all = source.get(&["_all_dbs"], &[]).await?;
    let all = all.as_array().into_iter().flatten();
    let names: Vec<&str> = all.filter_map(serde_json::Value::as_str).collect();
    if let Some(pattern) = choice.unmatched(&names) {
        return Err(Error::Cannot(format!(
            "no database of {} matches --only {pattern}",
            source.shown()
        )));
    }
    let mut plan = Plan::default();
    let mut sized = vec![];
    for name in names.into_iter().filter(|name| choice.includes(name)) {
        let info = source.get(&[name], &[]).await?;
        let count = |member: &str| info[member].as_u64().unwrap_or(0);
        let documents = count("doc_count") + count("doc_del_count");
        progress.expect(name, documents);
        match name {
            "_users" => plan.users.push(name.to_owned()),
            name if names::is_replicator(name) => plan.replicators.push(name.to_owned()),
            name => sized.push((documents, name.to_owned())),
        }
    }
    // The largest first: none of them is left alone at the end.
    sized.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    plan.others = sized.into_iter().map(|(_, name)| name).collect();
    Ok(plan)
}

async fn settings(
    source: &Server,
    target: &Server,
    options: &Options,
    summary: &mut Summary,
) -> Result<(), Error> {
    let (there, here) = (settings::read(source).await?, settings::read(target).await?);
    let (Some(there), Some(here)) = (there, here) else {
        summary
            .notes
            .push("settings: a server does not show them".into());
        return Ok(());
    };
    let plan = settings::plan(&there, &here);
    for setting in &plan.taken {
        let named = format!("{}/{}", setting.section, setting.key);
        if options.verify_only {
            summary
                .differences
                .push(format!("setting {named} is another at the target"));
            continue;
        }
        match settings::make(target, setting).await {
            Ok(()) => summary.notes.push(format!("setting {named} was taken")),
            Err(e @ Error::Refused { .. }) => summary
                .differences
                .push(format!("setting {named} was not taken: {e}")),
            Err(e) => return Err(e),
        }
    }
    for (names, why) in [
        (
            &plan.by_hand,
            "are of the source's machine; set them by hand where you need them",
        ),
        (&plan.unknown, "have no meaning here"),
    ] {
        if !names.is_empty() {
            summary
                .notes
                .push(format!("settings that {why}: {}", names.join(", ")));
        }
    }
    Ok(())
}

/// Shows how far the target's replications are, for ever.
async fn watch(target: &Server, progress: &Progress) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        // A target that is away for a moment shows nothing new.
        if let Ok(tasks) = target.get(&["_active_tasks"], &[]).await {
            for task in tasks.as_array().into_iter().flatten() {
                let (Some(db), Some(pending)) =
                    (task["target"].as_str(), task["changes_pending"].as_u64())
                else {
                    continue;
                };
                progress.pending(db, pending);
            }
        }
        progress.show();
    }
}
