//! Objects that functions return, read member by member. A tree of values would take up to a hundred
//! times the memory of its text, and functions choose the text.

use std::borrow::Cow;
use std::fmt;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess,
    Visitor,
};
use serde_json::value::RawValue;

/// Members of an object that are kept; the rest is only checked. No result of a function has as many
/// members that mean something.
const MEMBERS_MAX: usize = 64 << 10;
/// Length of the part of a value that an error may quote, in bytes.
const QUOTED_BYTES_MAX: usize = 64 << 10;

/// The members of a JSON object, in order. Results of functions have no duplicates.
pub struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Members<'a> {
    /// Returns the members of a value; `None` when it is not an object.
    pub fn of(value: &'a RawValue) -> Option<Members<'a>> {
        serde_json::from_str(value.get()).ok()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.0.iter().map(|(name, value)| (&**name, *value))
    }

    pub fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.iter()
            .find(|(n, _)| *n == name)
            .map(|(_, value)| value)
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = vec![];
                while members.len() < MEMBERS_MAX {
                    let Some(Name(name)) = map.next_key()? else {
                        return Ok(Members(members));
                    };
                    members.push((name, map.next_value()?));
                }
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

/// The name of a member, borrowed unless it has escapes.
#[derive(serde::Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// Returns the text of a string; `None` for other values.
pub fn text(value: &RawValue) -> Option<String> {
    match value.get().starts_with('"') {
        true => serde_json::from_str(value.get()).ok(),
        false => None,
    }
}

/// Returns the JSON text of a value with numbers and escapes as `serde_json` writes them, without a tree of
/// its values.
///
/// # Errors
/// The value has a number that is too large, or nests deeper than documents may.
pub fn rewritten(value: &RawValue) -> Result<String, serde_json::Error> {
    let mut out = Vec::with_capacity(value.get().len());
    let mut deserializer = serde_json::Deserializer::from_str(value.get());
    let transcript = Transcript {
        out: &mut out,
        first: true,
    };
    let out = match transcript.deserialize(&mut deserializer) {
        Ok(()) => out,
        // `serde_json` calls itself for each level, and stops at 128.
        Err(e) if e.to_string().starts_with("recursion limit exceeded") => {
            document::normalise(value.get().as_bytes()).map_err(serde_json::Error::custom)?
        }
        Err(e) => return Err(e),
    };
    String::from_utf8(out).map_err(serde_json::Error::custom)
}

/// Returns a value as errors quote it: not more than a part of a long one.
pub fn quoted(value: &RawValue) -> String {
    let json = value.get();
    match json.len() <= QUOTED_BYTES_MAX {
        true => rewritten(value).unwrap_or_else(|_| json.to_owned()),
        false => cut(json.to_owned()),
    }
}

/// Truncates the text of an error that quotes what a function returned.
pub fn cut(mut text: String) -> String {
    if text.len() > QUOTED_BYTES_MAX {
        text.truncate(text.floor_char_boundary(QUOTED_BYTES_MAX));
        text.shrink_to_fit();
    }
    text
}

/// Writes the value that comes next, after a comma unless it is the first of its array.
struct Transcript<'o> {
    out: &'o mut Vec<u8>,
    first: bool,
}

impl Transcript<'_> {
    fn write<T: serde::Serialize + ?Sized, E: serde::de::Error>(self, value: &T) -> Result<(), E> {
        serde_json::to_writer(self.out, value).map_err(E::custom)
    }
}

impl<'de> DeserializeSeed<'de> for Transcript<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if !self.first {
            self.out.push(b',');
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Transcript<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        self.write(&())
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<(), E> {
        self.write(&value)
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        self.write(&value)
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<(), E> {
        self.write(&value)
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        self.write(&value)
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<(), E> {
        self.write(value)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let out = self.out;
        out.push(b'[');
        let mut first = true;
        while seq.next_element_seed(Transcript { out, first })?.is_some() {
            first = false;
        }
        out.push(b']');
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let out = self.out;
        out.push(b'{');
        let mut first = true;
        while map.next_key_seed(Transcript { out, first })?.is_some() {
            out.push(b':');
            map.next_value_seed(Transcript { out, first: true })?;
            first = false;
        }
        out.push(b'}');
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn raw(json: &str) -> &RawValue {
        serde_json::from_str(json).expect("JSON")
    }

    #[test]
    fn a_value_is_written_as_its_tree_would_be() {
        for json in [
            "null",
            "true",
            "[]",
            "{}",
            "-0",
            "-0.0",
            "1.0",
            "1e3",
            "1e21",
            "123456789012345680000",
            "-9223372036854775808",
            "18446744073709551615",
            "1e-7",
            "0.1",
            "5e-324",
            r#""\u00e9\/\n\u0001\ud83d\ude00\u2028""#,
            r#"{"b":[1,{"z":null,"a":[]},"x"],"a":{"":{}},"é\"":false}"#,
            "[[],[[]],{},[1,2],[{}]]",
            " [ 1 , { \"a\" : 2 } ] ",
        ] {
            let tree: Value = serde_json::from_str(json).expect("JSON");
            let copy = rewritten(raw(json)).expect("not deep");
            assert_eq!(copy, tree.to_string(), "{json}");
        }
    }

    #[test]
    fn values_may_nest_as_deeply_as_documents() {
        let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        for depth in [100, 127, 128, 129, 1000, 4096] {
            assert_eq!(
                rewritten(raw(&deep(depth))).ok(),
                Some(deep(depth)),
                "{depth}"
            );
        }
        assert!(rewritten(raw(&deep(100_000))).is_err());
    }

    #[test]
    fn members_come_in_order_and_not_without_end() {
        let object = raw(r#"{"b":1,"\u0061":[2],"":"x"}"#);
        let members = Members::of(object).expect("an object");
        let all: Vec<_> = members.iter().map(|(n, v)| (n, v.get())).collect();
        assert_eq!(all, [("b", "1"), ("a", "[2]"), ("", "\"x\"")]);
        assert_eq!(members.get("a").map(RawValue::get), Some("[2]"));
        assert!(members.get("c").is_none());
        assert!(Members::of(raw("[]")).is_none());
        let many: Vec<String> = (0..2 * MEMBERS_MAX).map(|n| format!("\"{n}\":0")).collect();
        let many = format!("{{{}}}", many.join(","));
        let members = Members::of(raw(&many)).expect("an object");
        assert_eq!(members.count(), MEMBERS_MAX);
    }

    #[test]
    fn only_strings_have_a_text() {
        assert_eq!(text(raw(r#""\u00e9\n""#)).as_deref(), Some("é\n"));
        for other in ["1", "null", "[\"a\"]", "{}"] {
            assert_eq!(text(raw(other)), None, "{other}");
        }
    }

    #[test]
    fn errors_quote_a_part_of_a_long_value() {
        assert_eq!(quoted(raw("[1.50]")), "[1.5]");
        let long = format!("\"{}\"", "é".repeat(QUOTED_BYTES_MAX));
        let part = quoted(raw(&long));
        assert!(part.len() <= QUOTED_BYTES_MAX && part.capacity() < 2 * QUOTED_BYTES_MAX);
    }
}
