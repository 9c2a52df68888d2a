//! Reads the fields of a document from the calls of `index`, of Nouveau or of Clouseau, with the
//! checks of each.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashSet;
use serde_json::{Map, Number, Value};
use tantivy::TantivyDocument;
use tantivy::schema::OwnedValue;

use crate::Error;
use crate::schema::{ColumnKind, FieldType, Layout, PARTITION, Types};
use crate::similarity::norm_of;
use crate::tokens::{Encoder, id_term};

/// An analyzer of texts.
pub trait Analyze: Sync {
    /// Calls `token` with each token of a field's text and its position: from 0, not decreasing.
    fn analyze(&self, field: &str, text: &str, token: &mut dyn FnMut(&str, u32));
}

/// The fields of one document.
#[derive(Debug, Default)]
pub struct Fields {
    indexed: Vec<(FieldType, String, Data)>,
    stored: Map<String, Value>,
    classic: Option<Classic>,
}

#[derive(Debug)]
enum Data {
    Text(String),
    Number(f64),
}

/// A document in tantivy's form.
pub(crate) struct Encoded {
    pub document: TantivyDocument,
    /// The size of its terms and stored fields, in bytes.
    pub bytes: usize,
    /// About how much memory its terms take while they are indexed, in bytes.
    pub term_bytes: usize,
}

/// Options that only Clouseau's fields have.
#[derive(Debug, Default)]
struct Classic {
    /// `index` was called, even if nothing of it is indexed or stored.
    is_called: bool,
    facets: Vec<(String, String)>,
    /// Boosts by field; several are multiplied.
    boosts: BTreeMap<String, f32>,
}

/// The options of Clouseau's `index`.
#[derive(Clone, Debug)]
pub struct ClassicOptions {
    /// Whether it can be searched.
    pub index: bool,
    /// Whether it is analyzed; otherwise it is one term.
    pub analyzed: bool,
    /// Whether it is returned with hits.
    pub store: bool,
    /// Whether hits are counted by it.
    pub facet: bool,
    /// The boost.
    pub boost: f32,
}

/// The maximum number of different fields of an index: each has a column, and all names are written
/// at each commit.
const FIELDS_MAX: usize = 10_000;
/// The maximum length of these names together, in bytes.
const NAMES_BYTES_MAX: usize = 16 << 20;
/// Longer strings are truncated for sorting and counting: tantivy's columns have none longer, and
/// would cut within a character.
const STRING_BYTES_MAX: usize = 65_000;

/// Returns the prefix of a string that a column holds.
pub(crate) fn of_column(text: &str) -> &str {
    &text[..text.floor_char_boundary(STRING_BYTES_MAX)]
}

impl Fields {
    /// Creates an empty set of fields.
    pub fn new() -> Fields {
        Fields::default()
    }

    /// Returns whether `index` was never called: such a document is not in the index.
    pub fn is_empty(&self) -> bool {
        let no_call = self.classic.as_ref().is_none_or(|c| !c.is_called);
        self.indexed.is_empty() && self.stored.is_empty() && no_call
    }

    /// Returns whether some field is stored.
    pub(crate) fn has_stored(&self) -> bool {
        !self.stored.is_empty()
    }

    /// Adds a call of `index`: its type and name, its value, and whether it is stored.
    ///
    /// # Errors
    /// Nouveau refuses it: the name is invalid, the value is not of the type, or `store` is not a
    /// boolean.
    pub fn add(
        &mut self,
        at: usize,
        kind: &str,
        name: &str,
        value: Value,
        store: &Value,
    ) -> Result<(), Error> {
        if !is_name(name) {
            return Err(Error::FieldName { at });
        }
        let refuse = |what: &str| Error::FieldValue {
            at,
            what: what.to_owned(),
        };
        let store = flag_of(store).ok_or_else(|| refuse("store must be a boolean"))?;
        let field_type = match kind {
            "string" => FieldType::String,
            "text" => FieldType::Text,
            "double" => FieldType::Double,
            _ => {
                self.store(
                    name,
                    stored_value(value)
                        .ok_or_else(|| refuse("value must be a number or a string"))?,
                );
                return Ok(());
            }
        };
        let data = match (field_type, &value) {
            (FieldType::Double, Value::Number(n)) => Data::Number(n.as_f64().unwrap_or_default()),
            (FieldType::Double, _) => return Err(refuse("value must be a finite number")),
            (_, Value::String(text)) => Data::Text(text.clone()),
            _ => return Err(refuse("value must be a string")),
        };
        self.indexed.push((field_type, name.to_owned(), data));
        if store && let Some(value) = stored_value(value) {
            self.store(name, value);
        }
        Ok(())
    }

