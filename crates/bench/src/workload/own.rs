//! The user's own documents and design document: loaded, indexed and read.

use std::cell::Cell;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value};

use super::read::repeat;
use super::views::wait_for;
use super::{Outcome, Workload};
use crate::error::BenchError;
use crate::slice::{Check, ClosedLoop, Requests, Slice};
use crate::system::{System, WorkloadPart};

/// Rounds, each with a new database.
const ROUNDS_OF_BUILDS: u32 = 3;
/// Most documents of a bulk,
const BULK_DOCS: u64 = 1_000;
/// which also ends after this number of bytes.
const BULK_BYTES: usize = 8 << 20;
const LOAD_CLIENTS: usize = 2;
/// Documents are kept in memory. A larger file would not leave enough for the server.
const FILE_BYTES_MAX: u64 = 1 << 30;
/// Characters that are encoded in names of views.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_');
/// Rows of a read of a view.
const ROWS: u64 = 10;

/// Documents, and a design document for them.
#[derive(Debug, Clone)]
pub struct OwnData {
    bulks: Arc<Vec<Bulk>>,
    documents: u64,
    bytes: u64,
    /// Design documents among the documents, which are not loaded.
    left_out: u64,
    design: Option<Arc<Design>>,
}

/// The body of a `_bulk_docs`.
#[derive(Debug)]
struct Bulk {
    body: Vec<u8>,
    documents: u64,
}

/// A design document without its id and revision.
#[derive(Debug)]
struct Design {
    body: Vec<u8>,
    views: Vec<DesignView>,
}

#[derive(Debug)]
struct DesignView {
    /// Its name, encoded for a path.
    path: String,
    /// The line of its reads.
    line: &'static str,
}

impl OwnData {
    /// Reads documents, a JSON object a line, and a design document. Revisions and attachments of
    /// documents are left out.
    ///
    /// # Errors
    /// [`BenchError::Options`] names the file, the line and the mistake.
    pub fn read(documents: &Path, design: Option<&Path>) -> Result<Self, BenchError> {
        let refuse =
            |path: &Path, why: String| BenchError::Options(format!("{}: {why}", path.display()));
        let file = File::open(documents).map_err(|e| refuse(documents, e.to_string()))?;
        let size = file
            .metadata()
            .map_err(|e| refuse(documents, e.to_string()))?;
        if size.len() > FILE_BYTES_MAX {
            let why = "documents are kept in memory, and a file may have 1 GiB";
            return Err(refuse(documents, why.to_owned()));
        }
        let lines = BufReader::new(file).lines();
        let lines = lines.map(|line| line.map_err(|e| e.to_string()));
        let mut data = bulks(lines).map_err(|why| refuse(documents, why))?;
        if let Some(path) = design {
            let text = std::fs::read_to_string(path).map_err(|e| refuse(path, e.to_string()))?;
            let design = Design::parse(&text).map_err(|why| refuse(path, why))?;
            data.design = Some(Arc::new(design));
        }
        Ok(data)
    }
}

/// Puts documents into bulks.
fn bulks(lines: impl Iterator<Item = Result<String, String>>) -> Result<OwnData, String> {
    let (mut bulks, mut bulk) = (vec![], Open::default());
    let mut left_out = 0;
    for (at, line) in lines.enumerate() {
        let line = line?;
        if line.trim().is_empty() {
            continue;
        }
        let document = document(&line).map_err(|why| format!("line {}: {why}", at + 1))?;
        let id = document.get("_id").and_then(Value::as_str);
        if id.is_some_and(|id| id.starts_with("_design/")) {
            left_out += 1;
            continue;
        }
        bulk.push(&Value::Object(document).to_string());
        if bulk.documents == BULK_DOCS || bulk.body.len() >= BULK_BYTES {
            bulks.extend(std::mem::take(&mut bulk).close());
        }
    }
    bulks.extend(bulk.close());
    let documents = bulks.iter().map(|bulk| bulk.documents).sum();
    if documents == 0 {
        return Err("it has no documents".to_owned());
    }
    Ok(OwnData {
        bytes: bulks.iter().map(|bulk| bulk.body.len() as u64).sum(),
        documents,
        bulks: Arc::new(bulks),
        left_out,
        design: None,
    })
}

