//! Common parts of the interfaces of text indexes, `search` and `nouveau`.

use std::cell::{Cell, RefCell};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use analysis::Analyzer;
use database::{
    DatabaseAs, Design, Read, ReadOptions, TEXT_ANSWER_BYTES_MAX, TextCounts, TextExplanation,
    TextFlavour, TextHit, TextIndex, TextMemory, TextTurn,
};
use document::{DocId, write_json_string};
use fair_queue::Busy;
use serde::Serialize;
use serde::ser::{Error as _, SerializeMap, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::errors::ApiError;
use crate::reply::Reply;
use crate::request::Request;
use node::Access;

/// Fields to sort by, fields that are counted or highlighted, and ranges, of a request.
pub const SORT_KEYS_MAX: usize = 32;
pub const FIELDS_MAX: usize = 100;
pub const RANGES_MAX: usize = 1000;
pub const INCLUDED_MAX: usize = 1000;
/// Default number of groups, and the maximum.
pub const GROUP_LIMIT: usize = 10;
pub const GROUP_LIMIT_MAX: u64 = 200;
/// Most fragments of a text, and the longest one, in characters.
pub const HIGHLIGHTS_MAX: u64 = 1000;
pub const HIGHLIGHT_SIZE_MAX: u64 = 100_000;
/// Most bytes of the text before and of the text after a match: each match has them.
const HIGHLIGHT_TAG_BYTES_MAX: usize = 256;

/// A text index of a design document.
pub async fn index_of(
    access: &Access,
    design: Arc<Design>,
    flavour: TextFlavour,
    name: &str,
) -> Result<Arc<TextIndex>, ApiError> {
    let index = access.db.text_index_async(&design, flavour, name).await?;
    Ok(index)
}

/// Checks that at most `max` are requested: each one enlarges every hit.
pub fn within(n: usize, max: usize, what: &str) -> Result<(), ApiError> {
    match n > max {
        true => Err(ApiError::bad_request(format!("at most {max} {what}"))),
        false => Ok(()),
    }
}

/// Checks the text before or after a match.
pub fn highlight_tag(tag: String) -> Result<String, ApiError> {
    within(
        tag.len(),
        HIGHLIGHT_TAG_BYTES_MAX,
        "bytes of a tag of highlights",
    )?;
    Ok(tag)
}

/// A field, and values of which hits have one; without values, any.
pub type Drilldown = (String, Vec<String>);

/// Reads drilldowns from `["field", "value", …]`, or from a list of such lists.
pub fn drilldowns(value: &Value) -> Result<Vec<Drilldown>, ApiError> {
    let invalid = || ApiError::bad_request("invalid drilldown query");
    let one = |list: &Vec<Value>| -> Result<Drilldown, ApiError> {
        let texts = list.iter().map(|v| v.as_str().map(str::to_owned));
        let texts: Option<Vec<String>> = texts.collect();
        let mut texts = texts.ok_or_else(|| {
            let list = Value::Array(list.clone());
            ApiError::bad_request(format!("{list} contains a non-string item"))
        })?;
        if texts.is_empty() {
            return Err(invalid());
        }
        let values = texts.split_off(1);
        Ok((texts.remove(0), values))
    };
    let list = match value {
        Value::Null => return Ok(vec![]),
        Value::Array(list) => list,
        _ => return Err(invalid()),
    };
    match list.first() {
        None => Ok(vec![]),
        Some(Value::Array(_)) => {
            let lists = list.iter();
            lists
                .map(|inner| one(inner.as_array().ok_or_else(invalid)?))
                .collect()
        }
        Some(_) => Ok(vec![one(list)?]),
    }
}

/// The JSON of counts by range. Several ranges may have the same label.
pub fn ranges_value(ranges: &TextCounts) -> Value {
    let of_field = |(field, counts): &(String, Vec<(String, u64)>)| {
        let counts = counts.iter().map(|(label, n)| (label.clone(), (*n).into()));
        (field.clone(), Value::Object(counts.collect()))
    };
    Value::Object(ranges.iter().map(of_field).collect())
}

/// The JSON of counts of values, of which there may be very many.
pub struct ShownCounts<'a>(pub &'a TextCounts);

impl Serialize for ShownCounts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_once(self.0, serializer, |counts| CountsOfField(counts))
    }
}

struct CountsOfField<'a>(&'a [(String, u64)]);

impl Serialize for CountsOfField<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (value, count) in self.0 {
            map.serialize_entry(value, count)?;
        }
        map.end()
    }
}

/// The JSON of highlights: parts of stored texts by field.
struct ShownHighlights<'a>(&'a [(String, Vec<String>)]);

impl Serialize for ShownHighlights<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_once(self.0, serializer, |parts| parts)
    }
}

