//! Mango queries: the indexes of a database, the choice of one, and the results.

mod aggregate;
mod clock;
mod cursor;
mod docs;
mod index_rows;
mod mapper;
mod rows;
mod scan;
#[cfg(test)]
mod tests;
mod text_search;
mod turns;
mod uses;
mod visible;

use std::any::Any;
use std::ops::Deref;
use std::sync::{Arc, Weak};

use document::DocId;
use mango::plan::Explanation;
use mango::{AggregateLimits, Bookmark, Choice, Find, FindError, Index, Plan, TextKind};
use parking_lot::Mutex;

pub(crate) use mapper::WithIndexes;
pub use rows::FindAnswer;
pub(crate) use scan::Scans;
pub(crate) use turns::{ScanTurns, Working};
pub(crate) use uses::FindUses;
pub use uses::{FindUse, IndexKey};

use crate::counters;
use crate::database::Database;
use crate::text::{TextFlavour, TextSpec};
use crate::views::{Design, ViewAt};
use crate::{DatabaseAs, Error, Read, ReadOptions};

/// The response of `_explain`, which is read in pieces.
pub struct FindExplanation {
    explanation: Explanation,
    indexes: Arc<FindIndexes>,
}

impl FindExplanation {
    /// Appends JSON text until about `soft_bytes` were added; false when that was the end.
    ///
    /// # Errors
    /// Those of the query.
    pub fn next_chunk(&mut self, out: &mut Vec<u8>, soft_bytes: usize) -> Result<bool, Error> {
        let indexes = self.indexes.definitions();
        Ok(self.explanation.write_some(&indexes, out, soft_bytes)?)
    }
}

/// Limits of a query (`[mango]` in the configuration).
#[derive(Clone, Copy, Debug)]
pub struct FindLimits {
    /// Most documents that a query without an index examines; 0: any number.
    pub scan_limit: u64,
    /// Documents examined per result above which the response has a warning; 0: never.
    pub scan_warning_threshold: u64,
    /// Limits of groups and their contents.
    pub aggregate: AggregateLimits,
}

/// An index of a database.
#[derive(Clone, Debug)]
pub struct FindIndex {
    /// Its definition.
    pub index: Arc<Index>,
    /// The view that holds it; `None` of that of all documents, and of text indexes.
    pub(crate) view: Option<(Arc<Design>, ViewAt)>,
    /// The text index that it is.
    pub(crate) text: Option<Arc<TextSpec>>,
}

/// The indexes of a database, that of all documents first, then by design document and name.
#[derive(Debug)]
pub struct FindIndexes {
    all: Vec<FindIndex>,
    /// About how much memory they take.
    bytes: usize,
    /// About how much memory their definitions take, without what is compiled.
    definition_bytes: usize,
    holder: Mutex<Weak<MemoryHolder>>,
}

/// Counts the memory of something shared while it is in use.
type MemoryHolder = dyn Any + Send + Sync;

impl Deref for FindIndexes {
    type Target = [FindIndex];

    fn deref(&self) -> &[FindIndex] {
        &self.all
    }
}

impl FindIndexes {
    fn definitions(&self) -> Vec<&Index> {
        self.all.iter().map(|index| &*index.index).collect()
    }

    /// About how much memory they take, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the holder of their memory that another request has set, while it exists.
    pub fn memory_holder(&self) -> Option<Arc<MemoryHolder>> {
        self.holder.lock().upgrade()
    }

    /// Sets what [`FindIndexes::memory_holder`] returns as long as it exists.
    pub fn set_memory_holder(&self, holder: Arc<MemoryHolder>) {
        *self.holder.lock() = Arc::downgrade(&holder);
    }

    /// Returns whether a choice among them takes longer than a serving thread may be held.
    pub fn are_many(&self) -> bool {
        self.definition_bytes > FEW_INDEXES_BYTES_MAX
    }
}

/// Indexes while they are read.
#[derive(Default)]
struct IndexReading {
    all: Vec<FindIndex>,
    bytes: usize,
    definition_bytes: usize,
}

impl IndexReading {
    /// Adds an index, and further memory that it takes; false if that is more than there is for all.
    fn add(&mut self, index: FindIndex, more_bytes: usize) -> bool {
        let bytes = self.bytes + index.index.memory_bytes() + more_bytes;
        if bytes > INDEXES_BYTES_MAX {
            return false;
        }
        self.bytes = bytes;
        self.definition_bytes += index.index.definition_bytes();
        self.all.push(index);
        true
    }

    fn sorted(mut self) -> FindIndexes {
        self.all
            .sort_by(|a, b| a.index.order().cmp(&b.index.order()));
        FindIndexes {
            all: self.all,
            bytes: self.bytes,
            definition_bytes: self.definition_bytes,
            holder: Mutex::new(Weak::<()>::new()),
        }
    }
}

/// Definitions of indexes that a database keeps, in bytes. Queries do not use further ones.
const INDEXES_BYTES_MAX: usize = 64 << 20;
/// Definitions that a query compares on the thread that serves, in bytes.
const FEW_INDEXES_BYTES_MAX: usize = 256 << 10;

