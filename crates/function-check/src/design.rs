//! Checks the design documents of one database.

use functions::js::WorkerCommand;
use functions::{Difference, Effect, Form, Indexes, JAVASCRIPT};
use functions::{design_functions, differences, language_name};
use serde_json::Value;

use crate::checker::{Checker, Place};
use crate::error::Error;
use crate::found::does_not_compile;
use crate::report::Report;
use crate::sample::Document;
use crate::{calls, maps};

/// Whether a design document has functions in JavaScript.
pub fn has_functions(design: &Document) -> bool {
    language(design) == JAVASCRIPT && !design_functions(design).is_empty()
}

fn language(design: &Document) -> String {
    let written = design.get("language").and_then(Value::as_str);
    language_name(written.unwrap_or(JAVASCRIPT))
}

/// Checks the functions of a database's design documents, with a sample of its documents.
///
/// # Errors
/// [`Error::Run`].
pub fn check(
    database: String,
    designs: &[Document],
    sample: Vec<Document>,
    worker: WorkerCommand,
) -> Result<Report, Error> {
    let mut checker = Checker::new(database, sample, worker);
    checker.report.documents = checker.sample.len() as u64;
    for design in designs {
        checker.report.designs += 1;
        let id = design
            .get("_id")
            .and_then(Value::as_str)
            .unwrap_or_default();
        match language(design).as_str() {
            JAVASCRIPT => check_design(&mut checker, design, id)?,
            // Mango has no functions.
            "query" => {}
            other => {
                let note = format!(
                    "{}/{id}: functions in {other} are not checked",
                    checker.database
                );
                checker.report.notes.push(note);
            }
        }
    }
    Ok(checker.report)
}

fn check_design(checker: &mut Checker, design: &Document, id: &str) -> Result<(), Error> {
    for function in &design_functions(design) {
        checker.report.functions += 1;
        let place = Place {
            design,
            id,
            function,
        };
        let searched = search(checker, place);
        let shown = searched.as_deref().unwrap_or_default();
        if function.form == Form::Function && compiles(checker, place, shown)? {
            if searched.is_none() {
                checker.note(place, "the source was not searched: it is not one function");
            }
            run(checker, place, shown);
        }
    }
    Ok(())
}

/// Searches the source. Returns the differences that it shows, `None` if it is not parsed: then the
/// engine finds out whether it compiles.
fn search(checker: &mut Checker, place: Place<'_>) -> Option<Vec<Difference>> {
    let found = match differences(place.function.source, place.function.form) {
        Ok(found) => found,
        Err(refusal) if refusal.is_syntax() => return None,
        Err(refusal) => {
            checker.note(place, &format!("the source was not searched: {refusal}"));
            vec![]
        }
    };
    for difference in &found {
        checker.add_difference(place, difference);
    }
    Some(found)
}

/// Returns whether a function compiles. If not, that is a finding, unless the source shows why.
fn compiles(checker: &mut Checker, place: Place<'_>, shown: &[Difference]) -> Result<bool, Error> {
    let fails = shown.iter().any(|found| found.kind.effect == Effect::Fails);
    let lib = place.lib();
    match checker.engine.check(place.function.source, lib.as_deref()) {
        Ok(()) => return Ok(true),
        Err(error @ functions::Error::Compile(_)) if !fails => {
            checker.add(place, does_not_compile(&error));
        }
        Err(functions::Error::Compile(_)) => {}
        Err(functions::Error::Process(reason)) => return Err(Error::Run(reason)),
        Err(error) => checker.note(place, &format!("it could not be compiled: {error}")),
    }
    Ok(false)
}

fn run(checker: &mut Checker, place: Place<'_>, shown: &[Difference]) {
    match place.function.path.as_slice() {
        ["views", _, "map"] => maps::map(checker, place, shown, Indexes::No),
        ["nouveau", ..] => maps::map(checker, place, shown, Indexes::Nouveau),
        ["indexes", ..] => maps::map(checker, place, shown, Indexes::Clouseau),
        ["views", name, "reduce"] => {
            let view = place.design.get("views").and_then(|views| views.get(*name));
            let map = view.and_then(|view| view.get("map")?.as_str());
            if let Some(map) = map {
                maps::reduce(checker, place, map);
            }
        }
        _ => calls::call(checker, place),
    }
}
