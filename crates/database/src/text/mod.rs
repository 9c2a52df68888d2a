//! Text indexes of a database: one for each shard and definition, their updates, and their queries.

mod answer;
pub(crate) mod bookmark;
mod bytes;
mod calls;
mod copy;
mod members;
mod query;
mod shard;
mod spec;
mod stored;
#[cfg(test)]
mod tests;
mod translate;
mod turns;
mod version;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use analysis::Flavour;
use functions::{Owner, Requester};
use index::Progress;
use parking_lot::Mutex;
use storage::{ShardNumber, Signature};
use tokio::sync::watch;

pub use analysis::Flavour as TextFlavour;
pub use analysis::highlight::Options as TextHighlightOptions;
pub use answer::{TEXT_ANSWER_BYTES_MAX, TextAnswer, TextCounts, TextGroup, TextHit, TextOrder};
pub(crate) use bytes::TextBytes;
pub(crate) use copy::copy_store;
pub use copy::text_index_folder;
pub use query::bounds as text_bounds;
pub use query::{TextGrouping, TextHighlight, TextQuery};
pub use search::AnswerMemory as TextMemory;
pub use search::Explanation as TextExplanation;
pub use search::SortValue as TextSortValue;
pub use search::flag_of as text_flag;
pub use search::{
    Distance as TextDistance, Range as TextRange, SortBy as TextSortBy, SortKey as TextSortKey,
};
pub use spec::TextSpec;
pub(crate) use spec::member as text_member;
pub(crate) use turns::TextTurns;
pub use turns::{AnswerThreads, TextCost, TextTurn};
pub(crate) use version::add_lucene_versions;

use crate::database::Database;
use crate::examine::{OpenTextFacts, TextFacts};
use crate::views::{DatabaseIndex, Design, Updates, opening_failed, wait};
use crate::{Error, counters};
use shard::{TextParts, TextShard};

/// The text index of one definition over all shards of a database.
pub struct TextIndex {
    database: Arc<str>,
    /// The design document that it was opened for, for people to read.
    design: String,
    spec: Arc<TextSpec>,
    analyzers: Arc<analysis::FieldAnalyzers>,
    /// One for each shard of the database, in their order.
    shards: Vec<TextShard>,
    updates: watch::Sender<Updates>,
    /// Time of the last use, in the keeper's ticks.
    used: AtomicU64,
    /// Whether a query since it was opened is noted already.
    is_noted: AtomicBool,
}

/// A request waits for an index since this time. The duration is reported at its end, also when the
/// client goes away.
struct Wait(Instant);

impl Drop for Wait {
    fn drop(&mut self) {
        counters::TEXT_WAIT_TIMES.record(self.0.elapsed());
    }
}

/// The contents of `_nouveau_info/{index}` and `_search_info/{index}`.
#[derive(Clone, Debug, Default)]
pub struct TextInfo {
    /// In hexadecimal.
    pub signature: String,
    /// Seqs that the shards' indexes have applied, together.
    pub update_seq: u64,
    /// Purges that they have applied, together.
    pub purge_seq: u64,
    /// Changes that they have not applied yet.
    pub updates_pending: u64,
    /// Documents in it.
    pub docs: u64,
    /// Documents that were taken out, and still take space.
    pub deleted_docs: u64,
    /// Bytes of files.
    pub file_bytes: u64,
    /// Documents that are not in it, though they should be.
    pub left_out: u64,
}

/// The open text indexes of one database.
#[derive(Default)]
pub(crate) struct DatabaseTextIndexes {
    indexes: Mutex<HashMap<Signature, Arc<TextIndex>>>,
}

/// Memory of an open index without its shards', in bytes.
const MEMORY_BYTES: usize = size_of::<TextIndex>() + 4096;

/// The route below a design document that asks its indexes.
fn route(flavour: Flavour) -> &'static str {
    match flavour {
        Flavour::Clouseau => "_search",
        Flavour::Nouveau => "_nouveau",
    }
}

