//! Indexes: their definitions, names, and design documents.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use data_encoding::HEXLOWER;
use document::body_term;
use serde_json::{Map, Value, json};
use sha1::{Digest, Sha1};

use crate::error::{FindError, SelectorError};
use crate::json::{self, Kind, members, object, shown, string, text_of};
use crate::limits::Limits;
use crate::options::{boolean, positive};
use crate::path::FieldPath;
use crate::selector::Selector;
use crate::sort::Sort;
use crate::text::{TextDefinition, TextKind};

/// The most fields of an index.
pub const INDEX_FIELDS_MAX: usize = 256;

/// The language of design documents with indexes.
pub const LANGUAGE: &str = "query";

/// Memory of a field besides its name, which is there as it is written and parsed, in bytes.
const FIELD_BYTES: usize = 128;
/// About how many bytes a byte of a selector or of a text index takes once it is parsed.
const PARSED_RATIO: usize = 8;

/// An index that a query may use.
#[derive(Clone, Debug)]
pub struct Index {
    /// `_design/…`; `None` for the index of all documents by id.
    pub ddoc: Option<String>,
    /// Its name in the design document.
    pub name: String,
    /// Its definition.
    pub definition: Definition,
    /// Whether rows are ordered by partition first.
    pub partitioned: bool,
    /// The definition of a text index, which has no keys: its `definition` has no fields.
    pub text: Option<Arc<TextDefinition>>,
}

/// The documents and fields of an index.
#[derive(Clone, Debug)]
pub struct Definition {
    /// The fields, in the order of keys.
    pub fields: Sort,
    /// The parsed fields.
    pub paths: Vec<FieldPath>,
    /// The filter of its documents: as written, and parsed. `None`: all that have the fields.
    pub partial: Option<(Box<[u8]>, Selector)>,
}

impl Definition {
    /// Parses the `map` of a design document, a normalised text: `{"fields": {"a": "asc"},
    /// "partial_filter_selector": {}}`.
    ///
    /// # Errors
    /// [`FindError::MissingKey`], [`FindError::InvalidSort`], [`FindError::TooManyIndexFields`],
    /// [`FindError::Selector`].
    pub fn from_map(map: &[u8], limits: &Limits) -> Result<Definition, FindError> {
        let fields = shown(json::member(map, "fields").ok_or(FindError::MissingKey("fields"))?);
        let sort = Sort::from_object(&fields).ok_or(FindError::InvalidSort(fields))?;
        // Called `selector` before CouchDB 2.1.
        let partial = json::member(map, "partial_filter_selector");
        Self::new(sort, partial.or(json::member(map, "selector")), limits)
    }

    fn new(fields: Sort, partial: Option<&[u8]>, limits: &Limits) -> Result<Definition, FindError> {
        if fields.fields.len() > INDEX_FIELDS_MAX {
            return Err(FindError::TooManyIndexFields(INDEX_FIELDS_MAX));
        }
        let paths = fields.names().map(FieldPath::parse);
        let paths = paths.collect::<Result<_, SelectorError>>()?;
        let partial = match partial {
            None | Some(b"{}") => None,
            Some(text) => Some((text.into(), Selector::read(text, limits)?)),
        };
        Ok(Definition {
            fields,
            paths,
            partial,
        })
    }

    fn to_json(&self) -> Vec<u8> {
        let mut all = vec![("fields", text_of(&self.fields.to_list()))];
        if let Some((written, _)) = &self.partial {
            all.push(("partial_filter_selector", written.to_vec()));
        }
        object(&all)
    }
}

