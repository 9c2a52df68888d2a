//! Engines of both kinds, and helpers to run functions on them.
use std::time::Duration;

use functions::js::{Engine, Isolation, Options, WorkerCommand};
use functions::{Doc, Emits, Error, Indexes, MapGroup, Owner};
use serde_json::Value;

pub fn options(isolation: Isolation) -> Options {
    Options {
        time: Duration::from_secs(5),
        memory_bytes: 32 << 20,
        isolation,
        workers_max: 2,
        worker: WorkerCommand {
            program: Some(env!("CARGO_BIN_EXE_functions-worker").into()),
            args: Vec::new(),
        },
        ..Options::default()
    }
}

pub const BOTH: [Isolation; 2] = [Isolation::Thread, Isolation::Process];

/// Returns an engine of each kind. To start them takes longer than most functions.
pub fn both() -> [Engine; 2] {
    BOTH.map(|isolation| Engine::new(options(isolation)))
}

/// Returns engines for functions that do not end: their time limit is short.
pub fn both_brief() -> [Engine; 2] {
    BOTH.map(|isolation| {
        Engine::new(Options {
            time: Duration::from_millis(200),
            ..options(isolation)
        })
    })
}

/// Runs a test on an engine in this thread, and on one with worker processes.
pub fn each(test: impl Fn(&Engine)) {
    for engine in both() {
        test(&engine);
    }
}

/// Returns a number of random cases or rounds: `full` in `make soak-units`, `short` in other runs.
pub fn rounds<T>(short: T, full: T) -> T {
    match std::env::var("NEXTEST_PROFILE").as_deref() {
        Ok("soak") => full,
        _ => short,
    }
}

pub fn group(maps: &[&str]) -> MapGroup {
    MapGroup {
        language: "javascript".into(),
        maps: maps.iter().map(ToString::to_string).collect(),
        lib: None,
        owner: Owner::default(),
        records: false,
        tells: false,
        leaves_out: false,
        indexes: Indexes::No,
    }
}

/// A row as (document, function, key, value).
pub type Row = (u32, u32, String, String);

/// Runs a group over documents, each given as (id, body).
pub fn run(engine: &Engine, group: &MapGroup, docs: &[(&str, &str)]) -> Result<Vec<Row>, Error> {
    let mut mapper = engine.mapper(group)?;
    let members: Vec<String> = docs
        .iter()
        .map(|(id, _)| format!(r#""_id":{},"_rev":"1-x""#, Value::from(*id)))
        .collect();
    let docs: Vec<Doc> = docs
        .iter()
        .zip(&members)
        .map(|((_, body), members)| Doc {
            members: members.as_bytes(),
            body: body.as_bytes(),
        })
        .collect();
    let mut out = Emits::default();
    mapper.map(&docs, &mut out)?;
    Ok(rows(&out))
}

pub fn rows(out: &Emits) -> Vec<Row> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("rows are UTF-8");
    out.rows
        .iter()
        .map(|row| (row.doc, row.view, text(out.key(row)), text(out.value(row))))
        .collect()
}

/// Returns the keys and values that one function emits for one document.
pub fn emits(engine: &Engine, map: &str, body: &str) -> Vec<(String, String)> {
    let rows = run(engine, &group(&[map]), &[("a", body)]);
    let rows = rows.unwrap_or_else(|error| panic!("{map}: {error}"));
    rows.into_iter().map(|row| (row.2, row.3)).collect()
}

/// Asserts the rows that one function emits for one document, on both kinds of engines.
pub fn assert_emits(map: &str, body: &str, expected: &[(&str, &str)]) {
    assert_emits_on(&both(), map, body, expected);
}

/// Asserts the rows that one function emits for one document.
pub fn assert_emits_on(engines: &[Engine], map: &str, body: &str, expected: &[(&str, &str)]) {
    let expected: Vec<_> = expected
        .iter()
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect();
    for engine in engines {
        assert_eq!(emits(engine, map, body), expected, "{map}");
    }
}

/// Asserts that an engine still works, however small its time limit is.
pub fn assert_works(engine: &Engine) {
    let map = group(&["function(doc){ emit(doc.x, [1].concat(2)) }"]);
    let found = in_time(|| run(engine, &map, &[("a", r#"{"x":7}"#)]));
    assert_eq!(found, Ok(vec![(0, 0, "7".to_owned(), "[1,2]".to_owned())]));
    let sum = in_time(|| {
        let mut reducer = engine.reducer(&"db".into(), "function(k, v, r) { return sum(v) }", None);
        reducer.rereduce(&[b"1", b"2"])
    });
    assert_eq!(sum, Ok(b"3".to_vec()));
}

/// Repeats harmless code until it is not stopped by the time limit: on a busy machine it may wait
/// longer for a processor than it may run.
pub fn in_time<T>(call: impl Fn() -> Result<T, Error>) -> Result<T, Error> {
    const TRIES: usize = 50;
    let is_late = |result: &Result<T, Error>| matches!(result, Err(Error::Limit { limit, .. }) if *limit == "time_limit_ms");
    let mut result = call();
    for _ in 1..TRIES {
        if !is_late(&result) {
            break;
        }
        result = call();
    }
    result
}
