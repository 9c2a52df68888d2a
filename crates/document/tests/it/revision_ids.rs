//! The revision ids that CouchDB assigned to the edits of the recorded scenarios, recomputed.
//!
//! The scenarios are in `tests/vectors`, or in the folder that `SETTEE_VECTORS` names.

use std::collections::HashMap;
use std::path::PathBuf;

use document::{EditDoc, Rev, RevTree, Revision, parse_bulk_docs, parse_document, revision_id};
use serde_json::Value;

fn vectors(area: &str) -> Vec<Value> {
    let folder = std::env::var_os("SETTEE_VECTORS")
        .map_or_else(|| PathBuf::from("../../tests/vectors"), PathBuf::from);
    let file = folder.join(area).with_extension("jsonl");
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

/// The state of a scenario.
#[derive(Default)]
struct Replay {
    name: String,
    trees: HashMap<String, RevTree>,
    variables: HashMap<String, String>,
    seq: u64,
    checked: usize,
}

impl Replay {
    fn run(mut self, scenario: &Value) -> usize {
        self.name = format!("{}: {}", scenario["area"], scenario["name"]);
        for step in scenario["steps"].as_array().unwrap() {
            self.step(step);
            self.save(step);
        }
        self.checked
    }

    fn step(&mut self, step: &Value) {
        let status = step["expect"]["status"].as_u64().unwrap();
        if !(200..300).contains(&status) {
            return;
        }
        let path = self.fill(step["path"].as_str().unwrap());
        let (path, query) = path.split_once('?').unwrap_or((&path, ""));
        let query: HashMap<&str, &str> = query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .collect();
        let segments: Vec<&str> = path
            .split('/')
            .filter(|segment| !segment.is_empty())
            .collect();
        let body = self.body(&step["body"]);
        let expected = &step["expect"]["body"];
        match (step["method"].as_str().unwrap(), segments.as_slice()) {
            ("POST", [db, "_bulk_docs"]) => self.bulk(db, &body, expected),
            ("POST", [db]) => self.edit(db, None, &body, step, &query),
            ("PUT", [db, kind @ ("_design" | "_local"), name]) => {
                self.edit(db, Some(format!("{kind}/{name}")), &body, step, &query);
            }
            ("PUT", [db, id]) => self.edit(db, Some((*id).to_owned()), &body, step, &query),
            ("DELETE", [db, id]) => self.edit(
                db,
                Some((*id).to_owned()),
                br#"{"_deleted":true}"#,
                step,
                &query,
            ),
            _ => {}
        }
    }

    fn edit(
        &mut self,
        db: &str,
        id: Option<String>,
        body: &[u8],
        step: &Value,
        query: &HashMap<&str, &str>,
    ) {
        let expected = &step["expect"]["body"];
        let Some(rev) = expected["rev"].as_str().map(|rev| self.fill(rev)) else {
            return;
        };
        let edit = self.parse(body);
        let id = id.or_else(|| edit.id.as_ref().map(ToString::to_string));
        let id = id.unwrap_or_else(|| expected["id"].as_str().unwrap().to_owned());
        let header = step["headers"]["If-Match"]
            .as_str()
            .map(|rev| self.fill(rev).replace('"', ""));
        let given = query.get("rev").map(|rev| (*rev).to_owned()).or(header);
        let given = given
            .map(|rev| Rev::parse(&rev).unwrap())
            .or_else(|| edit.rev.clone());
        if query.get("new_edits") == Some(&"false") {
            let path = edit.rev_path().unwrap();
            assert_eq!(path.newest().unwrap().to_string(), rev, "{}", self.name);
            self.store(&format!("{db}/{id}"), &path, edit.deleted);
            self.checked += 1;
            return;
        }
        self.interactive(db, &id, &edit, given, &rev);
    }

    fn bulk(&mut self, db: &str, body: &[u8], expected: &Value) {
        let request =
            parse_bulk_docs(body).unwrap_or_else(|error| panic!("{}: {error}", self.name));
        if request.new_edits == Some(false) {
            for doc in request.docs {
                let Some(path) = doc.rev_path() else { continue };
                self.store(&format!("{db}/{}", doc.id.unwrap()), &path, doc.deleted);
            }
            return;
        }
        for (doc, row) in request
            .docs
            .iter()
            .zip(expected.as_array().into_iter().flatten())
        {
            let (Some(rev), Some(id)) = (row["rev"].as_str(), row["id"].as_str()) else {
                continue;
            };
            if row["error"].is_null() {
                let rev = self.fill(rev);
                self.interactive(db, id, doc, doc.rev.clone(), &rev);
            }
        }
    }

    /// Checks the revision id of an edit that CouchDB accepted.
    fn interactive(
        &mut self,
        db: &str,
        id: &str,
        edit: &EditDoc,
        given: Option<Rev>,
        expected: &str,
    ) {
        if id.starts_with("_local/") {
            return;
        }
        let key = format!("{db}/{id}");
        // An edit without a revision continues the tombstone of a deleted document.
        let tombstone = || {
            self.trees
                .get(&key)
                .and_then(RevTree::winner)
                .map(|leaf| leaf.rev.to_rev())
        };
        let parent = given.or_else(tombstone);
        let path = parent
            .as_ref()
            .and_then(|parent| self.trees.get(&key)?.path(parent));
        let rev = match edit.attachments {
            // The digests of attachments are another test's.
            Some(_) => Rev::parse(expected).unwrap(),
            None => revision_id(edit.deleted, parent.as_ref(), &edit.body_term, &[]),
        };
        assert_eq!(
            rev.to_string(),
            expected,
            "{}: {}",
            self.name,
            String::from_utf8_lossy(&edit.body)
        );
        let recomputed = document::body_term(&edit.body).unwrap();
        if !self.name.contains("-0.0") {
            assert_eq!(recomputed, edit.body_term, "{}", self.name);
        }
        let mut path = path.unwrap_or(document::RevPath {
            start: 0,
            ids: Vec::new(),
        });
        path.start = rev.generation;
        path.ids.insert(0, rev.hash);
        self.store(&key, &path, edit.deleted);
        self.checked += 1;
    }

    fn store(&mut self, key: &str, path: &document::RevPath, deleted: bool) {
        self.seq += 1;
        let revision = Revision {
            deleted,
            seq: self.seq,
            size: 2,
        };
        self.trees
            .entry(key.to_owned())
            .or_default()
            .merge(path, revision);
    }

    fn parse(&self, body: &[u8]) -> EditDoc {
        parse_document(body).unwrap_or_else(|error| {
            panic!("{}: {error}: {}", self.name, String::from_utf8_lossy(body))
        })
    }

    fn body(&self, body: &Value) -> Vec<u8> {
        match body.get("raw") {
            Some(Value::String(raw)) => self.fill(raw),
            _ => self.fill(&body.to_string()),
        }
        .into_bytes()
    }

    fn fill(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, value) in &self.variables {
            text = text.replace(&format!("{{{name}}}"), value);
        }
        text
    }

    fn save(&mut self, step: &Value) {
        for (name, source) in step["save"].as_object().into_iter().flatten() {
            let source = source.as_str().unwrap();
            let value = match source.strip_prefix('@') {
                Some(header) => &step["expect"]["headers"][header],
                None => source
                    .split('.')
                    .fold(&step["expect"]["body"], |value, member| &value[member]),
            };
            if let Some(value) = value.as_str() {
                self.variables.insert(name.clone(), self.fill(value));
            }
        }
    }
}

