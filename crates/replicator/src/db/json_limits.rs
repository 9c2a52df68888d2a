//! JSON that other servers send. Parsed values can take a hundred times the memory of their text,
//! so their number is limited too.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny, SeqAccess, Visitor};
use serde_json::Value;

/// Maximum number of values in a text that is parsed as a whole.
pub const VALUES_MAX: usize = 100_000;

/// Maximum number of values in a replication document: one of 8 MB with the ids of documents, of
/// ordinary length, has fewer.
pub const DOC_VALUES_MAX: usize = 300_000;

/// Parses a text of at most `values_max` values.
///
/// # Errors
/// The text has more values, or is not what is expected.
pub fn parse<'a, T: Deserialize<'a>>(text: &'a [u8], values_max: usize) -> Result<T, String> {
    if values_at_most(text) > values_max {
        return Err(format!("it has more than {values_max} values"));
    }
    serde_json::from_slice(text).map_err(|e| e.to_string())
}

/// Parses any JSON of at most [`VALUES_MAX`] values.
pub fn value(text: &[u8]) -> Option<Value> {
    parse(text, VALUES_MAX).ok()
}

/// Returns whether the text is JSON. It may have any number of values.
pub fn is_json(text: &[u8]) -> bool {
    serde_json::from_slice::<IgnoredAny>(text).is_ok()
}

/// Returns whether the text, if it is JSON, is a list or an object: the first byte is `opening`.
pub fn opens_with(text: &[u8], opening: u8) -> bool {
    text.trim_ascii_start().first() == Some(&opening)
}

/// Returns the number of values in a text, or more. Strings are not searched: a reason may have any
/// number of commas.
fn values_at_most(text: &[u8]) -> usize {
    let values = |text: &[u8]| memchr::memchr3_iter(b',', b'[', b'{', text).count();
    let (mut count, mut rest) = (1, text);
    while let Some(quote) = memchr::memchr(b'"', rest) {
        let (before, string) = rest.split_at(quote);
        count += values(before);
        rest = after_string(string);
    }
    count + values(rest)
}

/// Returns the text after the string that it begins with.
fn after_string(text: &[u8]) -> &[u8] {
    let mut rest = text.get(1..).unwrap_or_default();
    while let Some(at) = memchr::memchr2(b'"', b'\\', rest) {
        if rest[at] == b'"' {
            return &rest[at + 1..];
        }
        rest = rest.get(at + 2..).unwrap_or_default();
    }
    &[]
}

/// A list of at most `N` elements: a longer one is an error as soon as that is known.
pub struct BoundedVec<T, const N: usize>(pub Vec<T>);

impl<'de, T: Deserialize<'de>, const N: usize> Deserialize<'de> for BoundedVec<T, N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Elements<T, const N: usize>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>, const N: usize> Visitor<'de> for Elements<T, N> {
            type Value = BoundedVec<T, N>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a list of at most {N} elements")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut all = vec![];
                while let Some(element) = seq.next_element()? {
                    if all.len() == N {
                        return Err(A::Error::invalid_length(N + 1, &self));
                    }
                    all.push(element);
                }
                Ok(BoundedVec(all))
            }
        }
        deserializer.deserialize_seq(Elements(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_with_too_many_values_are_not_parsed() {
        assert_eq!(parse::<Value>(b"[1,2]", 3), Ok(serde_json::json!([1, 2])));
        assert!(parse::<Value>(b"[1,2,{}]", 3).is_err());
        let many = |n| format!("[{}0]", "{\"\":0},".repeat(n)).into_bytes();
        assert!(value(&many(VALUES_MAX / 2 - 1)).is_some());
        assert!(value(&many(VALUES_MAX / 2)).is_none());
        assert!(is_json(&many(VALUES_MAX)) && opens_with(&many(1), b'['));
        assert!(!is_json(b"[1,2"));
    }

    #[test]
    fn commas_and_brackets_in_strings_are_no_values() {
        for (text, values) in [
            (r#"{"a,[{":"\\","b":"\",[","c":[1,2]}"#, 6),
            (r#"["a\"#, 2),
            (r#"["a\""#, 2),
            (r#"["a,"#, 2),
            ("", 1),
        ] {
            assert_eq!(values_at_most(text.as_bytes()), values, "{text}");
        }
        let reasons = vec![format!("\"{}\"", ",[{".repeat(1000)); 100].join(",");
        assert!(value(format!("[{reasons}]").as_bytes()).is_some());
    }

    #[test]
    fn a_list_ends_at_its_limit() {
        let list = |text: &str| serde_json::from_str::<BoundedVec<u8, 2>>(text).map(|list| list.0);
        assert_eq!(list("[]").unwrap(), [0; 0]);
        assert_eq!(list("[1,2]").unwrap(), [1, 2]);
        // What follows is not read.
        assert!(
            list("[1,2,3,")
                .unwrap_err()
                .to_string()
                .contains("at most 2")
        );
    }
}
