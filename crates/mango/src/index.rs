//! Indexes: their definitions, their names, and the design documents that hold them.

use document::body_term;
use serde_json::{Map, Value, json};
use sha1::{Digest, Sha1};

use crate::error::{FindError, SelectorError};
use crate::limits::Limits;
use crate::options::{boolean, positive};
use crate::path::FieldPath;
use crate::selector::Selector;
use crate::sort::Sort;

/// The language of design documents that hold indexes.
pub const LANGUAGE: &str = "query";

/// An index that a query may use.
#[derive(Clone, Debug)]
pub struct Index {
    /// `_design/…`; `None` of the index of all documents by id.
    pub ddoc: Option<String>,
    /// Its name in the design document.
    pub name: String,
    /// What is in it.
    pub definition: Definition,
    /// Whether rows are ordered by partition first.
    pub partitioned: bool,
}

/// The documents and fields of an index.
#[derive(Clone, Debug)]
pub struct Definition {
    /// The fields, in the order of keys.
    pub fields: Sort,
    /// The same, read.
    pub paths: Vec<FieldPath>,
    /// Which documents are in it: as it is written, and read. `None`: all that have the fields.
    pub partial: Option<(Value, Selector)>,
}

impl Definition {
    /// Reads what a design document has in `map`: `{"fields": {"a": "asc"}, "partial_filter_selector": {}}`.
    ///
    /// # Errors
    /// [`FindError::MissingKey`], [`FindError::InvalidSort`], [`FindError::Selector`].
    pub fn from_map(map: &Value, limits: &Limits) -> Result<Definition, FindError> {
        let fields = map.get("fields").ok_or(FindError::MissingKey("fields"))?;
        let sort = Sort::from_object(fields);
        let fields = sort.ok_or_else(|| FindError::InvalidSort(fields.clone()))?;
        // Before CouchDB 2.1 it was called `selector`.
        let partial = map.get("partial_filter_selector");
        Self::new(fields, partial.or(map.get("selector")), limits)
    }

    fn new(
        fields: Sort,
        partial: Option<&Value>,
        limits: &Limits,
    ) -> Result<Definition, FindError> {
        let paths = fields.names().map(FieldPath::parse);
        let paths = paths.collect::<Result<_, SelectorError>>()?;
        let partial = match partial {
            None => None,
            Some(Value::Object(members)) if members.is_empty() => None,
            Some(value) => Some((value.clone(), Selector::parse_within(value, limits)?)),
        };
        Ok(Definition {
            fields,
            paths,
            partial,
        })
    }

    fn to_json(&self) -> Value {
        let mut json = json!({"fields": self.fields.to_list()});
        if let Some((written, _)) = &self.partial {
            json["partial_filter_selector"] = written.clone();
        }
        json
    }
}

impl Index {
    /// The index that every database has: all documents by id.
    pub fn all_docs() -> Index {
        let fields = Sort {
            fields: vec![("_id".to_owned(), crate::sort::Direction::Ascending)],
        };
        Index {
            ddoc: None,
            name: "_all_docs".to_owned(),
            definition: Definition {
                paths: FieldPath::parse("_id").into_iter().collect(),
                fields,
                partial: None,
            },
            partitioned: false,
        }
    }

    /// Whether this is the index of all documents.
    pub fn is_special(&self) -> bool {
        self.ddoc.is_none()
    }

    /// The indexes of a design document in the order of its views; what is none is left out. `partitioned`: of the database.
    pub fn of_design(ddoc: &Value, partitioned: bool, limits: &Limits) -> Vec<Index> {
        if ddoc["language"] != LANGUAGE {
            return vec![];
        }
        let partitioned = partitioned && ddoc["options"]["partitioned"].as_bool().unwrap_or(true);
        let views = ddoc["views"].as_object().into_iter().flatten();
        let index = |(name, view): (&String, &Value)| {
            view["options"].as_object()?;
            Some(Index {
                ddoc: Some(ddoc["_id"].as_str()?.to_owned()),
                name: name.clone(),
                definition: Definition::from_map(&view["map"], limits).ok()?,
                partitioned,
            })
        };
        views.filter_map(index).collect()
    }

