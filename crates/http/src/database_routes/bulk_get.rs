//! Many documents read in one request: `_bulk_get`.

use database::{
    AttachmentSelection, DatabaseAs, OpenRevs, ReadDoc, ReadOptions, RevSelection, RevsReader, Turn,
};
use document::multipart::{PartHead, Writer};
use document::{DocId, Rev, TextList};
use node::Access;
use serde_json::{Map, Value, json};

use crate::document_routes::attachments::{
    Parts, PartsMaker, TextOf, boundary, push_doc_json, push_doc_multipart,
};
use crate::document_routes::documents::{read_options, since_revs};
use crate::document_routes::open_revs::{ERROR_PART, PARTS_MAX, has_piece};
use crate::errors::ApiError;
use crate::load::{SHORT_BODY_BYTES_MAX, others_came};
use crate::reply::Reply;
use crate::reply::stream::{CHUNK_BYTES, pull, pull_apart};
use crate::request::Request;
use crate::request::revisions::parse_revs_or;

type Answer = Result<Reply, ApiError>;

/// More documents are read by threads that give way.
const READ_HERE_MAX: usize = 16;

/// Attachments of up to 32 KiB are read with their documents, since each streamed one takes a turn
/// of a thread.
const READ_ATTACHMENT_BYTES_MAX: u64 = 32 << 10;

/// Parameters of a GET that `_bulk_get` refuses: they are of one document.
const ONE_DOCUMENT_ONLY: [&str; 5] = ["open_revs", "new_edits", "w", "rev", "atts_since"];

/// `_bulk_get`
pub async fn route(req: &mut Request, access: &Access) -> Answer {
    req.require_json()?;
    let docs = asked(req).await?;
    let wants_since = docs.wants_since;
    req.keep(docs.memory_bytes()).await?;
    let query = read_options(&req.query)?;
    let options = ReadOptions {
        revs: query.revs,
        latest: query.latest,
        attachments: query.attachments,
        att_encoding_info: query.att_encoding_info,
        ..ReadOptions::default()
    };
    let gives_way = docs.len() > READ_HERE_MAX && others_came();
    let reads_attachments = options.attachments != AttachmentSelection::None || wants_since;
    let multipart = ["mixed", "related"].into_iter().find(|subtype| {
        !req.accepts("application/json") && req.accepts(&format!("multipart/{subtype}"))
    });
    let (content_type, form) = match multipart {
        None => ("application/json".to_owned(), Form::Json),
        Some(subtype) => {
            let (writer, inner) = (Writer::new(&boundary()?)?, boundary()?);
            let content_type = writer.content_type(subtype);
            (content_type, Form::Multipart { writer, inner })
        }
    };
    let maker = BulkGet {
        db: access.db.clone(),
        options,
        docs,
        state: State::Head,
        form,
        current: None,
    };
    // Multipart responses always have the attachments.
    if reads_attachments || multipart.is_some() {
        return Parts::reply_made_apart(&req.answers, &content_type, maker).await;
    }
    match gives_way {
        true => pull_apart(&req.answers, "application/json", TextOf(maker)).await,
        false => pull(&req.answers, "application/json", TextOf(maker)).await,
    }
}

/// Requested documents, an object each.
struct Docs {
    left: Left,
    /// Whether one has an `atts_since`.
    wants_since: bool,
    /// The most that the revisions of an `atts_since` take while its document is read, in bytes.
    since_bytes: usize,
}

/// Documents that are not read yet.
enum Left {
    /// With their size, about, in bytes.
    Few(std::vec::IntoIter<Value>, usize),
    /// Their texts: in memory an object takes a multiple of that.
    Many(TextList, std::ops::Range<usize>),
}

/// Documents that take more are kept as texts, in bytes.
const FEW_BYTES: usize = 1 << 20;

/// Most revisions of an `atts_since`. A replicator sends those leaves that its target has of a document.
const SINCE_MAX: usize = 10_000;

impl Docs {
    fn of(docs: Vec<Value>) -> Docs {
        let since = docs.iter().filter_map(|doc| doc.get("atts_since"));
        let since_bytes = since.map(since_bytes).max();
        let bytes: usize = docs.iter().map(value_bytes).sum();
        let left = match bytes <= FEW_BYTES {
            true => Left::Few(docs.into_iter(), bytes),
            false => {
                let places = 0..docs.len();
                Left::Many(docs.iter().map(Value::to_string).collect(), places)
            }
        };
        Docs {
            left,
            wants_since: since_bytes.is_some(),
            since_bytes: since_bytes.unwrap_or(0),
        }
    }

