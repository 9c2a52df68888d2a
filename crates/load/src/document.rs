//! One document of the input: checked, given an id where it has none, otherwise left as it was
//! written.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::error::Category;
use serde_json::value::RawValue;
use serde_json::{Error, Value};

use crate::scanner::Position;

/// A document to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Document {
    /// The JSON object.
    pub(crate) text: String,
    /// Its id, or the place in the input where the server is to choose one.
    pub(crate) label: String,
    /// Whether the document has a revision, which it keeps.
    pub(crate) has_rev: bool,
}

/// A value of the input, converted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Item {
    Document(Document),
    /// The value cannot be written.
    Refused {
        label: String,
        reason: String,
    },
    /// The header or a marker of a backup file.
    NotADocument,
}

/// A value is not JSON: the problem, and its position in the text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed {
    pub(crate) problem: String,
    pub(crate) at: usize,
}

/// The source of a document's id when it has no `_id`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum IdSource<'a> {
    /// The server.
    Server,
    /// The value of this member.
    Member(&'a str),
    /// Outside of the document: a member's name or a file's path.
    Given(&'a str),
}

const STUBS: &str =
    "attachments without their data: replicate the database, or dump it with attachments=true";

/// The members that decide how a document is handled.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(rename = "_id", borrow)]
    id: Option<&'a RawValue>,
    #[serde(rename = "_rev", borrow)]
    rev: Option<&'a RawValue>,
    #[serde(rename = "_attachments", borrow)]
    attachments: Option<&'a RawValue>,
    /// Only in couchbackup's header.
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    /// Only in couchbackup's markers.
    #[serde(borrow)]
    marker: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Attachment {
    data: Option<IgnoredAny>,
}

/// Checks a value of the input that should be a document.
pub(crate) fn document(
    bytes: &[u8],
    position: Position,
    ids: IdSource<'_>,
) -> Result<Item, Malformed> {
    let text = utf8(bytes)?;
    let refused = |label: Option<String>, reason: &str| Item::Refused {
        label: label.unwrap_or_else(|| format!("at {position}")),
        reason: reason.to_owned(),
    };
    if !text.starts_with('{') {
        parse::<IgnoredAny>(text)?;
        return Ok(refused(None, "not an object"));
    }
    let envelope = match serde_json::from_str::<Envelope<'_>>(text) {
        Ok(envelope) => envelope,
        Err(error) if error.classify() == Category::Data => {
            return Ok(refused(None, &without_place(&error)));
        }
        Err(error) => return Err(malformed(text, &error)),
    };
    if envelope.id.is_none() && is_couchbackup_line(&envelope) {
        return Ok(Item::NotADocument);
    }
    let own_id = envelope
        .id
        .map(|id| string_of(id).unwrap_or_else(|| id.get().to_owned()));
    if envelope.attachments.is_some_and(has_stubs) {
        return Ok(refused(own_id, STUBS));
    }
    let has_rev = envelope.rev.and_then(string_of).is_some();
    if own_id.is_some() {
        return Ok(written(text.to_owned(), own_id, has_rev, position));
    }
    match new_id(text, ids) {
        Ok(Some(id)) => Ok(written(with_id(text, &id), Some(id), has_rev, position)),
        // A revision belongs to an id, so without one the document is refused by the server as
        // CouchDB does.
        Ok(None) => Ok(written(text.to_owned(), None, has_rev, position)),
        Err(reason) => Ok(refused(None, &reason)),
    }
}

