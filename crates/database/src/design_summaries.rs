//! The definitions of all design documents of a database. Each is read once after it has changed, and one at a time: a database
//! can have more of them than fit into memory.

use std::sync::Arc;

use crate::Error;
use crate::database::Database;
use crate::design_cache::DesignSummary;
use crate::turn::Turn;
use crate::views::Design;

/// Design documents of Mango that are read for their indexes, in bytes of memory, all together.
const FIND_BYTES_MAX: usize = 128 << 20;

impl Database {
    /// Returns what each design document defines; one with too many views defines nothing. Blocks.
    ///
    /// # Errors
    /// Errors of reading them.
    pub(crate) fn all_designs(&self) -> Result<Vec<Arc<DesignSummary>>, Error> {
        let all = self.if_live(self.summarize(|| false))?;
        Ok(all.unwrap_or_default())
    }

    /// Returns what each design document defines; `None` if the turn is over before all were read: the next call continues.
    /// Blocks.
    ///
    /// # Errors
    /// Errors of reading them.
    pub(crate) fn all_designs_in(
        &self,
        mut turn: Turn,
    ) -> Result<Option<Vec<Arc<DesignSummary>>>, Error> {
        self.if_live(self.summarize(|| turn.is_over(true)))
    }

    /// Returns what each design document defines. Other threads read them in short pieces.
    ///
    /// # Errors
    /// Errors of reading them.
    pub(crate) async fn all_designs_async(
        self: &Arc<Self>,
    ) -> Result<Vec<Arc<DesignSummary>>, Error> {
        loop {
            let db = self.clone();
            let piece = self.run_low_priority(move || db.all_designs_in(Turn::begin()));
            if let Some(all) = piece.await? {
                return Ok(all);
            }
        }
    }

    /// Returns the design documents of Mango that define indexes, each read when it is next. Blocks.
    ///
    /// # Errors
    /// Errors of reading them.
    pub(crate) fn find_designs(
        &self,
    ) -> Result<impl Iterator<Item = Result<Arc<Design>, Error>>, Error> {
        let all = self.all_designs()?.into_iter();
        let all = all.filter(|design| design.has_find_indexes);
        let read =
            move |design: Arc<DesignSummary>| self.design_for_one_use(&design.id).transpose();
        let designs = all.filter_map(read);
        let mut bytes = 0;
        Ok(designs.take_while(move |design| {
            bytes += design.as_ref().map_or(0, |design| design.memory_bytes());
            let is_too_much = bytes > FIND_BYTES_MAX;
            if is_too_much {
                tracing::warn!(db = %self.name(), limit = FIND_BYTES_MAX, "design documents of Mango indexes are too long: queries do not use those from here on");
            }
            !is_too_much
        }))
    }

