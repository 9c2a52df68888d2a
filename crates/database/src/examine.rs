//! Facts about a database's health, from a sample of its documents, its design documents and its
//! counters. Nothing is written, and nothing is opened.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use document::DocId;
use storage::{ChangeIter, IdIter, RecordHead, Row, Shard, Signature};

use crate::database::Database;
use crate::views::{Design, ViewIndex};
use crate::{Error, Read, ReadOptions};

/// Ids of fewer hexadecimal digits may mean something.
const MADE_UP_DIGITS_MIN: usize = 16;
/// Rows read between two checks of the clock.
const ROWS_BETWEEN: u64 = 64;

/// Statistics of the latest changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Documents that were examined, one per change.
    pub documents: u64,
    /// Of new documents with generated ids: the order of the ids, by the prefix before the generated
    /// part.
    pub id_orders: BTreeMap<String, IdOrder>,
    /// Total length of all ids, in bytes.
    pub id_bytes: u64,
    /// Documents with conflicts.
    pub conflicted: u64,
    /// The document with the most conflicts, and how many it has.
    pub widest: Option<(String, u64)>,
}

/// Whether the ids of new documents ascend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdOrder {
    /// Pairs of documents that follow each other in the feed.
    pub pairs: u64,
    /// Pairs whose ids are in the order of the feed.
    pub in_order: u64,
}

/// Data that a compaction would reclaim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Garbage {
    /// Rows of revisions that were replaced.
    pub rows: u64,
    /// Bytes of attachments that no document names.
    pub attachment_bytes: u64,
    /// A compaction is worth it.
    pub is_due: bool,
    /// Whether one is queued, or runs.
    pub is_compacting: bool,
}

/// A design document with views or text indexes.
#[derive(Clone, Debug)]
pub struct DesignFacts {
    /// `_design/name`
    pub id: String,
    /// The language of its functions.
    pub language: String,
    /// Equal for design documents that share an index: in hexadecimal.
    pub signature: String,
    /// An index is kept for it.
    pub is_built: bool,
    /// Whether its rows were queried since the server's start; `None` when unknown.
    pub was_used: Option<bool>,
    /// Its views, by name.
    pub views: Vec<ViewFacts>,
    /// Facts about its view index, if it is open.
    pub open: Option<OpenIndexFacts>,
    /// Its text indexes, by name.
    pub text_indexes: Vec<TextFacts>,
}

/// A text index.
#[derive(Clone, Debug)]
pub struct TextFacts {
    /// Its name.
    pub name: String,
    /// The interface that it belongs to.
    pub flavour: analysis::Flavour,
    /// It is an index of Mango.
    pub is_mango: bool,
    /// The reason why it can never be built, whatever the documents are.
    pub refused: Option<String>,
    /// It is kept.
    pub is_built: bool,
    /// Whether it was queried since the server's start; `None` when unknown.
    pub was_used: Option<bool>,
    /// Facts about it, if it is open.
    pub open: Option<OpenTextFacts>,
}

/// Facts about an open text index.
#[derive(Clone, Debug, Default)]
pub struct OpenTextFacts {
    /// Builds that failed since the last that did not.
    pub failures: u32,
    /// Why the last one did.
    pub failure: Option<String>,
    /// An update is under way.
    pub is_updating: bool,
    /// Whether the next update starts without a query: the background is about to check recent
    /// writes.
    pub is_update_due: bool,
    /// Its segments are being merged.
    pub is_tidying: bool,
    /// Changes that it has not applied yet.
    pub pending: u64,
    /// Segments of the shard that has the most.
    pub segments_most: usize,
    /// Documents that its function was given since it was opened.
    pub mapped: u64,
    /// For how many of them it threw.
    pub failed: u64,
    /// Documents that it leaves out: it cannot hold the results of its function for them.
    pub left_out: u64,
}

/// A view.
#[derive(Clone, Debug)]
pub struct ViewFacts {
    /// Its name.
    pub name: String,
    /// Equal for views of a database that have the same rows.
    pub rows_hash: u64,
    /// The fields of a Mango index on all documents, in their order.
    pub fields: Option<Vec<String>>,
    /// Why its map function is given whole documents, if it is.
    pub takes_whole: Option<String>,
    /// Documents that its map function threw for since the index was opened.
    pub failed: u64,
}