/// Writes values by field. A field that was named several times has the same value each time.
fn serialize_once<'a, T, V: Serialize, S: Serializer>(
    fields: &'a [(String, T)],
    serializer: S,
    value_of: impl Fn(&'a T) -> V,
) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    for (at, (field, value)) in fields.iter().enumerate() {
        if !fields[..at].iter().any(|(known, _)| known == field) {
            map.serialize_entry(field, &value_of(value))?;
        }
    }
    map.end()
}

/// Runs blocking work on a thread for that.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(ApiError::worker_failed)?
}

/// Searches and makes the answer in a turn.
pub async fn in_turn(
    turn: TextTurn,
    work: impl FnOnce() -> Result<Vec<u8>, ApiError> + Send + 'static,
) -> Result<Reply, ApiError> {
    let text = turn
        .run(work)
        .await
        .ok_or_else(|| ApiError::worker_failed("a search panicked"))?;
    Ok(Reply::json_bytes(200, text?))
}

/// How long a search waits for its turn.
const TURN_WAIT_MAX: Duration = Duration::from_secs(30);

/// Waits for a turn to search, up to a time limit.
///
/// # Errors
/// 503 when too many others run or wait.
pub async fn within_wait<T>(turn: impl Future<Output = Result<T, Busy>>) -> Result<T, ApiError> {
    match tokio::time::timeout(TURN_WAIT_MAX, turn).await {
        Ok(Ok(turn)) => Ok(turn),
        _ => Err(ApiError::busy("too many searches run or wait".to_owned())),
    }
}
/// Most attempts to find an index whose definition changes while a request waits for it.
const LOOKS_MAX: usize = 5;

/// A text index of a design document, updated first if requested.
pub async fn current_index(
    access: &Access,
    id: &str,
    (flavour, name): (TextFlavour, &str),
    update: bool,
) -> Result<Arc<TextIndex>, ApiError> {
    for _ in 0..LOOKS_MAX {
        let design = access.db.design_async(id).await?;
        let index = index_of(access, design, flavour, name).await?;
        if !update {
            return Ok(index);
        }
        match access.db.update_text(&index).await {
            Ok(()) => return Ok(index),
            // A clean-up closes what no design document has any more. A database that is gone has no design either.
            Err(database::Error::ShuttingDown) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Err(database::Error::ShuttingDown.into())
}

/// The documents of hits. Each is read when it is written, so that a response holds it once.
pub struct HitDocuments<'a> {
    db: &'a DatabaseAs,
    memory: &'a TextMemory,
    bytes: Cell<usize>,
    /// The length of the longest one, which is charged besides the response.
    longest: Cell<usize>,
    failure: RefCell<Option<ApiError>>,
}

impl<'a> HitDocuments<'a> {
    pub fn new(db: &'a DatabaseAs, memory: &'a TextMemory) -> HitDocuments<'a> {
        HitDocuments {
            db,
            memory,
            bytes: Cell::new(0),
            longest: Cell::new(0),
            failure: RefCell::default(),
        }
    }

    /// A document in its current state; null for a deleted one, and for one that the user may not
    /// see.
    fn read(&self, id: &str) -> Result<Box<RawValue>, ApiError> {
        let read = match DocId::new(id) {
            Ok(id) => match self.db.read(&id, &ReadOptions::default()) {
                Err(database::Error::Forbidden(_)) => Read::Missing,
                read => read?,
            },
            Err(_) => Read::Missing,
        };
        let Read::Found(doc) = read else {
            return Ok(RawValue::NULL.to_owned());
        };
        let length = doc.json.len();
        self.bytes.set(self.bytes.get() + length);
        if self.bytes.get() > TEXT_ANSWER_BYTES_MAX {
            return Err(database::Error::TextAnswerTooLong.into());
        }
        let longest = self.longest.get();
        if length > longest {
            hold(self.memory, length - longest)?;
            self.longest.set(length);
        }
        let text = String::from_utf8(doc.json).map_err(ApiError::worker_failed)?;
        RawValue::from_string(text).map_err(ApiError::worker_failed)
    }
}

fn hold(memory: &TextMemory, bytes: usize) -> Result<(), ApiError> {
    Ok(memory.hold(bytes).map_err(database::Error::from)?)
}

/// The document of a hit.
pub struct HitDocument<'a> {
    documents: &'a HitDocuments<'a>,
    id: &'a str,
}

impl Serialize for HitDocument<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.documents.read(self.id) {
            Ok(document) => document.serialize(serializer),
            Err(e) => {
                *self.documents.failure.borrow_mut() = Some(e);
                Err(S::Error::custom("a document cannot be read"))
            }
        }
    }
}

/// The text of a response, whose memory is charged as it grows.
struct ResponseText<'a> {
    text: Vec<u8>,
    memory: &'a TextMemory,
    failure: Option<ApiError>,
}

