use document::write_json_string;
use serde_json::Value;

use crate::error::SelectorError;
use crate::lift::{Doc, Found, Lifter, Slot};
use crate::path::FieldPath;

/// The `fields` option: which fields of a document are given back.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    /// As they are written, in the order of the option.
    names: Vec<String>,
    lifter: Lifter,
    members: Vec<Member>,
}

/// A member of the projection.
#[derive(Clone, Debug)]
struct Member {
    name: String,
    slot: Option<usize>,
    below: Vec<Member>,
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
        let mut fields = Fields::default();
        for name in names {
            let Value::String(name) = name else {
                return Err(SelectorError::InvalidField(name.clone()));
            };
            let path = FieldPath::parse(name)?;
            fields.names.push(name.clone());
            let slot = fields.lifter.add(&path);
            insert(&mut fields.members, path.parts(), slot);
        }
        Ok(fields)
    }

    /// Whether every field is given back.
    pub fn is_all(&self) -> bool {
        self.names.is_empty()
    }

    /// The asked-for fields as they were written; empty for all fields.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The asked-for fields, each once; empty for all fields.
    pub fn paths(&self) -> &[FieldPath] {
        self.lifter.paths()
    }

    /// Appends the document with only these fields. A field that the document has not is left out. Elements of arrays come
    /// back as members (`arr.0` gives `{"arr":{"0":1}}`), as in CouchDB.
    pub fn write(&self, doc: &Doc<'_>, out: &mut Vec<u8>) {
        let mut slots: Vec<Slot> = Vec::with_capacity(self.paths().len());
        self.lifter.lift(doc, &mut slots);
        self.write_found(&|slot| slots[slot].of(doc), out);
    }

    /// The same of values that were found already, in the order of [`Fields::paths`].
    pub fn write_found<'a>(&self, found: &dyn Fn(usize) -> Found<'a>, out: &mut Vec<u8>) {
        out.push(b'{');
        write_members(&self.members, found, out);
        out.push(b'}');
    }

    /// The document with only these fields; all of it for all fields.
    pub fn project(&self, document: &Value) -> Value {
        if self.is_all() {
            return document.clone();
        }
        let mut out = vec![];
        self.write(&Doc::whole(document.to_string().as_bytes()), &mut out);
        serde_json::from_slice(&out).unwrap_or_default()
    }
}

fn insert(members: &mut Vec<Member>, parts: &[String], slot: usize) {
    let Some((name, rest)) = parts.split_first() else {
        return;
    };
    let at = match members.iter().position(|m| m.name == *name) {
        Some(at) => at,
        None => {
            members.push(Member {
                name: name.clone(),
                slot: None,
                below: vec![],
            });
            members.len() - 1
        }
    };
    match rest {
        [] => members[at].slot = Some(slot),
        rest => insert(&mut members[at].below, rest, slot),
    }
}

/// Whether a part of the member was found.
fn is_found<'a>(member: &Member, found: &dyn Fn(usize) -> Found<'a>) -> bool {
    let own = member.slot.map(found);
    matches!(own, Some(Found::Value(_))) || member.below.iter().any(|m| is_found(m, found))
}

fn write_members<'a>(members: &[Member], found: &dyn Fn(usize) -> Found<'a>, out: &mut Vec<u8>) {
    let mut first = true;
    for member in members.iter().filter(|m| is_found(m, found)) {
        if !std::mem::take(&mut first) {
            out.push(b',');
        }
        write_json_string(&member.name, out);
        out.push(b':');
        // A whole value has its parts in it.
        if let Some(Found::Value(text)) = member.slot.map(found) {
            out.extend_from_slice(text);
            continue;
        }
        out.push(b'{');
        write_members(&member.below, found, out);
        out.push(b'}');
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