impl Index {
    /// Returns the index that every database has: all documents by id.
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
            text: None,
        }
    }

    /// Returns whether it has keys of fields.
    pub fn is_json(&self) -> bool {
        !self.is_special() && self.text.is_none()
    }

    /// Returns whether this is the index of all documents.
    pub fn is_special(&self) -> bool {
        self.ddoc.is_none()
    }

    /// Returns the indexes of a design document, a normalised text, in the order of its views;
    /// invalid ones are left out. `partitioned` is that of the database. The iterator compiles each
    /// one when it is requested.
    pub fn of_design<'a>(
        ddoc: &'a [u8],
        partitioned: bool,
        limits: &'a Limits,
    ) -> Box<dyn Iterator<Item = Index> + 'a> {
        let text = |name| json::member(ddoc, name).and_then(string);
        let Some(id) = text("_id").filter(|_| text("language").as_deref() == Some(LANGUAGE)) else {
            return Box::new(std::iter::empty());
        };
        let option = json::member(ddoc, "options").and_then(|o| json::member(o, "partitioned"));
        let of_json = DesignHead {
            ddoc: id.into_owned(),
            partitioned: partitioned && option != Some(b"false"),
            limits,
        };
        let of_text = of_json.clone();
        let views = json::member(ddoc, "views").unwrap_or(b"{}");
        let views = members(views).filter_map(move |(name, view)| of_json.index(name, view));
        let text_indexes = TextKind::ALL.into_iter().flat_map(move |kind| {
            let of_kind =
                json::member(ddoc, kind.member()).filter(|of| Kind::of(of) == Kind::Object);
            let head = of_text.clone();
            members(of_kind.unwrap_or(b"{}"))
                .filter_map(move |(name, index)| head.text_index(kind, name, index))
        });
        Box::new(views.chain(text_indexes))
    }

    /// Returns about how much memory it takes, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.bytes_with(|(written, selector)| written.len() + selector.memory_bytes())
    }

    /// Returns about how much memory its definition takes, in bytes, without compiled expressions:
    /// the time to compare it with a query grows with this.
    pub fn definition_bytes(&self) -> usize {
        self.bytes_with(|(written, _)| written.len() * (1 + PARSED_RATIO))
    }

    /// Returns its memory with that of its filter.
    fn bytes_with(&self, filter_bytes: impl Fn(&(Box<[u8]>, Selector)) -> usize) -> usize {
        let fields = self.definition.fields.names();
        let fields = fields.map(|name| 2 * name.len() + FIELD_BYTES);
        let partial = self.definition.partial.as_ref().map_or(0, filter_bytes);
        let text = self.text.as_ref();
        let text = text.map_or(0, |text| text.to_json().len() * (1 + PARSED_RATIO));
        let names = self.name.len() + self.ddoc.as_ref().map_or(0, String::len);
        size_of::<Index>() + names + fields.sum::<usize>() + partial + text
    }

    /// Returns it as JSON text, in the form of `_index` and `_explain`.
    pub fn to_json(&self) -> Vec<u8> {
        let text = |value: Value| text_of(&value);
        let mut all = vec![
            ("ddoc", text(self.ddoc.as_deref().into())),
            ("name", text(self.name.as_str().into())),
        ];
        if self.is_special() {
            all.push(("type", text("special".into())));
        } else {
            let kind = self.text.as_ref().map_or("json", |text| text.kind.name());
            all.push(("type", text(kind.into())));
            all.push(("partitioned", text(self.partitioned.into())));
        }
        all.push((
            "def",
            match &self.text {
                Some(text) => text.to_json().to_vec(),
                None => self.definition.to_json(),
            },
        ));
        object(&all)
    }

    /// Returns the sort key of its name: the index of all documents comes first.
    pub fn order(&self) -> (Option<&str>, &str) {
        (self.ddoc.as_deref(), &self.name)
    }
}

/// The common part of the indexes of a design document.
#[derive(Clone)]
struct DesignHead<'a> {
    /// `_design/…`
    ddoc: String,
    partitioned: bool,
    limits: &'a Limits,
}