    /// Returns a design document, `None` if it does not exist. It is not kept in memory: many are read in a row.
    fn design_for_one_use(&self, id: &str) -> Result<Option<Arc<Design>>, Error> {
        let rev = match self.design_head(id) {
            Ok(head) => head.rev,
            Err(Error::Missing(_)) => return Ok(None),
            Err(e) => return Err(e),
        };
        if let Some(known) = self.design_cache.views.lock().get(id, &rev) {
            return Ok(Some(known));
        }
        match self.read_design(id) {
            Ok(design) => Ok(Some(Arc::new(design))),
            Err(Error::Missing(_)) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Reads the design documents that have changed since they were read, at least one, until `is_over`; `None` if others are
    /// left then.
    fn summarize(
        &self,
        mut is_over: impl FnMut() -> bool,
    ) -> Result<Option<Vec<Arc<DesignSummary>>>, Error> {
        let mut ids = self.live_designs()?.into_iter();
        let mut all = Vec::with_capacity(ids.len());
        let summaries = &self.design_cache.summaries;
        while let Some((id, seq)) = ids.next() {
            let known = summaries.lock().get(&id, seq);
            if let Some(known) = known {
                all.push(known);
                continue;
            }
            let Some(design) = self.design_for_one_use(&id)? else {
                continue;
            };
            let summary = Arc::new(DesignSummary::of(&design, seq));
            summaries.lock().keep(summary.clone());
            all.push(summary);
            if is_over() && ids.len() > 0 {
                return Ok(None);
            }
        }
        summaries.lock().forget_others(&all);
        Ok(Some(all))
    }

    /// Returns the ids of the design documents, each with the seq of its last change.
    pub(crate) fn live_designs(&self) -> Result<Vec<(String, u64)>, Error> {
        let mut designs = vec![];
        for shard in self.all_shards() {
            let view = shard.view()?;
            let mut it = storage::IdIter::new(&view.snapshot, shard.number);
            it.seek(b"_design/");
            while let Some((id, value)) = it.entry().filter(|(id, _)| id.starts_with(b"_design/")) {
                let head = storage::RecordHead::decode(value)?;
                if !head.deleted {
                    designs.push((String::from_utf8_lossy(id).into_owned(), head.seq));
                }
                it.next();
            }
            it.status()?;
        }
        Ok(designs)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use serde_json::{Value, json};

    use super::*;
    use crate::fixture::without_background_builds;
    use crate::{CreateOptions, Databases, Durability, EditMode, Outcome};

    async fn with_database(dir: &std::path::Path) -> Arc<Database> {
        // The background would read design documents meanwhile.
        let databases = Databases::open(dir, without_background_builds()).unwrap();
        let created = databases.create("db", CreateOptions::default()).await;
        // Open until the test ends.
        std::mem::forget(databases);
        created.unwrap()
    }

    /// Writes a document, and returns its revision.
    async fn write(db: &Arc<Database>, doc: Value) -> String {
        let edit = document::parse_document(doc.to_string().as_bytes()).unwrap();
        let written = db.update(vec![edit], EditMode::Interactive, Durability::Synced);
        match written.await.unwrap().0.remove(0) {
            Outcome::Ok { rev } => rev.to_string(),
            refused => panic!("{refused:?}"),
        }
    }

    /// A design document of Mango with an index of this field, a text index and a long library.
    fn design(name: &str, field: &str, library: usize) -> Value {
        let view =
            json!({"map": {"fields": {field: "asc"}}, "options": {"def": {"fields": [field]}}});
        json!({
            "_id": format!("_design/{name}"),
            "language": "query",
            "autoupdate": false,
            "views": {"v": view, "lib": {"l": "x".repeat(library)}},
            "indexes": {"t": {"index": {"fields": [{"name": field, "type": "string"}]}}},
        })
    }

    fn find<'a>(all: &'a [Arc<DesignSummary>], name: &str) -> Option<&'a Arc<DesignSummary>> {
        let id = format!("_design/{name}");
        all.iter().find(|design| design.id == id)
    }

    /// Whether a design document was not read again.
    fn is_same(before: &[Arc<DesignSummary>], after: &[Arc<DesignSummary>], name: &str) -> bool {
        let pair = find(before, name).zip(find(after, name));
        pair.is_some_and(|(before, after)| Arc::ptr_eq(before, after))
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn only_design_documents_that_changed_are_read_again_and_none_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let db = with_database(dir.path()).await;
        let names = ["a", "b", "c"];
        let mut revs = vec![];
        for name in names {
            revs.push(write(&db, design(name, name, 1 << 10)).await);
        }
        let first = db.all_designs().unwrap();
        assert_eq!(first.len(), names.len());
        write(&db, json!({"_id": "ordinary"})).await;
        let second = db.all_designs().unwrap();
        assert!(names.iter().all(|name| is_same(&first, &second, name)));
        let mut changed = design("b", "other", 0);
        changed["_rev"] = revs[1].clone().into();
        write(&db, changed).await;
        write(
            &db,
            json!({"_id": "_design/c", "_rev": revs[2], "_deleted": true}),
        )
        .await;
        let third = db.all_designs().unwrap();
        assert_eq!(third.len(), 2);
        assert!(is_same(&second, &third, "a") && !is_same(&second, &third, "b"));
        assert_eq!(db.design_cache.views.lock().bytes(), 0);
        assert_eq!(db.design_cache.summaries.lock().len(), 2);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn summaries_agree_with_the_design_documents() {
        let dir = tempfile::tempdir().unwrap();
        let db = with_database(dir.path()).await;
        let views = json!({"v": {"map": "function () {}"}});
        let analyzer = json!({"index": "function () {}", "analyzer": "unheard of"});
        let docs = [
            design("mango", "a", 0),
            json!({"_id": "_design/none"}),
            json!({"_id": "_design/views", "views": views, "autoupdate": false}),
            json!({"_id": "_design/text", "indexes": {"t": analyzer}}),
        ];
        for doc in docs {
            write(&db, doc).await;
        }
        let all = db.all_designs().unwrap();
        assert_eq!(all.len(), 4);
        let mut expected = HashSet::new();
        for summary in all {
            let design = db.design_now(&summary.id).unwrap();
            assert_eq!(summary.has_views(), design.has_views());
            assert_eq!(summary.signature, design.signature);
            assert_eq!(summary.autoupdate, design.autoupdate);
            assert_eq!(summary.has_find_indexes, summary.id == "_design/mango");
            let texts: Vec<_> = design.text_indexes().map(|text| text.signature()).collect();
            let summarized = summary.text_indexes();
            assert_eq!(
                summarized.map(|text| text.signature()).collect::<Vec<_>>(),
                texts
            );
            let opens = summary.text_indexes().all(|text| text.has_analyzers);
            assert_eq!(opens, summary.id != "_design/text");
            expected.extend(design.has_views().then_some(design.signature));
            expected.extend(texts);
        }
        assert_eq!(db.used_signatures().unwrap(), expected);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn design_documents_are_read_in_turns() {
        let dir = tempfile::tempdir().unwrap();
        let db = with_database(dir.path()).await;
        for name in ["a", "b", "c"] {
            write(&db, design(name, name, 0)).await;
        }
        let mut turns = 1;
        let all = loop {
            match db.all_designs_in(Turn::over()).unwrap() {
                Some(all) => break all,
                None => turns += 1,
            }
        };
        assert_eq!((all.len(), turns), (3, 3));
        assert!(db.all_designs_in(Turn::over()).unwrap().is_some());
        assert_eq!(db.all_designs_async().await.unwrap().len(), 3);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_open_index_counts_the_memory_of_its_library() {
        const LIBRARY: usize = 1 << 20;
        let dir = tempfile::tempdir().unwrap();
        let db = with_database(dir.path()).await;
        write(&db, design("none", "a", 0)).await;
        write(&db, design("long", "a", LIBRARY)).await;
        let bytes = |id: &str| {
            let design = db.design_now(id).unwrap();
            db.view_index(&design).unwrap().memory_bytes()
        };
        assert!(bytes("_design/long") >= bytes("_design/none") + LIBRARY);
    }
}
