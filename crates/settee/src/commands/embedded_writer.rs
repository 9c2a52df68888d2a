//! A database in this process that `settee-bench` measures: the embedded API without HTTP.
//!
//! Standard input has one bulk a line, a JSON array of pairs `[id, document]`. Standard output gets one line when the database is
//! open and one after each bulk: `ok` when its documents are on disk, else an error message. The process ends with its input.

use std::io::{BufRead as _, Write as _};
use std::path::Path;
use std::sync::Arc;

use database::{CreateOptions, Database, Databases, Durability, EditMode, Options};
use document::{DocId, parse_document};
use serde_json::value::RawValue;

use crate::Failure;

/// Writes the bulks of standard input to a new database in `directory`.
pub fn run(directory: &Path) -> Result<(), Failure> {
    let runtime = super::runtime()?;
    let _within = runtime.enter();
    let databases = Databases::open(directory, Options::default()).map_err(Failure::new)?;
    let options = CreateOptions::default();
    let database = runtime
        .block_on(databases.create("bench", options))
        .map_err(Failure::new)?;
    answer(Ok(()))?;
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(Failure::new)?;
        answer(runtime.block_on(write(&database, &line)))?;
    }
    Ok(())
}

fn answer(result: Result<(), String>) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match result {
        Ok(()) => writeln!(out, "ok"),
        Err(message) => writeln!(out, "{}", message.replace('\n', " ")),
    }
    .and_then(|()| out.flush())
    .map_err(Failure::new)
}

async fn write(database: &Arc<Database>, line: &str) -> Result<(), String> {
    let pairs: Vec<(String, &RawValue)> =
        serde_json::from_str(line).map_err(|error| error.to_string())?;
    let edits = pairs
        .into_iter()
        .map(|(id, json)| {
            let mut doc = parse_document(json.get().as_bytes()).map_err(|e| e.to_string())?;
            doc.id = Some(DocId::new(&id).map_err(|e| e.to_string())?);
            Ok(doc)
        })
        .collect::<Result<Vec<_>, String>>()?;
    let done = database.update(edits, EditMode::Interactive, Durability::Synced);
    done.await.map(drop).map_err(|error| error.to_string())
}
