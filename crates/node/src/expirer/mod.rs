//! Documents that expire are deleted or purged when their time comes.
//!
//! [`database::ExpiryWatch`] names the databases that were written, and the index of each holds the time when the next of its
//! documents expires. So nothing is read of a database that is not written and in which nothing expires. In a cluster each node keeps its
//! own index current, and one node deletes and purges for all.

pub mod counters;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use database::{
    Database, Databases, DueDocuments, Error, ExpiredDocuments, Expiry, ViewIndex, WorkOwner,
};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};

use crate::clock::{Clock, unix_s};

/// Writes to a database within this time are indexed together.
const SETTLE: Duration = Duration::from_secs(1);
/// Maximum time between two readings of the clock, which may be set.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Time until the next attempt after a failure.
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// Maximum time that a turn waits for the index before it uses what the index holds.
const INDEX_WAIT: Duration = Duration::from_secs(2);
/// A turn with more to do ends after this, and other databases have theirs.
const TURN: Duration = Duration::from_secs(2);
/// Turns at the same time.
const TURNS_MAX: usize = 4;
/// Documents of one update or purge.
const DOCUMENTS_MAX: usize = 1000;
/// Maximum time that purges wait for indexes.
const INDEXES_WAIT: Duration = Duration::from_secs(3);

/// Deletes and purges the expired documents of a server.
pub struct Expirer {
    databases: Weak<Databases>,
    /// Returns whether this node deletes and purges in a database.
    acts_for: Box<dyn Fn(&str) -> bool + Send + Sync>,
    watched: Mutex<HashMap<Arc<str>, Watched>>,
    turns: Semaphore,
    /// A turn has ended.
    wake: Notify,
    is_begun: AtomicBool,
}

/// A database whose documents expire.
#[derive(Default)]
struct Watched {
    /// When its next turn begins, unless a document expires before.
    at: Option<Instant>,
    /// When the next of its documents expires, in seconds since 1970.
    expires_unix_s: Option<u64>,
    is_running: bool,
    facts: ExpiryFacts,
}

impl Watched {
    fn note(&mut self, at: Instant) {
        self.at = Some(self.at.map_or(at, |noted| noted.min(at)));
    }

    /// The time until its next turn; `None` while nothing is known to expire.
    fn pause(&self, now: Instant, now_unix_s: u64) -> Option<Duration> {
        let at = self.at.map(|at| at.saturating_duration_since(now));
        let expires = self.expires_unix_s;
        let expires = expires.map(|at| Duration::from_secs(at.saturating_sub(now_unix_s)));
        at.into_iter().chain(expires).min()
    }
}

/// The state of a database whose documents expire.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpiryFacts {
    /// Number of documents with an invalid time, which never expire.
    pub invalid: u64,
    /// When the earliest document expired that is neither deleted nor purged yet, in seconds since 1970.
    pub overdue_unix_s: Option<u64>,
    /// Why the last turn failed.
    pub failure: Option<String>,
}

/// When a database's next turn is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// The database has no such property, or is gone.
    Gone,
    After(Duration),
    /// When a document expires, at this time in seconds since 1970; `None` when something changes.
    Expires(Option<u64>),
}

