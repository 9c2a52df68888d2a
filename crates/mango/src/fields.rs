use serde_json::{Map, Value};

use crate::error::SelectorError;
use crate::path::FieldPath;

/// The `fields` option: which fields of a document are given back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    paths: Vec<FieldPath>,
}

impl Fields {
    /// Reads the option. An empty array stands for all fields.
    ///
    /// # Errors
    ///
    /// [`SelectorError::FieldsNotAnArray`], [`SelectorError::InvalidField`] for a member that is not a string,
    /// [`SelectorError::InvalidFieldName`] for a name with an empty part.
    pub fn parse(value: &Value) -> Result<Self, SelectorError> {
        let names = value
            .as_array()
            .ok_or_else(|| SelectorError::FieldsNotAnArray(value.clone()))?;
        let paths = names.iter().map(|name| match name {
            Value::String(name) => FieldPath::parse(name),
            other => Err(SelectorError::InvalidField(other.clone())),
        });
        Ok(Self {
            paths: paths.collect::<Result<_, _>>()?,
        })
    }

    /// Whether every field is given back.
    pub fn is_all(&self) -> bool {
        self.paths.is_empty()
    }

    /// The asked-for fields, in the order of the option; empty for all fields.
    pub fn paths(&self) -> &[FieldPath] {
        &self.paths
    }

    /// The document with only these fields.
    pub fn project(&self, document: &Value) -> Value {
        if self.is_all() {
            document.clone()
        } else {
            project(&self.paths, document)
        }
    }
}

/// The document with only the given fields; none for no fields. A field that the document has not is left out. Elements of
/// arrays come back as members (`arr.0` gives `{"arr":{"0":1}}`), as in CouchDB.
pub fn project(fields: &[FieldPath], document: &Value) -> Value {
    let mut projection = Map::new();
    for path in fields {
        if let Some(value) = path.value(document) {
            insert(&mut projection, path.parts(), value);
        }
    }
    Value::Object(projection)
}

/// Puts the value at the path. Where something other than an object stands in the way, a field above it was asked for as
/// well and has brought the whole value already.
fn insert(target: &mut Map<String, Value>, parts: &[String], value: &Value) {
    let Some((part, rest)) = parts.split_first() else {
        return;
    };
    if rest.is_empty() {
        target.insert(part.clone(), value.clone());
        return;
    }
    let inner = target
        .entry(part)
        .or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(inner) = inner {
        insert(inner, rest, value);
    }
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