    /// Creates an empty set of Clouseau's fields.
    pub fn classic() -> Fields {
        Fields {
            classic: Some(Classic::default()),
            ..Fields::default()
        }
    }

    /// Adds a call of Clouseau's `index`. Names with control characters are invalid.
    pub fn add_classic(&mut self, name: &str, value: Value, options: &ClassicOptions) {
        self.classic.get_or_insert_default().is_called = true;
        if name.bytes().any(|b| b < b' ') {
            return;
        }
        // Hits are counted by strings only.
        let facet = options.facet && value.is_string();
        // Numbers and booleans can always be searched, as in Clouseau.
        let is_found = options.index || !value.is_string();
        let (value, analyzed) = match value {
            Value::Bool(value) => (Value::String(value.to_string()), false),
            value => (value, options.analyzed),
        };
        let Some(stored) = stored_value(value.clone()) else {
            return;
        };
        let data = match value {
            Value::String(text) => Data::Text(text),
            _ => Data::Number(stored.as_f64().unwrap_or_default()),
        };
        if options.store {
            self.store(name, stored);
        }
        let classic = self.classic.get_or_insert_default();
        if let Data::Text(text) = &data {
            if facet && !text.is_empty() {
                classic.facets.push((name.to_owned(), text.clone()));
            }
            if options.boost != 1.0 {
                *classic.boosts.entry(name.to_owned()).or_insert(1.0) *= options.boost;
            }
        }
        let field_type = match (&data, analyzed) {
            (Data::Number(_), _) => FieldType::Double,
            (Data::Text(_), true) => FieldType::Text,
            (Data::Text(_), false) => FieldType::String,
        };
        if is_found {
            self.indexed.push((field_type, name.to_owned(), data));
        }
    }

    /// Values under one name become a list.
    fn store(&mut self, name: &str, value: Value) {
        match self.stored.get_mut(name) {
            None => drop(self.stored.insert(name.to_owned(), value)),
            Some(Value::Array(values)) => values.push(value),
            Some(first) => *first = Value::Array(vec![first.take(), value]),
        }
    }

    /// Takes the stored fields.
    fn take_stored(&mut self) -> Map<String, Value> {
        let mut stored = std::mem::take(&mut self.stored);
        // Clouseau lists the newest value of a name first.
        if self.classic.is_some() {
            let lists = stored.values_mut().filter_map(Value::as_array_mut);
            lists.for_each(|values| values.reverse());
        }
        stored
    }

    /// Records the types of the fields; returns whether one is new.
    ///
    /// # Errors
    /// A field already has another type, there are too many, or their names are too long: nothing
    /// is recorded then.
    pub(crate) fn note_types(&self, types: &mut Types) -> Result<bool, Error> {
        let mut noted: BTreeMap<&str, FieldType> = BTreeMap::new();
        for (new, name, _) in &self.indexed {
            match noted.get(name.as_str()).or_else(|| types.get(name)) {
                None => {
                    noted.insert(name, *new);
                }
                Some(known) if known == new => {}
                // A field becomes a text field with its first text: it has terms, and their lengths
                // count.
                Some(known) if self.classic.is_some() => {
                    if *known == FieldType::Double {
                        noted.insert(name, FieldType::Text);
                    }
                }
                Some(known) => {
                    return Err(Error::FieldType {
                        name: name.clone(),
                        new: *new,
                        known: *known,
                    });
                }
            }
        }
        let added = noted.keys().filter(|name| !types.contains_key(**name));
        let (added, added_bytes) = added.fold((0, 0), |(added, bytes), name| {
            (added + 1, bytes + name.len())
        });
        if types.len() + added > FIELDS_MAX {
            return Err(Error::TooManyFields { max: FIELDS_MAX });
        }
        if added > 0 && added_bytes + types.keys().map(String::len).sum::<usize>() > NAMES_BYTES_MAX
        {
            return Err(Error::LongFieldNames {
                max: NAMES_BYTES_MAX,
            });
        }
        let is_news = !noted.is_empty();
        let noted = noted.into_iter();
        types.extend(noted.map(|(name, of)| (name.to_owned(), of)));
        Ok(is_news)
    }