/// Reads a document without the members that a new database does not take.
fn document(line: &str) -> Result<Map<String, Value>, String> {
    let mut document: Map<String, Value> =
        serde_json::from_str(line).map_err(|e| format!("it is not a JSON object: {e}"))?;
    document.retain(|name, _| !name.starts_with('_') || name == "_id");
    Ok(document)
}

/// A bulk that more documents come to.
#[derive(Default)]
struct Open {
    body: Vec<u8>,
    documents: u64,
}

impl Open {
    fn push(&mut self, document: &str) {
        let before: &[u8] = match self.documents {
            0 => b"{\"docs\":[",
            _ => b",",
        };
        self.body.extend_from_slice(before);
        self.body.extend_from_slice(document.as_bytes());
        self.documents += 1;
    }

    /// The body of the request; `None` without documents.
    fn close(mut self) -> Option<Bulk> {
        self.body.extend_from_slice(b"]}");
        (self.documents > 0).then_some(Bulk {
            body: self.body,
            documents: self.documents,
        })
    }
}

impl Design {
    fn parse(text: &str) -> Result<Self, String> {
        let mut design: Map<String, Value> =
            serde_json::from_str(text).map_err(|e| format!("it is not a design document: {e}"))?;
        design.retain(|name, _| !name.starts_with('_'));
        // Nothing is built before it is requested.
        design.insert("autoupdate".to_owned(), false.into());
        let has_map = |view: &Value| view["map"].is_string();
        let views = design.get("views").and_then(Value::as_object);
        let names: Vec<String> = views
            .into_iter()
            .flatten()
            .filter(|(name, view)| *name != "lib" && has_map(view))
            .map(|(name, _)| name.clone())
            .collect();
        if names.is_empty() {
            return Err("it is not a design document: it has no views".to_owned());
        }
        let views = names.iter().map(|name| DesignView {
            path: utf8_percent_encode(name, ENCODED).to_string(),
            // Names of lines live as long as the program, which reads one design document.
            line: format!("own_read {name}").leak(),
        });
        Ok(Self {
            views: views.collect(),
            body: Value::Object(design).to_string().into_bytes(),
        })
    }
}

/// The user's data in a new database in each round.
pub(crate) struct Own {
    pub(crate) data: OwnData,
    /// Clients that read views.
    pub(crate) connections: usize,
}

impl Own {
    async fn load(&self, system: &System, database: &str) -> Result<Slice, BenchError> {
        let next = Rc::new(Cell::new(0));
        let requests = |_| -> Requests {
            let (target, next) = (Rc::clone(&system.target), Rc::clone(&next));
            let (bulks, path) = (
                Arc::clone(&self.data.bulks),
                format!("/{database}/_bulk_docs"),
            );
            Box::new(move |request| {
                let bulk = bulks.get(next.get())?;
                next.set(next.get() + 1);
                target.write_request(request, "POST", &path, "", Some(&bulk.body));
                Some(bulk.documents)
            })
        };
        let loading = ClosedLoop::exhaustive(&system.target, Check::Bulk);
        loading.run(LOAD_CLIENTS, requests).await
    }

    /// Requests a view until the index of the design document is up to date.
    async fn build(&self, system: &System, view: &str) -> Result<Slice, BenchError> {
        let start = Instant::now();
        wait_for(system, view).await?;
        Ok(Slice::of_one(self.data.documents, start.elapsed()))
    }
}

impl Workload for Own {
    type State = ();

    fn rounds(&self) -> u32 {
        ROUNDS_OF_BUILDS
    }

    async fn prepare(&self, _system: &System) -> Result<(), BenchError> {
        Ok(())
    }

