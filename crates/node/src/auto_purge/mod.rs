//! Purges of documents that were deleted long ago, in the background: `[couch_auto_purge_plugin]` and `_auto_purge`.
//!
//! A round goes through the databases whose deleted documents are not kept for ever, and through the changes of each that are old
//! enough and were not read in an earlier round. The store records how far earlier rounds read. In a cluster one node does it for
//! all.

pub mod counters;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use config::settings::{CouchAutoPurgePlugin, LogLevel};
use database::{Database, Error, OldChanges, Task, Ttl, WorkOwner};
use document::{DocId, Rev};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::clock::{Clock, unix_s};
use crate::node::Node;

/// Minimum time between two rounds, whatever the settings are.
const REPEAT_MIN: Duration = Duration::from_secs(1);
/// Time until the next round if a shard has more to be purged than its indexes may miss.
const CONTINUE_AFTER: Duration = Duration::from_secs(5);
/// Maximum number of revisions that one round purges in a shard, so that other databases wait only
/// a moment for their turn, whatever limit the database has.
const REVS_A_ROUND_MAX: u64 = 2_500;

/// Purges the deleted documents of a server.
pub struct AutoPurge {
    node: Weak<Node>,
    state: Mutex<State>,
    is_begun: AtomicBool,
    wake: Notify,
}

#[derive(Default)]
struct State {
    settings: Option<CouchAutoPurgePlugin>,
    running: Option<Task>,
    /// Databases whose purges failed in the last round, and why.
    failures: Vec<(Arc<str>, String)>,
    /// The last round left something to be purged.
    has_more: bool,
}

/// The settings of a round.
struct Round {
    default_ttl: Option<Ttl>,
    settings: CouchAutoPurgePlugin,
    revs_per_s: u64,
}

impl Round {
    fn of(settings: &config::Settings) -> Round {
        let of = &settings.couch_auto_purge_plugin;
        Round {
            // The settings have checked it.
            default_ttl: of.deleted_document_ttl.as_deref().and_then(Ttl::parse),
            settings: of.clone(),
            revs_per_s: settings.couch_scanner.doc_write_rate_limit.max(1),
        }
    }
}

impl AutoPurge {
    /// Purges nothing before [`AutoPurge::run_on`].
    pub(crate) fn new(node: Weak<Node>) -> Arc<AutoPurge> {
        Arc::new(AutoPurge {
            node,
            state: Mutex::default(),
            is_begun: AtomicBool::new(false),
            wake: Notify::new(),
        })
    }

    /// Begins the rounds, once.
    pub fn run_on(self: &Arc<Self>, runtime: &Handle) {
        if !self.is_begun.swap(true, Relaxed) {
            runtime.spawn(run(self.clone()));
        }
    }

    /// Begins a round soon: a database has another time to live.
    pub fn wake(&self) {
        self.wake.notify_one();
    }

    /// Rereads the settings, which may have changed.
    pub(crate) fn reread(&self, settings: &CouchAutoPurgePlugin) {
        let before = self.state.lock().settings.replace(settings.clone());
        if before.as_ref() != Some(settings) {
            self.wake();
        }
    }

    /// The database that is purged, for `_active_tasks`.
    pub fn task(&self) -> Option<Task> {
        self.state.lock().running.clone()
    }

    /// Databases whose purges failed in the last round, and why.
    pub fn failures(&self) -> Vec<(Arc<str>, String)> {
        self.state.lock().failures.clone()
    }

