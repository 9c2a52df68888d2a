//! Mango's indexes as a language: a view whose map is `{"fields": {…}}` emits the fields' values, natively.

use std::sync::Arc;

use functions::{
    Admission, Designs, Doc, EMITS_BYTES_MAX, Emit, Emits, Error, Indexes, Lane, Languages,
    MapGroup, Mapper, Place, Reducer, Share,
};
use mango::index::LANGUAGE;
use mango::text::{EntryValue, entries};
use mango::{Definition, Lift, LiftedValue, Limits, TextDefinition, TextKind};

use crate::expiry::{self, ExpiryMapper};

/// Languages, and the indexes that have native map functions.
#[derive(Debug)]
pub(crate) struct WithIndexes(pub Arc<dyn Languages>);

impl Languages for WithIndexes {
    fn admission(&self, lane: Lane, share: &Share) -> Admission {
        self.0.admission(lane, share)
    }

    fn mapper(&self, group: &MapGroup) -> Result<Box<dyn Mapper>, Error> {
        if group.language == expiry::LANGUAGE {
            return Ok(Box::new(ExpiryMapper::new(group)));
        }
        if group.language != LANGUAGE {
            return self.0.mapper(group);
        }
        if group.indexes != Indexes::No {
            let definitions = group.maps.iter().map(|map| read_text(map)).collect();
            return Ok(Box::new(TextMapper { definitions }));
        }
        Ok(Box::new(IndexMapper::new(&group.maps, VIEWS_BYTES_MAX)))
    }

    fn reducer(
        &self,
        database: &Arc<str>,
        language: &str,
        source: &str,
        lib: Option<&str>,
    ) -> Result<Box<dyn Reducer>, Error> {
        self.0.reducer(database, language, source, lib)
    }

    fn designs(&self, place: &Place, language: &str) -> Result<Box<dyn Designs>, Error> {
        self.0.designs(place, language)
    }

    fn check(
        &self,
        place: &Place,
        language: &str,
        source: &str,
        lib: Option<&str>,
    ) -> Result<(), Error> {
        self.0.check(place, language, source, lib)
    }

    fn limit(&self, language: &str, name: &str) -> Option<u64> {
        self.0.limit(language, name)
    }

    fn worker_memory(&self) -> (u64, u64) {
        self.0.worker_memory()
    }

    fn projections(&self, group: &MapGroup) -> Vec<Result<String, String>> {
        if group.language != LANGUAGE {
            return self.0.projections(group);
        }
        let fields = |map: &String| match View::read(map) {
            Some(view) => {
                Ok(serde_json::Value::from_iter(view.definition.fields.names()).to_string())
            }
            None => Err("not the definition of an index".to_owned()),
        };
        group.maps.iter().map(fields).collect()
    }

    fn time_zone(&self) -> &str {
        self.0.time_zone()
    }

    fn rest(&self) {
        self.0.rest();
    }
}

/// Whether a partial index has the document. A document that takes too long is left out: one
/// document must not end a build.
fn is_in_index(selector: &mango::Selector, doc: &mango::Doc<'_>) -> bool {
    selector.matches_doc(doc).unwrap_or_else(|error| {
        tracing::warn!(%error, "an index leaves a document out");
        false
    })
}

struct View {
    definition: Definition,
    lift: Lift,
}

impl View {
    fn read(map: &str) -> Option<View> {
        let map = document::normalise(map.as_bytes()).ok()?;
        let definition = Definition::from_map(&map, &Limits::OF_INDEXES).ok()?;
        let lift = Lift::new(&definition.paths);
        Some(View { definition, lift })
    }

    /// Returns about how much memory it takes, in bytes.
    fn memory_bytes(&self) -> usize {
        let partial = self.definition.partial.as_ref();
        partial.map_or(0, |(text, selector)| text.len() + selector.memory_bytes())
    }

    /// Emits a row for a document, unless it is not to be in the index. `at`: the numbers of the
    /// document and of the view.
    fn emit(&mut self, doc: &Doc<'_>, at: (usize, usize), out: &mut Emits) {
        // Not even with `include_design`: no query finds design documents.
        if doc.members.starts_with(DESIGN) {
            return;
        }
        let doc = mango::Doc {
            members: doc.members,
            body: doc.body,
        };
        let start = out.bytes.len();
        if !self.write_key(&doc, &mut out.bytes) {
            out.bytes.truncate(start);
            return;
        }
        let end = out.bytes.len();
        out.bytes.extend_from_slice(b"null");
        out.push_row(at.0, at.1, start, end);
    }

