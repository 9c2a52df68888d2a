//! Views as far as the bench uses them: each has one row per document, and a language must be
//! known.

use std::collections::BTreeMap;

use hyper::Method;
use serde_json::{Value, json};

use super::{Contents, Reply, error, ok};

const LANGUAGES: [&str; 2] = ["javascript", "nodejs"];

/// None for what is no request about views.
pub fn reply(
    method: &Method,
    database: &str,
    rest: &[&str],
    query: &str,
    body: &[u8],
    contents: &mut Contents,
) -> Option<Reply> {
    let key = |name: &str| (database.to_owned(), name.to_owned());
    Some(match (method.as_str(), rest) {
        ("PUT", ["_design", name]) => {
            let design = serde_json::from_slice(body).unwrap();
            contents.designs.insert(key(name), design);
            (201, b"{\"ok\":true}".to_vec())
        }
        ("GET", ["_design", name]) => match contents.designs.get(&key(name)) {
            Some(_) => ok(json!({"_id": name, "_rev": "1-d"})),
            None => error(404, "not_found", "missing"),
        },
        ("DELETE", ["_design", name]) if query == "rev=1-d" => {
            contents.designs.remove(&key(name));
            ok(json!({"ok": true}))
        }
        ("GET", ["_design", name, "_info"]) if contents.designs.contains_key(&key(name)) => ok(
            json!({"view_index": {"compact_running": false, "sizes": {"file": 50_000, "active": 40_000, "external": 30_000}}}),
        ),
        ("GET", ["_design", name, "_view", view]) => {
            contents.view_queries += 1;
            let design = contents.designs.get(&key(name));
            let rows = contents.databases[database].len();
            view_reply(design, view, rows, query)
        }
        ("GET", ["_design_docs"]) => {
            let ours = contents.designs.keys().filter(|(of, _)| of == database);
            let rows: Vec<Value> = ours
                .map(|(_, name)| json!({"id": format!("_design/{name}")}))
                .collect();
            ok(json!({ "rows": rows }))
        }
        ("POST", ["_view_cleanup"] | ["_compact", _]) => (202, b"{\"ok\":true}".to_vec()),
        _ => return None,
    })
}

fn view_reply(design: Option<&Value>, view: &str, rows: usize, query: &str) -> Reply {
    let Some(design) = design.filter(|design| design["views"][view].is_object()) else {
        return error(404, "not_found", "missing_named_view");
    };
    let language = design["language"].as_str().unwrap();
    if !LANGUAGES.contains(&language) {
        return error(500, "unknown_query_language", language);
    }
    let parameters: BTreeMap<String, String> = url::form_urlencoded::parse(query.as_bytes())
        .into_owned()
        .collect();
    let reduced = design["views"][view]["reduce"].is_string()
        && parameters
            .get("reduce")
            .is_none_or(|value| value != "false");
    if reduced {
        return ok(json!({"rows": [{"key": null, "value": rows}]}));
    }
    let limit = parameters
        .get("limit")
        .map_or(usize::MAX, |limit| limit.parse().unwrap());
    let shown: Vec<Value> = (0..rows.min(limit))
        .map(|at| json!({"id": at.to_string(), "key": at, "value": 1}))
        .collect();
    ok(json!({"total_rows": rows, "offset": 0, "rows": shown}))
}