    /// As `_index` and `_explain` show it.
    pub fn to_json(&self) -> Value {
        if self.is_special() {
            return json!({
                "ddoc": null, "name": self.name, "type": "special", "def": self.definition.to_json(),
            });
        }
        json!({
            "ddoc": self.ddoc,
            "name": self.name,
            "type": "json",
            "partitioned": self.partitioned,
            "def": self.definition.to_json(),
        })
    }

    /// The name as it orders indexes: the one of all documents first.
    pub fn order(&self) -> (Option<&str>, &str) {
        (self.ddoc.as_deref(), &self.name)
    }
}

/// The body of a POST to `_index`.
#[derive(Clone, Debug)]
pub struct NewIndex {
    /// `_design/…`
    pub ddoc: String,
    /// The index's name.
    pub name: String,
    /// Copies that have to be written; there is one.
    pub w: u64,
    partitioned: Option<bool>,
    definition: Definition,
    written: Value,
}

impl NewIndex {
    /// Reads a body.
    ///
    /// # Errors
    /// Any [`FindError`] of an index's definition.
    pub fn parse(body: &Map<String, Value>, limits: &Limits) -> Result<NewIndex, FindError> {
        let mut body = body.clone();
        let mut take = |name: &str| body.shift_remove(name);
        let written = take("index").ok_or(FindError::MissingKey("index"))?;
        let kind = match take("type") {
            None => "json".to_owned(),
            Some(Value::String(kind)) => kind,
            Some(other) => return Err(FindError::InvalidString(other)),
        };
        let mut name = |member: &str| match take(member) {
            None => Ok(None),
            Some(Value::String(s)) if s.is_empty() => Err(FindError::EmptyString),
            Some(Value::String(s)) => Ok(Some(s)),
            Some(other) => Err(FindError::InvalidString(other)),
        };
        let (index, ddoc) = (name("name")?, name("ddoc")?);
        let w = take("w").map_or(Ok(2), |w| positive(&w))?;
        let partitioned = match take("partitioned") {
            None => None,
            Some(Value::Bool(p)) => Some(p),
            Some(other) => return Err(FindError::InvalidPartitioned(other)),
        };
        if let Some((name, _)) = body.iter().next() {
            return Err(FindError::InvalidKey(name.clone()));
        }
        match kind.as_str() {
            "json" => {}
            "text" => return Err(FindError::ServiceUnavailable("text")),
            "nouveau" => return Err(FindError::ServiceUnavailable("nouveau")),
            _ => return Err(FindError::InvalidIndexType(kind)),
        }
        let made_up = || made_up_name(&written, &index, &ddoc, partitioned, w);
        let definition = define(&written, limits)?;
        Ok(NewIndex {
            name: index.clone().unwrap_or_else(made_up),
            ddoc: match &ddoc {
                Some(id) if id.starts_with("_design/") => id.clone(),
                Some(id) => format!("_design/{id}"),
                None => format!("_design/{}", made_up()),
            },
            w,
            partitioned,
            definition,
            written,
        })
    }

    /// The design document with this index in it: its members without `_id` and `_rev`. `old`: the same of the present one;
    /// `None` where there is none. `None` when the index is in it already.
    ///
    /// # Errors
    /// [`FindError::DesignLanguage`], [`FindError::PartitionedMismatch`].
    pub fn add_to(
        &self,
        old: Option<&Map<String, Value>>,
    ) -> Result<Option<Map<String, Value>>, FindError> {
        let mut ddoc = match old {
            Some(old) => {
                let language = old.get("language").unwrap_or(&Value::Null);
                if language != LANGUAGE {
                    return Err(FindError::DesignLanguage(language.clone()));
                }
                old.clone()
            }
            None => Map::from_iter([("language".to_owned(), Value::from(LANGUAGE))]),
        };
        let partial = self.definition.partial.as_ref();
        let view = json!({
            "map": {
                "fields": self.definition.fields.to_object(),
                "partial_filter_selector": partial.map_or(json!({}), |(_, read)| read.to_json()),
            },
            "reduce": "_count",
            "options": {"def": self.written},
        });
        let views = ddoc.entry("views").or_insert_with(|| json!({}));
        if !views.is_object() {
            *views = json!({});
        }
        views[&self.name] = view;
        let option = ddoc.get("options").and_then(|o| o.get("partitioned"));
        let option = option.and_then(Value::as_bool);
        if option != self.partitioned {
            match (old, self.partitioned) {
                (None, Some(partitioned)) => {
                    ddoc.insert("options".into(), json!({"partitioned": partitioned}));
                }
                (None, None) => {}
                (Some(_), _) => return Err(FindError::PartitionedMismatch(self.ddoc.clone())),
            }
        }
        Ok((old != Some(&ddoc)).then_some(ddoc))
    }
}

