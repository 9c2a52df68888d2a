//! Evaluates the selectors of the recorded scenarios over the documents that the scenario has
//! written before.
//!
//! The scenarios are in `tests/vectors`, or in the folder that `SETTEE_VECTORS` names.

use std::collections::BTreeMap;
use std::path::PathBuf;

use mango::{Fields, Selector, SelectorError};
use serde_json::{Value, json};

/// The documents of a scenario, by id.
type Documents = BTreeMap<String, Value>;

fn scenarios(area: &str) -> Vec<Value> {
    let folder = std::env::var_os("SETTEE_VECTORS")
        .map_or_else(|| PathBuf::from("../../tests/vectors"), PathBuf::from);
    let file = folder.join(format!("{area}.jsonl"));
    let text = std::fs::read_to_string(&file)
        .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn steps(scenario: &Value) -> &[Value] {
    scenario["steps"].as_array().unwrap()
}

/// Returns the part of the path after the database, without the query.
fn endpoint(step: &Value) -> &str {
    let path = step["path"].as_str().unwrap();
    path.split('?')
        .next()
        .unwrap()
        .strip_prefix("/{db}")
        .unwrap_or("")
        .trim_start_matches('/')
}

fn status(step: &Value) -> u64 {
    step["expect"]["status"].as_u64().unwrap()
}

/// Applies the writes of a step.
fn apply(step: &Value, documents: &mut Documents) {
    match (step["method"].as_str().unwrap(), endpoint(step)) {
        ("POST", "_bulk_docs") if status(step) == 201 => {
            let written = step["body"]["docs"].as_array().unwrap();
            let answers = step["expect"]["body"].as_array().unwrap();
            for (document, answer) in written
                .iter()
                .zip(answers)
                .filter(|(_, answer)| answer["ok"] == true)
            {
                store(document, answer, documents);
            }
        }
        ("PUT", id) if !id.is_empty() && status(step) == 201 => {
            store(&step["body"], &step["expect"]["body"], documents)
        }
        ("DELETE", id) if status(step) == 200 => drop(documents.remove(id)),
        _ => {}
    }
}

fn store(document: &Value, answer: &Value, documents: &mut Documents) {
    let id = answer["id"].as_str().unwrap();
    let mut document = document.clone();
    document["_id"] = json!(id);
    document["_rev"] = answer["rev"].clone();
    // `_find` skips design documents and deleted ones.
    if id.starts_with("_design/") || document["_deleted"] == true {
        documents.remove(id);
    } else {
        documents.insert(id.to_owned(), document);
    }
}

/// Returns whether the response is the set of the matching documents: no order, no pages.
fn is_plain_find(step: &Value) -> bool {
    let other = ["limit", "skip", "sort", "bookmark"];
    endpoint(step) == "_find"
        && status(step) == 200
        && other
            .iter()
            .all(|option| step["body"].get(option).is_none())
}

fn sorted(documents: impl Iterator<Item = Value>) -> Vec<Value> {
    let mut documents: Vec<Value> = documents.collect();
    documents.sort_by_key(|document| document["_id"].to_string());
    documents
}

fn found(step: &Value, documents: &Documents) -> Vec<Value> {
    let selector = Selector::parse(&step["body"]["selector"]).unwrap();
    let fields = step["body"]
        .get("fields")
        .map_or(Ok(Fields::default()), Fields::parse)
        .unwrap();
    // Only `_find` treats it so.
    let nothing = selector.is_empty_combination();
    sorted(
        documents
            .values()
            .filter(|document| !nothing && selector.matches(document))
            .map(|document| fields.project(document)),
    )
}

#[test]
fn selectors_find_the_documents_that_couchdb_finds() {
    let mut compared = 0;
    for scenario in scenarios("mango").iter().chain(&scenarios("partitioned")) {
        let mut documents = Documents::new();
        for step in steps(scenario) {
            apply(step, &mut documents);
            if is_plain_find(step) {
                let expected = sorted(
                    step["expect"]["body"]["docs"]
                        .as_array()
                        .unwrap()
                        .iter()
                        .cloned(),
                );
                assert_eq!(
                    found(step, &documents),
                    expected,
                    "{}: {}",
                    scenario["name"],
                    step["body"]
                );
                compared += 1;
            }
        }
    }
    assert!(compared > 60, "only {compared} steps were compared");
}

#[test]
fn an_answer_without_a_bookmark_is_that_of_a_selector_which_matches_nothing() {
    for scenario in scenarios("mango") {
        for step in steps(&scenario).iter().filter(|step| is_plain_find(step)) {
            let selector = Selector::parse(&step["body"]["selector"]).unwrap();
            assert_eq!(
                selector.is_empty_combination(),
                step["expect"]["body"].get("bookmark").is_none(),
                "{}",
                step["body"]
            );
        }
    }
}

/// Returns this crate's error for the body of a query.
fn refusal(body: &Value) -> Option<SelectorError> {
    let selector = Selector::parse(body.get("selector")?).err();
    selector.or_else(|| Fields::parse(body.get("fields")?).err())
}

#[test]
fn selectors_are_refused_in_the_words_of_find() {
    let codes = [
        "invalid_selector_json",
        "invalid_selector",
        "invalid_operator",
        "invalid_field_name",
        "invalid_fields",
        "invalid_field",
        "bad_arg",
    ];
    let mut compared = 0;
    for scenario in scenarios("mango") {
        for step in steps(&scenario)
            .iter()
            .filter(|step| endpoint(step) == "_find" || endpoint(step) == "_explain")
        {
            let answer = &step["expect"]["body"];
            let refusal = refusal(&step["body"]);
            if answer["error"]
                .as_str()
                .is_none_or(|code| !codes.contains(&code))
            {
                assert_eq!(refusal, None, "{}", step["body"]);
                continue;
            }
            let refusal = refusal.unwrap_or_else(|| panic!("accepted: {}", step["body"]));
            assert_eq!(refusal.find_error(), answer["error"], "{}", step["body"]);
            if answer["reason"].is_string() {
                assert_eq!(refusal.find_reason(), answer["reason"], "{}", step["body"]);
            }
            compared += 1;
        }
    }
    assert!(compared > 15, "only {compared} steps were compared");
}

#[test]
fn selectors_are_refused_in_the_words_of_changes() {
    let mut compared = 0;
    for scenario in scenarios("changes") {
        for step in steps(&scenario) {
            let answer = &step["expect"]["body"];
            if !step["path"].as_str().unwrap().contains("filter=_selector") || status(step) != 400 {
                continue;
            }
            let refusal = match step["body"].get("selector") {
                Some(_) => refusal(&step["body"]).unwrap(),
                None => Selector::parse(&Value::Null).unwrap_err(),
            };
            assert_eq!(
                answer,
                &json!({"error": refusal.error(), "reason": refusal.to_string()})
            );
            compared += 1;
        }
    }
    assert!(compared >= 4, "only {compared} steps were compared");
}

#[test]
fn selectors_filter_changes_as_couchdb_does() {
    let mut compared = 0;
    for scenario in scenarios("changes") {
        let mut documents = Documents::new();
        for step in steps(&scenario) {
            apply(step, &mut documents);
            let path = step["path"].as_str().unwrap();
            let Some(results) = step["expect"]["body"]["results"].as_array() else {
                continue;
            };
            if !path.contains("filter=_selector")
                || path.contains("limit=")
                || path.contains("style=")
            {
                continue;
            }
            let selector = Selector::parse(&step["body"]["selector"]).unwrap();
            let matching = documents
                .iter()
                .filter(|(_, document)| selector.matches(document))
                .map(|(id, _)| id);
            let expected: Vec<&str> = results
                .iter()
                .map(|row| row["id"].as_str().unwrap())
                .collect();
            // A scenario with conflicts writes with `new_edits: false`, which this test does not
            // support.
            if !documents.is_empty() {
                assert_eq!(matching.collect::<Vec<_>>(), expected, "{}", step["body"]);
                compared += 1;
            }
        }
    }
    assert!(compared >= 4, "only {compared} steps were compared");
}