/// A row of a dump: its `doc` is the document.
#[derive(Deserialize)]
struct Row<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    doc: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// Checks a row of `_all_docs` or `_changes`.
pub(crate) fn row(bytes: &[u8], position: Position) -> Result<Item, Malformed> {
    let text = utf8(bytes)?;
    let refused = |label: Option<String>, reason: String| Item::Refused {
        label: label.unwrap_or_else(|| format!("at {position}")),
        reason,
    };
    let row = match serde_json::from_str::<Row<'_>>(text) {
        Ok(row) => row,
        Err(error) if error.classify() == Category::Data => {
            return Ok(refused(None, "not a row of a dump".to_owned()));
        }
        Err(error) => return Err(malformed(text, &error)),
    };
    match (row.doc, row.error) {
        (Some(doc), _) => document(doc.get().as_bytes(), position, IdSource::Server),
        (None, Some(error)) => Ok(refused(
            row.id.and_then(string_of),
            format!("the row is an error: {}", error.get()),
        )),
        (None, None) => Ok(refused(
            row.id.and_then(string_of),
            "the row has no doc: dump with include_docs=true".to_owned(),
        )),
    }
}

fn written(text: String, id: Option<String>, has_rev: bool, position: Position) -> Item {
    Item::Document(Document {
        text,
        label: id.unwrap_or_else(|| format!("at {position}")),
        has_rev,
    })
}

fn utf8(bytes: &[u8]) -> Result<&str, Malformed> {
    std::str::from_utf8(bytes).map_err(|error| Malformed {
        problem: "invalid UTF-8".to_owned(),
        at: error.valid_up_to(),
    })
}

fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, Malformed> {
    serde_json::from_str(text).map_err(|error| malformed(text, &error))
}

fn malformed(text: &str, error: &Error) -> Malformed {
    let line_start: usize = text
        .split_inclusive('\n')
        .take(error.line().saturating_sub(1))
        .map(str::len)
        .sum();
    Malformed {
        problem: format!("invalid JSON: {}", without_place(error)),
        at: (line_start + error.column().saturating_sub(1)).min(text.len()),
    }
}

/// serde_json appends the place within the value; the place in the input is what helps.
fn without_place(error: &Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(at) => text[..at].to_owned(),
        None => text,
    }
}

fn string_of(raw: &RawValue) -> Option<String> {
    serde_json::from_str(raw.get()).ok()
}

fn is_couchbackup_line(envelope: &Envelope<'_>) -> bool {
    let ours = |raw: &RawValue| {
        string_of(raw).is_some_and(|text| text.starts_with("@cloudant/couchbackup"))
    };
    envelope.name.is_some_and(ours) || envelope.marker.is_some_and(ours)
}

fn has_stubs(attachments: &RawValue) -> bool {
    // A value that is not an object of objects is left to the server to refuse.
    serde_json::from_str::<BTreeMap<String, Attachment>>(attachments.get()).is_ok_and(
        |attachments| {
            attachments
                .values()
                .any(|attachment| attachment.data.is_none())
        },
    )
}

fn new_id(text: &str, ids: IdSource<'_>) -> Result<Option<String>, String> {
    let member = match ids {
        IdSource::Server => return Ok(None),
        IdSource::Given(id) => return Ok(Some(id.to_owned())),
        IdSource::Member(member) => member,
    };
    let members: HashMap<String, &RawValue> =
        serde_json::from_str(text).map_err(|error| without_place(&error))?;
    let value = members
        .get(member)
        .ok_or_else(|| format!("no member {member:?} to take the id from"))?;
    match serde_json::from_str(value.get()) {
        Ok(Value::String(id)) => Ok(Some(id)),
        // The number's own text, so that 1.0 and large integers stay what they are.
        Ok(Value::Number(_)) => Ok(Some(value.get().to_owned())),
        _ => Err(format!(
            "the member {member:?} is neither a string nor a number"
        )),
    }
}

