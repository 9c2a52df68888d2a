//! Text indexes: their definitions, their entries, and the queries of selectors.

mod convert;
mod cover;
mod entries;
mod path;

pub(crate) use convert::fields_needed;
pub use convert::{SORT_FIELDS_MAX, default_query, lucene_query, sort_fields};
pub use cover::{Cover, HitCondition, text_nodes_in_or};
pub use entries::{Entry, Value as EntryValue, entries};
pub use path::CLAUSES_MAX;

use serde_json::Value;

use crate::error::{FindError, SelectorError};
use crate::json::{self, Kind, members, object, shown, string, text_of};
use crate::limits::Limits;
use crate::options::boolean;
use crate::selector::Selector;

/// The full-text search of CouchDB that an index belongs to; here both use one engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextKind {
    /// `text`, of Clouseau.
    Text,
    /// `nouveau`
    Nouveau,
}

impl TextKind {
    /// Both, in CouchDB's order of preference.
    pub const ALL: [TextKind; 2] = [TextKind::Text, TextKind::Nouveau];

    /// Returns its type for `_index`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            TextKind::Text => "text",
            TextKind::Nouveau => "nouveau",
        }
    }

    /// Returns the member of design documents with its indexes.
    #[must_use]
    pub fn member(self) -> &'static str {
        match self {
            TextKind::Text => "indexes",
            TextKind::Nouveau => "nouveau",
        }
    }
}

/// The definition of a text index.
#[derive(Clone, Debug)]
pub struct TextDefinition {
    /// Its kind.
    pub kind: TextKind,
    /// The indexed fields with their types; `None`: all.
    pub fields: Option<Vec<(String, FieldType)>>,
    /// Whether all strings are in `$default`.
    pub has_default: bool,
    /// Whether arrays have a field of their length.
    pub array_lengths: bool,
    /// The filter of its documents: as written, and parsed. `None`: all.
    pub partial: Option<(Box<[u8]>, Selector)>,
    /// As JSON text, in the form of `_index` and `_explain`.
    shown: Vec<u8>,
}

/// The type of a field of a text index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FieldType {
    /// Strings.
    String,
    /// Numbers.
    Number,
    /// Booleans.
    Boolean,
    /// Strings, under the name that only indexes of type `nouveau` use.
    Text,
}

impl FieldType {
    /// Returns its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            FieldType::String => "string",
            FieldType::Number => "number",
            FieldType::Boolean => "boolean",
            FieldType::Text => "text",
        }
    }

    /// Returns the type of its field in an index.
    pub(crate) fn indexed(self) -> &'static str {
        match self {
            FieldType::Text => "string",
            other => other.name(),
        }
    }

    fn of(name: &str, kind: TextKind) -> Option<FieldType> {
        match name {
            "text" if kind == TextKind::Nouveau => Some(FieldType::Text),
            "string" => Some(FieldType::String),
            "number" => Some(FieldType::Number),
            "boolean" => Some(FieldType::Boolean),
            _ => None,
        }
    }
}

/// The members of a definition, in CouchDB's order.
const MEMBERS: [(&str, &str); 6] = [
    ("default_analyzer", "\"keyword\""),
    ("default_field", "{}"),
    ("partial_filter_selector", "{}"),
    ("selector", "{}"),
    ("fields", "[]"),
    ("index_array_lengths", "true"),
];

/// The value of `fields` when all fields are indexed.
const ALL_FIELDS: &[u8] = b"\"all_fields\"";

impl TextDefinition {
    /// Parses the `index` of a design document, or of a request: a normalised text.
    ///
    /// # Errors
    /// Any [`FindError`] of an index's definition.
    pub fn read(kind: TextKind, written: &[u8], limits: &Limits) -> Result<Self, FindError> {
        if Kind::of(written) != Kind::Object {
            return Err(FindError::InvalidIndexText(shown(written)));
        }
        let is_known = |name: &str| MEMBERS.iter().any(|(known, _)| *known == name);
        if let Some((name, _)) = members(written).find(|(name, _)| !is_known(name)) {
            return Err(FindError::InvalidKey(name));
        }
        let all = normal(written);
        let member = |name: &str| {
            let found = all.iter().find(|(n, _)| *n == name);
            found.map_or(&b"null"[..], |(_, value)| value.as_slice())
        };
        let fields = fields_of(member("fields"), kind)?;
        let array_lengths = boolean(&shown(member("index_array_lengths")))?;
        let selector = |name: &'static str| -> Result<Selector, FindError> {
            Ok(Selector::read(member(name), limits)?)
        };
        let (partial, old) = (selector("partial_filter_selector")?, selector("selector")?);
        let partial = [("partial_filter_selector", partial), ("selector", old)]
            .into_iter()
            .find(|(_, selector)| !selector.is_everything())
            .map(|(name, selector)| (member(name).into(), selector));
        Ok(TextDefinition {
            kind,
            has_default: has_default(&shown(member("default_field"))),
            array_lengths,
            partial,
            shown: shown_as(&all, fields.as_deref()),
            fields,
        })
    }

    /// Returns it as JSON text, in the form of `_index` and `_explain`.
    #[must_use]
    pub fn to_json(&self) -> &[u8] {
        &self.shown
    }

    /// Returns the member of a design document for an index with this definition.
    pub(crate) fn design_member(written: &[u8]) -> Vec<u8> {
        let all = normal(written);
        let member = |name: &str| all.iter().find(|(n, _)| *n == name).map(|(_, v)| shown(v));
        let default = member("default_field").unwrap_or_default();
        let analyzer = match has_default(&default) {
            false => Value::from("keyword"),
            true => serde_json::json!({
                "name": "perfield",
                "default": member("default_analyzer"),
                "fields": {"$default": default.get("analyzer").cloned().unwrap_or_else(|| "standard".into())},
            }),
        };
        object(&[("index", object(&all)), ("analyzer", text_of(&analyzer))])
    }
}