    /// Encodes the document for tantivy, and takes the stored fields.
    ///
    /// # Errors
    /// [`Error::TooManyTerms`]
    pub(crate) fn encode(
        &mut self,
        id: &str,
        partition: Option<&str>,
        layout: &Layout,
        analyze: &dyn Analyze,
    ) -> Result<Encoded, Error> {
        let mut terms = Encoder::default();
        let (field, term) = id_term(id);
        terms.field(field);
        terms.token(&term, 0);
        if let Some(partition) = partition {
            terms.field(PARTITION);
            terms.token(partition, 0);
        }
        // Positions of a repeated field continue after those of the value before.
        self.indexed.sort_by(|a, b| a.1.cmp(&b.1));
        let mut columns: Vec<(String, OwnedValue)> = vec![];
        match &self.classic {
            Some(classic) => classic.columns(&self.indexed, analyze, &mut terms, &mut columns),
            None => {
                for of_field in self.indexed.chunk_by(|a, b| a.1 == b.1) {
                    columns.push(column_of(of_field, analyze, &mut terms));
                }
            }
        }
        let term_bytes = terms.term_bytes()?;
        let mut document = TantivyDocument::default();
        let terms = terms.finish();
        let mut bytes = terms.len();
        document.add_text(layout.terms, terms);
        document.add_text(layout.id, id);
        let stored = self.take_stored();
        if !stored.is_empty() {
            let stored = Value::Object(stored).to_string();
            bytes += stored.len();
            document.add_text(layout.stored, stored);
        }
        if !columns.is_empty() {
            document.add_field_value(layout.columns, &OwnedValue::Object(columns));
        }
        Ok(Encoded {
            document,
            bytes,
            term_bytes,
        })
    }
}

impl Classic {
    /// Encodes the terms and columns of all fields.
    fn columns(
        &self,
        indexed: &[(FieldType, String, Data)],
        analyze: &dyn Analyze,
        terms: &mut Encoder,
        columns: &mut Vec<(String, OwnedValue)>,
    ) {
        for of_field in indexed.chunk_by(|a, b| a.1 == b.1) {
            let name = &of_field[0].1;
            terms.field(name);
            let mut numbers = vec![];
            let mut greatest: Option<String> = None;
            let (mut next, mut length) = (0, 0);
            for (field_type, _, data) in of_field {
                let text = match data {
                    Data::Number(n) => {
                        numbers.push(OwnedValue::F64(*n));
                        continue;
                    }
                    Data::Text(text) => text,
                };
                let mut put = |token: &str, position: u32| {
                    terms.token(token, position);
                    if greatest.as_deref().is_none_or(|known| known < token) {
                        greatest = Some(token.to_owned());
                    }
                };
                if *field_type == FieldType::String {
                    put(text, next);
                    (next, length) = (next + 1, length + 1);
                    continue;
                }
                let first = next;
                let mut before = None;
                analyze.analyze(name, text, &mut |token, position| {
                    let position = first + position;
                    put(token, position);
                    next = next.max(position + 1);
                    length += u64::from(before != Some(position));
                    before = Some(position);
                });
            }
            if !numbers.is_empty() {
                columns.push((ColumnKind::Numbers.member(name), OwnedValue::Array(numbers)));
            }
            if let Some(greatest) = greatest {
                let boost = self.boosts.get(name).copied().unwrap_or(1.0);
                let norm = norm_of(boost, length);
                let greatest = OwnedValue::Str(of_column(&greatest).to_owned());
                columns.push((ColumnKind::Strings.member(name), greatest));
                let norm = OwnedValue::U64(norm.into());
                columns.push((ColumnKind::Lengths.member(name), norm));
            }
        }
        let mut facets: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (name, value) in &self.facets {
            facets.entry(name).or_default().insert(of_column(value));
        }
        for (name, values) in facets {
            let values = values.into_iter().map(|v| OwnedValue::Str(v.to_owned()));
            let values = OwnedValue::Array(values.collect());
            columns.push((ColumnKind::Facets.member(name), values));
        }
    }
}