    fn len(&self) -> usize {
        match &self.left {
            Left::Few(docs, _) => docs.len(),
            Left::Many(_, places) => places.len(),
        }
    }

    fn memory_bytes(&self) -> usize {
        let of_texts = match &self.left {
            Left::Few(_, bytes) => *bytes,
            Left::Many(texts, _) => texts.memory_bytes(),
        };
        of_texts + self.since_bytes
    }

    fn next(&mut self) -> Option<Value> {
        match &mut self.left {
            Left::Few(docs, _) => docs.next(),
            Left::Many(texts, places) => {
                let text = texts.get(places.next()?)?;
                // It was made of a value.
                Some(serde_json::from_slice(text).unwrap_or_default())
            }
        }
    }
}

/// Memory that the revisions of an `atts_since` take as a set, about, in bytes; too many are refused.
fn since_bytes(since: &Value) -> usize {
    let revs = since.as_array().filter(|revs| revs.len() <= SINCE_MAX);
    let of_text = |rev: &Value| rev.as_str().map_or(0, str::len).max(ALLOCATION_BYTES);
    let of_rev = |rev: &Value| PLACES_OF_REV * size_of::<Rev>() + of_text(rev);
    revs.map_or(0, |revs| revs.iter().map(of_rev).sum())
}

/// Places of a set for each of its elements, at most.
const PLACES_OF_REV: usize = 3;

