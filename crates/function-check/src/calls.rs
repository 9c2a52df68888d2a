//! Calls functions that take requests or edits: validations, filters, shows, lists, updates, rewrites.
//!
//! The requests are invented by this crate, and a function may reject one. So only a name that does not exist is a
//! finding, except for validations, which get documents alone.

use std::sync::Arc;

use functions::{DesignDoc, Designs, Error, JAVASCRIPT, ListIo};
use serde_json::{Value, json};

use crate::checker::{Checker, Place};
use crate::found::throws;

/// Documents that a function is called with, except a validation.
const DOCUMENTS_MAX: usize = 10;

/// Calls a function with documents of the sample.
pub fn call(checker: &mut Checker, place: Place<'_>) {
    let ddoc = DesignDoc {
        id: place.id.to_owned(),
        rev: String::new(),
        language: JAVASCRIPT.to_owned(),
        json: Arc::from(Value::Object(place.design.clone()).to_string().into_bytes()),
    };
    let mut designs = checker.engine.designs(&checker.database);
    let call = Call {
        ddoc: &ddoc,
        path: &place.function.path,
        database: &checker.database,
    };
    let docs = checker
        .sample
        .iter()
        .map(|sample| (sample.id.as_str(), &sample.doc));
    let docs = docs.map(|(id, doc)| (id, Value::Object(doc.clone())));
    let mut failures = vec![];
    let (mut calls, mut last) = (0, None);
    let is_validation = place.function.path == ["validate_doc_update"];
    let max = if is_validation {
        usize::MAX
    } else {
        DOCUMENTS_MAX
    };
    for (id, doc) in docs.take(max) {
        calls += 1;
        match call.once(&mut *designs, &doc) {
            Err(error) if is_failure(&error, is_validation) => {
                failures.push(id.to_owned());
                last = Some(error);
            }
            _ => {}
        }
    }
    let (Some(error), Some(first)) = (last, failures.first()) else {
        return;
    };
    let what = format!(
        "it threw for {} of {calls} documents, first for {first}: {}",
        failures.len(),
        first_line(&error)
    );
    match failures.len() == calls {
        true => checker.add(place, throws(what, None)),
        false => checker.note(place, &what),
    }
}

fn first_line(error: &Error) -> String {
    let text = error.to_string();
    text.lines().next().unwrap_or_default().trim().to_owned()
}

/// Whether it is an error of the function, rather than its answer to a request.
fn is_failure(error: &Error, is_validation: bool) -> bool {
    match error {
        Error::Thrown { name, reason } => {
            let of_name = |text: &str| text.contains("ReferenceError");
            of_name(name) || of_name(reason) || (is_validation && name.ends_with("Error"))
        }
        Error::Compile(_) => true,
        _ => false,
    }
}

/// A function to call.
struct Call<'c> {
    ddoc: &'c DesignDoc,
    path: &'c [&'c str],
    database: &'c str,
}

impl Call<'_> {
    fn once(&self, designs: &mut dyn Designs, doc: &Value) -> Result<(), Error> {
        let req = self.request(doc);
        let args = match self.path[0] {
            "validate_doc_update" => json!([doc, null, req["userCtx"], req["secObj"]]),
            "filters" => json!([[doc], req]),
            "rewrites" => json!([req]),
            "lists" => {
                let head = json!({"total_rows": 1, "offset": 0});
                let args = json!([head, req]).to_string();
                let mut rows = Rows(Some(doc));
                return designs.list(self.ddoc, self.path, args.as_bytes(), &mut rows);
            }
            _ => json!([doc, req]),
        };
        let called = designs.call(self.ddoc, self.path, args.to_string().as_bytes());
        called.map(drop)
    }

    /// A request as CouchDB describes it, without parameters.
    fn request(&self, doc: &Value) -> Value {
        // Update functions are not called for GET.
        let is_update = self.path[0] == "updates";
        let admin = json!({"db": self.database, "name": "admin", "roles": ["_admin"]});
        json!({
            "info": {"db_name": self.database},
            "id": doc["_id"],
            "uuid": "0".repeat(32),
            "method": if is_update { "POST" } else { "GET" },
            "requested_path": [self.database],
            "path": [self.database],
            "raw_path": format!("/{}", self.database),
            "query": {},
            "headers": {"Accept": "*/*", "Host": "127.0.0.1:5984"},
            "body": "undefined",
            "peer": "127.0.0.1",
            "form": {},
            "cookie": {},
            "userCtx": admin,
            "secObj": {"admins": {"names": [], "roles": []}, "members": {"names": [], "roles": []}},
        })
    }
}

/// One row for a list function, whose output is dropped.
struct Rows<'d>(Option<&'d Value>);

impl ListIo for Rows<'_> {
    fn start(&mut self, _: &[u8]) -> Result<(), Error> {
        Ok(())
    }

    fn chunk(&mut self, _: &str) -> Result<(), Error> {
        Ok(())
    }

    fn row(&mut self) -> Result<Option<Vec<u8>>, Error> {
        let row = self.0.take().map(|doc| {
            json!({"id": doc["_id"], "key": doc["_id"], "value": doc, "doc": doc}).to_string()
        });
        Ok(row.map(String::into_bytes))
    }
}
