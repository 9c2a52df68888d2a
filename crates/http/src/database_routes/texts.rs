//! Common parts of the interfaces of text indexes, `search` and `nouveau`.

use std::sync::Arc;
use std::time::Duration;

use analysis::Analyzer;
use database::{
    Design, Read, ReadOptions, TEXT_ANSWER_BYTES_MAX, TextAnswer, TextCounts, TextExplanation,
    TextFlavour, TextIndex, TextTurn,
};
use document::DocId;
use fair_queue::Busy;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

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

/// The JSON of counts.
pub fn counts_value(counts: TextCounts) -> Value {
    let of_field = |(field, counts): (String, Vec<(String, u64)>)| {
        let counts = counts.into_iter().map(|(value, n)| (value, n.into()));
        (field, Value::Object(counts.collect()))
    };
    Value::Object(counts.into_iter().map(of_field).collect())
}

/// The JSON of highlights: parts of stored texts by field.
pub fn highlights_value(highlights: Vec<(String, Vec<String>)>) -> Value {
    let highlights = highlights
        .into_iter()
        .map(|(field, parts)| (field, json!(parts)));
    Value::Object(highlights.collect())
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
    work: impl FnOnce() -> Result<String, ApiError> + Send + 'static,
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

/// The documents of the hits, in their current state; null for deleted ones, and for those that the
/// user may not see.
pub fn documents(
    db: &database::DatabaseAs,
    answer: &TextAnswer,
) -> Result<Vec<Box<RawValue>>, ApiError> {
    let mut docs = vec![];
    let mut bytes = 0;
    let of_groups = answer.groups.iter().flatten().flat_map(|group| &group.hits);
    for hit in answer.hits.iter().chain(of_groups) {
        let read = match DocId::new(&hit.id) {
            Ok(id) => match db.read(&id, &ReadOptions::default()) {
                Err(database::Error::Forbidden(_)) => Read::Missing,
                read => read?,
            },
            Err(_) => Read::Missing,
        };
        docs.push(match read {
            Read::Found(doc) => {
                bytes += doc.json.len();
                if bytes > TEXT_ANSWER_BYTES_MAX {
                    return Err(database::Error::TextAnswerTooLong.into());
                }
                let text = String::from_utf8(doc.json).map_err(ApiError::worker_failed)?;
                RawValue::from_string(text).map_err(ApiError::worker_failed)?
            }
            Read::Missing | Read::Deleted => RawValue::NULL.to_owned(),
        });
    }
    Ok(docs)
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
    let answer = move || {
        let tokens = analyzer.tokens(&text).into_iter();
        let tokens: Vec<String> = tokens.map(|token| token.text).collect();
        Reply::json(200, &json!({ "tokens": tokens }))
    };
    req.answers.apart(answer).await
}

/// A hit in the response.
#[derive(Serialize)]
pub struct ShownHit {
    /// As it was written: it may be nested more deeply than the parser allows, and its numbers stay
    /// unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doc: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explanation: Option<TextExplanation>,
    pub fields: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub highlights: Option<Value>,
    pub id: String,
    pub order: Vec<Value>,
}