/// Encodes the terms of a field's values, and returns its column.
fn column_of(
    of_field: &[(FieldType, String, Data)],
    analyze: &dyn Analyze,
    terms: &mut Encoder,
) -> (String, OwnedValue) {
    let (field_type, name) = (of_field[0].0, &of_field[0].1);
    terms.field(name);
    let mut values = vec![];
    let mut strings = FxHashSet::default();
    let mut length = 0;
    let mut next = 0;
    for (_, _, data) in of_field {
        match data {
            Data::Number(n) => values.push(OwnedValue::F64(*n)),
            Data::Text(text) if field_type == FieldType::String => {
                terms.token(text, next);
                next += 1;
                let text = of_column(text);
                if strings.insert(text) {
                    values.push(OwnedValue::Str(text.to_owned()));
                }
            }
            Data::Text(text) => {
                let first = next;
                let mut before = None;
                analyze.analyze(name, text, &mut |token, position| {
                    let position = first + position;
                    terms.token(token, position);
                    next = next.max(position + 1);
                    // Tokens at one position count once, as in Lucene's norms.
                    length += u64::from(before != Some(position));
                    before = Some(position);
                });
            }
        }
    }
    let kind = match field_type {
        FieldType::String => ColumnKind::Strings,
        FieldType::Double => ColumnKind::Numbers,
        FieldType::Text => {
            values.push(OwnedValue::U64(length));
            ColumnKind::Lengths
        }
    };
    (kind.member(name), OwnedValue::Array(values))
}

