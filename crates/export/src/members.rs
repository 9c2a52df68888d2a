//! The members of JSON objects, whose values keep their text.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::error::ExportError;

const ATTACHMENTS: &str = "_attachments";

/// The members of an object in their order.
pub(crate) struct Members<'a>(pub(crate) Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members<'de>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(Members(members))
    }
}

/// Returns the members of an object.
pub(crate) fn members_of(object: &str) -> Result<Vec<(String, &RawValue)>, ExportError> {
    let members: Members<'_> =
        serde_json::from_str(object).map_err(|error| ExportError::Element(error.to_string()))?;
    Ok(members.0)
}

/// Returns the document without its attachments; unchanged if it has none.
pub(crate) fn without_attachments(document: &str) -> Result<Cow<'_, str>, ExportError> {
    if !document.contains(ATTACHMENTS) {
        return Ok(Cow::Borrowed(document));
    }
    let members = members_of(document)?;
    if !members.iter().any(|(name, _)| name == ATTACHMENTS) {
        return Ok(Cow::Borrowed(document));
    }
    let kept = members.iter().filter(|(name, _)| name != ATTACHMENTS);
    let kept = kept.map(|(name, value)| format!("{}:{}", Value::from(name.as_str()), value.get()));
    let kept: Vec<String> = kept.collect();
    Ok(Cow::Owned(format!("{{{}}}", kept.join(","))))
}

/// Appends the columns of an object and their values. With `flatten`, each member of a nested
/// object gets a column such as `a.b`; a dot in a name becomes `\.`.
pub(crate) fn leaves<'a>(
    object: &'a str,
    flatten: bool,
    prefix: &str,
    leaves_found: &mut Vec<(String, &'a str)>,
) -> Result<(), ExportError> {
    for (name, value) in members_of(object)? {
        let value = value.get();
        if !flatten {
            leaves_found.push((name, value));
            continue;
        }
        let name = format!("{prefix}{}", name.replace('.', r"\."));
        match is_object_with_members(value) {
            true => leaves(value, flatten, &format!("{name}."), leaves_found)?,
            false => leaves_found.push((name, value)),
        }
    }
    Ok(())
}

fn is_object_with_members(value: &str) -> bool {
    value
        .strip_prefix('{')
        .is_some_and(|rest| rest.trim_start() != "}")
}

/// Returns the value at a path of names.
pub(crate) fn value_at<'a>(
    object: &'a str,
    path: &[String],
) -> Result<Option<&'a str>, ExportError> {
    let mut value = object;
    for name in path {
        if !value.starts_with('{') {
            return Ok(None);
        }
        let members = members_of(value)?;
        match members.iter().find(|(found, _)| found == name) {
            Some((_, found)) => value = found.get(),
            None => return Ok(None),
        }
    }
    Ok(Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(object: &str, flatten: bool) -> Vec<String> {
        let mut found = Vec::new();
        leaves(object, flatten, "", &mut found).unwrap();
        let texts = found.iter().map(|(name, value)| format!("{name}={value}"));
        texts.collect()
    }

    #[test]
    fn objects_become_columns_only_when_they_are_flattened() {
        let object = r#"{"a":{"b":1.0,"c":{"d.e":[{"x":1}]},"f":{ }},"g":null}"#;
        assert_eq!(
            columns(object, false),
            [r#"a={"b":1.0,"c":{"d.e":[{"x":1}]},"f":{ }}"#, "g=null"]
        );
        assert_eq!(
            columns(object, true),
            ["a.b=1.0", r#"a.c.d\.e=[{"x":1}]"#, "a.f={ }", "g=null"]
        );
    }

    #[test]
    fn a_path_leads_into_objects() {
        let object = r#"{"a":{"b":12345678901234567890},"c":[1]}"#;
        let at = |path: &[&str]| {
            let path: Vec<String> = path.iter().map(|name| (*name).to_owned()).collect();
            value_at(object, &path).unwrap()
        };
        assert_eq!(at(&["a", "b"]), Some("12345678901234567890"));
        assert_eq!(at(&["a", "x"]), None);
        assert_eq!(at(&["c", "0"]), None);
    }

    #[test]
    fn attachments_are_removed_and_nothing_else() {
        let plain = r#"{"_id":"a","text":"_attachments","n":1.0}"#;
        assert!(matches!(
            without_attachments(plain).unwrap(),
            Cow::Borrowed(_)
        ));
        let with = r#"{"_id":"ü\"","_attachments":{"x":{"stub":true}},"n":1.0}"#;
        let without = without_attachments(with).unwrap();
        assert_eq!(without, r#"{"_id":"ü\"","n":1.0}"#);
    }
}