/// Facts about an open index.
#[derive(Clone, Debug, Default)]
pub struct OpenIndexFacts {
    /// Documents that were mapped since it was opened.
    pub mapped: u64,
    /// Bytes of keys and values as JSON text.
    pub external_bytes: u64,
    /// Builds that failed since the last that did not.
    pub failures: u32,
    /// Why the last one did.
    pub failure: Option<String>,
    /// Documents that were left out of a view since it was opened, because its function exceeded a limit for them; counted
    /// for each view.
    pub left_out: u64,
}

/// Some design documents with views or text indexes, and whether these are all.
pub struct SomeDesigns {
    /// Shard by shard in the order of their ids.
    pub designs: Vec<DesignFacts>,
    /// There are more design documents, with indexes or without.
    pub has_more: bool,
}

/// How many documents were visited, and whether these are all.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct VisitedDocuments {
    /// How many there were, design documents aside.
    pub documents: usize,
    /// There are more.
    pub has_more: bool,
}

impl Database {
    /// Examines the latest changes: at most `most`, and only until `until`. Blocks.
    ///
    /// # Errors
    /// Errors of reading.
    pub fn sample(&self, most: u64, until: Instant) -> Result<Sample, Error> {
        let mut sample = Sample::default();
        let shards = self.all_shards();
        for shard in shards {
            let most = most.div_ceil(shards.len() as u64);
            self.if_live(self.sample_shard(shard, most, until, &mut sample))?;
        }
        Ok(sample)
    }

    fn sample_shard(
        &self,
        shard: &Shard,
        most: u64,
        until: Instant,
        sample: &mut Sample,
    ) -> Result<(), Error> {
        let view = shard.view()?;
        let mut changes = ChangeIter::new(&view.snapshot, shard.number, u64::MAX, true);
        let mut later = BTreeMap::new();
        let mut seen = 0;
        while let Some((seq, value)) = changes.entry().filter(|_| seen < most) {
            seen += 1;
            if seen % ROWS_BETWEEN == 0 && Instant::now() >= until {
                break;
            }
            let row = Row::decode(seq, value)?;
            if !row.id.starts_with("_design/") {
                sample.look_at(&row, self.is_partitioned(), &mut later)?;
            }
            changes.next();
        }
        Ok(changes.status()?)
    }

    /// Returns the data that a compaction would reclaim.
    ///
    /// # Errors
    /// Errors of reading.
    pub fn garbage(&self) -> Result<Garbage, Error> {
        self.live()?;
        Ok(Garbage {
            rows: self.removable_rows(),
            attachment_bytes: self.removable_attachment_bytes()?,
            is_due: crate::maintenance::is_due(self),
            is_compacting: self.is_compacting(),
        })
    }

    /// Returns design documents with views or text indexes: at most `most`, and only until `until`.
    /// Blocks.
    ///
    /// # Errors
    /// Errors of reading.
    pub fn examine_designs(&self, most: usize, until: Instant) -> Result<SomeDesigns, Error> {
        self.if_live(self.examine_designs_now(most, until))
    }

    fn examine_designs_now(&self, most: usize, until: Instant) -> Result<SomeDesigns, Error> {
        let built = self.built_indexes()?;
        let open = self.open_view_indexes();
        let mut designs = vec![];
        let has_more = self.visit_designs(until, |id| {
            if designs.len() >= most {
                return Ok(false);
            }
            match self.design_now(id) {
                Ok(design) if design.has_views() || design.text_names().next().is_some() => {
                    designs.push(self.design_facts(&design, &built, &open)?);
                }
                Ok(_) | Err(Error::Missing(_)) => {}
                Err(e) => return Err(e),
            }
            Ok(true)
        })?;
        Ok(SomeDesigns { designs, has_more })
    }

    /// Calls `visit` with the ids of design documents, until it returns false, or until a moment.
    /// Returns whether there are more design documents. Blocks.
    ///
    /// # Errors
    /// Errors of reading, and those of `visit`.
    pub(crate) fn visit_designs(
        &self,
        until: Instant,
        mut visit: impl FnMut(&str) -> Result<bool, Error>,
    ) -> Result<bool, Error> {
        for shard in self.all_shards() {
            let view = shard.view()?;
            let mut ids = IdIter::new(&view.snapshot, shard.number);
            ids.seek(b"_design/");
            while let Some((id, value)) = ids.entry().filter(|(id, _)| id.starts_with(b"_design/"))
            {
                if Instant::now() >= until {
                    return Ok(true);
                }
                let is_there = !RecordHead::decode(value)?.deleted;
                if let Ok(id) = str::from_utf8(id)
                    && is_there
                    && !visit(id)?
                {
                    return Ok(true);
                }
                ids.next();
            }
            ids.status()?;
        }
        Ok(false)
    }

