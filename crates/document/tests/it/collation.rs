//! The rows of views as CouchDB sorted them in the recorded scenarios, sorted again by sort keys.
//!
//! The scenarios are in `tests/vectors`, or in the folder that `SETTEE_VECTORS` names.

use std::path::PathBuf;

use document::Collator;
use document::collation::HIGHEST;
use serde_json::Value;

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
        .filter(|scenario: &Value| {
            let name = scenario["name"].as_str().unwrap_or_default();
            name.starts_with("collation:")
        })
        .collect()
}

/// A row as it would be stored: sort key and id.
type Row = (Vec<u8>, String);

fn sort_key(json: &[u8]) -> Vec<u8> {
    let mut key = Vec::new();
    Collator::root()
        .write_sort_key(json, &mut key)
        .expect("a recorded key is JSON");
    key
}

fn rows(body: &Value) -> Vec<Row> {
    let row = |row: &Value| {
        let id = row["id"].as_str().unwrap().to_owned();
        (sort_key(row["key"].to_string().as_bytes()), id)
    };
    body["rows"].as_array().unwrap().iter().map(row).collect()
}

fn percent_decoded(text: &str) -> Vec<u8> {
    let mut parts = text.split('%');
    let mut out = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        out.push(u8::from_str_radix(&part[..2], 16).unwrap());
        out.extend_from_slice(&part.as_bytes()[2..]);
    }
    out
}

/// Returns the sort key of a request's parameter.
fn bound(path: &str, name: &str) -> Option<Vec<u8>> {
    let (_, query) = path.split_once('?')?;
    let value = query
        .split('&')
        .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))?;
    Some(sort_key(&percent_decoded(value)))
}

/// Returns the answers of a scenario that list rows, each with its path.
fn listings(scenario: &Value) -> Vec<(&str, &Value)> {
    let steps = scenario["steps"].as_array().unwrap();
    steps
        .iter()
        .map(|step| (step["path"].as_str().unwrap(), &step["expect"]["body"]))
        .filter(|(_, body)| body["rows"].is_array())
        .collect()
}

#[test]
fn sort_keys_put_rows_in_couchdbs_order() {
    let mut checked = 0;
    for scenario in scenarios() {
        for (path, body) in listings(&scenario) {
            let recorded = rows(body);
            let mut sorted = recorded.clone();
            sorted.sort();
            assert!(recorded == sorted, "{}: {path}", scenario["name"]);
            checked += recorded.len();
        }
    }
    assert!(checked > 900, "only {checked} rows were compared");
}

#[test]
fn ranges_begin_and_end_where_couchdb_says() {
    let scenarios = scenarios();
    let all = scenarios
        .iter()
        .flat_map(listings)
        .find(|(path, body)| !path.contains('?') && body["total_rows"] == 236)
        .map(|(_, body)| rows(body))
        .expect("a scenario lists all rows");
    let mut checked = 0;
    for (path, body) in scenarios.iter().flat_map(listings) {
        let (Some(start), Some(mut end)) = (bound(path, "startkey"), bound(path, "endkey")) else {
            continue;
        };
        if body["total_rows"] != 236 {
            continue;
        }
        end.extend_from_slice(HIGHEST);
        let offset = all.iter().filter(|row| row.0 < start).count();
        assert_eq!(body["offset"], offset, "{path}");
        let expected = all[offset..].iter().take_while(|row| row.0 <= end);
        assert!(rows(body).iter().eq(expected), "{path}");
        checked += 1;
    }
    assert!(checked >= 15, "only {checked} ranges were compared");
}