impl Expirer {
    /// Does nothing before [`Expirer::run_on`].
    pub(crate) fn new(
        databases: &Arc<Databases>,
        acts_for: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> Arc<Expirer> {
        Arc::new(Expirer {
            databases: Arc::downgrade(databases),
            acts_for: Box::new(acts_for),
            watched: Mutex::default(),
            turns: Semaphore::new(TURNS_MAX),
            wake: Notify::new(),
            is_begun: AtomicBool::new(false),
        })
    }

    /// Begins, once.
    pub fn run_on(self: &Arc<Self>, runtime: &Handle) {
        if !self.is_begun.swap(true, Relaxed) {
            runtime.spawn(run(self.clone()));
        }
    }

    /// Returns what is known of the databases whose documents expire, by name.
    pub fn facts(&self) -> Vec<(Arc<str>, ExpiryFacts)> {
        let all = self.watched.lock();
        all.iter()
            .map(|(name, watched)| (name.clone(), watched.facts.clone()))
            .collect()
    }

    /// Gives databases a turn soon.
    fn note(&self, names: impl IntoIterator<Item = Arc<str>>) {
        let soon = Instant::now() + SETTLE;
        let mut all = self.watched.lock();
        for name in names {
            all.entry(name).or_default().note(soon);
        }
    }

    /// Begins the turns that are due, and returns the time until the next one.
    fn begin_turns(self: &Arc<Self>, databases: &Arc<Databases>) -> Duration {
        let (now, now_unix_s) = (Instant::now(), unix_s());
        let mut until_next = PAUSE_MAX;
        for (name, watched) in &mut *self.watched.lock() {
            if watched.is_running {
                continue;
            }
            match watched.pause(now, now_unix_s) {
                Some(pause) if pause.is_zero() => {
                    (watched.at, watched.expires_unix_s) = (None, None);
                    watched.is_running = true;
                    tokio::spawn(turn(self.clone(), databases.clone(), name.clone()));
                }
                Some(pause) => until_next = until_next.min(pause),
                None => {}
            }
        }
        until_next
    }

    fn end_turn(&self, name: &Arc<str>, next: Next, facts: ExpiryFacts) {
        let mut all = self.watched.lock();
        let Some(watched) = all.get_mut(name) else {
            return;
        };
        watched.is_running = false;
        watched.facts = facts;
        match next {
            Next::Gone if watched.at.is_none() => drop(all.remove(name)),
            // The property was set again meanwhile.
            Next::Gone => {}
            Next::After(pause) => watched.note(Instant::now() + pause),
            Next::Expires(at) => watched.expires_unix_s = at,
        }
        drop(all);
        self.wake.notify_one();
    }
}

async fn run(of: Arc<Expirer>) {
    let mut clock = Clock::default();
    let mut paused_until = Instant::now();
    let mut is_filled = false;
    loop {
        let databases = of.databases.upgrade();
        let Some(databases) = databases.filter(|databases| !databases.is_closing()) else {
            return;
        };
        let watch = databases.expiry_watch().clone();
        is_filled = is_filled || fill(&of, &databases).await;
        of.note(watch.take());
        if !clock.has_moved_steadily() {
            // A mistake may be corrected before documents are lost by it.
            tracing::warn!("the clock was set: for 5 s, no documents expire");
            paused_until = Instant::now() + PAUSE_MAX;
        }
        let left = paused_until.saturating_duration_since(Instant::now());
        let pause = match left.is_zero() {
            true => of.begin_turns(&databases),
            false => left,
        };
        drop(databases);
        tokio::select! {
            () = watch.changed() => {}
            () = of.wake.notified() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Finds the databases that had the property when the server started. Returns whether it could.
async fn fill(of: &Expirer, databases: &Arc<Databases>) -> bool {
    let databases = databases.clone();
    let found = database::run_low_priority(WorkOwner::default(), move || databases.with_expiry());
    match found.await {
        Ok(Ok(names)) => {
            of.note(names);
            true
        }
        Ok(Err(error)) => {
            tracing::error!(%error, "databases whose documents expire cannot be found");
            false
        }
        // The thread failed, which is logged.
        Err(_) => false,
    }
}

/// Deletes or purges what has expired in a database.
async fn turn(of: Arc<Expirer>, databases: Arc<Databases>, name: Arc<str>) {
    // The semaphore is never closed.
    let _turn = of.turns.acquire().await;
    let known = of.watched.lock().get(&name).map(|of| of.facts.clone());
    let mut facts = known.unwrap_or_default();
    let failure = facts.failure.take();
    let next = match of.expire(&databases, &name, &mut facts).await {
        Ok(next) => next,
        Err(Error::NoDatabase | Error::ShuttingDown) => Next::Gone,
        Err(error) => {
            let reason = error.to_string();
            if failure.as_ref() != Some(&reason) {
                tracing::warn!(db = %name, %error, "expired documents are not removed yet");
            }
            facts.failure = Some(reason);
            Next::After(RETRY_AFTER)
        }
    };
    of.end_turn(&name, next, facts);
}

/// A database, its property, and its index.
struct Opened {
    db: Arc<Database>,
    expiry: Expiry,
    index: Arc<ViewIndex>,
}

async fn open(databases: &Arc<Databases>, name: &Arc<str>) -> Result<Option<Opened>, Error> {
    let (databases, name) = (databases.clone(), name.clone());
    let opened = database::run_low_priority(WorkOwner::default(), move || {
        let db = databases.get(&name)?;
        let Some(expiry) = db.expiry() else {
            return Ok(None);
        };
        let index = db.expiry_index(&expiry)?;
        Ok(Some(Opened { db, expiry, index }))
    });
    opened.await.map_err(|_| panicked())?
}

/// The failure of a thread whose panic is logged. Another attempt follows, as after other failures.
fn panicked() -> Error {
    Error::Internal("expired documents could not be read".to_owned())
}

impl Opened {
    /// Updates the index. Returns whether that was done in time.
    async fn update(&self) -> Result<bool, Error> {
        let updated = self.db.update_expiry_index(&self.index);
        match tokio::time::timeout(INDEX_WAIT, updated).await {
            Ok(done) => done.map(|()| true),
            Err(_) => Ok(false),
        }
    }

    async fn due(&self, documents_max: usize) -> Result<DueDocuments, Error> {
        let (db, index) = (self.db.clone(), self.index.clone());
        let found = database::run_low_priority(WorkOwner::default(), move || {
            db.due(&index, unix_s(), documents_max)
        });
        found.await.map_err(|_| panicked())?
    }

    /// Documents of one update or purge. An index that misses more purges than the database remembers
    /// is compared with all documents.
    fn documents_max(&self) -> usize {
        match self.expiry.then() {
            ExpiredDocuments::Delete => DOCUMENTS_MAX,
            ExpiredDocuments::Purge => {
                let half = self.db.purged_infos_limit() / 2;
                half.clamp(1, DOCUMENTS_MAX as u64) as usize
            }
        }
    }

    /// Deletes or purges expired documents, and returns how many.
    async fn remove(&self, due: DueDocuments) -> Result<u64, Error> {
        let then = self.expiry.then();
        let done = self.db.expire(then, due.documents).await?;
        if then == ExpiredDocuments::Delete {
            counters::DELETED.add(done);
            return Ok(done);
        }
        counters::PURGED.add(done);
        // A view would be compared with all documents otherwise, and a text index start over. One that
        // takes longer is not waited for.
        let caught_up = tokio::time::timeout(INDEXES_WAIT, self.db.catch_up_indexes());
        caught_up.await.unwrap_or(Ok(()))?;
        Ok(done)
    }
}

impl Expirer {
    async fn expire(
        &self,
        databases: &Arc<Databases>,
        name: &Arc<str>,
        facts: &mut ExpiryFacts,
    ) -> Result<Next, Error> {
        let began = Instant::now();
        let Some(of) = open(databases, name).await? else {
            return Ok(Next::Gone);
        };
        loop {
            let is_current = of.update().await?;
            let documents_max = match (self.acts_for)(name) {
                true => of.documents_max(),
                false => 1,
            };
            let due = of.due(documents_max).await?;
            facts.invalid = due.invalid;
            facts.overdue_unix_s = due.documents.first().map(|document| document.at_unix_s);
            if due.documents.is_empty() {
                return Ok(match is_current {
                    true => Next::Expires(due.next_unix_s),
                    false => Next::After(SETTLE),
                });
            }
            if of.db.expiry().as_ref() != Some(&of.expiry) || !(self.acts_for)(name) {
                return Ok(Next::After(SETTLE));
            }
            let done = of.remove(due).await?;
            if done == 0 {
                return Ok(Next::After(SETTLE));
            }
            if !is_current || began.elapsed() >= TURN {
                return Ok(Next::After(Duration::ZERO));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_turn_is_when_a_document_expires_or_something_changed() {
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let mut watched = Watched::default();
        assert_eq!(watched.pause(now, 100), None);
        watched.expires_unix_s = Some(107);
        assert_eq!(watched.pause(now, 100), Some(7 * second));
        watched.note(now + 3 * second);
        watched.note(now + 5 * second);
        assert_eq!(watched.pause(now, 100), Some(3 * second));
        assert_eq!(watched.pause(now, 107), Some(Duration::ZERO));
        assert_eq!(watched.pause(now + 4 * second, 100), Some(Duration::ZERO));
    }
}
