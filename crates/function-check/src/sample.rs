//! Documents as map functions get them.

use serde_json::{Map, Value};

/// Members that CouchDB puts after all others, and Settee before them.
const LAST_MEMBERS: [&str; 4] = [
    "_conflicts",
    "_deleted_conflicts",
    "_local_seq",
    "_attachments",
];

/// A document as JSON.
pub type Document = Map<String, Value>;

/// A document of the sample, as functions get it.
pub struct Sample {
    /// Its id.
    pub id: String,
    /// All of it.
    pub doc: Document,
    /// `_id` and `_rev`, without braces.
    pub start: String,
    /// Those of [`LAST_MEMBERS`] that it has, with a comma before each.
    pub last: String,
    /// The members of the body with braces, and then all with `last` at their end.
    pub body: String,
    /// See `body`.
    pub ordered: String,
}

impl Sample {
    pub fn new(doc: Document) -> Sample {
        let member = |name: &str| Value::from(name).to_string();
        let (mut start, mut last, mut body) = (String::new(), String::new(), String::new());
        for (name, value) in &doc {
            let text = format!(",{}:{value}", member(name));
            match name.as_str() {
                "_id" | "_rev" => start.push_str(&text),
                name if LAST_MEMBERS.contains(&name) => last.push_str(&text),
                _ => body.push_str(&text),
            }
        }
        let id = doc.get("_id").and_then(Value::as_str).unwrap_or_default();
        let without_comma = |text: &str| text.get(1..).unwrap_or_default().to_owned();
        Sample {
            id: id.to_owned(),
            start: without_comma(&start),
            body: format!("{{{}}}", without_comma(&body)),
            ordered: format!("{{{}}}", without_comma(&format!("{body}{last}"))),
            last,
            doc,
        }
    }
}