impl TextIndex {
    pub(crate) fn last_used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    pub(crate) fn signature(&self) -> Signature {
        self.spec.signature()
    }

    /// About how much memory it takes while it is open, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let shards = self.shards.iter().map(TextShard::memory_bytes);
        MEMORY_BYTES + self.design.len() + self.spec.source.len() + shards.sum::<usize>()
    }

    /// Segments of its shards, together.
    pub(crate) fn segments(&self) -> usize {
        let shards = self.shards.iter();
        shards.map(|shard| shard.index.reader().segments()).sum()
    }

    /// Whether none of its parts are in use, and everything is written. The caller has the only
    /// reference to it.
    fn is_idle(&self) -> bool {
        self.updates.receiver_count() == 0 && !self.shards.iter().any(TextShard::has_unwritten)
    }

    /// Writes what is in memory only. Blocks.
    fn flush(&self) {
        self.shards.iter().for_each(TextShard::flush_or_log);
    }

    fn close(&self) {
        self.ask_to_stop();
        for shard in &self.shards {
            shard.close();
        }
    }

    fn facts(&self, is_update_due: bool) -> Result<OpenTextFacts, Error> {
        let (mut pending, mut segments_most) = (0, 0);
        let (mut mapped, mut failed) = (0, 0);
        for shard in &self.shards {
            pending += shard.pending()?;
            mapped += shard.map_counts.mapped();
            failed += shard.map_counts.failed(0);
            segments_most = segments_most.max(shard.index.reader().segments());
        }
        let updates = self.updates.borrow();
        let failure = updates.failure.as_ref();
        Ok(OpenTextFacts {
            failures: updates.failures,
            failure: failure.map(ToString::to_string),
            is_updating: updates.running,
            is_update_due,
            is_tidying: updates.tidying > 0,
            pending,
            segments_most,
            mapped,
            failed,
            left_out: self.left_out(),
        })
    }

    /// Whether it must be opened again, since its files are damaged.
    fn is_damaged(&self) -> bool {
        self.shards.iter().any(TextShard::is_damaged)
    }

    /// Runs `work`, which reads or writes its files. If that fails, or panics, the files are
    /// checked for damage.
    ///
    /// # Errors
    /// Errors of `work`; [`search::Error::Engine`] when it panics.
    pub(crate) fn with_files<T>(
        &self,
        work: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        let panicked = |_| {
            let text = "reading the text index panicked".to_owned();
            Err(search::Error::Engine(text).into())
        };
        let done = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(panicked);
        if let Err(Error::Text(search::Error::Engine(_))) = &done {
            self.shards.iter().for_each(TextShard::look_for_damage);
            if self.is_damaged() {
                let text = "the files of the text index are damaged: the next search rebuilds it";
                return Err(search::Error::Engine(text.to_owned()).into());
            }
        }
        done
    }

    /// Number of documents that it leaves out: it cannot hold the results of its function for them.
    pub(crate) fn left_out(&self) -> u64 {
        self.shards.iter().map(TextShard::left_out).sum()
    }

    /// Returns whether no part of it is built yet: the change that defined it would be the first.
    pub fn is_unbuilt(&self) -> bool {
        self.seqs().all(|(seq, _)| seq == 0)
    }

    /// The seqs that it has applied, by shard.
    fn seqs(&self) -> impl Iterator<Item = (u64, u64)> {
        self.shards.iter().map(TextShard::progress_seqs)
    }
}

impl DatabaseIndex for TextIndex {
    fn database(&self) -> &Arc<str> {
        &self.database
    }

    fn design(&self) -> &str {
        &self.design
    }

