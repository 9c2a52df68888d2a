//! Stored documents as values, for selectors.
//!
//! `serde_json` reads most of them. It refuses two kinds of document that may be stored: those nested more than 128 levels
//! deep, and those with integers beyond the range of a double. A filter must not lose them.

use document::json::skip;
use serde_json::{Map, Number, Value};

/// The value of a stored document; `None` if the text is not JSON.
///
/// Integers beyond the range of a double become the largest double, which is how they compare.
pub fn value_of(json: &[u8]) -> Option<Value> {
    serde_json::from_slice(json)
        .ok()
        .or_else(|| read_unlimited(json))
}

/// A container whose end was not read yet.
enum Open {
    Array(Vec<Value>),
    /// Members, and the name of the current one.
    Object(Map<String, Value>, Option<String>),
}

/// Reads without recursion, so that depth costs no stack. Commas and colons are passed over: the text was checked when
/// it was stored.
fn read_unlimited(json: &[u8]) -> Option<Value> {
    let mut open = vec![];
    let mut rest = json;
    loop {
        let (&first, behind) = rest.trim_ascii_start().split_first()?;
        let value = match first {
            b',' | b':' => {
                rest = behind;
                continue;
            }
            b'[' => {
                rest = behind;
                open.push(Open::Array(vec![]));
                continue;
            }
            b'{' => {
                rest = behind;
                open.push(Open::Object(Map::new(), None));
                continue;
            }
            b']' | b'}' => {
                rest = behind;
                match open.pop()? {
                    Open::Array(elements) => Value::Array(elements),
                    Open::Object(members, _) => Value::Object(members),
                }
            }
            _ => {
                let (token, behind) = token(rest.trim_ascii_start());
                rest = behind;
                scalar(token)?
            }
        };
        match open.last_mut() {
            None => return Some(value),
            Some(Open::Array(elements)) => elements.push(value),
            Some(Open::Object(members, name)) => match (name.take(), value) {
                (Some(name), value) => drop(members.insert(name, value)),
                (None, Value::String(text)) => *name = Some(text),
                (None, _) => return None,
            },
        }
    }
}

/// The string, number or word at the start of `text`, and the rest.
fn token(text: &[u8]) -> (&[u8], &[u8]) {
    let end = skip::value(text, 0).unwrap_or(text.len());
    text.split_at(end)
}

fn scalar(token: &[u8]) -> Option<Value> {
    if let Ok(value) = serde_json::from_slice(token) {
        return Some(value);
    }
    let (sign, digits) = match token.strip_prefix(b"-") {
        Some(digits) => (-1.0, digits),
        None => (1.0, token),
    };
    let is_integer = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let huge = Number::from_f64(sign * f64::MAX)?;
    is_integer.then_some(Value::Number(huge))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_document_of_any_depth_is_read() {
        let depth = 4096;
        let text = format!(
            "{{\"v\":1,\"a\":{}{}}}",
            "[".repeat(depth),
            "]".repeat(depth)
        );
        let value = value_of(text.as_bytes()).unwrap();
        assert_eq!(value["v"], 1);
        let mut inner = &value["a"];
        let mut levels = 1;
        while let Some(next) = inner.get(0) {
            inner = next;
            levels += 1;
        }
        assert_eq!(levels, depth);
    }

    #[test]
    fn an_integer_beyond_every_double_is_the_largest_of_them() {
        let digits = "9".repeat(400);
        let value = value_of(format!("{{\"a\":[{digits},-{digits}]}}").as_bytes()).unwrap();
        assert_eq!(value, json!({"a": [f64::MAX, f64::MIN]}));
    }

    #[test]
    fn text_that_is_not_json_has_no_value() {
        for text in [
            "", "{", "[1", "{\"a\"", "{1:2}", "nul", "\"a", "\"\\", "-", "]",
        ] {
            assert_eq!(value_of(text.as_bytes()), None, "{text}");
        }
    }

    fn values() -> impl proptest::strategy::Strategy<Value = Value> {
        use proptest::prelude::*;
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            (-1e9..1e9).prop_map(Value::from),
            "\\PC{0,8}".prop_map(Value::from),
            "[\"\\\\,:\\[\\]{} ]{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 60, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::vec(("[a-c\"\\\\]{0,3}", inner), 0..6)
                    .prop_map(|m| m.into_iter().collect::<Map<_, _>>().into()),
            ]
        })
    }

    proptest::proptest! {
        #[test]
        fn both_readers_agree(value in values()) {
            let text = value.to_string();
            let expected: Value = serde_json::from_str(&text).unwrap();
            proptest::prop_assert_eq!(read_unlimited(text.as_bytes()), Some(expected));
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..60)) {
            read_unlimited(&bytes);
        }
    }
}