    /// The indexes that are stored. Others are removed from the record of used indexes.
    fn built_indexes(&self) -> Result<HashSet<Signature>, Error> {
        // First: one that is made and asked meanwhile stays noted.
        let used = &self.shared_views().used;
        let mut gone = used.of(self.uuid());
        let Some(shard) = self.all_shards().first() else {
            return Ok(HashSet::new());
        };
        let built = self.store().indexes(shard.number)?;
        let built: HashSet<Signature> = built.into_iter().map(|(of, _)| of).collect();
        gone.retain(|signature| !built.contains(signature));
        used.forget(self.uuid(), &gone);
        Ok(built)
    }

    fn design_facts(
        &self,
        design: &Design,
        built: &HashSet<Signature>,
        open: &[Arc<ViewIndex>],
    ) -> Result<DesignFacts, Error> {
        let signature = design.signature;
        let open = open
            .iter()
            .find(|index| index.signature() == Some(signature));
        let mut views = self.view_facts(design, open.map(|index| &**index));
        self.read_fields(design, &mut views)?;
        let mut text_indexes = vec![];
        for (flavour, name) in design.text_names() {
            let built = |signature| built.contains(&signature);
            text_indexes.push(self.text_facts(design, (flavour, name), built)?);
        }
        text_indexes.sort_by(|a, b| (&a.name, a.flavour as u8).cmp(&(&b.name, b.flavour as u8)));
        Ok(DesignFacts {
            id: design.id.clone(),
            language: design.spec.language.clone(),
            signature: data_encoding::HEXLOWER.encode(&signature),
            is_built: built.contains(&signature),
            was_used: self.shared_views().used.was_used(self.uuid(), signature),
            views,
            open: open.map(|index| index.facts()),
            text_indexes,
        })
    }

    /// The fields of those views that are indexes of Mango.
    fn read_fields(&self, design: &Design, views: &mut [ViewFacts]) -> Result<(), Error> {
        if design.spec.language != mango::index::LANGUAGE {
            return Ok(());
        }
        let Some(text) = self.design_text(&design.id)? else {
            return Ok(());
        };
        let limits = mango::Limits::OF_INDEXES;
        for index in mango::Index::of_design(&text, self.is_partitioned(), &limits) {
            let view = views.iter_mut().find(|view| view.name == index.name);
            if let Some(view) = view
                && index.is_json()
                && index.definition.partial.is_none()
            {
                let fields = index.definition.fields.names();
                view.fields = Some(fields.map(str::to_owned).collect());
            }
        }
        Ok(())
    }

    fn view_facts(&self, design: &Design, open: Option<&ViewIndex>) -> Vec<ViewFacts> {
        let projections: HashMap<_, _> = self.view_projections(design).into_iter().collect();
        let views = design.names().map(|(name, at)| {
            let takes_whole = projections.get(name).and_then(|members| match members {
                Err(why) => Some(why.clone()),
                // The one path that is the document itself.
                Ok(members) if members == r#"[""]"# => Some("all of doc is used".to_owned()),
                Ok(_) => None,
            });
            ViewFacts {
                name: name.to_owned(),
                rows_hash: rows_hash(design, at.view),
                fields: None,
                takes_whole,
                failed: open.map_or(0, |index| index.failed(at.view)),
            }
        });
        let mut views: Vec<_> = views.collect();
        views.sort_by(|a, b| a.name.cmp(&b.name));
        views
    }

    /// Passes documents whose ids begin with a text to `visit`, one by one in their order: at most
    /// `most`, and only until `until`. They are complete, with members that are hidden from users.
    /// Blocks.
    ///
    /// # Errors
    /// Errors of reading.
    pub fn visit_documents(
        &self,
        prefix: &str,
        most: usize,
        until: Instant,
        visit: &mut dyn FnMut(&DocId, &[u8]),
    ) -> Result<VisitedDocuments, Error> {
        let mut some = VisitedDocuments::default();
        for shard in self.all_shards() {
            let view = shard.view()?;
            let mut ids = IdIter::new(&view.snapshot, shard.number);
            ids.seek(prefix.as_bytes());
            while let Some((id, value)) = ids
                .entry()
                .filter(|(id, _)| id.starts_with(prefix.as_bytes()))
            {
                if some.documents >= most || Instant::now() >= until {
                    some.has_more = true;
                    return Ok(some);
                }
                let is_document =
                    !RecordHead::decode(value)?.deleted && !id.starts_with(b"_design/");
                let id = str::from_utf8(id).ok().filter(|_| is_document);
                if let Some(id) = id.and_then(|id| DocId::new(id).ok())
                    && let Read::Found(doc) = self.read(&id, &ReadOptions::default())?
                {
                    some.documents += 1;
                    visit(&id, &doc.json);
                }
                ids.next();
            }
            ids.status()?;
        }
        Ok(some)
    }
}