/// Returns the object's text with `_id` as its first member.
fn with_id(object: &str, id: &str) -> String {
    let rest = &object[1..];
    let comma = if rest.trim_start().starts_with('}') {
        ""
    } else {
        ","
    };
    format!("{{\"_id\":{}{comma}{rest}", Value::from(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Position = Position { offset: 0, line: 1 };

    fn text_of(text: &str, ids: IdSource<'_>) -> String {
        match document(text.as_bytes(), START, ids).unwrap() {
            Item::Document(document) => document.text,
            other => panic!("{other:?}"),
        }
    }

    fn reason_of(text: &str, ids: IdSource<'_>) -> String {
        match document(text.as_bytes(), START, ids).unwrap() {
            Item::Refused { reason, .. } => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn numbers_stay_as_they_were_written() {
        let text = r#"{ "n": 1.000000000000000000001e400, "i": 123456789012345678901234567890 }"#;
        assert_eq!(text_of(text, IdSource::Server), text);
        assert_eq!(
            text_of(text, IdSource::Given("a\"b")),
            format!("{{\"_id\":\"a\\\"b\",{}", &text[1..])
        );
        assert_eq!(text_of("{ }", IdSource::Given("a")), r#"{"_id":"a" }"#);
    }

    #[test]
    fn an_own_id_wins_over_any_other() {
        let text = r#"{"_id":"own","key":"other"}"#;
        assert_eq!(text_of(text, IdSource::Member("key")), text);
    }

    #[test]
    fn an_id_is_taken_from_a_text_or_a_number() {
        assert!(text_of(r#"{"k":"x"}"#, IdSource::Member("k")).starts_with(r#"{"_id":"x","#));
        assert!(text_of(r#"{"k":10}"#, IdSource::Member("k")).starts_with(r#"{"_id":"10","#));
        assert!(reason_of(r#"{"k":[]}"#, IdSource::Member("k")).contains("neither"));
        assert!(reason_of("{}", IdSource::Member("k")).contains("no member \"k\""));
    }

    #[test]
    fn attachments_need_their_data() {
        let stub = r#"{"_id":"a","_attachments":{"x":{"stub":true,"length":1}}}"#;
        assert_eq!(reason_of(stub, IdSource::Server), STUBS);
        let inline = r#"{"_id":"a","_attachments":{"x":{"data":"eA=="}}}"#;
        assert_eq!(text_of(inline, IdSource::Server), inline);
    }

    #[test]
    fn a_revision_is_noticed() {
        let item = document(br#"{"_id":"a","_rev":"1-b"}"#, START, IdSource::Server).unwrap();
        assert!(matches!(
            item,
            Item::Document(Document { has_rev: true, .. })
        ));
    }

    #[test]
    fn lines_of_couchbackup_are_no_documents() {
        for line in [
            r#"{"name":"@cloudant/couchbackup","version":"2.11.1","mode":"full"}"#,
            r#"{"marker":"@cloudant/couchbackup:resume"}"#,
        ] {
            assert_eq!(
                document(line.as_bytes(), START, IdSource::Server),
                Ok(Item::NotADocument)
            );
        }
    }

    #[test]
    fn invalid_text_names_its_place() {
        let error = document(b"{\"a\":\"\xff\"}", START, IdSource::Server).unwrap_err();
        assert_eq!((error.problem.as_str(), error.at), ("invalid UTF-8", 6));
        let error = document(b"{\"a\":1,\n\"b\":tru}", START, IdSource::Server).unwrap_err();
        assert!(error.problem.starts_with("invalid JSON"), "{error:?}");
        assert_eq!(error.at, 15);
    }

    #[test]
    fn an_id_named_twice_refuses_that_document_only() {
        assert!(reason_of(r#"{"_id":"a","_id":"b"}"#, IdSource::Server).contains("duplicate"));
    }

    #[test]
    fn rows_without_documents_are_refused_with_their_id() {
        let item = row(br#"{"id":"a","key":"a","value":{"rev":"1-b"}}"#, START).unwrap();
        assert!(
            matches!(item, Item::Refused { label, reason } if label == "a" && reason.contains("include_docs"))
        );
        let item = row(br#"{"key":"b","error":"not_found"}"#, START).unwrap();
        assert!(matches!(item, Item::Refused { reason, .. } if reason.contains("not_found")));
    }
}
