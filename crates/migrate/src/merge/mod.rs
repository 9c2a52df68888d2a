//! Databases of one user each, merged into a database with access by document.

mod database;
mod edit;
mod owner;

use command_line::{MIGRATION_SOURCE, MIGRATION_TARGET};
use serde_json::Value;

pub use owner::Rule;

use crate::merge::database::{Merge, Merged};
use crate::merge::owner::Owner;
use crate::names::Choice;
use crate::progress::Progress;
use crate::server::Server;
use crate::{Error, Summary};

/// The options of a merge.
#[derive(Clone, Debug)]
pub struct Options {
    /// URL of the server with the databases, with name and password of an admin.
    pub source: String,
    /// The URL of a running Settee, likewise; may be the same.
    pub target: String,
    /// A name pattern with `*`, of the databases.
    pub pattern: String,
    /// The database with access, created when it does not exist.
    pub into: String,
    /// Whose documents they are.
    pub rule: Rule,
    /// Ids get the name of their database and a colon before them.
    pub prefix_ids: bool,
    /// Nothing is changed.
    pub verify_only: bool,
}

/// Merges, with progress on stderr. Continues where an earlier run ended.
///
/// # Errors
/// Why the merge could not start. Errors of single databases are in the summary.
pub async fn run(options: &Options) -> Result<Summary, Error> {
    let source = Server::new(&options.source, MIGRATION_SOURCE)?;
    let target = Server::new(&options.target, MIGRATION_TARGET)?;
    let progress = Progress::new();
    let names = names(&source, options).await?;
    for name in &names {
        let info = source.get(&[name], &[]).await?;
        let count = |member: &str| info[member].as_u64().unwrap_or(0);
        progress.expect(name, count("doc_count") + count("doc_del_count"));
    }
    open(&target, options).await?;
    let mut summary = Summary::default();
    // One after another, so that two of them never write one id at the same time.
    for name in &names {
        let mut merged = Merged::default();
        let result = merge(&source, &target, options, name, &progress, &mut merged).await;
        progress.copied(name);
        progress.finish();
        progress.show();
        add(&mut summary, name, result, merged);
    }
    summary.elapsed = progress.end();
    Ok(summary)
}

fn add(summary: &mut Summary, name: &str, result: Result<(), Error>, merged: Merged) {
    let named = |text: String| format!("{name}: {text}");
    if let Err(e) = result {
        summary.failures.push(named(e.to_string()));
        return;
    }
    summary.databases += 1;
    summary.documents += merged.documents;
    summary
        .failures
        .extend(merged.failures.into_iter().map(named));
    summary
        .differences
        .extend(merged.differences.into_iter().map(named));
    if merged.designs > 0 {
        let designs = command_line::counted(merged.designs, "design documents");
        summary.notes.push(named(format!("{designs} not merged")));
    }
}

async fn merge(
    source: &Server,
    target: &Server,
    options: &Options,
    db: &str,
    progress: &Progress,
    merged: &mut Merged,
) -> Result<(), Error> {
    let security = source.get(&[db, "_security"], &[]).await?;
    let owner = Owner::of(options.rule, db, &security).map_err(Error::Cannot)?;
    let prefix = match options.prefix_ids {
        true => format!("{db}:"),
        false => String::new(),
    };
    let merge = Merge {
        source,
        target,
        db,
        into: &options.into,
        owner: &owner,
        prefix: &prefix,
        progress,
    };
    if !options.verify_only {
        merge.copy(merged).await?;
    }
    merge.compare(merged).await
}

/// Returns the names of the databases to merge.
async fn names(source: &Server, options: &Options) -> Result<Vec<String>, Error> {
    let all = source.get(&["_all_dbs"], &[]).await?;
    let choice = Choice {
        only: vec![options.pattern.clone()],
        except: vec![options.into.clone()],
    };
    let all = all.as_array().into_iter().flatten();
    let all = all.filter_map(Value::as_str);
    let names = all.filter(|name| !name.starts_with('_') && choice.includes(name));
    let names: Vec<String> = names.map(str::to_owned).collect();
    match names.is_empty() {
        true => Err(Error::Cannot(format!(
            "no database of {} matches {}",
            source.shown(),
            options.pattern
        ))),
        false => Ok(names),
    }
}

/// Creates the target database, unless it exists.
async fn open(target: &Server, options: &Options) -> Result<(), Error> {
    let info = match target.get(&[&options.into], &[]).await {
        Err(e) if e.is_status(404) && !options.verify_only => {
            let query = [("access", "true")];
            target.put(&[&options.into], &query, &Value::Null).await?;
            target.get(&[&options.into], &[]).await?
        }
        info => info?,
    };
    match info["props"]["access"] == true {
        true => Ok(()),
        false => Err(Error::Cannot(format!(
            "{} exists and has no access by document: name another database, or delete it",
            options.into
        ))),
    }
}