impl Sample {
    /// Examines a document. `later` has, by prefix, the generated part of the id of the new document
    /// that was examined before it, and so was written after it.
    fn look_at(
        &mut self,
        row: &Row<'_>,
        is_partitioned: bool,
        later: &mut BTreeMap<String, String>,
    ) -> Result<(), Error> {
        self.documents += 1;
        self.id_bytes += row.id.len() as u64;
        let conflicts = match row.has_other_leaves() {
            true => row
                .other_leaves()?
                .iter()
                .filter(|(_, deleted)| !deleted)
                .count() as u64,
            false => 0,
        };
        if conflicts > 0 && !row.deleted {
            self.conflicted += 1;
            if self
                .widest
                .as_ref()
                .is_none_or(|(_, most)| conflicts > *most)
            {
                self.widest = Some((row.id.to_owned(), conflicts));
            }
        }
        let own = match is_partitioned {
            true => row.id.split_once(':').map_or(row.id, |(_, own)| own),
            false => row.id,
        };
        if row.winner.generation != 1 {
            return Ok(());
        }
        let Some((prefix, generated)) = split_generated(own) else {
            return Ok(());
        };
        let Some(later) = later.get_mut(prefix) else {
            later.insert(prefix.to_owned(), generated.to_owned());
            return Ok(());
        };
        let order = self.id_orders.entry(prefix.to_owned()).or_default();
        order.pairs += 1;
        order.in_order += u64::from(generated < later.as_str());
        generated.clone_into(later);
        Ok(())
    }
}

/// Splits an id into a prefix, which may be empty, and a part that a program generated. `None` without such a part.
fn split_generated(id: &str) -> Option<(&str, &str)> {
    let is_part = |c: char| c.is_ascii_hexdigit() || c == '-';
    let rest = id.trim_end_matches(is_part);
    let generated = id[rest.len()..].trim_start_matches('-');
    is_made_up(generated).then(|| id.split_at(id.len() - generated.len()))
}

/// Whether an id looks generated, like a UUID: not a name, a number or a date.
fn is_made_up(id: &str) -> bool {
    let digits = id.bytes().filter(|b| *b != b'-');
    let (mut count, mut letters) = (0, 0);
    for digit in digits {
        if !digit.is_ascii_hexdigit() {
            return false;
        }
        count += 1;
        letters += usize::from(digit.is_ascii_alphabetic());
    }
    count >= MADE_UP_DIGITS_MIN && letters > 0
}

/// Equal for views with the same rows.
fn rows_hash(design: &Design, view: usize) -> u64 {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let spec = &design.spec;
    let mut hasher = DefaultHasher::new();
    (
        &spec.language,
        &spec.lib,
        spec.include_design,
        spec.local_seq,
        spec.partitioned,
    )
        .hash(&mut hasher);
    if let Some(view) = spec.views.get(view) {
        (&view.map, view.raw).hash(&mut hasher);
    }
    hasher.finish()
}

impl ViewIndex {
    fn failed(&self, view: usize) -> u64 {
        self.shards.iter().map(|i| i.map_counts.failed(view)).sum()
    }

