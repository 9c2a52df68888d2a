//! The members of a JSON object, in order, their values as they were written. Clients choose how many an
//! object has: none of them takes memory of its own.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The name of a member, borrowed unless it has escapes.
#[derive(Deserialize)]
pub(super) struct Name<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

/// Returns the number of members in an object's text, duplicates included; `None` when the text is not an
/// object.
pub(crate) fn member_count(json: &[u8]) -> Option<usize> {
    read(json, Count)
}

/// Returns an object's text with the members that `keep` accepts, after those in `first`, whose values are
/// JSON texts. `None` when the text is not an object.
pub(super) fn rewritten(
    json: &[u8],
    first: &[(&str, String)],
    keep: impl FnMut(&str) -> bool,
) -> Option<Vec<u8>> {
    let mut out = vec![b'{'];
    for (name, value) in first {
        push(name, value, &mut out);
    }
    let mut out = read(json, Rewriting { keep, out })?;
    out.push(b'}');
    Some(out)
}

/// Appends a member to an open object.
fn push(name: &str, value: &str, out: &mut Vec<u8>) {
    if out.len() > 1 {
        out.push(b',');
    }
    document::write_json_string(name, out);
    out.push(b':');
    out.extend_from_slice(value.as_bytes());
}

fn read<'a, V: Visitor<'a>>(json: &'a [u8], visitor: V) -> Option<V::Value> {
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let value = deserializer.deserialize_map(visitor).ok()?;
    deserializer.end().ok()?;
    Some(value)
}

struct Count;

impl<'de> Visitor<'de> for Count {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<usize, A::Error> {
        let mut count = 0;
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
            count += 1;
        }
        Ok(count)
    }
}

/// An open object that members are appended to.
struct Rewriting<F> {
    keep: F,
    out: Vec<u8>,
}

impl<'de, F: FnMut(&str) -> bool> Visitor<'de> for Rewriting<F> {
    type Value = Vec<u8>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Vec<u8>, A::Error> {
        while let Some(Name(name)) = map.next_key::<Name<'de>>()? {
            if (self.keep)(&name) {
                let value: &RawValue = map.next_value()?;
                push(&name, value.get(), &mut self.out);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(self.out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stay_as_they_were_written_and_in_order() {
        let json = br#"{"b":1.50,"a":{"x":[1e400]},"\u00e9\"":"\u00e9"}"#;
        let all = rewritten(json, &[], |_| true).expect("an object");
        assert_eq!(
            String::from_utf8(all).expect("UTF-8"),
            r#"{"b":1.50,"a":{"x":[1e400]},"é\"":"\u00e9"}"#
        );
        let first = [("n", "\"v\"".to_owned())];
        let some = rewritten(json, &first, |name| name == "a");
        assert_eq!(
            some.as_deref(),
            Some(&br#"{"n":"v","a":{"x":[1e400]}}"#[..])
        );
        let none = rewritten(json, &[], |_| false);
        assert_eq!(none.as_deref(), Some(&b"{}"[..]));
        for bad in [&b"[]"[..], b"{", b"{}{}", b"{\"a\":}"] {
            assert_eq!(rewritten(bad, &[], |_| true), None);
        }
    }

    #[test]
    fn duplicates_count() {
        assert_eq!(member_count(br#"{"a":1,"\u0061":[{}],"b":2}"#), Some(3));
        assert_eq!(member_count(b"{}"), Some(0));
        assert_eq!(member_count(b"[]"), None);
    }
}
