//! Bookmarks: where the next page of a search begins, as text that clients hand back.
//!
//! It is the order of the last hit as JSON text, in base64 for addresses. An empty list is the beginning.

use data_encoding::BASE64URL_NOPAD;
use search::SortValue;
use serde_json::{Value, json};

use crate::Error;

/// A bookmark behind a hit of this order; the beginning for none.
pub fn write(order: &[SortValue]) -> String {
    let value = |value: &SortValue| match value {
        SortValue::Null => Value::Null,
        SortValue::Score(score) => json!({ "score": score }),
        SortValue::Number(n) => json!(n),
        SortValue::Text(text) => json!(text),
    };
    let values: Value = order.iter().map(value).collect();
    BASE64URL_NOPAD.encode(values.to_string().as_bytes())
}

/// The order that a bookmark is behind; `None` is the beginning.
pub fn read(text: &str) -> Result<Option<Vec<SortValue>>, Error> {
    let refused = || Error::BadRequest("invalid bookmark".into());
    let bytes = BASE64URL_NOPAD
        .decode(text.as_bytes())
        .map_err(|_| refused())?;
    let values: Vec<Value> = serde_json::from_slice(&bytes).map_err(|_| refused())?;
    if values.is_empty() {
        return Ok(None);
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
    Ok(Some(
        values.into_iter().map(value).collect::<Result<_, _>>()?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let order = vec![
            SortValue::Score(0.1),
            SortValue::Number(-1e300),
            SortValue::Null,
            SortValue::Text("ü\"\0".into()),
        ];
        assert_eq!(read(&write(&order)).unwrap(), Some(order));
        assert_eq!(read(&write(&[])).unwrap(), None);
        assert_eq!(write(&[]), "W10");
    }

    #[test]
    fn what_is_none_is_refused() {
        for text in ["xyz", "%", "e30", "W1tdXQ"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