/// A design document's members without one of its indexes: `None` when nothing is left, `Err` when it has no such index.
#[allow(clippy::result_unit_err)]
pub fn remove_from(
    ddoc: &Map<String, Value>,
    name: &str,
) -> Result<Option<Map<String, Value>>, ()> {
    let mut ddoc = ddoc.clone();
    let views = ddoc.get_mut("views").and_then(Value::as_object_mut);
    let views = views.ok_or(())?;
    views.shift_remove(name).ok_or(())?;
    if views.is_empty() {
        ddoc.shift_remove("views");
        let left = ddoc.keys().any(|k| k != "language" && k != "options");
        return Ok(left.then_some(ddoc));
    }
    Ok(Some(ddoc))
}

/// Reads `{"fields": […], "partial_filter_selector": {…}}`.
fn define(written: &Value, limits: &Limits) -> Result<Definition, FindError> {
    let Value::Object(members) = written else {
        return Err(FindError::InvalidIndexJson(written.clone()));
    };
    let mut members = members.clone();
    let fields = members
        .shift_remove("fields")
        .ok_or(FindError::MissingKey("fields"))?;
    let fields = Sort::parse(&fields)?;
    let partial = members.shift_remove("partial_filter_selector");
    if let Some((name, _)) = members.iter().next() {
        return Err(FindError::InvalidKey(name.clone()));
    }
    if let Some(other) = partial.as_ref().filter(|p| !p.is_object()) {
        return Err(SelectorError::NotAnObject(other.clone()).into());
    }
    Definition::new(fields, partial.as_ref(), limits)
}

