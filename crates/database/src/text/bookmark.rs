//! Bookmarks: where the next page of a search begins, as text that clients send back.
//!
//! A bookmark is the order of the last hit, with the kind of the order, and the statistics that
//! scores are computed from, as JSON text, in base64 for URLs. An empty list is the beginning.

use data_encoding::BASE64URL_NOPAD;
use search::{SortBy, SortKey, SortValue, Statistics};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::Error;

/// A place between two hits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Place {
    /// The order of the hit before it; `None` is the beginning.
    pub order: Option<Vec<SortValue>>,
    /// The statistics of the previous page.
    pub statistics: Statistics,
}

#[derive(Deserialize)]
struct BookmarkJson {
    order: Vec<Value>,
    /// The kind of the order.
    sort: String,
    #[serde(default)]
    statistics: String,
}

/// The bookmark of the beginning.
pub fn beginning() -> String {
    BASE64URL_NOPAD.encode(b"[]")
}

/// A short text that distinguishes an order from others.
fn name_of(sort: &[SortKey]) -> String {
    let hash = Sha256::digest(format!("{sort:?}"));
    data_encoding::HEXLOWER.encode(&hash[..4])
}

/// Writes the bookmarks behind hits of one page.
#[derive(Debug, Default)]
pub struct Writer {
    /// The statistics after the order, as JSON text.
    rest: String,
}

impl Writer {
    /// A writer for a page in an order, with the statistics of the search.
    pub fn new(sort: &[SortKey], statistics: &Statistics) -> Writer {
        let mut rest = format!(r#","sort":"{}""#, name_of(sort));
        if sort.iter().any(|key| key.by == SortBy::Score) {
            let numbers = BASE64URL_NOPAD.encode(&statistics.to_bytes());
            rest.push_str(&format!(r#","statistics":"{numbers}""#));
        }
        Writer { rest }
    }

    /// The bookmark behind a hit of this order.
    pub fn write(&self, order: &[SortValue]) -> String {
        let value = |value: &SortValue| match value {
            SortValue::Null => Value::Null,
            SortValue::Score(score) => json!({ "score": score }),
            SortValue::Number(n) => json!(n),
            SortValue::Text(text) => json!(text),
        };
        let order: Value = order.iter().map(value).collect();
        let text = format!(r#"{{"order":{order}{}}}"#, self.rest);
        BASE64URL_NOPAD.encode(text.as_bytes())
    }
}

/// The place that a bookmark is of, in an order.
pub fn read(text: &str, sort: &[SortKey]) -> Result<Place, Error> {
    let refused = || Error::BadRequest("invalid bookmark".into());
    // CouchDB pads what it writes.
    let text = text.trim_end_matches('=');
    if text == beginning() {
        return Ok(Place::default());
    }
    let bytes = BASE64URL_NOPAD
        .decode(text.as_bytes())
        .map_err(|_| refused())?;
    let written: BookmarkJson = serde_json::from_slice(&bytes).map_err(|_| refused())?;
    if written.sort != name_of(sort) {
        return Err(refused());
    }
    let value = |value: Value| match value {
        Value::Null => Ok(SortValue::Null),
        Value::Number(n) => n.as_f64().map(SortValue::Number).ok_or_else(refused),
        Value::String(text) => Ok(SortValue::Text(text)),
        Value::Object(score) => {
            let score = score.get("score").and_then(Value::as_f64);
            score
                .map(|s| SortValue::Score(s as f32))
                .ok_or_else(refused)
        }
        _ => Err(refused()),
    };
    let order = written.order.into_iter().map(value);
    let statistics = BASE64URL_NOPAD.decode(written.statistics.as_bytes());
    let statistics = statistics.ok().as_deref().and_then(Statistics::from_bytes);
    Ok(Place {
        order: Some(order.collect::<Result<_, _>>()?),
        statistics: statistics.ok_or_else(refused)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(by: SortBy) -> [SortKey; 1] {
        [SortKey {
            by,
            reversed: false,
        }]
    }

    #[test]
    fn what_is_written_is_read() {
        let order = vec![
            SortValue::Score(0.1),
            SortValue::Score(f32::MAX),
            SortValue::Number(-1e300),
            SortValue::Null,
            SortValue::Text("ü\"\0".into()),
        ];
        let statistics = Statistics::from_bytes(&[1, 2, 3, 4, 0x80, 1, 7]).unwrap();
        let sort = by(SortBy::Score);
        let read_again = read(&Writer::new(&sort, &statistics).write(&order), &sort).unwrap();
        assert_eq!(read_again.order, Some(order));
        assert_eq!(read_again.statistics, statistics);
        for text in ["W10", "W10="] {
            assert_eq!(read(text, &sort).unwrap(), Place::default());
        }
    }

    #[test]
    fn statistics_go_with_scores_alone() {
        let statistics = Statistics::from_bytes(&[1, 2, 3, 4, 5, 6]).unwrap();
        let sort = by(SortBy::Id);
        let text = Writer::new(&sort, &statistics).write(&[SortValue::Null]);
        let place = read(&text, &sort).unwrap();
        assert_eq!(place.statistics, Statistics::default());
    }

    #[test]
    fn what_is_none_is_refused() {
        let sort = by(SortBy::Score);
        for text in ["xyz", "%", "e30", "W1tdXQ", "WzVd"] {
            assert!(read(text, &sort).is_err(), "{text}");
        }
    }

    #[test]
    fn one_of_another_order_is_refused() {
        let by_a = Writer::new(&by(SortBy::Strings("a".into())), &Statistics::default());
        let text = by_a.write(&[SortValue::Text("a".into()), SortValue::Text("b".into())]);
        assert!(read(&text, &by(SortBy::Strings("a".into()))).is_ok());
        assert!(read(&text, &by(SortBy::Strings("b".into()))).is_err());
    }
}