    fn kind(&self) -> &'static str {
        "search_indexer"
    }

    fn updates(&self) -> &watch::Sender<Updates> {
        &self.updates
    }

    fn update(&self) -> Result<(), Error> {
        self.with_files(|| self.shards.iter().try_for_each(TextShard::update))
    }

    fn tidy(&self) -> Result<(), Error> {
        self.with_files(|| self.shards.iter().try_for_each(TextShard::tidy))
    }

    fn must_tidy(&self) -> bool {
        self.shards.iter().any(TextShard::must_tidy)
    }

    fn ask_to_stop(&self) {
        for shard in &self.shards {
            shard.ask_to_stop();
        }
    }

    fn progress(&self) -> Vec<&Progress> {
        self.shards.iter().map(|shard| &shard.progress).collect()
    }

    fn index(&self) -> Option<&str> {
        Some(&self.spec.name)
    }

    fn is_current(&self, db: &Database) -> bool {
        self.seqs()
            .zip(db.all_shards())
            .all(|((seq, purge_seq), shard)| {
                let meta = shard.meta();
                seq >= meta.update_seq && purge_seq >= meta.purge_seq
            })
    }
}

impl DatabaseTextIndexes {
    /// The number of open indexes, if none of them are in use; `None` otherwise.
    pub(crate) fn idle_indexes(&mut self) -> Option<usize> {
        let indexes = self.indexes.get_mut();
        let idle = |index: &mut Arc<TextIndex>| Arc::get_mut(index).is_some_and(|i| i.is_idle());
        indexes.values_mut().all(idle).then_some(indexes.len())
    }
}

impl Database {
    /// The text index of this name that a design document has. Blocks when it is not open.
    ///
    /// # Errors
    /// [`Error::NoTextIndex`], and [`Error::BadRequest`] when it is defined badly.
    pub fn text_index(
        &self,
        design: &Design,
        flavour: Flavour,
        name: &str,
    ) -> Result<Arc<TextIndex>, Error> {
        let spec = design.text(flavour, name)?;
        self.lifecycle
            .explain(self.text_index_now(&design.id, spec))
    }

    /// The text index of this name that a design document has, opened on a thread for blocking work
    /// when it is not yet.
    ///
    /// # Errors
    /// Errors of [`Database::text_index`].
    pub async fn text_index_async(
        self: &Arc<Self>,
        design: &Design,
        flavour: Flavour,
        name: &str,
    ) -> Result<Arc<TextIndex>, Error> {
        let spec = design.text(flavour, name)?;
        self.text_index_of_spec(design.id.clone(), spec).await
    }

    pub(crate) fn known_text_index(&self, signature: &Signature) -> Option<Arc<TextIndex>> {
        let known = self
            .views
            .text_indexes
            .indexes
            .lock()
            .get(signature)
            .cloned()?;
        if known.is_damaged() {
            return None;
        }
        known.used.store(self.last_used(), Relaxed);
        Some(known)
    }

    /// The text index of a definition, opened on a thread for blocking work when it is not yet.
    ///
    /// # Errors
    /// Errors of opening it.
    pub(crate) async fn text_index_of_spec(
        self: &Arc<Self>,
        design: String,
        spec: &Arc<TextSpec>,
    ) -> Result<Arc<TextIndex>, Error> {
        if let Some(known) = self.known_text_index(&spec.signature()) {
            return Ok(known);
        }
        let turn = self.views.opening.clone().lock_owned().await;
        if let Some(known) = self.known_text_index(&spec.signature()) {
            return Ok(known);
        }
        let (db, spec) = (self.clone(), spec.clone());
        let open = move || {
            let _turn = turn;
            db.lifecycle.explain(db.text_index_now(&design, &spec))
        };
        let opened = tokio::task::spawn_blocking(open).await;
        opened.map_err(opening_failed)?
    }