/// CouchDB's name of an index that is given none: the SHA-1 sum of the definition and the options as an Erlang term.
fn made_up_name(
    definition: &Value,
    name: &Option<String>,
    ddoc: &Option<String>,
    partitioned: Option<bool>,
    w: u64,
) -> String {
    let json = |value: &Value| body_term(value.to_string().as_bytes()).unwrap_or_default();
    let definition = json(definition);
    let given = |name: &Option<String>| match name {
        Some(name) => json(&Value::from(name.as_str())),
        None => atom("auto_name"),
    };
    let partitioned = match partitioned {
        None => atom("db_default"),
        Some(true) => atom("true"),
        Some(false) => atom("false"),
    };
    // In the order of the names.
    let options = [
        ("ddoc", given(ddoc)),
        ("def", definition.clone()),
        ("name", given(name)),
        ("partitioned", partitioned),
        ("type", json(&Value::from("json"))),
        ("w", json(&Value::from(w))),
    ];
    // Version, a pair, and of it the definition and a list of pairs.
    let mut term = vec![131, 104, 2];
    term.extend_from_slice(&definition);
    term.extend_from_slice(&[108, 0, 0, 0, options.len() as u8]);
    for (option, value) in options {
        term.extend_from_slice(&[104, 2]);
        term.extend_from_slice(&atom(option));
        term.extend_from_slice(&value);
    }
    term.push(106);
    let sum = Sha1::digest(&term);
    sum.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An atom in Erlang's external term format.
fn atom(name: &str) -> Vec<u8> {
    let mut term = vec![100, 0, name.len() as u8];
    term.extend_from_slice(name.as_bytes());
    term
}

/// The ids of a POST to `_index/_bulk_delete`, each a design document's.
///
/// # Errors
/// [`FindError::MissingKey`], [`FindError::InvalidBulkDocs`], [`FindError::InvalidIndexName`], [`FindError::InvalidKey`].
pub fn parse_bulk_delete(body: &Map<String, Value>) -> Result<Vec<String>, FindError> {
    let ids = body.get("docids").ok_or(FindError::MissingKey("docids"))?;
    if let Some(w) = body.get("w") {
        positive(w)?;
    }
    if let Some(name) = body.keys().find(|k| *k != "docids" && *k != "w") {
        return Err(FindError::InvalidKey(name.clone()));
    }
    let Value::Array(list) = ids else {
        return Err(FindError::InvalidBulkDocs(ids.clone()));
    };
    let id = |value: &Value| match value {
        Value::String(id) if id.starts_with("_design/") => Ok(id.clone()),
        Value::String(id) => Ok(format!("_design/{id}")),
        other => Err(FindError::InvalidIndexName(other.clone())),
    };
    list.iter().map(id).collect()
}

/// A boolean member.
///
/// # Errors
/// [`FindError::InvalidBoolean`]
pub fn flag(value: &Value) -> Result<bool, FindError> {
    boolean(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(body: Value) -> Result<NewIndex, FindError> {
        NewIndex::parse(body.as_object().unwrap(), &Limits::default())
    }

    #[test]
    fn an_index_without_a_name_gets_the_one_of_couchdb() {
        let index = new(json!({"index": {"fields": ["foo"]}, "ddoc": "dd"})).unwrap();
        assert_eq!(index.name, "0add0241564826b89628a55973e9328e216a766c");
        let index = new(json!({"index": {"fields": ["foo"]}, "name": "nn"})).unwrap();
        let ddoc = "_design/24b2d83ad65344383beae42b0365811e8a18ef3d";
        assert_eq!(index.ddoc, ddoc);
    }

    #[test]
    fn a_design_document_takes_indexes_and_gives_them_back() {
        let a = new(json!({"index": {"fields": ["a", "b"]}, "ddoc": "d", "name": "x"})).unwrap();
        let b = new(
            json!({"index": {"fields": ["b"], "partial_filter_selector": {"t": 1}}, "ddoc": "d", "name": "y"}),
        );
        let first = a.add_to(None).unwrap().unwrap();
        assert_eq!(
            Value::Object(first.clone()),
            json!({"language": "query", "views": {"x": {
                "map": {"fields": {"a": "asc", "b": "asc"}, "partial_filter_selector": {}},
                "reduce": "_count", "options": {"def": {"fields": ["a", "b"]}}}}})
        );
        assert_eq!(a.add_to(Some(&first)), Ok(None));
        let both = b.unwrap().add_to(Some(&first)).unwrap().unwrap();
        let mut ddoc = Value::Object(both.clone());
        ddoc["_id"] = json!("_design/d");
        let indexes = Index::of_design(&ddoc, false, &Limits::default());
        assert_eq!(indexes.len(), 2);
        assert!(indexes[0].definition.partial.is_none() && indexes[1].definition.partial.is_some());
        let one = remove_from(&both, "y").unwrap().unwrap();
        assert_eq!(one, first);
        assert_eq!(remove_from(&one, "x"), Ok(None));
        assert_eq!(remove_from(&one, "z"), Err(()));
    }

    #[test]
    fn a_design_document_of_functions_is_left_alone() {
        let a = new(json!({"index": {"fields": ["a"]}, "ddoc": "d"})).unwrap();
        let old = json!({"language": "javascript", "views": {}});
        let refused = a.add_to(old.as_object());
        assert_eq!(refused, Err(FindError::DesignLanguage(json!("javascript"))));
        let mixed = json!({"index": {"fields": [{"a": "asc"}, {"b": "desc"}]}});
        assert_eq!(new(mixed).unwrap_err(), FindError::MixedSort);
    }
}