/// Returns all members of a definition, missing ones with their defaults.
fn normal(written: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let value = |name: &str, default: &str| match json::member(written, name) {
        None => default.as_bytes().to_vec(),
        Some(value) => value.to_vec(),
    };
    let all = MEMBERS.iter().map(|(name, default)| {
        let value = value(name, default);
        match (*name, value.as_slice()) {
            ("fields", b"[]") => (*name, ALL_FIELDS.to_vec()),
            _ => (*name, value),
        }
    });
    all.collect()
}

/// Returns the displayed form of the definition.
fn shown_as(all: &[(&'static str, Vec<u8>)], fields: Option<&[(String, FieldType)]>) -> Vec<u8> {
    let shown = all.iter().filter_map(|(name, value)| match *name {
        "partial_filter_selector" if value == b"{}" => None,
        "fields" => {
            let fields = fields.unwrap_or_default().iter();
            let list: Value = fields
                .map(|(name, kind)| serde_json::json!({ name.as_str(): kind.name() }))
                .collect();
            Some((*name, text_of(&list)))
        }
        _ => Some((*name, value.clone())),
    });
    object(&shown.collect::<Vec<_>>())
}

fn has_default(written: &Value) -> bool {
    match written {
        Value::Bool(enabled) => *enabled,
        other => other.get("enabled") != Some(&Value::Bool(false)),
    }
}

/// Parses `[{"name": "a", "type": "string"}]`; an empty list is all fields.
fn fields_of(
    written: &[u8],
    kind: TextKind,
) -> Result<Option<Vec<(String, FieldType)>>, FindError> {
    if written == ALL_FIELDS {
        return Ok(None);
    }
    let refused = || FindError::InvalidFieldsDefinition(shown(written));
    if Kind::of(written) != Kind::Array {
        return Err(refused());
    }
    let field = |text: &[u8]| -> Option<(String, FieldType)> {
        if Kind::of(text) != Kind::Object || members(text).count() != 2 {
            return None;
        }
        let name = json::member(text, "name").and_then(string)?;
        let kind = FieldType::of(&json::member(text, "type").and_then(string)?, kind)?;
        (!name.is_empty()).then(|| (name.into_owned(), kind))
    };
    let fields = json::Elements::of(written).map(|text| field(text).ok_or_else(refused));
    Ok(Some(fields.collect::<Result<_, _>>()?))
}

/// Escapes all bytes of a part of a name except letters and digits as `_hh`, as CouchDB does.
fn escape(part: &str, out: &mut String) {
    for byte in part.bytes() {
        if byte.is_ascii_alphanumeric() {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("_{byte:02x}"));
        }
    }
}

/// Returns the name of a field of a text index: the parts of a path, and the kind of its value.
pub(crate) fn field_name<'a>(parts: impl Iterator<Item = &'a str>, kind: &str) -> String {
    let mut name = path_name(parts);
    name.push_str("_3a");
    name.push_str(kind);
    name
}

fn path_name<'a>(parts: impl Iterator<Item = &'a str>) -> String {
    let mut name = String::new();
    parts.for_each(|part| push_name(part, &mut name));
    name
}

/// Appends a part of a path to its name.
fn push_name(part: &str, name: &mut String) {
    if !name.is_empty() {
        name.push('.');
    }
    match part {
        // CouchDB leaves it out, so that two fields have one name.
        "" => name.push('_'),
        part => escape(part, name),
    }
}

/// The part of a path that stands for the elements of an array.
const ELEMENTS: &str = "[]";

/// Longer names of fields are truncated in an index, and have no values. In bytes.
const NAME_BYTES_MAX: usize = 4096;

/// Returns the path of the array of an element path. An index of a field also has its elements, so
/// that it finds the matches of `$in`.
fn whole_array<S: AsRef<str>>(path: &[S]) -> &[S] {
    let end = path.iter().rposition(|part| part.as_ref() != ELEMENTS);
    &path[..end.map_or(0, |at| at + 1)]
}

/// Returns the stored number: those beyond the range of doubles become the greatest.
fn number_of(text: &[u8]) -> Option<f64> {
    let number: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    Some(number.clamp(f64::MIN, f64::MAX))
}

/// Returns the name of a field from a definition.
fn defined_name(name: &str, kind: FieldType) -> Result<String, SelectorError> {
    let path = crate::FieldPath::parse(name)?;
    Ok(field_name(path.parts(), kind.indexed()))
}

/// A sort field of hits, under CouchDB's names of fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortField {
    /// The field of the index.
    pub field: String,
    /// Whether it has numbers.
    pub is_number: bool,
    /// Whether the greatest come first.
    pub descending: bool,
}
