//! Checks the functions of a server before it is replaced by Settee: reads its design documents, and
//! reports what in their functions depends on a behaviour in which CouchDB's JavaScript engine and
//! Settee's differ.
//!
//! [`check`] reads a server over HTTP (`client`). It searches each source
//! ([`functions::differences`]), and runs each function over a sample of the database's documents
//! (`maps`, `calls`) with Settee's engine. The result is a [`Report`]. Nothing is written.

#![forbid(unsafe_code)]

mod calls;
mod checker;
mod client;
mod design;
mod error;
mod found;
mod maps;
mod report;
mod sample;

pub use error::Error;
pub use report::{Finding, Report};

use functions::js::WorkerCommand;
use serde_json::Value;

use client::Client;
use sample::Document;

/// Design documents that the server brings itself, by database.
const OWN_DESIGNS: [(&str, &str); 2] = [
    ("_users", "_design/_auth"),
    ("_replicator", "_design/_replicator"),
];

/// The server or database to check.
#[derive(Clone, Debug)]
pub struct Options {
    /// The URL of a server or of one database, with name and password if it needs them.
    pub url: String,
    /// The maximum number of documents of each database that functions are run with.
    pub sample_max: usize,
    /// The process that runs functions.
    pub worker: WorkerCommand,
}

/// Checks the functions of all databases of a server, or of one database.
///
/// # Errors
/// The server cannot be read, or functions cannot be run. A single database that cannot be read is
/// in the report.
pub async fn check(options: Options) -> Result<Report, Error> {
    let client = Client::new(&options.url)?;
    let (databases, is_one) = match client.database() {
        Some(name) => (vec![name.to_owned()], true),
        None => (client.databases().await?, false),
    };
    let mut report = Report::default();
    for database in databases {
        match check_database(&client, &options, &database, &mut report).await {
            Ok(()) => report.databases += 1,
            Err(error @ Error::Run(_)) => return Err(error),
            Err(error) if is_one => return Err(error),
            Err(error) => report.not_checked.push(format!("{database}: {error}")),
        }
    }
    match report.not_checked.first() {
        Some(first) if report.databases == 0 => Err(Error::Nothing(first.clone())),
        _ => Ok(report),
    }
}

async fn check_database(
    client: &Client,
    options: &Options,
    database: &str,
    report: &mut Report,
) -> Result<(), Error> {
    let designs = client.designs(database).await?;
    let is_own = |design: &Document| {
        let id = design.get("_id").and_then(Value::as_str);
        OWN_DESIGNS
            .iter()
            .any(|own| (own.0, Some(own.1)) == (database, id))
    };
    let designs: Vec<Document> = designs
        .into_iter()
        .filter(|design| !is_own(design))
        .collect();
    if !designs.iter().any(design::has_functions) {
        report.designs += designs.len() as u64;
        return Ok(());
    }
    let sample = match options.sample_max {
        0 => vec![],
        max => client.sample(database, max).await?,
    };
    let database = database.to_owned();
    let worker = options.worker.clone();
    // Functions run on a thread of their own: calls block.
    let checked =
        tokio::task::spawn_blocking(move || design::check(database, &designs, sample, worker));
    let checked = checked
        .await
        .map_err(|error| Error::Run(error.to_string()))?;
    report.add(checked?);
    Ok(())
}