impl DesignHead<'_> {
    /// Returns the index in a view; `None` if it is invalid.
    fn index(&self, name: String, view: &[u8]) -> Option<Index> {
        Kind::of(json::member(view, "options")?)
            .eq(&Kind::Object)
            .then_some(())?;
        let map = json::member(view, "map")?;
        Some(Index {
            ddoc: Some(self.ddoc.clone()),
            name,
            definition: Definition::from_map(map, self.limits).ok()?,
            partitioned: self.partitioned,
            text: None,
        })
    }

    /// Returns a text index; `None` if it is invalid.
    fn text_index(&self, kind: TextKind, name: String, index: &[u8]) -> Option<Index> {
        let written = json::member(index, "index")?;
        let text = TextDefinition::read(kind, written, self.limits).ok()?;
        Some(Index {
            ddoc: Some(self.ddoc.clone()),
            name,
            definition: Definition {
                fields: Sort::default(),
                paths: vec![],
                partial: text.partial.clone(),
            },
            partitioned: self.partitioned,
            text: Some(Arc::new(text)),
        })
    }
}

/// The members of a design document: names, and normalised texts of values.
pub type DesignMembers = Vec<(String, Vec<u8>)>;

/// Returns the members of a design document's normalised text.
pub fn design_members(ddoc: &[u8]) -> DesignMembers {
    let all = members(ddoc);
    all.map(|(name, value)| (name, value.to_vec())).collect()
}

/// Returns whether these belong to a design document of indexes.
pub fn is_of_indexes(ddoc: &DesignMembers) -> bool {
    find(ddoc, "language").and_then(string).as_deref() == Some(LANGUAGE)
}

/// Returns the text of a design document to write; without members, of its deletion. `rev` is the
/// text of the revision that it replaces.
pub fn write_design(id: &str, rev: Option<Vec<u8>>, members: Option<DesignMembers>) -> Vec<u8> {
    let mut doc = vec![("_id".to_owned(), text_of(&id.into()))];
    doc.extend(rev.map(|rev| ("_rev".to_owned(), rev)));
    match members {
        Some(members) => doc.extend(members),
        None => doc.push(("_deleted".to_owned(), b"true".to_vec())),
    }
    object(&doc)
}

fn find<'a>(all: &'a DesignMembers, name: &str) -> Option<&'a [u8]> {
    let found = all.iter().find(|(n, _)| n == name);
    found.map(|(_, value)| value.as_slice())
}

fn put(all: &mut DesignMembers, name: &str, value: Vec<u8>) {
    match all.iter_mut().find(|(n, _)| n == name) {
        Some((_, held)) => *held = value,
        None => all.push((name.to_owned(), value)),
    }
}

/// Replaces the definitions in `ddoc`, a parsed design document of indexes, by their texts, so that
/// integers keep all their digits. `text` is the document's normalised text.
pub fn keep_definitions(ddoc: &mut Value, text: &[u8]) {
    if ddoc["language"] != LANGUAGE {
        return;
    }
    let views = ddoc.get_mut("views").and_then(Value::as_object_mut);
    let (Some(views), Some(texts)) = (views, json::member(text, "views")) else {
        return;
    };
    for (name, view) in members(texts) {
        let map = json::member(view, "map").and_then(|map| std::str::from_utf8(map).ok());
        let held = views.get_mut(&name).and_then(|view| view.get_mut("map"));
        if let (Some(map), Some(held @ Value::Object(_))) = (map, held) {
            *held = map.into();
        }
    }
}

/// The body of a POST to `_index`.
#[derive(Clone, Debug)]
pub struct NewIndex {
    /// `_design/…`
    pub ddoc: String,
    /// The index's name.
    pub name: String,
    /// Number of copies that must be written; there is one.
    pub w: u64,
    partitioned: Option<bool>,
    made: Made,
    written: Vec<u8>,
}

/// The kind of index to create.
#[derive(Clone, Debug)]
enum Made {
    Json(Box<Definition>),
    Text(TextKind),
}

/// Returns an index's definition without the version of Lucene, which the database adds.
fn unversioned(index: &[u8]) -> Vec<u8> {
    let mut members = design_members(index);
    members.retain(|(name, _)| name != "lucene_version");
    object(&members)
}

