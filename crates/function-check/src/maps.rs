//! Runs map and reduce functions over the sample.

use functions::js::Engine;
use functions::{Difference, Doc, Effect, Emits, Indexes, MapGroup, Owner, ReduceRow};
use serde_json::Value;

use crate::checker::{Checker, Place};
use crate::found::{depends_on_order, depends_on_zone, throws};

/// Rows that a reduce function is called with.
const ROWS_MAX: usize = 100;

/// The rows of a map function for one document, in the order of their keys.
type Rows = Vec<(Value, Value)>;

/// The results of a map function for the sample.
struct Mapped {
    emits: Emits,
    rows: Vec<Rows>,
}

/// Runs a map function, or the function of a text index.
pub fn map(checker: &mut Checker, place: Place<'_>, shown: &[Difference], indexes: Indexes) {
    let group = group(checker, place, place.function.source, indexes);
    let mapped = match run(checker, &checker.engine, &group, false) {
        Ok(mapped) => mapped,
        Err(error) => return checker.note(place, &format!("it could not be run: {error}")),
    };
    if !shown.iter().any(|found| found.kind.effect == Effect::Fails) {
        report_thrown(checker, place, &mapped.emits);
    }
    if !shown.iter().any(|found| found.kind.id == "time-zone") {
        let abroad = run(checker, &checker.abroad, &group, false);
        if let Some(id) = first_other(checker, &group, &mapped, abroad.ok()) {
            checker.add(place, depends_on_zone(&id));
        }
    }
    if checker.sample.iter().any(|sample| !sample.last.is_empty()) {
        let ordered = run(checker, &checker.engine, &group, true);
        if let Some(id) = first_other(checker, &group, &mapped, ordered.ok()) {
            checker.add(place, depends_on_order(&id));
        }
    }
}

fn group(checker: &Checker, place: Place<'_>, source: &str, indexes: Indexes) -> MapGroup {
    MapGroup {
        language: functions::JAVASCRIPT.to_owned(),
        maps: vec![source.to_owned()],
        lib: place.lib(),
        owner: Owner {
            database: checker.database.clone(),
            design: place.id.to_owned(),
            views: vec![place.function.path.join("/")],
        },
        tells: true,
        leaves_out: true,
        indexes,
        ..MapGroup::default()
    }
}

/// Maps the sample. `ordered`: with the members of documents in CouchDB's order.
fn run(
    checker: &Checker,
    engine: &Engine,
    group: &MapGroup,
    ordered: bool,
) -> Result<Mapped, functions::Error> {
    let sample = checker.sample.iter();
    let starts: Vec<String> = sample
        .clone()
        .map(|of| match ordered {
            true => of.start.clone(),
            false => format!("{}{}", of.start, of.last),
        })
        .collect();
    let docs: Vec<Doc<'_>> = sample
        .zip(&starts)
        .map(|(of, members)| Doc {
            members: members.as_bytes(),
            body: if ordered {
                of.ordered.as_bytes()
            } else {
                of.body.as_bytes()
            },
        })
        .collect();
    let mut emits = Emits::default();
    if !docs.is_empty() {
        engine.mapper(group)?.map(&docs, &mut emits)?;
    }
    let mut rows: Vec<Rows> = vec![vec![]; docs.len()];
    for row in &emits.rows {
        let value = |text: &[u8]| serde_json::from_slice(text).unwrap_or_default();
        rows[row.doc as usize].push((value(emits.key(row)), value(emits.value(row))));
    }
    for rows in &mut rows {
        rows.sort_by_cached_key(|(key, _)| key.to_string());
    }
    Ok(Mapped { emits, rows })
}

/// Returns the id of the first document with other rows in another run, unless its rows are never
/// the same twice, as those of `emit(Math.random())`.
fn first_other(
    checker: &Checker,
    group: &MapGroup,
    one: &Mapped,
    other: Option<Mapped>,
) -> Option<String> {
    let differing = |other: &Mapped| {
        let mut pairs = one.rows.iter().zip(&other.rows);
        pairs.position(|(a, b)| a != b)
    };
    let at = differing(&other?)?;
    let again = run(checker, &checker.engine, group, false).ok()?;
    match differing(&again) {
        Some(_) => None,
        None => Some(checker.sample.get(at)?.id.clone()),
    }
}

/// Reports a map function that threw: as a finding if it did for all documents.
fn report_thrown(checker: &mut Checker, place: Place<'_>, emits: &Emits) {
    let Some(first) = emits.thrown.first() else {
        return;
    };
    let sample = checker.sample.get(first.doc as usize);
    let id = sample.map_or("", |sample| sample.id.as_str());
    let mut docs: Vec<u32> = emits.thrown.iter().map(|thrown| thrown.doc).collect();
    docs.dedup();
    let all = checker.sample.len();
    let what = format!(
        "it threw for {} of {all} documents, first for {id}: {}",
        docs.len(),
        first.error
    );
    match docs.len() == all {
        true => checker.add(place, throws(what, first.line)),
        false => checker.note(place, &what),
    }
}

/// Runs a reduce function over rows of its view's map function.
pub fn reduce(checker: &mut Checker, place: Place<'_>, map: &str) {
    let group = group(checker, place, map, Indexes::No);
    // What is wrong with the map function is found where that is run.
    let Ok(mapped) = run(checker, &checker.engine, &group, false) else {
        return;
    };
    let sample = &checker.sample;
    let id = |doc: u32| Value::from(sample[doc as usize].id.as_str()).to_string();
    let emits = &mapped.emits;
    let ids: Vec<String> = emits.rows.iter().map(|row| id(row.doc)).collect();
    let rows = emits.rows.iter().zip(&ids).take(ROWS_MAX);
    let rows: Vec<ReduceRow<'_>> = rows
        .map(|(row, id)| ReduceRow {
            key: emits.key(row),
            id: id.as_bytes(),
            value: emits.value(row),
        })
        .collect();
    if rows.is_empty() {
        return;
    }
    let lib = place.lib();
    let source = place.function.source;
    let mut reducer = checker
        .engine
        .reducer(&checker.database, source, lib.as_deref());
    let reduced = reducer.reduce(&rows);
    let reduced = reduced.and_then(|value| reducer.rereduce(&[&value]));
    if let Err(error) = reduced {
        let what = match rows.len() {
            1 => format!("it failed with one row: {error}"),
            n => format!("it failed with {n} rows: {error}"),
        };
        checker.add(place, throws(what, None));
    }
}