    async fn round(&self, node: &Node) {
        counters::STARTS.count();
        let (databases, default) = (
            node.databases.clone(),
            Round::of(&node.settings()).default_ttl,
        );
        let listed = database::run_low_priority(WorkOwner::default(), move || {
            databases.old_changes(default.as_ref(), unix_s())
        });
        // Otherwise the thread that read them failed, which is logged.
        let Ok((all, unknown)) = listed.await else {
            return;
        };
        self.state.lock().has_more = false;
        let mut failures = vec![];
        for (name, error) in unknown {
            tracing::error!(db = %name, %error, "the age of deleted documents cannot be read");
            failures.push((name, error.to_string()));
        }
        for old in &all {
            match self.database(node, old).await {
                // It was deleted, or its shards are being replaced.
                Ok(()) | Err(Error::NoDatabase | Error::ShuttingDown) => {}
                Err(error) => {
                    tracing::warn!(db = %old.name, %error, "purging deleted documents failed");
                    failures.push((old.name.clone(), error.to_string()));
                }
            }
            self.state.lock().running = None;
        }
        self.state.lock().failures = failures;
        counters::COMPLETIONS.count();
    }

    /// Purges old deleted documents in one database.
    async fn database(&self, node: &Node, old: &OldChanges) -> Result<(), Error> {
        let mut purged_to = old.purged_to.clone();
        let total = left(&old.ends, &purged_to);
        if total == 0 || !node.acts_for(&old.name) {
            return Ok(());
        }
        let (databases, name) = (node.databases.clone(), old.name.clone());
        let opened = database::run_low_priority(WorkOwner::default(), move || databases.get(&name));
        let db = opened.await.map_err(|_| Error::ShuttingDown)??;
        counters::OPENED.count();
        let mut task = task(&old.name, total);
        let mut revs = 0;
        // An index that misses more purges than are remembered takes longer, or starts over.
        let revs_max = (db.purged_infos_limit() / 2).min(REVS_A_ROUND_MAX);
        for (shard, &end) in old.ends.iter().enumerate() {
            let shard_revs_max = revs + revs_max;
            while purged_to[shard] < end {
                // A round may take hours: what changes meanwhile counts from here on.
                let round = Round::of(&node.settings());
                if revs > shard_revs_max && !round.settings.dry_run {
                    self.state.lock().has_more = true;
                    break;
                }
                let kept_s = db.keeps_deleted_s(round.default_ttl.as_ref());
                let is_mine = node.acts_for(&old.name);
                if db.uuid() != old.uuid || kept_s != Some(old.kept_s) || !is_mine {
                    self.wake();
                    return Ok(());
                }
                self.state.lock().running = Some(task.clone());
                let part = (shard, purged_to[shard], end);
                let (read_to, purged) = step(&db, part, &round).await?;
                purged_to[shard] = read_to;
                revs += purged;
                task.done = total - left(&old.ends, &purged_to);
                task.updated_unix_s = unix_s();
                if !round.settings.dry_run {
                    db.set_purged_to(shard, read_to).await?;
                }
            }
        }
        if revs > 0 {
            report(&node.settings().couch_auto_purge_plugin, &old.name, revs);
        }
        Ok(())
    }
}

/// Changes that are still to be read.
fn left(ends: &[u64], purged_to: &[u64]) -> u64 {
    let shards = ends.iter().zip(purged_to);
    shards.map(|(end, at)| end.saturating_sub(*at)).sum()
}

fn task(name: &str, total: u64) -> Task {
    Task {
        kind: "auto_purge",
        database: name.to_owned(),
        design_document: None,
        index: None,
        done: 0,
        total,
        started_unix_s: unix_s(),
        updated_unix_s: unix_s(),
    }
}

/// Begins a round immediately, and others periodically or when a setting or a time to live changes.
async fn run(of: Arc<AutoPurge>) {
    let mut clock = Clock::default();
    loop {
        let Some(node) = of.node.upgrade() else {
            return;
        };
        if !clock.has_moved_steadily() {
            tracing::warn!("the clock was set: documents are purged from the next round on");
        } else if node.acts_for_some() {
            of.round(&node).await;
        }
        let repeat = Duration::from_secs(node.settings().couch_auto_purge_plugin.repeat);
        drop(node);
        let pause = match of.state.lock().has_more {
            true => repeat.min(CONTINUE_AFTER),
            false => repeat,
        };
        tokio::select! {
            () = of.wake.notified() => {}
            () = tokio::time::sleep(pause.max(REPEAT_MIN)) => {}
        }
    }
}