/// Memory that a value takes, about, in bytes: an object has places for four members at least, and an index of them.
fn value_bytes(value: &Value) -> usize {
    let beside = match value {
        Value::String(text) => text.capacity().max(ALLOCATION_BYTES),
        Value::Array(values) => values.iter().map(value_bytes).sum(),
        Value::Object(members) => {
            let places = members.len().max(4) * (size_of::<Value>() + MEMBER_BYTES);
            let texts = members.iter().map(|(name, value)| {
                name.capacity().max(ALLOCATION_BYTES) + value_bytes(value) - size_of::<Value>()
            });
            places + MEMBER_BYTES + texts.sum::<usize>()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    size_of::<Value>() + beside
}

/// Memory of an object's member without its value and the text of its name, in bytes.
const MEMBER_BYTES: usize = 32;
/// The least that an allocation takes, in bytes.
const ALLOCATION_BYTES: usize = 16;

/// The documents that the body requests.
async fn asked(req: &mut Request) -> Result<Docs, ApiError> {
    let body = req.json_object().await?;
    let mut parameters = req.query.0.iter().map(|(name, _)| name.as_str());
    let unfit = parameters.find_map(|name| ONE_DOCUMENT_ONLY.into_iter().find(|n| *n == name));
    let docs_max = req.settings.couchdb.max_bulk_get_count;
    let read = move || docs_of(body, unfit, docs_max);
    match req.body_bytes > SHORT_BODY_BYTES_MAX as u64 {
        true => req.answers.apart(read).await?,
        false => read(),
    }
}

/// Reads the documents of a body. `unfit`: a parameter of the query that is of one document.
fn docs_of(
    mut body: Map<String, Value>,
    unfit: Option<&str>,
    docs_max: u64,
) -> Result<Docs, ApiError> {
    let docs = match body.remove("docs") {
        None => return Err(ApiError::bad_request("Missing JSON list of 'docs'.")),
        Some(Value::Array(docs)) => docs,
        Some(_) => return Err(ApiError::bad_request("`docs` must be an array.")),
    };
    if let Some(name) = unfit {
        return Err(ApiError::bad_request(format!(
            "\"{name}\" query parameter is not acceptable"
        )));
    }
    if docs.len() as u64 > docs_max {
        return Err(ApiError::too_many("max_bulk_get_count", docs_max));
    }
    if docs
        .iter()
        .any(|d| d.get("id").is_some_and(|id| !id.is_string()))
    {
        return Err(ApiError::bad_request("`id` must be a string"));
    }
    Ok(Docs::of(docs))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Head,
    First,
    More,
    Done,
}

/// How documents are sent.
enum Form {
    Json,
    Multipart {
        writer: Writer,
        /// The boundary within parts that are documents with attachments.
        inner: String,
    },
}

/// A response that is made document by document, and for documents with long revisions revision by
/// revision.
struct BulkGet {
    db: DatabaseAs,
    options: ReadOptions,
    docs: Docs,
    state: State,
    form: Form,
    /// The document whose revisions are being read.
    current: Option<Current>,
}

/// A document whose revisions are read one by one.
struct Current {
    /// Only its id and the requested revision: it may be long.
    doc: Value,
    options: ReadOptions,
    reader: RevsReader,
    /// How many of them were appended.
    pushed: usize,
}

impl PartsMaker for BulkGet {
    fn more(&mut self, parts: &mut Parts) -> Result<bool, ApiError> {
        match self.state {
            State::Done => return Ok(false),
            State::Head => {
                self.state = State::First;
                if let Form::Json = self.form {
                    parts.push_text(b"{\"results\":[");
                }
            }
            State::First | State::More => {}
        }
        let mut turn = Turn::begin();
        loop {
            if let Some(mut current) = self.current.take() {
                if self.push_some(&mut current, parts)? {
                    current.reader.rest();
                    self.current = Some(current);
                    return Ok(true);
                }
            } else if let Some(doc) = self.docs.next() {
                self.begin(doc, parts)?;
                if self.current.is_some() {
                    // For threads that give way.
                    return Ok(true);
                }
            } else {
                self.end(parts);
                return Ok(false);
            }
            let is_enough = parts.text_bytes() >= CHUNK_BYTES || parts.count() >= PARTS_MAX;
            if is_enough || turn.is_over(true) {
                return Ok(true);
            }
        }
    }

    fn is_long(&self) -> bool {
        self.current.is_some()
    }
}

/// The result of a document's read.
enum Found {
    Revs(OpenRevs),
    /// The document does not exist; this revision was requested.
    Missing(Option<Rev>),
}

impl BulkGet {
    fn end(&mut self, parts: &mut Parts) {
        self.state = State::Done;
        match &self.form {
            Form::Json => parts.push_text(b"]}\n"),
            Form::Multipart { writer, .. } => {
                let mut end = vec![];
                writer.end(&mut end);
                parts.push_text(&end);
            }
        }
    }

    /// Appends a document's revisions, unless they are long: then they are read one by one.
    fn begin(&mut self, doc: Value, parts: &mut Parts) -> Result<(), ApiError> {
        let is_first = std::mem::replace(&mut self.state, State::More) == State::First;
        if let Form::Json = self.form {
            let comma = if is_first { "" } else { "," };
            let id = doc.get("id").unwrap_or(&Value::Null);
            parts.push_text(format!("{comma}{{\"id\":{id},\"docs\":[").as_bytes());
        }
        let found = wanted(&doc).and_then(|wanted| {
            let options = self.options_of(&doc)?;
            Ok((self.found(wanted, &options)?, options))
        });
        match found {
            Err(e) => self.push_refusal(&doc, &e, parts),
            Ok((Found::Missing(rev), _)) => self.push_missing(&doc, rev.as_ref(), parts),
            Ok((Found::Revs(OpenRevs::Read(found)), options)) => {
                for (i, rev) in found.iter().enumerate() {
                    self.push_rev(i, rev, &doc, &options, parts)?;
                }
            }
            Ok((Found::Revs(OpenRevs::Long(reader)), options)) => {
                self.current = Some(Current {
                    doc: named(&doc),
                    options,
                    reader: *reader,
                    pushed: 0,
                });
                return Ok(());
            }
        }
        self.end_doc(parts);
        Ok(())
    }

    /// Appends some of a document's revisions; false when these were the last ones.
    fn push_some(&mut self, current: &mut Current, parts: &mut Parts) -> Result<bool, ApiError> {
        loop {
            match current.reader.next() {
                Ok(Some(rev)) => {
                    let (pushed, doc) = (current.pushed, &current.doc);
                    self.push_rev(pushed, &rev, doc, &current.options, parts)?;
                    current.pushed += 1;
                    if has_piece(&current.reader, parts) {
                        return Ok(true);
                    }
                }
                Ok(None) => {
                    if current.pushed == 0 {
                        self.push_missing(&current.doc, None, parts);
                    }
                    self.end_doc(parts);
                    return Ok(false);
                }
                Err(e) if current.pushed == 0 => {
                    self.push_refusal(&current.doc, &e.into(), parts);
                    self.end_doc(parts);
                    return Ok(false);
                }
                Err(e) => return Err(e.into()),
            }
        }
    }

    fn end_doc(&self, parts: &mut Parts) {
        if let Form::Json = self.form {
            parts.push_text(b"]}");
        }
    }

    /// Appends a revision, the one after `pushed` others of its document.
    fn push_rev(
        &mut self,
        pushed: usize,
        rev: &Result<ReadDoc, Rev>,
        doc: &Value,
        options: &ReadOptions,
        parts: &mut Parts,
    ) -> Result<(), ApiError> {
        if pushed > 0
            && let Form::Json = self.form
        {
            parts.push_text(b",");
        }
        let read = match rev {
            Ok(read) => read,
            Err(rev) => {
                self.push_missing(doc, Some(rev), parts);
                return Ok(());
            }
        };
        match &mut self.form {
            Form::Json => {
                parts.push_text(b"{\"ok\":");
                match options.attachments {
                    AttachmentSelection::None => parts.push_text(&read.json),
                    _ => push_doc_json(
                        &self.db,
                        read,
                        options.att_encoding_info,
                        READ_ATTACHMENT_BYTES_MAX,
                        parts,
                    )?,
                }
                parts.push_text(b"}");
            }
            Form::Multipart { writer, inner } => {
                let rev = read.rev.to_string();
                let mut begin = |content_type: &str, parts: &mut Parts| {
                    // As in CouchDB, only a part with attachments has its document's id.
                    let has_parts = content_type.starts_with("multipart/");
                    let of = has_parts.then_some((read.id.as_str(), rev.as_str()));
                    begin_part(writer, content_type, of, parts);
                };
                push_doc_multipart(&self.db, read, inner, &mut begin, parts)?;
            }
        }
        Ok(())
    }

    /// Appends that a document, or a revision of it, is missing.
    fn push_missing(&mut self, doc: &Value, rev: Option<&Rev>, parts: &mut Parts) {
        let rev = rev.map_or("undefined".into(), Rev::to_string);
        let id = doc.get("id").unwrap_or(&Value::Null);
        self.push_error(id, &rev.into(), ("not_found", "missing"), parts);
    }

    /// Appends why a document cannot be read.
    fn push_refusal(&mut self, doc: &Value, e: &ApiError, parts: &mut Parts) {
        // With an invalid id, the revision is ignored.
        let shows_rev =
            matches!(self.form, Form::Multipart { .. }) || !e.error.starts_with("illegal_");
        let rev = if shows_rev {
            shown_rev(doc)
        } else {
            &Value::Null
        };
        let id = doc.get("id").unwrap_or(&Value::Null);
        self.push_error(id, rev, (&*e.error, &*e.reason), parts);
    }

    fn push_error(
        &mut self,
        id: &Value,
        rev: &Value,
        (error, reason): (&str, &str),
        parts: &mut Parts,
    ) {
        let e = json!({"id": id, "rev": rev, "error": error, "reason": reason});
        match &mut self.form {
            Form::Json => parts.push_text(json!({"error": e}).to_string().as_bytes()),
            Form::Multipart { writer, .. } => {
                begin_part(writer, ERROR_PART, None, parts);
                parts.push_text(e.to_string().as_bytes());
            }
        }
    }

    /// Returns how a document is read. As in CouchDB, an empty `atts_since` has no effect.
    /// Multipart responses always have the attachments.
    fn options_of(&self, doc: &Value) -> Result<ReadOptions, ApiError> {
        let mut options = self.options.clone();
        if let Some(since) = doc.get("atts_since") {
            if since.as_array().is_some_and(|revs| revs.len() > SINCE_MAX) {
                return Err(ApiError::bad_request(format!(
                    "`atts_since` must have at most {SINCE_MAX} revisions"
                )));
            }
            let revs = parse_revs_or(since, "att_since value must be array of revs.")?;
            if !revs.is_empty() {
                options.attachments = since_revs(revs);
            }
        }
        if let (Form::Multipart { .. }, AttachmentSelection::None) =
            (&self.form, &options.attachments)
        {
            options.attachments = AttachmentSelection::All;
        }
        Ok(options)
    }

    fn found(
        &self,
        (id, rev): (DocId, Option<Rev>),
        options: &ReadOptions,
    ) -> Result<Found, ApiError> {
        let which = match &rev {
            None => RevSelection::All,
            Some(rev) => RevSelection::List(vec![rev.clone()]),
        };
        let found = self.db.open_revs(&id, &which, options)?;
        Ok(found.map_or(Found::Missing(rev), Found::Revs))
    }
}

/// The members of a requested document that its results name.
fn named(doc: &Value) -> Value {
    let members = ["id", "rev"].into_iter();
    let members = members.filter_map(|name| Some((name.to_owned(), doc.get(name)?.clone())));
    Value::Object(members.collect())
}

/// Reads which document is requested, and which of its revisions.
fn wanted(doc: &Value) -> Result<(DocId, Option<Rev>), ApiError> {
    let id = match doc {
        Value::Object(members) if !members.is_empty() => doc.get("id"),
        _ => return Err(ApiError::bad_request("document must be a JSON object")),
    };
    let id = id.and_then(Value::as_str);
    let id = DocId::new(id.ok_or_else(|| ApiError::bad_request("document id missed"))?)?;
    let rev = match doc.get("rev") {
        None => None,
        Some(Value::String(rev)) => Some(Rev::parse(rev)?),
        Some(_) => return Err(document::RevError.into()),
    };
    Ok((id, rev))
}

/// Returns the revision that a refusal shows, as CouchDB does: the requested one, or the invalid
/// one of `atts_since`.
fn shown_rev(doc: &Value) -> &Value {
    let is_rev = |rev: &Value| rev.as_str().is_some_and(|rev| Rev::parse(rev).is_ok());
    let since = match doc.get("rev") {
        Some(rev) if !is_rev(rev) => return rev,
        _ => doc.get("atts_since"),
    };
    match since {
        Some(Value::Array(revs)) => revs.iter().find(|rev| !is_rev(rev)),
        since => since,
    }
    .or(doc.get("rev"))
    .unwrap_or(&Value::Null)
}

fn begin_part(
    writer: &mut Writer,
    content_type: &str,
    doc: Option<(&str, &str)>,
    parts: &mut Parts,
) {
    let mut text = vec![];
    let head = PartHead {
        content_type,
        doc,
        ..PartHead::default()
    };
    writer.part(&head, &mut text);
    parts.push_text(&text);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn docs(docs: Value) -> Docs {
        let body = Map::from_iter([("docs".to_owned(), docs)]);
        let read = docs_of(body, None, u64::MAX);
        read.unwrap_or_else(|e| panic!("{}", e.reason))
    }

    /// The text of a replicator's `atts_since`, with its document.
    fn wide(revs: usize) -> Value {
        let revs: Vec<String> = (0..revs).map(|n| format!("1-{n:032x}")).collect();
        json!({"id": "wide", "rev": "1-a", "atts_since": revs})
    }

    #[test]
    fn the_revisions_of_atts_since_are_counted_as_they_are_kept() {
        for revs in [1, 100, SINCE_MAX] {
            let of_one = docs(json!([wide(revs), {"id": "a"}]));
            assert!(of_one.wants_since);
            let set: std::collections::HashSet<Rev> = (0..revs)
                .map(|n| Rev::parse(&format!("1-{n:032x}")).expect("a revision"))
                .collect();
            let kept = set.capacity() * (size_of::<Rev>() + 1);
            assert!(of_one.since_bytes >= kept, "{revs}: {kept}");
            // One document is read at a time.
            let of_two = docs(json!([wide(revs), wide(revs)]));
            assert_eq!(of_two.since_bytes, of_one.since_bytes);
        }
        assert!(!docs(json!([{"id": "a"}, 0])).wants_since);
        // They are refused, and not kept.
        assert_eq!(docs(json!([wide(SINCE_MAX + 1)])).since_bytes, 0);
    }

    #[test]
    fn a_document_that_is_being_read_has_only_its_names() {
        let doc = wide(SINCE_MAX);
        assert_eq!(named(&doc), json!({"id": "wide", "rev": "1-a"}));
        assert_eq!(shown_rev(&named(&doc)), shown_rev(&doc));
        assert_eq!(named(&json!({"id": "a", "x": 1})), json!({"id": "a"}));
    }

    #[test]
    fn documents_are_the_same_kept_as_values_or_as_texts() {
        let long = "x".repeat(FEW_BYTES);
        for last in ["short", long.as_str()] {
            let all = json!([{"id": "a"}, 0, {"id": last}]);
            let mut read = docs(all.clone());
            assert_eq!(read.len(), 3);
            assert!(read.memory_bytes() >= last.len());
            let again: Vec<Value> = std::iter::from_fn(|| read.next()).collect();
            assert_eq!(Value::Array(again), all);
        }
    }
}