/// The indexes as of a version of the design documents.
#[derive(Default)]
pub(crate) struct IndexesFound {
    known: Mutex<Option<(u64, Arc<FindIndexes>)>>,
    /// One request reads them, others wait for it.
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl IndexesFound {
    fn known(&self, version: u64) -> Option<Arc<FindIndexes>> {
        let known = self.known.lock();
        let (of, indexes) = known.as_ref()?;
        (*of == version).then(|| indexes.clone())
    }

    /// About how much memory they take, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let known = self.known.lock();
        known.as_ref().map_or(0, |(_, indexes)| indexes.bytes)
    }
}

/// A query, and the plan of its execution.
pub struct FindPlan {
    pub(crate) find: Arc<Find>,
    pub(crate) index: FindIndex,
    pub(crate) plan: Plan,
    pub(crate) warnings: Vec<String>,
    /// The place of the bookmark, after which the answer begins. It may be long, and is decoded where
    /// the query is parsed. An error does not count if another index is used after all.
    pub(crate) place: Option<Result<Vec<u8>, FindError>>,
}

/// The interface of a kind of text index.
fn flavour(kind: TextKind) -> TextFlavour {
    match kind {
        TextKind::Text => TextFlavour::Clouseau,
        TextKind::Nouveau => TextFlavour::Nouveau,
    }
}

impl FindPlan {
    /// The query, and its index, for reports.
    pub fn report(&self) -> FindReport {
        FindReport {
            find: self.find.clone(),
            index: self.index.index.clone(),
        }
    }
}

/// A query and the index that serves it, for reports.
pub struct FindReport {
    find: Arc<Find>,
    index: Arc<Index>,
}

impl FindReport {
    /// The name of the index.
    pub fn index_name(&self) -> &str {
        &self.index.name
    }

    /// The first fields of the selector, as they are written: at most `most`, each with at most
    /// `bytes_max`.
    pub fn selector_fields(&self, most: usize, bytes_max: usize) -> Vec<String> {
        let names = self.find.selector.field_names().into_iter().take(most);
        let short = |name: &str| name[..name.floor_char_boundary(bytes_max)].to_owned();
        names.map(short).collect()
    }
}

impl Database {
    /// The indexes. Reads all design documents on this thread after one has changed.
    ///
    /// # Errors
    /// Errors of reading them.
    pub fn find_indexes(&self) -> Result<Arc<FindIndexes>, Error> {
        self.live()?;
        let version = self.designs_version();
        if let Some(known) = self.find_indexes.known(version) {
            return Ok(known);
        }
        let found = Arc::new(self.read_find_indexes()?);
        *self.find_indexes.known.lock() = Some((version, found.clone()));
        Ok(found)
    }

    /// The indexes, as [`Database::find_indexes`] returns them. Another thread reads them, once for
    /// all requests that wait for them.
    ///
    /// # Errors
    /// Errors of reading them.
    pub async fn find_indexes_async(self: &Arc<Self>) -> Result<Arc<FindIndexes>, Error> {
        self.live()?;
        if let Some(known) = self.find_indexes.known(self.designs_version()) {
            return Ok(known);
        }
        let turn = self.find_indexes.turn.clone().lock_owned().await;
        if let Some(known) = self.find_indexes.known(self.designs_version()) {
            return Ok(known);
        }
        // Other databases have their turns meanwhile.
        self.all_designs_async().await?;
        let db = self.clone();
        let found = self.run_low_priority(move || {
            let _turn = turn;
            db.find_indexes()
        });
        self.if_live(found.await)
    }

    fn read_find_indexes(&self) -> Result<FindIndexes, Error> {
        let mut found = IndexReading::default();
        let all_docs = FindIndex {
            index: Arc::new(Index::all_docs()),
            view: None,
            text: None,
        };
        found.add(all_docs, 0);
        for design in self.find_designs()? {
            let design = design?;
            if design.spec.language != mango::index::LANGUAGE || !design.defines_indexes() {
                continue;
            }
            if !self.read_indexes_of(&design, &mut found)? {
                tracing::warn!(db = %self.name(), design = %design.id, limit = INDEXES_BYTES_MAX, "too many definitions of Mango indexes: queries do not use those from here on");
                break;
            }
        }
        Ok(found.sorted())
    }