/// Purges a part of a shard, from one seq to another: answers up to which seq, and how many revisions.
async fn step(
    db: &Arc<Database>,
    (shard, after, end): (usize, u64, u64),
    round: &Round,
) -> Result<(u64, u64), Error> {
    let of = &round.settings;
    let leaves_min = of.min_batch_size.max(1);
    let reader = db.clone();
    let found = database::run_low_priority(WorkOwner::default(), move || {
        reader.deleted_documents(shard, after, end, leaves_min)
    });
    let found = found.await.map_err(|_| Error::ShuttingDown)??;
    let mut revs = 0;
    for batch in batches(found.documents, of.max_batch_size.max(leaves_min)) {
        let count = batch.iter().map(|(_, revs)| revs.len() as u64).sum::<u64>();
        if !of.dry_run {
            db.purge(batch).await?;
            counters::PURGED.add(count);
            let pause = Duration::from_secs_f64(count as f64 / round.revs_per_s as f64);
            tokio::time::sleep(pause).await;
        }
        revs += count;
    }
    Ok((found.read_to, revs))
}

/// Divides documents into requests of at most `revs_max` revisions.
fn batches(documents: Vec<(DocId, Vec<Rev>)>, revs_max: usize) -> Vec<Vec<(DocId, Vec<Rev>)>> {
    let mut all: Vec<Vec<(DocId, Vec<Rev>)>> = vec![];
    let mut room = 0;
    for (id, revs) in documents {
        let mut rest = &revs[..];
        while !rest.is_empty() {
            if room == 0 {
                all.push(vec![]);
                room = revs_max;
            }
            let part;
            (part, rest) = rest.split_at(rest.len().min(room));
            room -= part.len();
            if let Some(last) = all.last_mut() {
                last.push((id.clone(), part.to_vec()));
            }
        }
    }
    all
}

/// Logs how many revisions of a database were purged, or would have been.
fn report(settings: &CouchAutoPurgePlugin, name: &str, revs: u64) {
    let dry_run = settings.dry_run;
    match settings.log_level {
        LogLevel::None => {}
        LogLevel::Debug => tracing::debug!(db = name, revs, dry_run, "purged deleted documents"),
        LogLevel::Info | LogLevel::Notice => {
            tracing::info!(db = name, revs, dry_run, "purged deleted documents");
        }
        LogLevel::Warning => tracing::warn!(db = name, revs, dry_run, "purged deleted documents"),
        _ => tracing::error!(db = name, revs, dry_run, "purged deleted documents"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn batches_have_no_more_revisions_than_they_may() {
        let document = |n: usize, revs: usize| {
            let rev = |i| Rev::parse(&format!("{}-a", i + 1)).unwrap();
            let id = DocId::new(&format!("d{n}")).unwrap();
            (id, (0..revs).map(rev).collect::<Vec<_>>())
        };
        let sizes = [1, 2, 7, 0, 3].into_iter().enumerate();
        let all: Vec<_> = sizes.map(|(n, revs)| document(n, revs)).collect();
        let divided = batches(all.clone(), 5);
        let count = |batch: &Vec<(DocId, Vec<Rev>)>| {
            batch.iter().map(|(_, revs)| revs.len()).sum::<usize>()
        };
        assert_eq!(divided.iter().map(count).collect::<Vec<_>>(), [5, 5, 3]);
        let mut joined: HashMap<DocId, Vec<Rev>> = HashMap::new();
        for (id, revs) in divided.into_iter().flatten() {
            joined.entry(id).or_default().extend(revs);
        }
        let whole: HashMap<_, _> = all
            .into_iter()
            .filter(|(_, revs)| !revs.is_empty())
            .collect();
        assert_eq!(joined, whole);
        assert!(batches(vec![], 5).is_empty());
    }
}
