//! What a text index holds of a document: each value under the name of its path and type, all strings once more, and the names
//! themselves.

use std::collections::{BTreeSet, HashSet};

use super::{ELEMENTS, TextDefinition, defined_name, field_name, number_of, whole_array};
use crate::json::{Elements, Kind, members, string};

/// A field of a document in a text index.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// What it holds.
    pub value: Value,
}

/// What a field holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A string; a boolean is its name, and null `true`.
    Text(String),
    /// A number.
    Number(f64),
}

/// The fields that an index has of a document, whose members are texts of JSON values by name.
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
        path: vec![],
        found: vec![],
        default: vec![],
        empty: vec![],
    };
    for (name, value) in document {
        reader.member(&name, value);
    }
    let Reader {
        mut found,
        default,
        empty,
        ..
    } = reader;
    let all = found.iter().map(|entry| &entry.name).chain(&empty);
    // All of a name is ASCII.
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

/// Of longer names of fields only the beginning is there, and no values: no selector has such.
const NAME_BYTES_MAX: usize = 4096;

struct Reader<'a> {
    definition: &'a TextDefinition,
    fields: Option<HashSet<String>>,
    path: Vec<String>,
    found: Vec<Entry>,
    default: Vec<String>,
    /// Names of objects and arrays without anything in them, which are there nevertheless.
    empty: Vec<String>,
}

impl Reader<'_> {
    fn member(&mut self, name: &str, value: &[u8]) {
        self.path.push(name.to_owned());
        self.value(value);
        self.path.pop();
    }

    /// Documents are nested no deeper than JSON may be.
    fn value(&mut self, text: &[u8]) {
        match Kind::of(text) {
            Kind::Object => {
                self.note_empty("object", members(text).next().is_none());
                for (name, value) in members(text) {
                    self.member(&name, value);
                }
            }
            Kind::Array => {
                self.note_empty("array", Elements::of(text).next().is_none());
                self.path.push(ELEMENTS.to_owned());
                if self.definition.array_lengths {
                    let length = Elements::of(text).count() as f64;
                    let name = self.name("length");
                    self.put(name, Value::Number(length));
                }
                for value in Elements::of(text) {
                    self.value(value);
                }
                self.path.pop();
            }
            Kind::String => {
                let name = self.name("string");
                if let Some(text) = string(text)
                    && self.is_wanted(&name, "string")
                {
                    if self.definition.has_default && self.is_named(&name) {
                        self.default.push(text.clone().into_owned());
                    }
                    self.put(name, Value::Text(text.into_owned()));
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
        }
    }

    fn name(&self, kind: &str) -> String {
        field_name(self.path.iter().map(String::as_str), kind)
    }

    /// Whether the definition names the field, or has all.
    fn is_named(&self, name: &str) -> bool {
        self.fields
            .as_ref()
            .is_none_or(|fields| fields.contains(name))
    }

    /// Whether the field, or the array that it is of, is named.
    fn is_wanted(&self, name: &str, kind: &str) -> bool {
        self.is_named(name)
            || self.is_named(&field_name(
                whole_array(&self.path).iter().map(String::as_str),
                kind,
            ))
    }

    fn note_empty(&mut self, kind: &str, is_empty: bool) {
        if is_empty && self.definition.fields.is_none() {
            let name = self.name(kind);
            self.empty.push(name);
        }
    }

    fn put(&mut self, name: String, value: Value) {
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