impl NewIndex {
    /// Parses a body, a normalised text.
    ///
    /// # Errors
    /// Any [`FindError`] of an index's definition.
    pub fn parse(body: &[u8], limits: &Limits) -> Result<NewIndex, FindError> {
        if Kind::of(body) != Kind::Object {
            return Err(FindError::NotAnObject);
        }
        let written = json::member(body, "index").ok_or(FindError::MissingKey("index"))?;
        let mut values = json::ValueCount::default();
        let mut body: Map<String, Value> = members(body)
            .filter(|(name, _)| name != "index")
            .map(|(name, value)| match values.add(value) {
                true => Ok((name, shown(value))),
                false => Err(FindError::TooManyValues(json::VALUES_MAX)),
            })
            .collect::<Result<_, _>>()?;
        let mut take = |name: &str| body.shift_remove(name);
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
        let made = match TextKind::ALL.into_iter().find(|k| k.name() == kind) {
            Some(of_text) => {
                TextDefinition::read(of_text, written, limits)?;
                Made::Text(of_text)
            }
            None if kind == "json" => Made::Json(Box::new(define(written, limits)?)),
            None => return Err(FindError::InvalidIndexType(kind)),
        };
        let made_up = || made_up_name(written, &kind, &index, &ddoc, partitioned, w);
        Ok(NewIndex {
            name: index.clone().unwrap_or_else(made_up),
            ddoc: match &ddoc {
                Some(id) if id.starts_with("_design/") => id.clone(),
                Some(id) => format!("_design/{id}"),
                None => format!("_design/{}", made_up()),
            },
            w,
            partitioned,
            made,
            written: written.to_vec(),
        })
    }

    /// Adds this index to a design document, given by its members without `_id` and `_rev`. `old`
    /// are those of the existing one; `None` if it does not exist. Returns `None` when it already
    /// contains the index.
    ///
    /// # Errors
    /// [`FindError::DesignLanguage`], [`FindError::PartitionedMismatch`].
    pub fn add_to(&self, old: Option<&DesignMembers>) -> Result<Option<DesignMembers>, FindError> {
        let mut ddoc = match old {
            Some(old) => {
                if !is_of_indexes(old) {
                    let language = find(old, "language").map_or(Value::Null, shown);
                    return Err(FindError::DesignLanguage(language));
                }
                old.clone()
            }
            None => vec![("language".to_owned(), text_of(&LANGUAGE.into()))],
        };
        let (member, index) = match &self.made {
            Made::Json(definition) => ("views", self.view(definition)),
            Made::Text(kind) => (kind.member(), TextDefinition::design_member(&self.written)),
        };
        let all = find(&ddoc, member).filter(|all| Kind::of(all) == Kind::Object);
        let mut all = all.map_or(vec![], design_members);
        let is_there =
            find(&all, &self.name).is_some_and(|held| json::same(&unversioned(held), &index));
        put(&mut all, &self.name, index);
        put(&mut ddoc, member, object(&all));
        let option = find(&ddoc, "options").and_then(|o| json::member(o, "partitioned"));
        let option = match option {
            Some(b"true") => Some(true),
            Some(b"false") => Some(false),
            _ => None,
        };
        if option != self.partitioned {
            match (old, self.partitioned) {
                (None, Some(partitioned)) => {
                    let options = json!({"partitioned": partitioned});
                    put(&mut ddoc, "options", text_of(&options));
                }
                (None, None) => {}
                (Some(_), _) => return Err(FindError::PartitionedMismatch(self.ddoc.clone())),
            }
        }
        Ok((!is_there).then_some(ddoc))
    }

    /// Returns the view that contains the index.
    fn view(&self, definition: &Definition) -> Vec<u8> {
        let mut partial = b"{}".to_vec();
        if let Some((_, read)) = &definition.partial {
            partial.clear();
            read.write_json(&mut partial);
        }
        let map = object(&[
            ("fields", text_of(&definition.fields.to_object())),
            ("partial_filter_selector", partial),
        ]);
        object(&[
            ("map", map),
            ("reduce", b"\"_count\"".to_vec()),
            ("options", object(&[("def", &self.written)])),
        ])
    }
}