    /// Writes the key of a document: an array of its fields' values. False when it lacks one, or is not to be in the index.
    fn write_key(&mut self, doc: &mango::Doc<'_>, out: &mut Vec<u8>) -> bool {
        if let Some((_, selector)) = &self.definition.partial
            && !is_in_index(selector, doc)
        {
            return false;
        }
        out.push(b'[');
        for (i, found) in self.lift.of(doc).enumerate() {
            let LiftedValue::Value(text) = found else {
                return false;
            };
            if i > 0 {
                out.push(b',');
            }
            out.extend_from_slice(text);
        }
        out.push(b']');
        true
    }
}

/// The prefix of the underscore members of a design document.
const DESIGN: &[u8] = b"\"_id\":\"_design/";

/// Memory of the views of a design document that are compiled at a time, in bytes, besides the last
/// one.
const VIEWS_BYTES_MAX: usize = 32 << 20;

/// Emits nothing for a view that is not an index, as CouchDB does.
struct IndexMapper {
    views: Vec<Option<View>>,
    /// The numbers and definitions of views for which there is no memory: they are compiled again
    /// for each call.
    others: Vec<(usize, String)>,
}

impl IndexMapper {
    fn new(maps: &[String], bytes_max: usize) -> IndexMapper {
        let mut left = Some(bytes_max);
        let (mut views, mut others) = (vec![], vec![]);
        for (number, map) in maps.iter().enumerate() {
            // Where one had no room, no further ones are compiled here: there may be hundreds.
            let view = left.and_then(|_| View::read(map));
            let bytes = view.as_ref().map_or(0, View::memory_bytes);
            left = left.and_then(|left| left.checked_sub(bytes));
            match left {
                Some(_) => views.push(view),
                None => others.push((number, map.clone())),
            }
        }
        IndexMapper { views, others }
    }
}