    /// Adds the indexes of a design document; false when there is no memory for all of them.
    fn read_indexes_of(
        &self,
        design: &Arc<Design>,
        found: &mut IndexReading,
    ) -> Result<bool, Error> {
        let Some(ddoc) = self.design_text(&design.id)? else {
            return Ok(true);
        };
        let limits = mango::Limits::OF_INDEXES;
        // An index of a view keeps the design document.
        let mut design_bytes = design.memory_bytes();
        for index in Index::of_design(&ddoc, self.is_partitioned(), &limits) {
            let (view, text) = match &index.text {
                None => (design.view(&index.name), None),
                Some(text) => (None, design.text(flavour(text.kind), &index.name).ok()),
            };
            let index = FindIndex {
                view: view.map(|at| (design.clone(), at)),
                text: text.cloned(),
                index: Arc::new(index),
            };
            if index.view.is_none() && index.text.is_none() {
                continue;
            }
            let more_bytes = match index.view {
                Some(_) => std::mem::take(&mut design_bytes),
                None => 0,
            };
            if !found.add(index, more_bytes) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The text of a design document with all its members; `None` when it does not exist.
    pub fn design_text(&self, id: &str) -> Result<Option<Vec<u8>>, Error> {
        let id = DocId::new(id).map_err(|e| Error::BadRequest(e.to_string()))?;
        match self.read(&id, &ReadOptions::default())? {
            Read::Found(doc) => Ok(Some(doc.json)),
            _ => Ok(None),
        }
    }

    /// The response of `_explain`.
    ///
    /// # Errors
    /// Those of the query.
    pub fn explain(
        &self,
        find: Find,
        indexes: &Arc<FindIndexes>,
    ) -> Result<FindExplanation, Error> {
        self.check_partition_of(&find)?;
        let choice = mango::plan::choose_of(&find, indexes.iter().map(|i| &*i.index))?;
        let database = (&**self.name(), self.is_partitioned());
        Ok(FindExplanation {
            explanation: Explanation::new(database, find, choice, &indexes.definitions())?,
            indexes: indexes.clone(),
        })
    }

    fn check_partition_of(&self, find: &Find) -> Result<(), Error> {
        match &find.partition {
            None => Ok(()),
            Some(_) if !self.is_partitioned() => Err(FindError::NotPartitioned.into()),
            Some(partition) => crate::check_partition(partition),
        }
    }
}

impl DatabaseAs {
    /// Chooses an index. Restricted users get only the index of all documents: the keys of others
    /// have data that the documents hide. Users of a database with access get no text indexes, which
    /// have no rows by principal.
    ///
    /// # Errors
    /// Those of the query.
    pub fn plan_find(
        &self,
        find: Find,
        limits: &FindLimits,
        indexes: &FindIndexes,
    ) -> Result<FindPlan, Error> {
        match (self.has_watch(), self.is_limited()) {
            (true, _) => self.plan_among(find, limits, indexes, &|i| i.index.is_special()),
            (false, true) => self.plan_among(find, limits, indexes, &|i| i.index.text.is_none()),
            (false, false) => self.plan_among(find, limits, indexes, &|_| true),
        }
    }

    /// A plan by one of some indexes.
    fn plan_among(
        &self,
        find: Find,
        limits: &FindLimits,
        indexes: &FindIndexes,
        may_serve: &dyn Fn(&FindIndex) -> bool,
    ) -> Result<FindPlan, Error> {
        self.check_partition_of(&find)?;
        let all: Vec<&FindIndex> = indexes.iter().filter(|i| may_serve(i)).collect();
        let choice = mango::plan::choose_of(&find, all.iter().map(|i| &*i.index))?;
        let Some(index) = choice.index.and_then(|i| all.get(i).copied()) else {
            return Err(Choice::no_index(&find, self.is_partitioned()).into());
        };
        let plan = choice.plan(&find, &index.index);
        let warnings = choice.warnings(&find, &index.index);
        let scans_all = index.index.is_special()
            && !plan.nothing
            && find.partition.is_none()
            && plan.columns.iter().all(|ids| ids.is_full())
            && (!find.selector.is_everything() || find.aggregate.is_some());
        // Users of a database with access examine their own documents, whose number is not known.
        if scans_all && limits.scan_limit > 0 && !self.is_limited() {
            let documents = self.all_shards().iter().map(|s| s.meta().doc_count).sum();
            if documents > limits.scan_limit {
                let limit = limits.scan_limit;
                return Err(FindError::ScanRefused { documents, limit }.into());
            }
        }
        if index.index.is_special() {
            counters::FIND_UNINDEXED.count();
        }
        let bookmark = find.bookmark.as_deref();
        let place = bookmark.map(|text| Bookmark::decode(text, &index.index).map(|b| b.place));
        Ok(FindPlan {
            find: Arc::new(find),
            index: index.clone(),
            plan,
            warnings,
            place,
        })
    }

    /// Waits for the index, unless the query does not want that, and opens the answer.
    pub async fn find(&self, plan: FindPlan, limits: FindLimits) -> Result<FindAnswer, Error> {
        if let Some(spec) = plan.index.text.clone() {
            return self.find_by_text(plan, &spec, limits).await;
        }
        let mut view = None;
        if let Some((design, at)) = &plan.index.view
            && !plan.plan.nothing
        {
            let index = self.view_index_async(design).await?;
            // An older index has rows of documents that were taken away from a user since.
            let waits = plan.find.update && !plan.find.stale || self.is_limited();
            if waits && !self.view_is_current(&index) {
                self.update_view(&index).await?;
            }
            self.note_used_index(&index);
            view = Some((index, at.view));
        }
        FindAnswer::open(self.clone(), plan, view, limits)
    }
}