/// The first capacity of the text of a response, in bytes.
const TEXT_BYTES_MIN: usize = 4 << 10;

impl ResponseText<'_> {
    /// Makes room for more bytes. The text grows by halves.
    fn grow(&mut self, bytes: usize) -> Result<(), ApiError> {
        let (length, capacity) = (self.text.len(), self.text.capacity());
        let wanted = (capacity + capacity / 2)
            .max(length + bytes)
            .max(TEXT_BYTES_MIN);
        hold(self.memory, wanted - capacity)?;
        self.text.reserve_exact(wanted - length);
        Ok(())
    }
}

impl io::Write for ResponseText<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.text.capacity() - self.text.len()
            && let Err(e) = self.grow(bytes.len())
        {
            self.failure = Some(e);
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a response as a line. Its memory and that of its documents is charged.
pub fn response_text(
    shown: &impl Serialize,
    documents: &HitDocuments<'_>,
) -> Result<Vec<u8>, ApiError> {
    let mut out = ResponseText {
        text: vec![],
        memory: documents.memory,
        failure: None,
    };
    let written = serde_json::to_writer(&mut out, shown);
    let failure = documents.failure.take().or(out.failure.take());
    match (written, failure) {
        (Err(_), Some(e)) => Err(e),
        (Err(e), None) => Err(ApiError::worker_failed(e)),
        (Ok(()), _) => {
            out.text.push(b'\n');
            Ok(out.text)
        }
    }
}

/// `_nouveau_cleanup` and `_search_cleanup`: remove indexes of both kinds that no design document
/// names.
pub async fn cleanup(
    req: &mut Request,
    access: &Access,
    with_body: bool,
) -> Result<Reply, ApiError> {
    if with_body {
        req.require_json()?;
        req.bytes().await?;
    }
    access.db.clean_up_text_indexes_async().await?;
    Ok(Reply::json_bytes(202, "{\"ok\":true}\n"))
}

/// The words that an analyzer finds in a text, which may be long.
pub async fn tokens(req: &Request, analyzer: Analyzer, text: String) -> Result<Reply, ApiError> {
    let answer = move || Reply::json_bytes(200, tokens_json(&analyzer, &text));
    req.answers.apart(answer).await
}

/// Writes words one by one: short ones would take many times the memory of their text.
fn tokens_json(analyzer: &Analyzer, text: &str) -> Vec<u8> {
    let mut json = b"{\"tokens\":[".to_vec();
    let mut is_first = true;
    analyzer.visit(text, &mut |token| {
        if !is_first {
            json.push(b',');
        }
        is_first = false;
        write_json_string(&token.text, &mut json);
    });
    json.extend_from_slice(b"]}\n");
    json
}

/// Hits in the response.
#[derive(Clone, Copy)]
pub struct ShownHits<'a> {
    pub hits: &'a [TextHit],
    /// The values by which a hit was sorted.
    pub order: &'a dyn Fn(&TextHit) -> Vec<Value>,
    /// With their documents.
    pub documents: Option<&'a HitDocuments<'a>>,
}

impl Serialize for ShownHits<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.hits.iter().map(|hit| self.show(hit)))
    }
}

impl<'a> ShownHits<'a> {
    fn show(&self, hit: &'a TextHit) -> ShownHit<'a> {
        let documents = self.documents;
        ShownHit {
            doc: documents.map(|documents| HitDocument {
                documents,
                id: &hit.id,
            }),
            explanation: hit.explanation.as_ref(),
            fields: &hit.fields,
            highlights: hit.highlights.as_deref().map(ShownHighlights),
            id: &hit.id,
            order: (self.order)(hit),
        }
    }
}

/// A hit in the response. Its document is as it was written: it may be nested more deeply than the
/// parser allows, and its numbers stay unchanged.
#[derive(Serialize)]
struct ShownHit<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    doc: Option<HitDocument<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    explanation: Option<&'a TextExplanation>,
    fields: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    highlights: Option<ShownHighlights<'a>>,
    id: &'a str,
    order: Vec<Value>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_written_as_they_are_found() {
        let analyzer = Analyzer::named(TextFlavour::Nouveau, "whitespace").unwrap();
        assert_eq!(tokens_json(&analyzer, " "), b"{\"tokens\":[]}\n");
        let json = tokens_json(&analyzer, "a \"b\" \u{e9}");
        assert_eq!(
            String::from_utf8(json).unwrap(),
            "{\"tokens\":[\"a\",\"\\\"b\\\"\",\"\u{e9}\"]}\n"
        );
        let text = "a ".repeat(100_000);
        assert!(tokens_json(&analyzer, &text).capacity() <= 4 * text.len());
    }
}