    pub(crate) fn text_index_now(
        &self,
        design: &str,
        spec: &Arc<TextSpec>,
    ) -> Result<Arc<TextIndex>, Error> {
        let signature = spec.signature();
        let known = || self.known_text_index(&signature);
        if let Some(known) = known() {
            return Ok(known);
        }
        let closed = self.views.changing.lock();
        if *closed {
            return Err(Error::NoDatabase);
        }
        if let Some(known) = known() {
            return Ok(known);
        }
        let damaged = self.views.text_indexes.indexes.lock().remove(&signature);
        if let Some(damaged) = damaged {
            damaged.close();
        }
        let shared = self.shared_views();
        let parts = TextParts {
            store: self.store_arc().clone(),
            spec: spec.clone(),
            analyzers: Arc::new(spec.analyzers()?),
            label: Owner {
                database: self.name().clone(),
                design: format!("{design}/{}/{}", route(spec.flavour), spec.name),
                views: vec![],
            },
            languages: shared.languages.clone(),
            memory: shared.build_memory.clone(),
        };
        let mut shards = vec![];
        for (shard, number) in self
            .all_shards()
            .iter()
            .zip(self.index_numbers(&signature)?)
        {
            shards.push(TextShard::open(number, shard.clone(), &parts)?);
        }
        let index = Arc::new(TextIndex {
            database: self.name().clone(),
            design: design.to_owned(),
            spec: spec.clone(),
            analyzers: parts.analyzers,
            shards,
            updates: watch::Sender::new(Updates::default()),
            used: AtomicU64::new(self.last_used()),
            is_noted: AtomicBool::new(false),
        });
        self.views
            .text_indexes
            .indexes
            .lock()
            .insert(signature, index.clone());
        Ok(index)
    }

    /// The numbers of an index of each shard; new ones are assigned where it has none yet, which
    /// blocks for a moment.
    pub(crate) fn index_numbers(&self, signature: &Signature) -> Result<Vec<ShardNumber>, Error> {
        let mut numbers = vec![];
        for shard in self.all_shards() {
            let found = self.store().indexes(shard.number)?;
            numbers.push(match found.iter().find(|(s, _)| s == signature) {
                Some((_, number)) => (*number, None),
                None => {
                    let (number, done) = self.store().create_index(shard.clone(), signature);
                    (number, Some(done))
                }
            });
        }
        let created =
            |(number, done): (ShardNumber, Option<_>)| done.map_or(Ok(()), wait).map(|()| number);
        numbers.into_iter().map(created).collect()
    }

    /// Waits until the index holds everything that the database held at the call. Places of functions
    /// count to the requester.
    ///
    /// # Errors
    /// The update failed.
    pub async fn update_text(
        self: &Arc<Self>,
        index: &Arc<TextIndex>,
        requester: &Requester,
    ) -> Result<(), Error> {
        let wanted: Vec<(u64, u64)> = self
            .all_shards()
            .iter()
            .map(|s| s.meta())
            .map(|m| (m.update_seq, m.purge_seq))
            .collect();
        let reached = || {
            index
                .seqs()
                .zip(&wanted)
                .all(|(at, w)| at.0 >= w.0 && at.1 >= w.1)
        };
        if reached() {
            return Ok(());
        }
        let _wait = Wait(Instant::now());
        self.wait_for_update(index.clone(), requester, reached)
            .await
    }

    /// Notes a query of an index.
    pub(crate) fn note_used_text(&self, index: &TextIndex) {
        // Nearly all find it so: the line of memory stays shared.
        if index.is_noted.load(Relaxed) || index.is_noted.swap(true, Relaxed) {
            return;
        }
        let used = &self.shared_views().used;
        used.note(self.uuid(), index.signature());
    }

    /// Facts about a text index for `settee doctor`; more about an open one.
    pub(crate) fn text_facts(
        &self,
        design: &Design,
        (flavour, name): (Flavour, &str),
        is_built: impl Fn(Signature) -> bool,
    ) -> Result<TextFacts, Error> {
        let facts = TextFacts {
            name: name.to_owned(),
            flavour,
            is_mango: design.spec.language == mango::index::LANGUAGE,
            refused: None,
            is_built: false,
            was_used: None,
            open: None,
        };
        let spec = match design.text(flavour, name) {
            Ok(spec) => spec,
            Err(e) => {
                let refused = Some(e.to_string());
                return Ok(TextFacts { refused, ..facts });
            }
        };
        let signature = spec.signature();
        // Read before the running update: a due update runs next.
        let is_update_due = design.autoupdate && self.shared_views().indexer.will_look_at(self);
        let open = self
            .views
            .text_indexes
            .indexes
            .lock()
            .get(&signature)
            .cloned();
        Ok(TextFacts {
            refused: spec.analyzers().err().map(|e| e.to_string()),
            is_built: is_built(signature),
            was_used: self.shared_views().used.was_used(self.uuid(), signature),
            open: open.map(|index| index.facts(is_update_due)).transpose()?,
            ..facts
        })
    }