fn replay(area: &str) -> usize {
    vectors(area)
        .iter()
        .map(|scenario| Replay::default().run(scenario))
        .sum()
}

#[test]
fn edits_get_the_revision_ids_that_couchdb_gave_them() {
    for (area, least) in [
        ("revisions", 257),
        ("documents", 120),
        ("bulk", 179),
        ("changes", 252),
    ] {
        let checked = replay(area);
        println!("{area}: {checked} revision ids");
        assert!(
            checked >= least,
            "{area}: only {checked} revision ids were checked"
        );
    }
}

#[test]
fn text_comes_back_as_couchdb_writes_it() {
    let exceptions = include_str!("../../../../tests/vector_exceptions.txt");
    let mut checked = 0;
    for scenario in vectors("documents") {
        let name = scenario["name"].as_str().unwrap();
        let is_exception = exceptions.contains(&format!("documents / {name} "));
        if !name.starts_with("fidelity") || is_exception {
            continue;
        }
        let steps = &scenario["steps"];
        let input = steps[1]["body"]["raw"].as_str().unwrap();
        let answer = steps[2]["expect"]["body"]["$raw"].as_str().unwrap();
        match parse_document(input.as_bytes()) {
            Ok(edit) => {
                let rev = revision_id(edit.deleted, None, &edit.body_term, &[]);
                let mut out = Vec::new();
                document::with_members("a", &rev, false, &edit.body, &mut out);
                out.extend_from_slice(b"}\n");
                assert_eq!(String::from_utf8(out).unwrap(), answer, "{input}");
            }
            Err(error) => {
                let expected = &steps[1]["expect"]["body"];
                assert_eq!(expected["error"], error.error(), "{input}");
                assert_eq!(expected["reason"], error.to_string(), "{input}");
            }
        }
        checked += 1;
    }
    assert!(checked >= 25, "only {checked} texts were checked");
}