/// Removes an index of this type (`None`: json) from a design document's members: `None` when
/// nothing is left, `Err` when there is no such index.
#[allow(clippy::result_unit_err)]
pub fn remove_from(
    ddoc: &DesignMembers,
    kind: Option<TextKind>,
    name: &str,
) -> Result<Option<DesignMembers>, ()> {
    remove_all_from(ddoc, &[(kind, name)])
}

/// Removes indexes of these types and names from a design document's members: `None` when nothing
/// is left, `Err` when one of them does not exist.
#[allow(clippy::result_unit_err)]
pub fn remove_all_from(
    ddoc: &DesignMembers,
    indexes: &[(Option<TextKind>, &str)],
) -> Result<Option<DesignMembers>, ()> {
    let mut by_member: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for &(kind, name) in indexes {
        let member = kind.map_or("views", TextKind::member);
        by_member.entry(member).or_default().insert(name);
    }
    let mut ddoc = ddoc.clone();
    for (member, names) in by_member {
        let mut views = design_members(find(&ddoc, member).ok_or(())?);
        let before = views.len();
        views.retain(|(name, _)| !names.contains(name.as_str()));
        if before - views.len() < names.len() {
            return Err(());
        }
        match views.is_empty() {
            true => ddoc.retain(|(name, _)| name != member),
            false => put(&mut ddoc, member, object(&views)),
        }
    }
    let left = ddoc.iter().any(|(n, _)| n != "language" && n != "options");
    Ok(left.then_some(ddoc))
}

/// Parses `{"fields": […], "partial_filter_selector": {…}}`.
fn define(written: &[u8], limits: &Limits) -> Result<Definition, FindError> {
    if Kind::of(written) != Kind::Object {
        return Err(FindError::InvalidIndexJson(shown(written)));
    }
    let fields = json::member(written, "fields").ok_or(FindError::MissingKey("fields"))?;
    let fields = Sort::parse(&shown(fields))?;
    let known = ["fields", "partial_filter_selector"];
    if let Some((name, _)) = members(written).find(|(n, _)| !known.contains(&n.as_str())) {
        return Err(FindError::InvalidKey(name));
    }
    let partial = json::member(written, "partial_filter_selector");
    Definition::new(fields, partial, limits)
}

/// Returns CouchDB's default name of an index: the SHA-1 sum of the definition and the options as
/// an Erlang term.
fn made_up_name(
    definition: &[u8],
    kind: &str,
    name: &Option<String>,
    ddoc: &Option<String>,
    partitioned: Option<bool>,
    w: u64,
) -> String {
    let json = |value: &Value| body_term(&text_of(value)).unwrap_or_default();
    let definition = body_term(definition).unwrap_or_default();
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
        ("type", json(&Value::from(kind))),
        ("w", json(&Value::from(w))),
    ];
    // Version, a pair of the definition and a list of pairs.
    let mut term = vec![131, 104, 2];
    term.extend_from_slice(&definition);
    term.extend_from_slice(&[108, 0, 0, 0, options.len() as u8]);
    for (option, value) in options {
        term.extend_from_slice(&[104, 2]);
        term.extend_from_slice(&atom(option));
        term.extend_from_slice(&value);
    }
    term.push(106);
    HEXLOWER.encode(&Sha1::digest(&term))
}

/// Encodes an atom in Erlang's external term format.
fn atom(name: &str) -> Vec<u8> {
    let mut term = vec![100, 0, name.len() as u8];
    term.extend_from_slice(name.as_bytes());
    term
}

/// Parses the type of a text index; `None` for `json`.
///
/// # Errors
/// [`FindError::InvalidIndexType`]
pub fn text_kind(name: &str) -> Result<Option<TextKind>, FindError> {
    match TextKind::ALL.into_iter().find(|kind| kind.name() == name) {
        None if name != "json" => Err(FindError::InvalidIndexType(name.to_owned())),
        kind => Ok(kind),
    }
}