    /// Sizes and counts of the index.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn text_info(&self, index: &TextIndex) -> Result<TextInfo, Error> {
        let mut info = TextInfo {
            signature: index.spec.hex_signature(),
            ..TextInfo::default()
        };
        for shard in &index.shards {
            let (seq, purge_seq) = shard.progress_seqs();
            info.update_seq += seq;
            info.purge_seq += purge_seq;
            info.updates_pending += shard.pending()?;
            let reader = shard.index.reader();
            info.docs += reader.docs();
            info.deleted_docs += reader.deleted_docs();
            info.file_bytes += shard.index.file_bytes();
            info.left_out += shard.left_out();
        }
        Ok(info)
    }

    /// Drops the text indexes that no design document names any more, as
    /// [`Database::clean_up_views_async`] drops indexes of views.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn clean_up_text_indexes_async(self: &Arc<Self>) -> Result<(), Error> {
        let clean_ups = &self.views.text_clean_ups;
        self.clean_up(clean_ups, Database::clean_up_text_indexes)
            .await
    }

    /// Drops the text indexes that no design document names any more; returns their number over all
    /// shards. Blocks.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn clean_up_text_indexes(&self) -> Result<usize, Error> {
        let closed = self.views.changing.lock();
        if *closed {
            return self.if_live(Err(Error::NoDatabase));
        }
        let used = self.used_signatures()?;
        let mut dropped = 0;
        for shard in self.all_shards() {
            for (signature, number) in self.store().indexes(shard.number)? {
                if used.contains(&signature) || !self.store().folder(number).exists() {
                    continue;
                }
                let open = self.views.text_indexes.indexes.lock().remove(&signature);
                if let Some(open) = open {
                    open.close();
                }
                self.drop_index(shard.number, &signature, number)?;
                dropped += 1;
            }
        }
        if dropped > 0 {
            self.wake_maintenance();
        }
        Ok(dropped)
    }

    /// The text indexes that are open.
    pub(crate) fn open_text_indexes(&self) -> Vec<Arc<TextIndex>> {
        self.views
            .text_indexes
            .indexes
            .lock()
            .values()
            .cloned()
            .collect()
    }

    /// Closes an index if none of its parts are in use; returns whether it is closed now.
    pub(crate) fn close_idle_text(&self, signature: &Signature) -> bool {
        let open = self
            .views
            .text_indexes
            .indexes
            .lock()
            .get(signature)
            .cloned();
        if let Some(open) = open {
            open.flush();
        }
        let Some(_changing) = self.views.changing.try_lock() else {
            return false;
        };
        let mut indexes = self.views.text_indexes.indexes.lock();
        let Some(index) = indexes.get_mut(signature) else {
            return true;
        };
        let idle = Arc::get_mut(index).is_some_and(|index| index.is_idle());
        let closed = if idle {
            indexes.remove(signature)
        } else {
            None
        };
        drop(indexes);
        closed.is_some()
    }

    /// Writes what text indexes have in memory only. Blocks.
    pub(crate) fn flush_text_indexes(&self) {
        for index in self.open_text_indexes() {
            index.flush();
        }
    }

    /// Ends all updates of text indexes; returns when nothing more is written. The caller prevents
    /// new ones. Blocks.
    pub(crate) fn close_text_indexes(&self) {
        for index in self.open_text_indexes() {
            index.close();
        }
    }
}