#[test]
fn bad_documents_get_couchdbs_error_and_reason() {
    let mut checked = 0;
    for scenario in vectors("documents").iter().chain(&vectors("bulk")) {
        for step in scenario["steps"].as_array().unwrap() {
            checked += usize::from(check_refusal(step));
        }
    }
    assert!(checked >= 50, "only {checked} refusals were checked");
}

/// Checks a step whose answer depends on the body. Returns whether it is one.
fn check_refusal(step: &Value) -> bool {
    const ABOUT_BODIES: [&str; 13] = [
        "Document must be a JSON object",
        "Bad special document member",
        "Document id must",
        "Illegal document id",
        "Only reserved document ids",
        "Invalid rev format",
        "_revisions.",
        "RevId",
        "invalid UTF-8 JSON",
        "POST body must include",
        "`docs` parameter",
        "Request body must be",
        "`new_edits`",
    ];
    let (path, expected) = (step["path"].as_str().unwrap(), &step["expect"]["body"]);
    let bulk = path.contains("_bulk_docs");
    let single = matches!(step["method"].as_str(), Some("PUT" | "POST"))
        && !path.contains("/_")
        && !path.contains("rev=")
        && !path.contains("%FF");
    let reason = expected["reason"].as_str().unwrap_or_default();
    if !(bulk || single)
        || !ABOUT_BODIES.iter().any(|about| reason.starts_with(about))
        || step["body"].is_null()
    {
        return false;
    }
    let body = Replay::default().body(&step["body"]);
    let error = match bulk {
        true => parse_bulk_docs(&body).err(),
        false => parse_document(&body).err(),
    };
    let error = error.unwrap_or_else(|| panic!("accepted: {step}"));
    assert_eq!(
        (expected["error"].as_str().unwrap(), reason),
        (error.error(), error.to_string().as_str()),
        "{step}"
    );
    true
}

#[test]
fn attachments_count_in_reverse_order() {
    // Scenario "attachment two reversed": {"_attachments":{"b": "2", "a": "1"},"x":1}
    let scenario = vectors("revisions")
        .into_iter()
        .find(|scenario| scenario["name"] == "attachment two reversed");
    let expected =
        scenario.expect("the scenario exists")["steps"][1]["expect"]["body"]["rev"].clone();
    let edit = parse_document(br#"{"_attachments":{"b":{}},"x":1}"#).unwrap();
    let attachment =
        |name: &str, md5: u128| (name.to_owned(), "image/png".to_owned(), md5.to_be_bytes());
    let attachments = [
        attachment("b", 0xc81e_728d_9d4c_2f63_6f06_7f89_cc14_862c),
        attachment("a", 0xc4ca_4238_a0b9_2382_0dcc_509a_6f75_849b),
    ];
    assert_eq!(
        revision_id(false, None, &edit.body_term, &attachments).to_string(),
        expected.as_str().unwrap()
    );
}
