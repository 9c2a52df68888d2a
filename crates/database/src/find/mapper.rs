//! Mango's indexes as a language: a view whose map is `{"fields": {…}}` emits the fields' values, natively.

use std::sync::Arc;

use functions::{
    Admission, Designs, Doc, Emits, Error, Indexes, Lane, Languages, MapGroup, Mapper, Place,
    Reducer, Share,
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
        let views = group.maps.iter().map(|map| View::read(map)).collect();
        Ok(Box::new(IndexMapper { views }))
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

/// Emits nothing for a view that is not an index, as CouchDB does.
struct IndexMapper {
    views: Vec<Option<View>>,
}

impl Mapper for IndexMapper {
    fn map(&mut self, docs: &[Doc<'_>], out: &mut Emits) -> Result<(), Error> {
        for (n, doc) in docs.iter().enumerate() {
            // Not even with `include_design`: no query finds design documents.
            if doc.members.starts_with(DESIGN) {
                continue;
            }
            let doc = mango::Doc {
                members: doc.members,
                body: doc.body,
            };
            for (v, view) in self.views.iter_mut().enumerate() {
                let Some(view) = view else {
                    continue;
                };
                let start = out.bytes.len();
                if !view.write_key(&doc, &mut out.bytes) {
                    out.bytes.truncate(start);
                    continue;
                }
                let end = out.bytes.len();
                out.bytes.extend_from_slice(b"null");
                out.push_row(n, v, start, end);
            }
        }
        Ok(())
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
}
