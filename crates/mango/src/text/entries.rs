//! The entries of a document in a text index: each value under the name of its path and type, all
//! strings once more, and the names themselves.

use std::collections::{BTreeSet, HashSet};

use super::cover::WORD_BYTES_MAX;
use super::{ELEMENTS, NAME_BYTES_MAX, TextDefinition, defined_name, number_of, push_name};
use crate::json::{Elements, Kind, members, string};

/// A field of a document in a text index.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: Value,
}

/// The value of a field.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A string; a boolean is its name, and null is `true`.
    Text(String),
    /// A number.
    Number(f64),
}

/// Returns the fields of a document in an index; its members are JSON texts by name. Empty if there
/// are too many: more than 16 MiB of names and values.
#[must_use]
pub fn entries<'a>(
    definition: &TextDefinition,
    document: impl Iterator<Item = (String, &'a [u8])>,
) -> Vec<Entry> {
    let fields = definition.fields.as_ref().map(|fields| {
        let names = fields.iter().map(|(name, kind)| defined_name(name, *kind));
        names.filter_map(Result::ok).collect()
    });
    let mut reader = Reader {
        definition,
        fields,
        path: String::new(),
        whole: 0,
        found: vec![],
        default: vec![],
        empty: vec![],
        path_bytes: 0,
        bytes: 0,
    };
    for (name, value) in document {
        reader.member(&name, value);
    }
    if reader.is_full() {
        return vec![];
    }
    let Reader {
        mut found,
        default,
        empty,
        ..
    } = reader;
    let all = found.iter().map(|entry| &entry.name).chain(&empty);
    // All names are ASCII.
    let names: BTreeSet<&str> = all
        .map(|name| &name[..name.len().min(NAME_BYTES_MAX)])
        .collect();
    let names = names.into_iter().map(|name| Entry {
        name: "$fieldnames".to_owned(),
        value: Value::Text(name.to_owned()),
    });
    let default = default.into_iter().map(|text| Entry {
        name: "$default".to_owned(),
        value: Value::Text(text),
    });
    let mut all: Vec<Entry> = names.chain(default).collect();
    found.retain(|entry| entry.name.len() <= NAME_BYTES_MAX);
    all.extend(found);
    all
}

/// A document with more bytes of names and values is not in the index.
const BYTES_MAX: usize = 16 << 20;
/// Approximate overhead of a field besides its name and value, in bytes.
const FIELD_BYTES: usize = 64;

struct Reader<'a> {
    definition: &'a TextDefinition,
    fields: Option<HashSet<String>>,
    /// The name of the current path.
    path: String,
    /// The length of its beginning, up to the array that it is an element of.
    whole: usize,
    found: Vec<Entry>,
    default: Vec<String>,
    /// Names of empty objects and arrays, which exist nevertheless.
    empty: Vec<String>,
    /// Total length of the parts of the path.
    path_bytes: usize,
    /// Approximate total size of the entries.
    bytes: usize,
}

