//! Bookmarks: where the next page of a search begins, as text that clients send back.
//!
//! A bookmark is the order of the last hit, with the kind of the order, and the statistics that
//! scores are computed from, as JSON text, in base64 for URLs. An empty list is the beginning.

use std::fmt;

use data_encoding::BASE64URL_NOPAD;
use document::ID_LENGTH_MAX;
use search::{STATISTICS_BYTES_MAX, SortBy, SortKey, SortValue, Statistics};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
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
struct BookmarkJson<'a> {
    #[serde(borrow)]
    order: &'a RawValue,
    /// The kind of the order.
    sort: &'a str,
    #[serde(default)]
    statistics: &'a str,
}

/// The maximum length of a string in an order, as JSON text with a comma: of an id, which is longer
/// than the strings of columns, with an escape for each byte.
const TEXT_BYTES_MAX: usize = 6 * ID_LENGTH_MAX + 3;
/// The maximum length of a score or a number, as JSON text with a comma.
const NUMBER_BYTES_MAX: usize = 48;
/// The maximum length of the rest but for the statistics.
const REST_BYTES_MAX: usize = 64;

/// Returns the length of the longest bookmark that is written for an order.
pub fn bytes_max(sort: &[SortKey]) -> usize {
    let value = |key: &SortKey| match key.by {
        SortBy::Score | SortBy::Numbers(_) | SortBy::Distance(_) => NUMBER_BYTES_MAX,
        SortBy::Id | SortBy::Field(_) | SortBy::Strings(_) => TEXT_BYTES_MAX,
    };
    // The id comes last.
    let order = sort.iter().map(value).sum::<usize>() + TEXT_BYTES_MAX;
    let statistics = BASE64URL_NOPAD.encode_len(STATISTICS_BYTES_MAX);
    BASE64URL_NOPAD.encode_len(order + REST_BYTES_MAX + statistics)
}

/// Reads an order of at most this many values. Ends at the first value that none has, which is not
/// built.
struct OrderVisitor {
    values_max: usize,
}

impl<'de> Visitor<'de> for OrderVisitor {
    type Value = Vec<SortValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {} values", self.values_max)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Self::Value, A::Error> {
        let mut order = vec![];
        while let Some(OrderValue(value)) = values.next_element()? {
            if order.len() == self.values_max {
                return Err(A::Error::invalid_length(order.len() + 1, &self));
            }
            order.push(value);
        }
        Ok(order)
    }
}

struct OrderValue(SortValue);

impl<'de> Deserialize<'de> for OrderValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor).map(OrderValue)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = SortValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("null, a number, a string or a score")
    }

    fn visit_unit<E>(self) -> Result<SortValue, E> {
        Ok(SortValue::Null)
    }

    fn visit_f64<E>(self, n: f64) -> Result<SortValue, E> {
        Ok(SortValue::Number(n))
    }

    fn visit_i64<E>(self, n: i64) -> Result<SortValue, E> {
        Ok(SortValue::Number(n as f64))
    }

    fn visit_u64<E>(self, n: u64) -> Result<SortValue, E> {
        Ok(SortValue::Number(n as f64))
    }

    fn visit_str<E>(self, text: &str) -> Result<SortValue, E> {
        Ok(SortValue::Text(text.to_owned()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<SortValue, A::Error> {
        let score = match members.next_key::<&str>()? {
            Some("score") => members.next_value::<f64>()?,
            _ => return Err(A::Error::custom("not a score")),
        };
        match members.next_key::<IgnoredAny>()? {
            None => Ok(SortValue::Score(score as f32)),
            Some(_) => Err(A::Error::custom("not a score")),
        }
    }
}

/// Reads an order of a hit, a JSON text.
fn read_order(text: &str, values_max: usize) -> Result<Vec<SortValue>, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_str(text);
    reader.deserialize_seq(OrderVisitor { values_max })
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
    if text.len() > bytes_max(sort) {
        return Err(refused());
    }
    if text == beginning() {
        return Ok(Place::default());
    }
    let bytes = BASE64URL_NOPAD
        .decode(text.as_bytes())
        .map_err(|_| refused())?;
    let written: BookmarkJson<'_> = serde_json::from_slice(&bytes).map_err(|_| refused())?;
    if written.sort != name_of(sort) {
        return Err(refused());
    }
    let order = read_order(written.order.get(), sort.len() + 1).map_err(|_| refused())?;
    let statistics = BASE64URL_NOPAD.decode(written.statistics.as_bytes());
    let statistics = statistics.ok().as_deref().and_then(Statistics::from_bytes);
    Ok(Place {
        order: Some(order),
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
    fn the_longest_bookmark_is_read_and_a_longer_one_refused() {
        let key = |by| SortKey {
            by,
            reversed: false,
        };
        let sort = [
            key(SortBy::Score),
            key(SortBy::Strings("a".into())),
            key(SortBy::Numbers("b".into())),
        ];
        // An escape for each byte, and the longest scores, numbers and statistics.
        let text = SortValue::Text("\u{1}".repeat(ID_LENGTH_MAX));
        let order = vec![
            SortValue::Score(f32::MIN_POSITIVE),
            text.clone(),
            SortValue::Number(-f64::MIN_POSITIVE),
            text,
        ];
        let number = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1_u8];
        let of_one = |hash: u32| [&hash.to_le_bytes()[..], &number, &number].concat();
        let all: Vec<u8> = (0..256).flat_map(of_one).collect();
        assert_eq!(all.len(), STATISTICS_BYTES_MAX);
        let statistics = Statistics::from_bytes(&all).unwrap();
        let written = Writer::new(&sort, &statistics).write(&order);
        let most = bytes_max(&sort);
        assert!((most - 300..=most).contains(&written.len()), "{most}");
        assert_eq!(read(&written, &sort).unwrap().order, Some(order));
        let spaces = " ".repeat(most);
        let text = format!(r#"{{"order":[null],{spaces}"sort":"{}"}}"#, name_of(&sort));
        let longer = BASE64URL_NOPAD.encode(text.as_bytes());
        assert!(read(&longer, &sort).is_err());
    }

    #[test]
    fn other_values_are_refused_before_they_are_built() {
        let read = |text: &str| read_order(text, 2);
        let order = vec![SortValue::Number(1.0), SortValue::Text("x".into())];
        assert_eq!(read(r#"[1,"x"]"#).unwrap(), order);
        // Each has no end: it would be a syntax error if more of it was read.
        for text in [
            "[[0",
            r#"["x",{"order":"#,
            r#"[{"score":[1"#,
            r#"[{"score":1,"more":"#,
            "[true,",
            "[null,null,null,",
        ] {
            let refusal = read(text).unwrap_err();
            assert!(refusal.is_data(), "{text}: {refusal}");
        }
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
        let [key] = by(SortBy::Score);
        let sort = vec![key; order.len() - 1];
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