/// Parses the ids of a POST to `_index/_bulk_delete`, each of a design document.
///
/// # Errors
/// [`FindError::MissingKey`], [`FindError::InvalidBulkDocs`], [`FindError::InvalidIndexName`],
/// [`FindError::InvalidKey`].
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

/// Parses a boolean member.
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
        NewIndex::parse(&text_of(&body), &Limits::default())
    }

    fn indexes_of(ddoc: &[u8], limits: &Limits) -> Vec<Index> {
        Index::of_design(ddoc, false, limits).collect()
    }

    #[test]
    fn an_index_with_a_large_expression_is_left_out_alone() {
        let view = |regex: &str| {
            json!({
                "map": {"fields": {"a": "asc"}, "partial_filter_selector": {"a": {"$regex": regex}}},
                "options": {"def": {}},
            })
        };
        let ddoc = json!({"_id": "_design/d", "language": "query", "views": {
            "plain": {"map": {"fields": {"a": "asc"}}, "options": {"def": {}}},
            "large": view("(?:a{1000}){400}"),
            "small": view("^a"),
            "long": view("(?:a{1000}){9}b"),
        }});
        let indexes = indexes_of(&text_of(&ddoc), &Limits::OF_INDEXES);
        let names = indexes.iter().map(|index| index.name.as_str());
        assert_eq!(names.collect::<Vec<_>>(), ["plain", "small", "long"]);
        let [plain, small, long] = [0, 1, 2].map(|n| indexes[n].memory_bytes());
        assert!(plain < 2 << 10 && small < 64 << 10, "{plain}, {small}");
        assert!(long > 400_000, "{long}");
        // Compiled expressions do not make the choice of an index longer.
        assert!(indexes[2].definition_bytes() < 2 << 10);
        // However many there are, each is compiled when it is requested.
        let views: Map<String, Value> = (0..1_000)
            .map(|n| (n.to_string(), view(&format!("(?:a{{1000}}){{9}}b{n}"))))
            .collect();
        let ddoc = json!({"_id": "_design/d", "language": "query", "views": views});
        let text = text_of(&ddoc);
        let few = Index::of_design(&text, false, &Limits::OF_INDEXES).take(2);
        assert_eq!(few.count(), 2);
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
            shown(&object(&first)),
            json!({"language": "query", "views": {"x": {
                "map": {"fields": {"a": "asc", "b": "asc"}, "partial_filter_selector": {}},
                "reduce": "_count", "options": {"def": {"fields": ["a", "b"]}}}}})
        );
        assert_eq!(a.add_to(Some(&first)), Ok(None));
        let both = b.unwrap().add_to(Some(&first)).unwrap().unwrap();
        let mut ddoc = both.clone();
        put(&mut ddoc, "_id", b"\"_design/d\"".to_vec());
        let indexes = indexes_of(&object(&ddoc), &Limits::default());
        assert_eq!(indexes.len(), 2);
        assert!(indexes[0].definition.partial.is_none() && indexes[1].definition.partial.is_some());
        let one = remove_from(&both, None, "y").unwrap().unwrap();
        assert_eq!(one, first);
        assert_eq!(remove_from(&one, None, "x"), Ok(None));
        assert_eq!(remove_from(&one, None, "z"), Err(()));
        assert_eq!(
            remove_all_from(&both, &[(None, "y"), (None, "x")]),
            Ok(None)
        );
        assert_eq!(remove_all_from(&both, &[(None, "y")]), Ok(Some(first)));
        assert_eq!(remove_all_from(&both, &[(None, "y"), (None, "z")]), Err(()));
        let mut with_text = both.clone();
        put(&mut with_text, "nouveau", br#"{"t":{}}"#.to_vec());
        let all = [(None, "x"), (Some(TextKind::Nouveau), "t"), (None, "y")];
        assert_eq!(remove_all_from(&with_text, &all), Ok(None));
        let text = remove_all_from(&with_text, &[all[0], all[2]]);
        let text = text.unwrap().unwrap();
        assert_eq!(
            shown(&object(&text)),
            json!({"language": "query", "nouveau": {"t": {}}})
        );
    }

    #[test]
    fn a_text_index_is_written_as_couchdb_writes_it() {
        // From a real CouchDB.
        let fields = json!([{"name": "name", "type": "string"}, {"name": "age", "type": "number"}]);
        let index =
            new(json!({"type": "nouveau", "ddoc": "m", "name": "i", "index": {"fields": fields}}));
        let mut ddoc = index.unwrap().add_to(None).unwrap().unwrap();
        assert_eq!(
            String::from_utf8(object(&ddoc)).unwrap(),
            concat!(
                r#"{"language":"query","nouveau":{"i":{"index":{"default_analyzer":"keyword","default_field":{},"#,
                r#""partial_filter_selector":{},"selector":{},"fields":[{"name":"name","type":"string"},"#,
                r#"{"name":"age","type":"number"}],"index_array_lengths":true},"#,
                r#""analyzer":{"name":"perfield","default":"keyword","fields":{"$default":"standard"}}}}}"#
            )
        );
        put(&mut ddoc, "_id", b"\"_design/m\"".to_vec());
        let indexes = indexes_of(&object(&ddoc), &Limits::default());
        assert_eq!(
            shown(&indexes[0].to_json()),
            json!({"ddoc": "_design/m", "name": "i", "type": "nouveau", "partitioned": false, "def": {
                "default_analyzer": "keyword", "default_field": {}, "selector": {},
                "fields": [{"name": "string"}, {"age": "number"}], "index_array_lengths": true}})
        );
        ddoc.retain(|(name, _)| name != "_id");
        assert_eq!(remove_from(&ddoc, Some(TextKind::Nouveau), "i"), Ok(None));
        assert_eq!(remove_from(&ddoc, Some(TextKind::Text), "i"), Err(()));
    }

    #[test]
    fn a_design_document_of_functions_is_left_alone() {
        let a = new(json!({"index": {"fields": ["a"]}, "ddoc": "d"})).unwrap();
        let old = json!({"language": "javascript", "views": {}});
        let refused = a.add_to(Some(&design_members(&text_of(&old))));
        assert_eq!(refused, Err(FindError::DesignLanguage(json!("javascript"))));
        let mixed = json!({"index": {"fields": [{"a": "asc"}, {"b": "desc"}]}});
        assert_eq!(new(mixed).unwrap_err(), FindError::MixedSort);
    }

    #[test]
    fn integers_of_a_definition_keep_their_digits() {
        let long = "123456789012345678901234567890";
        let body = format!(
            r#"{{"index":{{"fields":["a"],"partial_filter_selector":{{"n":{long}}}}},"ddoc":"d","name":"x"}}"#
        );
        let index = NewIndex::parse(body.as_bytes(), &Limits::default()).unwrap();
        let mut ddoc = index.add_to(None).unwrap().unwrap();
        assert_eq!(index.add_to(Some(&ddoc)), Ok(None));
        let text = String::from_utf8(object(&ddoc)).unwrap();
        assert_eq!(text.matches(long).count(), 2, "{text}");
        put(&mut ddoc, "_id", b"\"_design/d\"".to_vec());
        let text = object(&ddoc);
        let read = &indexes_of(&text, &Limits::default())[0];
        assert!(String::from_utf8(read.to_json()).unwrap().contains(long));
        let (_, partial) = read.definition.partial.as_ref().unwrap();
        let doc = format!(r#"{{"n":{long}}}"#);
        assert!(
            partial
                .matches_doc(&crate::Doc::whole(doc.as_bytes()))
                .unwrap()
        );
        let mut value = shown(&text);
        keep_definitions(&mut value, &text);
        assert!(value["views"]["x"]["map"].as_str().unwrap().contains(long));
    }
}