/// Converts as Nouveau's JSON library does, which also accepts integers, words and null as
/// booleans.
pub fn flag_of(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(flag) => Some(*flag),
        Value::Null => Some(false),
        Value::Number(n) if n.is_f64() => None,
        Value::Number(n) => Some(n.as_i64() != Some(0)),
        Value::String(word) => match word.trim() {
            "true" | "True" | "TRUE" => Some(true),
            "false" | "False" | "FALSE" | "" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

/// Numbers are doubles.
fn stored_value(value: Value) -> Option<Value> {
    match value {
        Value::Number(n) => n.as_f64().and_then(Number::from_f64).map(Value::Number),
        Value::String(_) => Some(value),
        _ => None,
    }
}

/// `^\$?[a-zA-Z][a-zA-Z0-9_]*$`
fn is_name(name: &str) -> bool {
    let mut bytes = name.strip_prefix('$').unwrap_or(name).bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic())
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn refusal(kind: &str, name: &str, value: Value, store: Value) -> Option<String> {
        let added = Fields::new().add(0, kind, name, value, &store);
        added.err().map(|e| e.to_string())
    }

    #[test]
    fn names_are_what_nouveau_takes() {
        for name in ["a", "$a", "a_b", "Z9"] {
            assert_eq!(refusal("string", name, json!("x"), json!(null)), None);
        }
        for name in ["", "$", "9a", "a-b", "ü", "a b", "_id", "a\n"] {
            let expected = "fields[0].name must match \"^\\$?[a-zA-Z][a-zA-Z0-9_]*$\"";
            let refused = refusal("string", name, json!("x"), json!(null));
            assert_eq!(refused.as_deref(), Some(expected), "{name}");
        }
    }

    #[test]
    fn numbers_that_are_none_and_stores_that_are_no_booleans_are_refused() {
        assert!(refusal("double", "n", json!(null), json!(false)).is_some());
        assert!(refusal("stored", "n", json!(null), json!(false)).is_some());
        for store in [json!("yes"), json!(0.5), json!([]), json!({})] {
            assert!(refusal("double", "n", json!(1), store).is_some());
        }
        for store in [json!(1), json!(0), json!("True"), json!("false"), json!("")] {
            assert_eq!(refusal("double", "n", json!(1), store), None);
        }
    }

    #[test]
    fn repeated_values_are_stored_in_their_order() {
        let mut fields = Fields::new();
        for n in [20, 2, 7] {
            fields
                .add(0, "double", "n", json!(n), &json!(true))
                .unwrap();
        }
        fields
            .add(3, "stored", "s", json!("x"), &Value::Null)
            .unwrap();
        assert_eq!(
            Value::Object(fields.stored),
            json!({"n": [20.0, 2.0, 7.0], "s": "x"})
        );
    }

    #[test]
    fn what_clouseau_stores_comes_back_newest_first_and_booleans_are_words() {
        let options = ClassicOptions {
            index: true,
            analyzed: true,
            store: true,
            facet: false,
            boost: 1.0,
        };
        let mut fields = Fields::classic();
        for value in [json!("a"), json!(2), json!(true)] {
            fields.add_classic("x", value, &options);
        }
        fields.add_classic("bad\0name", json!("a"), &options);
        let mut types = Types::new();
        fields.note_types(&mut types).unwrap();
        assert_eq!(types, Types::from([("x".to_owned(), FieldType::Text)]));
        assert_eq!(
            Value::Object(fields.take_stored()),
            json!({"x": ["true", 2.0, "a"]})
        );
    }

    #[test]
    fn an_index_has_so_many_fields_and_no_more() {
        let mut types = Types::new();
        let mut note = |name: String| {
            let mut fields = Fields::new();
            fields
                .add(0, "double", &name, json!(1), &Value::Null)
                .unwrap();
            fields.note_types(&mut types)
        };
        for n in 0..FIELDS_MAX {
            note(format!("f{n}")).unwrap();
        }
        assert!(matches!(
            note("more".into()),
            Err(Error::TooManyFields { .. })
        ));
        assert!(note("f7".into()).is_ok());
    }

    #[test]
    fn the_names_of_an_index_are_not_longer_than_16_mib() {
        let mut types = Types::new();
        let long = "f".repeat(60_000);
        let mut note = |name: String| {
            let mut fields = Fields::new();
            fields
                .add(0, "double", &name, json!(1), &Value::Null)
                .unwrap();
            fields.note_types(&mut types)
        };
        for n in 0..NAMES_BYTES_MAX / 60_003 {
            note(format!("{long}{n:03}")).unwrap();
        }
        let refused = note(format!("{long}more")).unwrap_err();
        assert!(refused.is_of_document(), "{refused}");
        assert!(!note(format!("{long}007")).unwrap());
    }

    #[test]
    fn a_document_that_is_refused_leaves_no_types() {
        let mut types = Types::new();
        let fields_of = |calls: &[(&str, String)]| {
            let mut fields = Fields::new();
            for (at, (kind, name)) in calls.iter().enumerate() {
                let value = match *kind {
                    "double" => json!(1),
                    _ => json!("x"),
                };
                fields.add(at, kind, name, value, &Value::Null).unwrap();
            }
            fields
        };
        let many: Vec<_> = (0..=FIELDS_MAX)
            .map(|n| ("double", format!("f{n}")))
            .collect();
        let refused = fields_of(&many).note_types(&mut types).unwrap_err();
        assert!(refused.is_of_document());
        let both = fields_of(&[
            ("double", "a".into()),
            ("string", "b".into()),
            ("string", "a".into()),
        ]);
        assert!(both.note_types(&mut types).unwrap_err().is_of_document());
        assert_eq!(types, Types::new());
    }

    #[test]
    fn the_first_type_of_a_field_is_its_type() {
        let mut types = Types::new();
        let mut note = |kind, value| {
            let mut fields = Fields::new();
            fields.add(0, kind, "v", value, &Value::Null).unwrap();
            fields.note_types(&mut types).map_err(|e| e.to_string())
        };
        assert_eq!(note("double", json!(1)), Ok(true));
        assert_eq!(note("double", json!(2)), Ok(false));
        assert_eq!(
            note("string", json!("x")),
            Err("field v is of type STRING not DOUBLE".to_owned())
        );
    }
}