    async fn round(
        &self,
        system: &System,
        _state: &mut (),
        length: Duration,
    ) -> Result<Vec<WorkloadPart>, BenchError> {
        let database = system.create("own").await?;
        let loading = self.load(system, &database);
        let mut parts = vec![system.part("own_load", "docs", loading).await?];
        let Some(design) = &self.data.design else {
            return Ok(parts);
        };
        let path = format!("/{database}/_design/own");
        system.require("PUT", &path, Some(&design.body)).await?;
        let view = |view: &DesignView| format!("{path}/_view/{}", view.path);
        let first = view(&design.views[0]);
        let building = self.build(system, &first);
        parts.push(system.part("own_build", "docs", building).await?);
        let share = length / u32::try_from(design.views.len()).unwrap_or(u32::MAX);
        for each in &design.views {
            let path = format!("{}?reduce=false&limit={ROWS}", view(each));
            let request = system.target.request("GET", &path, None);
            let reading = ClosedLoop::timed(&system.target, share, Check::Status)
                .run(self.connections, repeat(request, 1));
            parts.push(system.part(each.line, "req", reading).await?);
        }
        Ok(parts)
    }

    async fn finish(&self, _side: &System, _state: ()) -> Result<Outcome, BenchError> {
        let data = &self.data;
        let mut notes = vec![format!(
            "own: {} documents of {} bytes in the mean; a read of a view has {ROWS} rows",
            data.documents,
            data.bytes / data.documents
        )];
        if data.left_out > 0 {
            notes.push(format!(
                "own: {} design documents were not loaded",
                data.left_out
            ));
        }
        Ok(Outcome {
            notes,
            ..Outcome::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lines: &[&str]) -> Result<OwnData, String> {
        bulks(lines.iter().map(|line| Ok((*line).to_owned())))
    }

    #[test]
    fn documents_become_bulks_without_revisions_and_design_documents() {
        let data = of(&[
            r#"{"_id":"a","_rev":"1-x","_attachments":{},"n":1.50}"#,
            "",
            r#"{"_id":"_design/d","views":{}}"#,
            r#"{"big":9007199254740993}"#,
        ])
        .unwrap();
        assert_eq!((data.documents, data.left_out, data.bulks.len()), (2, 1, 1));
        let bulk: Value = serde_json::from_slice(&data.bulks[0].body).unwrap();
        let wanted = serde_json::json!({"docs": [{"_id": "a", "n": 1.5}, {"big": 9_007_199_254_740_993_u64}]});
        assert_eq!(bulk, wanted);
    }

    #[test]
    fn a_bulk_ends_after_a_thousand_documents() {
        let lines = vec!["{}"; 2_500];
        let data = of(&lines).unwrap();
        let counts: Vec<u64> = data.bulks.iter().map(|bulk| bulk.documents).collect();
        assert_eq!(counts, [1_000, 1_000, 500]);
        for bulk in data.bulks.iter() {
            let body: Value = serde_json::from_slice(&bulk.body).unwrap();
            assert_eq!(
                body["docs"].as_array().unwrap().len() as u64,
                bulk.documents
            );
        }
    }

    #[test]
    fn mistakes_are_refused_with_their_lines() {
        for (lines, why) in [
            (&["{}", "[]"][..], "line 2: it is not a JSON object"),
            (&["{"][..], "line 1: it is not a JSON object"),
            (&["", r#"{"_id":"_design/d"}"#][..], "no documents"),
        ] {
            let error = of(lines).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        for text in [
            "[]",
            "{}",
            r#"{"views":{}}"#,
            r#"{"views":{"lib":{"map":"x"}}}"#,
        ] {
            let error = Design::parse(text).unwrap_err();
            assert!(error.contains("not a design document"), "{error}");
        }
    }

    #[test]
    fn a_design_document_keeps_what_is_its_own() {
        let text = r#"{"_id":"_design/d","_rev":"1-a","language":"python","views":{"a b":{"map":"f"},"lib":{"m":""}}}"#;
        let design = Design::parse(text).unwrap();
        let paths: Vec<_> = design
            .views
            .iter()
            .map(|view| (&*view.path, view.line))
            .collect();
        assert_eq!(paths, [("a%20b", "own_read a b")]);
        let body: Value = serde_json::from_slice(&design.body).unwrap();
        assert_eq!(
            (&body["autoupdate"], &body["language"]),
            (&false.into(), &"python".into())
        );
        assert!(body.get("_id").is_none() && body["views"]["lib"].is_object());
    }
}
