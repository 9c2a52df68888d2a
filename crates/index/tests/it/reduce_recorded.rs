//! The results of built-in reduce functions that CouchDB gave in the recorded scenarios.
//!
//! Where the scenarios are: `tests/vectors`, or the folder that `SETTEE_VECTORS` names.

use std::path::PathBuf;

use index::reduce::Builtin;
use serde_json::{Value, json};

/// The map function of the scenarios that are checked here, in which the rows are plain to see.
const MAP: &str = "function(doc){ emit(doc._id, doc.v); }";

fn scenarios() -> Vec<Value> {
    let folder = std::env::var_os("SETTEE_VECTORS")
        .map_or_else(|| PathBuf::from("../../tests/vectors"), PathBuf::from);
    let file = folder.join("views.jsonl");
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| {
        panic!(
            "cannot read the recorded scenarios {}: {error}",
            file.display()
        )
    });
    text.lines()
        .map(|line| serde_json::from_str(line).expect("a scenario is JSON"))
        .collect()
}

/// The output of JavaScript's `JSON.stringify` for a value: it has no `-0`.
fn emitted(value: &Value) -> String {
    if value.as_f64() == Some(0.0) {
        "0".to_owned()
    } else {
        value.to_string()
    }
}

fn rows(steps: &[Value]) -> Vec<(String, String)> {
    let docs = steps
        .iter()
        .filter_map(|step| step["body"]["docs"].as_array())
        .flatten();
    docs.map(|doc| (doc["_id"].to_string(), emitted(&doc["v"])))
        .collect()
}

fn design(steps: &[Value]) -> Option<&Value> {
    steps
        .iter()
        .map(|step| &step["body"]["views"]["r"])
        .find(|view| view["map"] == MAP)
}

/// The value of rows, through a state for each and one for all of them.
fn result(builtin: Builtin, rows: &[(String, String)]) -> Option<Value> {
    let state = |rows: &[(String, String)]| {
        let rows = rows
            .iter()
            .map(|(key, value)| (key.as_bytes(), value.as_bytes()));
        builtin.reduce(rows)
    };
    let states: Vec<Vec<u8>> = rows.chunks(1).map(state).collect();
    let whole = builtin.rereduce(states.iter().map(Vec::as_slice));
    let finalized = builtin.finalize(&whole);
    assert_eq!(finalized, builtin.finalize(&state(rows)));
    let text = finalized.ok()?;
    Some(serde_json::from_slice(&text).expect("a result is JSON"))
}

#[test]
fn results_are_couchdbs() {
    let mut checked = 0;
    for scenario in scenarios() {
        let name = &scenario["name"];
        let steps = scenario["steps"].as_array().unwrap();
        let reduce = design(steps).and_then(|view| view["reduce"].as_str());
        let Some(Ok(builtin)) = reduce.and_then(Builtin::parse) else {
            continue;
        };
        let rows = rows(steps);
        for step in steps {
            let groups: Vec<_> = match step["path"].as_str().unwrap().split_once("_view/r") {
                Some((_, "")) if rows.is_empty() => Vec::new(),
                Some((_, "")) => vec![("null", rows.as_slice())],
                Some((_, "?group=true")) => {
                    let group = |row| std::slice::from_ref(row);
                    rows.iter()
                        .map(|row| (row.0.as_str(), group(row)))
                        .collect()
                }
                _ => continue,
            };
            let results: Option<Vec<Value>> = groups
                .into_iter()
                .map(|(key, rows)| {
                    let key: Value = serde_json::from_str(key).unwrap();
                    Some(json!({"key": key, "value": result(builtin, rows)?}))
                })
                .collect();
            match results {
                Some(results) => {
                    assert_eq!(step["expect"]["status"], 200, "{name}");
                    assert_eq!(step["expect"]["body"]["rows"], json!(results), "{name}");
                }
                None => assert_eq!(step["expect"]["status"], 500, "{name}"),
            }
            checked += 1;
        }
    }
    assert!(checked >= 30, "only {checked} answers were compared");
}

#[test]
fn unknown_functions_are_refused_as_couchdb_does() {
    let mut checked = 0;
    for scenario in scenarios() {
        for step in scenario["steps"].as_array().unwrap() {
            let views = step["body"]["views"].as_object();
            let sources = views
                .into_iter()
                .flat_map(|views| views.values())
                .filter_map(|view| view["reduce"].as_str());
            for source in sources {
                if let Some(Err(reason)) = Builtin::parse(source) {
                    assert_eq!(step["expect"]["body"]["reason"], reason);
                    checked += 1;
                }
            }
        }
    }
    assert!(checked >= 2);
}
