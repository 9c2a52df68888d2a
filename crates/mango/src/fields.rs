use document::write_json_string;
use serde_json::Value;

use crate::error::SelectorError;
use crate::lift::{Branch, Doc, FoundSpan, LiftedValue, Lifter};
use crate::path::FieldPath;

/// Maximum number of names in `fields`.
pub const FIELDS_MAX: usize = 10_000;

/// The `fields` option: the fields of a document to return.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    /// As written, in the order of the option.
    names: Vec<String>,
    lifter: Lifter,
}

impl Fields {
    /// Parses the option. An empty array stands for all fields.
    ///
    /// # Errors
    ///
    /// [`SelectorError::FieldsNotAnArray`], [`SelectorError::TooManyFields`],
    /// [`SelectorError::TooManyParts`], [`SelectorError::InvalidField`] for a member that is not a
    /// string, [`SelectorError::InvalidFieldName`] for a name with an empty part.
    pub fn parse(value: &Value) -> Result<Self, SelectorError> {
        let names = value
            .as_array()
            .ok_or_else(|| SelectorError::FieldsNotAnArray(value.clone()))?;
        if names.len() > FIELDS_MAX {
            return Err(SelectorError::TooManyFields(FIELDS_MAX));
        }
        let mut fields = Fields::default();
        for name in names {
            let Value::String(name) = name else {
                return Err(SelectorError::InvalidField(name.clone()));
            };
            let path = FieldPath::parse(name)?;
            fields.names.push(name.clone());
            fields.lifter.try_add(&path)?;
        }
        Ok(fields)
    }

    /// Returns whether all fields are returned.
    pub fn is_all(&self) -> bool {
        self.names.is_empty()
    }

    /// Returns the fields as they were written; empty for all fields.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the fields, each once; empty for all fields.
    pub fn paths(&self) -> &[FieldPath] {
        self.lifter.paths()
    }

    /// Appends the document with only these fields. Missing fields are left out. Elements of arrays
    /// become members (`arr.0` gives `{"arr":{"0":1}}`), as in CouchDB.
    pub fn write(&self, doc: &Doc<'_>, out: &mut Vec<u8>) {
        let mut spans: Vec<FoundSpan> = Vec::with_capacity(self.paths().len());
        self.lifter.lift(doc, &mut spans);
        self.write_found(&|span| spans[span].of(doc), out);
    }

    /// Appends the document with only these fields, given their values in the order of
    /// [`Fields::paths`].
    pub fn write_found<'a>(&self, found: &dyn Fn(usize) -> LiftedValue<'a>, out: &mut Vec<u8>) {
        out.push(b'{');
        write_members(self.lifter.branches(), found, out);
        out.push(b'}');
    }

    /// Returns the document with only these fields, or all of it.
    pub fn project(&self, document: &Value) -> Value {
        if self.is_all() {
            return document.clone();
        }
        let mut out = vec![];
        self.write(&Doc::whole(document.to_string().as_bytes()), &mut out);
        serde_json::from_slice(&out).unwrap_or_default()
    }
}

/// Appends the members of these branches that were found; returns whether there are any.
fn write_members<'a>(
    branches: &[Branch],
    found: &dyn Fn(usize) -> LiftedValue<'a>,
    out: &mut Vec<u8>,
) -> bool {
    let mut any = false;
    for branch in branches {
        let start = out.len();
        if any {
            out.push(b',');
        }
        write_json_string(&branch.name, out);
        out.push(b':');
        // A whole value contains its parts.
        let is_found = match branch.span.map(found) {
            Some(LiftedValue::Value(text)) => {
                out.extend_from_slice(text);
                true
            }
            _ => {
                out.push(b'{');
                let is_found = write_members(branch.below(), found, out);
                out.push(b'}');
                is_found
            }
        };
        if is_found {
            any = true;
        } else {
            out.truncate(start);
        }
    }
    any
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn projected(fields: Value, document: Value) -> Value {
        Fields::parse(&fields).unwrap().project(&document)
    }

    #[test]
    fn a_nested_field_keeps_the_objects_around_it() {
        let document =
            json!({"_id": "a", "_rev": "1-a", "arr": [1, 2], "o": {"x": 1, "y": {"z": "deep"}}});
        assert_eq!(
            projected(json!(["o.y.z", "arr.0", "nope", "_rev"]), document),
            json!({"o": {"y": {"z": "deep"}}, "arr": {"0": 1}, "_rev": "1-a"})
        );
    }

    #[test]
    fn an_escaped_dot_belongs_to_the_name() {
        assert_eq!(
            projected(json!(["a\\.b", "a.b"]), json!({"a.b": 5})),
            json!({"a.b": 5})
        );
    }

    #[test]
    fn no_fields_are_all_fields() {
        assert_eq!(projected(json!([]), json!({"a": 1})), json!({"a": 1}));
    }

    #[test]
    fn a_field_and_its_part_give_the_field() {
        let document = json!({"a": [1, 2], "b": {"c": 1, "d": 2}});
        assert_eq!(
            projected(json!(["a", "a.0", "b.c", "b"]), document.clone()),
            document
        );
    }

    #[test]
    fn anything_but_an_array_of_names_is_refused() {
        let error = Fields::parse(&json!("x")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "Selector error: fields must be JSON array"
        );
        assert_eq!(
            (error.error(), error.find_error()),
            ("bad_request", "invalid_fields")
        );
        let error = Fields::parse(&json!([1])).unwrap_err();
        assert_eq!(error.find_reason(), "Invalid JSON for field spec: 1");
        assert_eq!(error.find_error(), "invalid_field");
    }
}