impl Mapper for IndexMapper {
    fn map(&mut self, docs: &[Doc<'_>], out: &mut Emits) -> Result<(), Error> {
        let first = out.rows.len();
        for (n, doc) in docs.iter().enumerate() {
            for (v, view) in self.views.iter_mut().enumerate() {
                if let Some(view) = view {
                    view.emit(doc, (n, v), out);
                }
            }
        }
        for (v, map) in &self.others {
            let Some(mut view) = View::read(map) else {
                continue;
            };
            for (n, doc) in docs.iter().enumerate() {
                view.emit(doc, (n, *v), out);
            }
        }
        if !self.others.is_empty() {
            out.rows[first..].sort_by_key(|row| (row.doc, row.view));
        }
        Ok(())
    }

    /// Maps as many documents as cannot have more bytes of rows together: views for which there is no
    /// memory are compiled once for all of them.
    fn map_some(&mut self, docs: &[Doc<'_>], out: &mut Emits) -> Result<usize, Error> {
        let views = self.views.len() + self.others.len();
        let mut bytes = 0;
        let fits = |doc: &&Doc<'_>| {
            let before = bytes;
            bytes += views * (doc.members.len() + doc.body.len() + size_of::<Emit>());
            before < EMITS_BYTES_MAX
        };
        let some = docs.iter().take_while(fits).count();
        self.map(&docs[..some], out)?;
        Ok(some)
    }
}

/// The definition of a text index, which was checked before: those of `nouveau` may have all
/// members of other ones.
fn read_text(definition: &str) -> Option<TextDefinition> {
    let text = document::normalise(definition.as_bytes()).ok()?;
    TextDefinition::read(TextKind::Nouveau, &text, &Limits::OF_INDEXES).ok()
}

/// The largest size of the rows of documents that are mapped together, in bytes; documents beyond
/// it are not in the index.
const ROWS_BYTES_MAX: usize = 2 << 30;

/// Emits the fields of documents as a call of Clouseau's `index` for each would: nothing for an
/// invalid definition.
struct TextMapper {
    definitions: Vec<Option<TextDefinition>>,
}

impl Mapper for TextMapper {
    fn map(&mut self, docs: &[Doc<'_>], out: &mut Emits) -> Result<(), Error> {
        for (n, doc) in docs.iter().enumerate() {
            if doc.members.starts_with(DESIGN) {
                continue;
            }
            let special = [&b"{"[..], doc.members, b"}"].concat();
            let whole = mango::Doc {
                members: doc.members,
                body: doc.body,
            };
            for (v, definition) in self.definitions.iter().enumerate() {
                let Some(definition) = definition else {
                    continue;
                };
                if let Some((_, selector)) = &definition.partial
                    && !is_in_index(selector, &whole)
                {
                    continue;
                }
                // Positions in the emitted rows are numbers of 32 bits.
                if out.bytes.len() > ROWS_BYTES_MAX {
                    continue;
                }
                let members = mango::members(&special).chain(mango::members(doc.body));
                for entry in entries(definition, members) {
                    let start = out.bytes.len();
                    document::write_json_string(&entry.name, &mut out.bytes);
                    let end = out.bytes.len();
                    out.bytes.push(b'[');
                    match &entry.value {
                        EntryValue::Text(text) => document::write_json_string(text, &mut out.bytes),
                        EntryValue::Number(n) => {
                            let number = serde_json::Value::from(*n).to_string();
                            out.bytes.extend_from_slice(number.as_bytes());
                        }
                    }
                    out.bytes.extend_from_slice(b",{}]");
                    out.push_row(n, v, start, end);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_that_has_all_fields_is_in_the_index() {
        let languages = WithIndexes(Arc::new(functions::NoLanguages));
        let group = MapGroup {
            language: "query".into(),
            maps: vec![
                r#"{"fields":{"a":"asc","b.c":"asc"}}"#.into(),
                r#"{"fields":{"a":"asc"},"partial_filter_selector":{"a":{"$gt":1}}}"#.into(),
                "function (doc) {}".into(),
                r#"{"fields":{"_id":"asc"}}"#.into(),
            ],
            ..MapGroup::default()
        };
        let docs = [
            r#"{"b":{"c":[1]},"a":1}"#,
            r#"{"a":2,"b":{}}"#,
            r#"{"a":null,"b":{"c":null}}"#,
        ];
        let mut docs = docs
            .map(|body| Doc {
                members: br#""_id":"x","_rev":"1-a""#,
                body: body.as_bytes(),
            })
            .to_vec();
        docs.push(Doc {
            members: br#""_id":"_design/x","_rev":"1-a""#,
            body: br#"{"a":2,"b":{"c":1}}"#,
        });
        let mut out = Emits::default();
        let mut mapper = languages.mapper(&group).unwrap();
        mapper.map(&docs, &mut out).unwrap();
        let rows: Vec<_> = out
            .rows
            .iter()
            .map(|e| {
                (
                    e.doc,
                    e.view,
                    String::from_utf8_lossy(out.key(e)),
                    out.value(e),
                )
            })
            .collect();
        let row = |doc, view, key: &'static str| (doc, view, key.into(), &b"null"[..]);
        let expected = [
            row(0, 0, "[1,[1]]"),
            row(0, 3, r#"["x"]"#),
            row(1, 1, "[2]"),
            row(1, 3, r#"["x"]"#),
            row(2, 0, "[null,null]"),
            row(2, 3, r#"["x"]"#),
        ];
        assert_eq!(rows, expected);
    }
    #[test]
    fn an_index_for_which_there_is_no_memory_has_the_same_rows() {
        let regex = |n: usize| format!(r#"{{"a":{{"$regex":"(?:a{{1000}}){{9}}|^x.*{n}"}}}}"#);
        let filtered = |n| {
            format!(
                r#"{{"fields":{{"a":"asc"}},"partial_filter_selector":{}}}"#,
                regex(n)
            )
        };
        let mut maps: Vec<String> = (0..4).map(filtered).collect();
        maps.insert(0, r#"{"fields":{"b":"asc"}}"#.into());
        maps.insert(2, "function (doc) {}".into());
        let bodies: Vec<String> = (0..20)
            .map(|n| format!(r#"{{"a":"x{n}","b":{n}}}"#))
            .collect();
        let docs: Vec<Doc<'_>> = bodies
            .iter()
            .map(|body| Doc {
                members: br#""_id":"x","_rev":"1-a""#,
                body: body.as_bytes(),
            })
            .collect();
        let rows = |bytes_max: usize| {
            let mut mapper = IndexMapper::new(&maps, bytes_max);
            let mut out = Emits::default();
            mapper.map(&docs, &mut out).unwrap();
            let row = |e: &functions::Emit| (e.doc, e.view, out.key(e).to_vec());
            let rows: Vec<_> = out.rows.iter().map(row).collect();
            (mapper.others.len(), rows)
        };
        let (others, all) = rows(usize::MAX);
        assert_eq!((others, all.len()), (0, 20 + 2 + 11 + 2 + 2));
        // An expression of this size takes almost a megabyte.
        for (bytes_max, expected) in [(0, 5), (1_500_000, 5), (VIEWS_BYTES_MAX, 0)] {
            let (others, limited) = rows(bytes_max);
            assert!(limited == all, "{bytes_max}");
            assert!(
                others <= expected && (others > 0) == (expected > 0),
                "{bytes_max}: {others}"
            );
        }
    }
}