    fn facts(&self) -> OpenIndexFacts {
        let updates = self.updates.borrow();
        OpenIndexFacts {
            mapped: self.shards.iter().map(|i| i.map_counts.mapped()).sum(),
            external_bytes: self.shards.iter().map(|i| i.info().external_bytes).sum(),
            failures: updates.failures,
            failure: updates.failure.as_ref().map(ToString::to_string),
            left_out: self
                .shards
                .iter()
                .map(|i| i.left_out().unwrap_or_default())
                .sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::EditMode;
    use crate::fixture::Fixture;

    #[test]
    fn documents_are_visited_one_by_one() {
        let fixture = Fixture::new(Some(1));
        let db = &fixture.db;
        let docs = ["_design/a", "a1", "a2", "a3", "b1"].map(|id| {
            let doc = json!({"_id": id, "member": id});
            document::parse_document(doc.to_string().as_bytes()).unwrap()
        });
        fixture.write(docs.into(), EditMode::Interactive);
        let later = Instant::now() + Duration::from_secs(60);
        let visited = |prefix, most, until| {
            let mut ids = vec![];
            let visited = db.visit_documents(prefix, most, until, &mut |id, json| {
                let doc: serde_json::Value = serde_json::from_slice(json).unwrap();
                assert_eq!(doc["member"], id.as_str());
                ids.push(id.as_str().to_owned());
            });
            let visited = visited.unwrap();
            assert_eq!(visited.documents, ids.len());
            (ids.concat(), visited.has_more)
        };
        assert_eq!(visited("", 9, later), ("a1a2a3b1".to_owned(), false));
        assert_eq!(visited("a", 9, later), ("a1a2a3".to_owned(), false));
        assert_eq!(visited("a", 2, later), ("a1a2".to_owned(), true));
        assert_eq!(visited("", 9, Instant::now()), (String::new(), true));
    }

    #[test]
    fn some_of_many_design_documents_are_examined() {
        let fixture = Fixture::new(None);
        let db = &fixture.db;
        let index = json!({"map": {"fields": {"b": "asc", "a": "asc"}}, "options": {"def": {"fields": ["b", "a"]}}});
        let designs = (0..10).map(|n| {
            let id = format!("_design/{n}");
            let doc =
                json!({"_id": id, "language": "query", "autoupdate": false, "views": {"v": index}});
            document::parse_document(doc.to_string().as_bytes()).unwrap()
        });
        fixture.write(designs.collect(), EditMode::Interactive);
        let later = Instant::now() + Duration::from_secs(60);
        let of = |most, until| {
            let some = db.examine_designs(most, until).unwrap();
            (some.designs.len(), some.has_more)
        };
        assert_eq!(of(100, later), (10, false));
        assert_eq!(of(10, later), (10, false));
        assert_eq!(of(3, later), (3, true));
        assert_eq!(of(100, Instant::now()), (0, true));
        let doc = json!({"_id": "_design/text", "autoupdate": false, "nouveau": {"words": {"index": "x"}, "none": 1}});
        let doc = document::parse_document(doc.to_string().as_bytes()).unwrap();
        fixture.write(vec![doc], EditMode::Interactive);
        let some = db.examine_designs(100, later).unwrap();
        let texts: Vec<&TextFacts> = some
            .designs
            .iter()
            .flat_map(|of| &of.text_indexes)
            .collect();
        let [none, words] = texts[..] else {
            panic!("{texts:?}");
        };
        assert!(none.refused.is_some() && words.refused.is_none());
        assert_eq!((words.name.as_str(), words.is_built), ("words", false));
        assert_eq!((words.was_used, words.open.is_none()), (Some(false), true));
        let view = db.examine_designs(1, later).unwrap().designs[0].views[0].clone();
        assert_eq!(view.fields, Some(vec!["b".to_owned(), "a".to_owned()]));
    }

    #[test]
    fn generated_parts_of_ids_are_found_behind_prefixes() {
        let uuid = "6f1ed002ab5595859014ebf0951522d9";
        let grouped = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
        for (id, prefix, generated) in [
            (uuid.to_owned(), "", uuid),
            (format!("status/{uuid}"), "status/", uuid),
            (format!("gr\u{fc}n:{uuid}"), "gr\u{fc}n:", uuid),
            (format!("user-{grouped}"), "user-", grouped),
            (format!("a:b:{uuid}"), "a:b:", uuid),
        ] {
            assert_eq!(split_generated(&id), Some((prefix, generated)), "{id}");
        }
        for id in [
            "order/1234567890123456",
            "status/open",
            "",
            "x/",
            "-",
            "6f1ed002ab5595859014ebf0951522d9/x",
        ] {
            assert_eq!(split_generated(id), None, "{id}");
        }
    }

    #[test]
    fn made_up_ids_are_told_from_names_and_numbers() {
        for id in [
            "0123456789abcdef",
            "6f1ed002ab5595859014ebf0951522d9",
            "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
        ] {
            assert!(is_made_up(id), "{id}");
        }
        for id in [
            "anna",
            "20261123081500123456",
            "abcdef",
            "order:6f1ed002ab5595859014ebf0951522d9",
            "",
        ] {
            assert!(!is_made_up(id), "{id}");
        }
    }
}
