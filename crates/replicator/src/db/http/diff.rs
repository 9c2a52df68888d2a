//! Reading the response of `_revs_diff`.

use std::collections::HashMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::super::batch::Change;
use crate::db::json_limits::parse;

/// Returns the missing revisions of the documents that were sent, by id.
///
/// Keeps nothing else of the response: a document with many conflicts has as many possible
/// ancestors, and a target with such documents must work too.
///
/// # Errors
/// The response is not that of `_revs_diff`, or lists more revisions of a document than were sent.
pub fn missing_revs(
    body: &[u8],
    changes: &[Change],
) -> Result<HashMap<String, Vec<String>>, String> {
    let sent = changes.iter().map(|c| (c.id.as_str(), c.revs.len()));
    let sent: HashMap<&str, usize> = sent.collect();
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let found = Sent(&sent).deserialize(&mut deserializer);
    let found = found.and_then(|found| deserializer.end().map(|()| found));
    let missing = |(id, list): (String, &RawValue)| {
        let revs_max = sent.get(id.as_str()).copied().unwrap_or(0);
        // The list itself is a value, too.
        Ok((id, parse(list.get().as_bytes(), 1 + revs_max.max(1))?))
    };
    let found = found.map_err(|e| e.to_string())?;
    found.into_iter().map(missing).collect()
}

/// The documents that were sent, with the numbers of their revisions.
struct Sent<'s>(&'s HashMap<&'s str, usize>);

impl<'de> DeserializeSeed<'de> for Sent<'_> {
    type Value = HashMap<String, &'de RawValue>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Sent<'_> {
    type Value = HashMap<String, &'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with the missing revisions of documents")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        #[derive(Deserialize)]
        struct Of<'a> {
            #[serde(borrow)]
            missing: Option<&'a RawValue>,
        }
        let mut found = HashMap::new();
        while let Some(id) = map.next_key::<String>()? {
            if !self.0.contains_key(id.as_str()) {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            if let Some(missing) = map.next_value::<Of<'de>>()?.missing {
                found.insert(id, missing);
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::json_limits::VALUES_MAX;

    fn missing(body: &str) -> Result<Vec<(String, Vec<String>)>, String> {
        let change = |id: &str, revs: usize| Change {
            id: id.to_owned(),
            revs: (0..revs).map(|n| format!("1-{n}")).collect(),
            doc: None,
        };
        let found = missing_revs(body.as_bytes(), &[change("a", 1), change("b,[", 3)])?;
        let mut found: Vec<_> = found.into_iter().collect();
        found.sort_unstable();
        Ok(found)
    }

    #[test]
    fn possible_ancestors_are_any_number() {
        let ancestors = vec![r#""1-x""#; 2 * VALUES_MAX].join(",");
        let body = format!(
            r#"{{"a":{{"missing":["2-a"],"possible_ancestors":[{ancestors}]}},"b,[":{{"missing":["1-0","1-2"]}}}}"#
        );
        let revs = |list: &[&str]| list.iter().map(|rev| (*rev).to_owned()).collect::<Vec<_>>();
        let expected = vec![
            ("a".to_owned(), revs(&["2-a"])),
            ("b,[".to_owned(), revs(&["1-0", "1-2"])),
        ];
        assert_eq!(missing(&body), Ok(expected));
        assert_eq!(missing(r#"{"a":{},"c":{"missing":["1-a"]}}"#), Ok(vec![]));
        assert_eq!(missing("{}"), Ok(vec![]));
    }

    #[test]
    fn other_responses_are_errors() {
        let many = [r#""""#; 5].join(",");
        for body in [
            "",
            "[]",
            "{}x",
            r#"{"a":1}"#,
            r#"{"a":{"missing":[1]}}"#,
            r#"{"a":{"missing":["1-a"]}"#,
            &format!(r#"{{"b,[":{{"missing":[{many}]}}}}"#),
        ] {
            assert!(missing(body).is_err(), "{body}");
        }
    }
}