impl Reader<'_> {
    fn member(&mut self, name: &str, value: &[u8]) {
        if self.is_full() {
            return;
        }
        let was_long = self.is_long();
        let (end, whole) = (self.path.len(), self.whole);
        push_name(name, &mut self.path);
        if name != ELEMENTS {
            self.whole = self.path.len();
        }
        self.path_bytes += name.len();
        if self.is_long() && !was_long && self.definition.fields.is_none() {
            // All names below it have this prefix.
            let mut name = self.name("");
            name.truncate(NAME_BYTES_MAX);
            self.note_name(name);
        }
        self.value(value);
        self.path_bytes -= name.len();
        self.path.truncate(end);
        self.whole = whole;
    }

    /// Returns whether names here are too long for fields.
    fn is_long(&self) -> bool {
        self.path_bytes > NAME_BYTES_MAX
    }

    fn is_full(&self) -> bool {
        self.bytes > BYTES_MAX
    }

    /// Documents are nested no deeper than JSON may be.
    fn value(&mut self, text: &[u8]) {
        if self.is_full() {
            return;
        }
        match Kind::of(text) {
            Kind::Object => {
                self.note_empty("object", members(text).next().is_none());
                for (name, value) in members(text) {
                    self.member(&name, value);
                }
            }
            Kind::Array => {
                self.note_empty("array", Elements::of(text).next().is_none());
                let end = self.path.len();
                push_name(ELEMENTS, &mut self.path);
                if self.definition.array_lengths && !self.is_long() {
                    let length = Elements::of(text).count() as f64;
                    let name = self.name("length");
                    self.put(name, Value::Number(length));
                }
                for value in Elements::of(text) {
                    self.value(value);
                }
                self.path.truncate(end);
            }
            kind => self.scalar(kind, text),
        }
    }

    fn scalar(&mut self, kind: Kind, text: &[u8]) {
        if self.fields.is_some() && self.path.len() > NAME_BYTES_MAX {
            return;
        }
        match kind {
            Kind::String if self.is_long() => {
                if self.definition.has_default
                    && self.fields.is_none()
                    && let Some(text) = string(text)
                {
                    self.bytes += text.len() + FIELD_BYTES;
                    self.default.push(text.into_owned());
                }
            }
            _ if self.is_long() => {}
            Kind::String => {
                let name = self.name("string");
                if let Some(text) = string(text)
                    && self.is_wanted(&name, "string")
                {
                    if self.definition.has_default && self.is_named(&name) {
                        self.bytes += text.len() + FIELD_BYTES;
                        self.default.push(text.clone().into_owned());
                    }
                    // The truncated text is longer than any exact query.
                    let end = text.floor_char_boundary(WORD_BYTES_MAX + 8);
                    self.put(name, Value::Text(text[..end].to_owned()));
                }
            }
            Kind::Number => {
                let name = self.name("number");
                if let Some(number) = number_of(text)
                    && self.is_wanted(&name, "number")
                {
                    self.put(name, Value::Number(number));
                }
            }
            Kind::True | Kind::False => {
                let name = self.name("boolean");
                if self.is_wanted(&name, "boolean") {
                    self.put(
                        name,
                        Value::Text(String::from_utf8_lossy(text).into_owned()),
                    );
                }
            }
            Kind::Null => {
                let name = self.name("null");
                if self.is_wanted(&name, "null") {
                    self.put(name, Value::Text("true".to_owned()));
                }
            }
            Kind::Object | Kind::Array => {}
        }
    }

    fn name(&self, kind: &str) -> String {
        format!("{}_3a{kind}", self.path)
    }

    /// Returns whether the definition names the field, or has all.
    fn is_named(&self, name: &str) -> bool {
        self.fields
            .as_ref()
            .is_none_or(|fields| fields.contains(name))
    }

    /// Returns whether the field, or its array, is named.
    fn is_wanted(&self, name: &str, kind: &str) -> bool {
        self.is_named(name) || self.is_named(&format!("{}_3a{kind}", &self.path[..self.whole]))
    }

    fn note_empty(&mut self, kind: &str, is_empty: bool) {
        if is_empty && self.definition.fields.is_none() && !self.is_long() {
            let name = self.name(kind);
            self.note_name(name);
        }
    }

    fn note_name(&mut self, name: String) {
        self.bytes += name.len() + FIELD_BYTES;
        self.empty.push(name);
    }

    fn put(&mut self, name: String, value: Value) {
        let length = match &value {
            Value::Text(text) => text.len(),
            Value::Number(_) => 0,
        };
        self.bytes += name.len() + length + FIELD_BYTES;
        self.found.push(Entry { name, value });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;
    use crate::text::TextKind;

    fn shown(definition: &str, document: &str) -> Vec<String> {
        let definition =
            TextDefinition::read(TextKind::Text, definition.as_bytes(), &Limits::default())
                .unwrap();
        let all = entries(&definition, members(document.as_bytes()));
        let shown = all.into_iter().map(|entry| match entry.value {
            Value::Text(text) => format!("{} {text}", entry.name),
            Value::Number(n) => format!("{} {n}", entry.name),
        });
        shown.collect()
    }

    #[test]
    fn all_values_are_there_by_path_and_type() {
        assert_eq!(
            shown(
                r#"{"default_field":{"enabled":false}}"#,
                r#"{"a.b":{"c":1.5},"l":[true,"x"],"n":null}"#
            ),
            [
                "$fieldnames a_2eb.c_3anumber",
                "$fieldnames l._5b_5d_3aboolean",
                "$fieldnames l._5b_5d_3alength",
                "$fieldnames l._5b_5d_3astring",
                "$fieldnames n_3anull",
                "a_2eb.c_3anumber 1.5",
                "l._5b_5d_3alength 2",
                "l._5b_5d_3aboolean true",
                "l._5b_5d_3astring x",
                "n_3anull true",
            ]
        );
    }

    #[test]
    fn long_names_and_many_values_cost_no_more_than_their_bounds() {
        let definition = TextDefinition::read(TextKind::Text, b"{}", &Limits::default()).unwrap();
        let found = |name_bytes: usize, values: usize| {
            let document = format!(
                "{{\"{}\":[{}]}}",
                "a".repeat(name_bytes),
                vec!["\"x\""; values].join(",")
            );
            entries(&definition, members(document.as_bytes()))
        };
        // The name once, truncated, and each string for `$default`.
        let long = found(1 << 20, 1000);
        assert_eq!(long.len(), 1001);
        assert_eq!(long[0].name, "$fieldnames");
        assert_eq!(long[0].value, Value::Text("a".repeat(NAME_BYTES_MAX)));
        assert_eq!(found(4000, 100_000), vec![]);
        assert_eq!(found(4000, 100).len(), 203);
    }

    #[test]
    fn an_index_of_fields_has_the_elements_of_arrays_in_arrays() {
        let definition = r#"{"fields":[{"name":"a","type":"number"},{"name":"b.c","type":"string"}],"index_array_lengths":false,"default_field":false}"#;
        let deep = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(
            shown(
                definition,
                &format!(r#"{{"a":{},"b":[{{"c":"x"}}],"d":[1]}}"#, deep(2))
            ),
            [
                "$fieldnames a._5b_5d._5b_5d_3anumber",
                "a._5b_5d._5b_5d_3anumber 1"
            ]
        );
        // Its name is too long for an index.
        let document = format!(r#"{{"a":{},"b":{{"c":["x"]}}}}"#, deep(900));
        assert_eq!(
            shown(definition, &document),
            ["$fieldnames b.c._5b_5d_3astring", "b.c._5b_5d_3astring x"]
        );
    }

    #[test]
    fn an_index_of_fields_has_only_these() {
        assert_eq!(
            shown(
                r#"{"fields":[{"name":"a","type":"string"},{"name":"b.c","type":"number"}],"index_array_lengths":false}"#,
                r#"{"a":"x","b":{"c":2,"d":3},"e":[1]}"#
            ),
            [
                "$fieldnames a_3astring",
                "$fieldnames b.c_3anumber",
                "$default x",
                "a_3astring x",
                "b.c_3anumber 2",
            ]
        );
    }
}
