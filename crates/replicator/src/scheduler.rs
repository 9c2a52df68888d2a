//! Decides which jobs run when. Jobs are pending, running or crashed; crashed ones wait longer each
//! time; when there are more than `max_jobs`, running ones are stopped for pending ones at every
//! `interval`.

mod backoff;
mod entry;
mod shares;
mod status;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::header::HeaderValue;
use serde_json::{Map, Value, json};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use self::entry::{Ending, Entry, Event, EventKind, Run};
use self::shares::{Owner, Owners, Shares};
use crate::batch_memory::BatchMemory;
use crate::counters;
use crate::db::{Clients, Db, HttpDb, Lane, Rights};
use crate::endpoint::Endpoint;
use crate::environment::Environment;
use crate::error::Error;
use crate::id::base_id;
use crate::job::{Job, RunResult, stop_requested};
use crate::options::{DocRef, Replication, RolesOf, Selection, User};
use crate::progress::Progress;
use crate::selections::{Room, Selections};
use crate::settings::Settings;

pub use self::backoff::doc_backoff;
pub use self::entry::JobState;
pub use self::status::JobCounts;

/// Time limit for a job to end after it was stopped.
const END_TIME_MAX: Duration = Duration::from_secs(10);

/// The result of a job of `_replicate`.
#[derive(Clone, Debug)]
pub enum Outcome {
    Completed(Map<String, Value>),
    Failed(Error),
    Cancelled,
}

/// The result of a job, to wait for.
pub struct JobResult(watch::Receiver<Option<Outcome>>);

impl JobResult {
    /// Waits for the result.
    pub async fn outcome(mut self) -> Outcome {
        let ended = self.0.wait_for(Option::is_some).await;
        let outcome = ended.ok().and_then(|outcome| outcome.clone());
        outcome.unwrap_or(Outcome::Cancelled)
    }
}

/// Receives the events of jobs that belong to documents.
pub trait Listener: Send + Sync {
    fn started(&self, doc: &DocRef, id: &str);
    fn crashed(&self, doc: &DocRef, id: &str, error: &Error);
    fn completed(&self, doc: &DocRef, stats: Map<String, Value>);
}

pub struct Scheduler {
    me: Weak<Scheduler>,
    environment: Arc<dyn Environment>,
    clients: Arc<Clients>,
    jobs: Mutex<HashMap<String, Entry>>,
    selections: Arc<Selections>,
    batch_memory: OnceLock<BatchMemory>,
    wake: Notify,
    listener: Mutex<Option<Weak<dyn Listener>>>,
    stopped: watch::Sender<bool>,
    /// The runtime of the jobs, if it is not the caller's.
    runtime: OnceLock<Handle>,
}

impl Scheduler {
    pub fn new(environment: Arc<dyn Environment>) -> Arc<Scheduler> {
        Arc::new_cyclic(|me| Scheduler {
            me: me.clone(),
            environment,
            clients: Arc::default(),
            jobs: Mutex::default(),
            selections: Arc::default(),
            batch_memory: OnceLock::new(),
            wake: Notify::new(),
            listener: Mutex::default(),
            stopped: watch::Sender::new(false),
            runtime: OnceLock::new(),
        })
    }

    /// Sets the runtime of the jobs; only the first call has an effect.
    pub fn run_jobs_on(&self, runtime: Handle) {
        self.runtime.get_or_init(|| runtime);
    }

    /// Returns the runtime of the jobs.
    pub fn runtime(&self) -> Handle {
        self.runtime.get().cloned().unwrap_or_else(Handle::current)
    }

    pub fn set_listener(&self, listener: Weak<dyn Listener>) {
        *self.listener.lock() = Some(listener);
    }

    fn listener(&self) -> Option<Arc<dyn Listener>> {
        self.listener.lock().as_ref()?.upgrade()
    }

    /// Returns a replication's id. Reads the filter function of the source if there is one.
    ///
    /// # Errors
    /// [`Error::FilterFetch`].
    pub async fn id_of(&self, replication: &Replication) -> Result<String, Error> {
        Ok(self.base_id_of(replication).await? + &replication.id_suffix())
    }

    async fn base_id_of(&self, replication: &Replication) -> Result<String, Error> {
        let code = match &replication.selection {
            Selection::Filter { name, .. } if !name.starts_with('_') => {
                Some(self.filter_code(replication, name).await?)
            }
            _ => None,
        };
        Ok(base_id(
            replication,
            &self.environment.uuid(),
            code.as_deref(),
        ))
    }

    async fn filter_code(&self, replication: &Replication, name: &str) -> Result<String, Error> {
        let source = replication.source.shown();
        let (design, function) = name.split_once('/').unwrap_or((name, ""));
        let fetched = |e: Error| {
            Error::FilterFetch(format!(
                "Couldn't open document `_design/{design}` from source database `{source}`: {}",
                e.text()
            ))
        };
        let db = self
            .open(&replication.source, Lane::Source, replication, None)
            .await
            .map_err(fetched)?;
        let id = format!("_design/{design}");
        let ddoc = db.read(&id).await.map_err(fetched)?;
        let ddoc = ddoc.ok_or_else(|| fetched(Error::Request("not_found: missing".into())))?;
        let code = ddoc.get("filters").and_then(|f| f.get(function)?.as_str());
        code.map(str::to_owned).ok_or_else(|| {
            Error::FilterFetch(format!(
                "Couldn't parse filter code from document {design} on `{source}`"
            ))
        })
    }

    async fn open(
        &self,
        endpoint: &Endpoint,
        lane: Lane,
        replication: &Replication,
        selection: Option<&Selection>,
    ) -> Result<Db, Error> {
        Ok(match endpoint {
            Endpoint::Local(name) => {
                let opened = self.environment.open(name, &replication.user, selection);
                Db::Local(Box::new(opened.await?))
            }
            Endpoint::Remote(remote) => {
                let settings = self.environment.settings();
                let rights = (self.rights(replication, &settings), lane);
                let db =
                    HttpDb::open(remote, replication, &settings, &self.clients, rights).await?;
                Db::Http(Box::new(db))
            }
        })
    }

    /// Returns the user whose rights a replication has, and whether that is a server admin.
    fn owner_of(&self, replication: &Replication) -> (String, bool) {
        let owner = replication.owner();
        let is_admin = match replication.has_roles() {
            true => replication.user.is_admin(),
            false => owner.is_some_and(|name| self.environment.is_admin(name)),
        };
        (owner.map(str::to_owned).unwrap_or_default(), is_admin)
    }

    /// Returns the rights of a replication, those of the requesting user or the document's owner,
    /// whatever else the document contains. Evaluated for each new connection, since the set of
    /// admins changes.
    fn rights(&self, replication: &Replication, settings: &Settings) -> Rights {
        let (user, is_admin) = self.owner_of(replication);
        let token = self.environment.token(&user);
        let token = token.and_then(|token| HeaderValue::try_from(token).ok());
        Rights {
            user,
            allowed: (!is_admin).then(|| settings.allowed_addresses.clone()),
            listening: self.environment.listening(),
            token: token.map(|mut token| {
                token.set_sensitive(true);
                token
            }),
        }
    }

    /// Returns the number of jobs that this user started by requests, and that end with this node.
    pub fn requested_by(&self, user: &User) -> usize {
        let jobs = self.jobs.lock();
        let own = |job: &&Entry| {
            let of = &job.replication;
            of.doc.is_none() && of.kept.is_none() && of.user.name == user.name
        };
        jobs.values().filter(own).count()
    }

    /// Takes memory for the description of a new job: its ids or selector.
    ///
    /// # Errors
    /// Errors of [`Selections::take`].
    pub fn room_for(&self, replication: &Replication) -> Result<Room, Error> {
        let settings = self.environment.settings();
        let (_, is_admin) = self.owner_of(replication);
        (self.selections).take(replication, is_admin, settings.selection_bytes_max)
    }

    /// Memory of the ids and selectors, and of the batches, of all jobs, now and at most, in bytes.
    pub fn memory_bytes(&self) -> (u64, u64) {
        let (used, peak) = self.selections.used_bytes();
        let (batches, all_peak) = self.batch_memory().used_bytes();
        (used + batches, peak.max(all_peak))
    }

    /// The memory of batches, sized by the settings of the first call.
    fn batch_memory(&self) -> &BatchMemory {
        self.batch_memory.get_or_init(|| {
            let budget_bytes = self.environment.settings().selection_bytes_max;
            BatchMemory::new(&self.selections, budget_bytes)
        })
    }

    /// Adds a job, or lets the same one continue. `not_before` delays its start.
    pub fn add(
        &self,
        id: &str,
        replication: Arc<Replication>,
        not_before: Option<Instant>,
        room: Room,
    ) -> JobResult {
        let mut jobs = self.jobs.lock();
        let mut after = None;
        if let Some(old) = jobs.get(id) {
            if *old.replication == *replication {
                return JobResult(old.outcome.subscribe());
            }
            after = jobs.remove(id).and_then(|old| old.retire());
        }
        let job = Entry::new(replication, not_before, after, room);
        // Subscribed before it may start: it could end before that.
        let awaited = JobResult(job.outcome.subscribe());
        jobs.insert(id.to_owned(), job);
        drop(jobs);
        self.wake.notify_one();
        awaited
    }

    /// Removes and stops a job, which may take a moment to record its progress. Returns false if it
    /// does not exist.
    pub fn remove(&self, id: &str) -> bool {
        let Some(job) = self.jobs.lock().remove(id) else {
            return false;
        };
        job.outcome.send_replace(Some(Outcome::Cancelled));
        let _ended = job.retire();
        self.wake.notify_one();
        true
    }

    /// Removes a job, and waits until it has ended.
    pub async fn remove_and_wait(&self, id: &str) -> bool {
        let Some(job) = self.jobs.lock().remove(id) else {
            return false;
        };
        job.outcome.send_replace(Some(Outcome::Cancelled));
        if let Some(mut ending) = job.retire() {
            let ended = ending.ended.wait_for(|ended| *ended);
            // One that exceeds the limit has been stopped, and does no harm.
            let _ = tokio::time::timeout(END_TIME_MAX, ended).await;
        }
        self.wake.notify_one();
        true
    }

    /// Stops the jobs of a document, or of all documents of a database.
    pub fn remove_of(&self, db: &str, doc: Option<&str>) {
        let ids: Vec<String> = {
            let jobs = self.jobs.lock();
            let of = |job: &Entry| {
                let of_doc = job.replication.doc.as_ref();
                of_doc.is_some_and(|d| d.db == db && doc.is_none_or(|id| d.id == id))
            };
            jobs.iter()
                .filter(|(_, job)| of(job))
                .map(|(id, _)| id.clone())
                .collect()
        };
        for id in ids {
            self.remove(&id);
        }
    }

    /// Stops the job of a document that another node will run: one that has not ended after `time`
    /// is ended wherever it is.
    pub fn leave(&self, db: &str, doc: &str, time: Duration) {
        let is_left = |job: &Entry| {
            let of = job.replication.doc.as_ref();
            of.is_some_and(|of| of.db == db && of.id == doc)
        };
        let left: Vec<Entry> = {
            let mut jobs = self.jobs.lock();
            let left = jobs.extract_if(|_, job| is_left(job));
            left.map(|(_, job)| job).collect()
        };
        self.leave_all(left, time);
    }

    /// Stops the job of a kept request as [`Scheduler::leave`] does.
    pub fn leave_request(&self, id: &str, time: Duration) {
        let left = self.jobs.lock().remove(id);
        self.leave_all(left, time);
    }

    fn leave_all(&self, left: impl IntoIterator<Item = Entry>, time: Duration) {
        for job in left {
            job.outcome.send_replace(Some(Outcome::Cancelled));
            for ending in job.leave() {
                tokio::spawn(async move {
                    tokio::time::sleep(time).await;
                    ending.kill.send_replace(true);
                });
            }
        }
        self.wake.notify_one();
    }

    /// Returns the replication of the job with this id; `None` if it does not exist.
    pub fn replication(&self, id: &str) -> Option<Arc<Replication>> {
        self.jobs.lock().get(id).map(|job| job.replication.clone())
    }

    /// Checks that no document has the job with this id.
    ///
    /// # Errors
    /// [`Error::Duplicate`].
    pub fn refuse_document(&self, id: &str) -> Result<(), Error> {
        let running = self.replication(id);
        match running.as_ref().and_then(|running| running.doc.as_ref()) {
            None => Ok(()),
            Some(doc) => {
                let by = format!("document `{}` from db `{}`", doc.id, doc.db);
                Err(Error::Duplicate(id.to_owned(), by))
            }
        }
    }

    /// Checks that the user started the job, or is an admin.
    ///
    /// # Errors
    /// [`Error::NoJob`], [`Error::NotAdmin`].
    pub fn authorize(&self, id: &str, user: &User) -> Result<(), Error> {
        let replication = self.replication(id).ok_or(Error::NoJob)?;
        if user.is_admin() || user.name.is_some() && replication.user.name == user.name {
            return Ok(());
        }
        Err(Error::NotAdmin)
    }

    /// Starts and stops jobs until the server stops.
    pub async fn run(self: Arc<Self>) {
        let mut stopped = self.stopped.subscribe();
        let mut last_rotation = Instant::now();
        loop {
            let interval = self
                .environment
                .settings()
                .interval
                .max(Duration::from_millis(1));
            let rotate = last_rotation.elapsed() >= interval;
            if rotate {
                last_rotation = Instant::now();
            }
            let next = self.reschedule(rotate);
            let tick = last_rotation + interval;
            let at = next.map_or(tick, |n| n.min(tick));
            tokio::select! {
                () = self.wake.notified() => {}
                () = tokio::time::sleep_until(at) => {}
                () = stop_requested(&mut stopped) => return,
            }
        }
    }

    /// Stops all jobs, and waits until they have recorded their progress.
    pub async fn stop(&self) {
        self.stopped.send_replace(true);
        let jobs = std::mem::take(&mut *self.jobs.lock());
        let ended: Vec<Ending> = jobs
            .into_values()
            .filter_map(|job| {
                job.outcome.send_replace(Some(Outcome::Cancelled));
                job.retire()
            })
            .collect();
        let all = async {
            for mut ending in ended {
                let _ = ending.ended.wait_for(|ended| *ended).await;
            }
        };
        let _ = tokio::time::timeout(END_TIME_MAX, all).await;
    }

    /// Starts all jobs that may start. Returns when the next one may.
    fn reschedule(&self, rotate: bool) -> Option<Instant> {
        if *self.stopped.borrow() {
            return None;
        }
        let settings = self.environment.settings();
        let mut jobs = self.jobs.lock();
        let now = Instant::now();
        let mut owners = Owners::new(&*self.environment);
        let mut shares = Shares::new(settings.max_jobs);
        for job in jobs.values_mut().filter(|job| job.is_running()) {
            shares.add(owners.of(&job.replication));
            job.forget_crashes(now, settings.health_threshold);
        }
        let (waiting, next) = waiting_jobs(&jobs, now);
        let mut oldest = match rotate {
            true => continuous_by_age(&jobs),
            false => vec![],
        };
        let mut churn = 0;
        let excess = shares.excess().min(oldest.len());
        for id in oldest.drain(..excess) {
            shares.remove(owners.of(&jobs[&id].replication));
            give_way(&mut jobs, &id, settings.max_history);
            churn += 1;
        }
        // Users none of whose jobs can start now.
        let mut stuck: HashSet<Owner> = HashSet::new();
        for id in waiting {
            let owner = owners.of(&jobs[&id].replication);
            if stuck.contains(owner) {
                continue;
            }
            let owner = owner.clone();
            let mut starts = shares.take(&owner);
            if !starts && churn < settings.max_churn {
                let gives =
                    |old: &String| shares.take_from(owners.of(&jobs[old].replication), &owner);
                if let Some(at) = oldest.iter().position(gives) {
                    let old = oldest.remove(at);
                    give_way(&mut jobs, &old, settings.max_history);
                    (starts, churn) = (true, churn + 1);
                }
            }
            match jobs.get_mut(&id).filter(|_| starts) {
                Some(job) => self.start(&id, job, settings.max_history),
                None => {
                    stuck.insert(owner);
                }
            }
        }
        next
    }

    fn start(&self, id: &str, job: &mut Entry, history_max: usize) {
        let (stop, stopped) = watch::channel(false);
        let (ended, has_ended) = watch::channel(false);
        let (kill, mut killed) = watch::channel(false);
        job.note(Event::now(EventKind::Started), history_max);
        job.last_started = Some(Instant::now());
        let serial = job.next_serial();
        let after = job.after.take();
        job.run = Some(Run {
            stop,
            kill,
            ended: has_ended,
            serial,
        });
        let me = self.me.clone();
        let (id, replication, progress) =
            (id.to_owned(), job.replication.clone(), job.progress.clone());
        let runtime = self.runtime();
        tokio::spawn(async move {
            if let Some(mut after) = after {
                tokio::select! {
                    _ = after.ended.wait_for(|ended| *ended) => {}
                    Ok(_) = killed.wait_for(|killed| *killed) => {
                        after.kill.send_replace(true);
                    }
                }
            }
            let result = match me.upgrade() {
                None => Ok(RunResult::Stopped),
                // In a task of its own, so that a panic becomes an error.
                Some(scheduler) => {
                    let run = scheduler.run_job(id.clone(), replication, progress, stopped);
                    let told = |e| Err(Error::Request(format!("the job failed: {e}")));
                    let run = runtime.spawn(run);
                    let handle = run.abort_handle();
                    tokio::select! {
                        result = run => result.unwrap_or_else(told),
                        Ok(_) = killed.wait_for(|killed| *killed) => {
                            handle.abort();
                            Ok(RunResult::Stopped)
                        }
                    }
                }
            };
            ended.send_replace(true);
            if let Some(scheduler) = me.upgrade() {
                scheduler.ended(&id, serial, result);
            }
        });
    }

    /// Returns the replication with the user's current roles.
    fn with_roles(&self, replication: Arc<Replication>) -> Result<Arc<Replication>, Error> {
        if replication.doc.is_some() || replication.has_roles() {
            return Ok(replication);
        }
        let name = replication.owner().unwrap_or_default();
        let user = self.environment.account(name)?;
        let no_user = || Error::Forbidden(format!("the user {name} does not exist any more"));
        let user = user.ok_or_else(no_user)?;
        let replication = Replication::clone(&replication);
        Ok(Arc::new(Replication {
            user,
            kept: Some(RolesOf::Request),
            ..replication
        }))
    }

    async fn run_job(
        self: Arc<Self>,
        id: String,
        replication: Arc<Replication>,
        progress: Arc<Progress>,
        mut stop: watch::Receiver<bool>,
    ) -> Result<RunResult, Error> {
        let replication = self.with_roles(replication)?;
        let opened = tokio::select! {
            opened = self.open_ends(&replication) => opened?,
            () = stop_requested(&mut stop) => return Ok(RunResult::Stopped),
        };
        let base = id.split('+').next().unwrap_or(&id).to_owned();
        let memory = match self.owner_of(&replication) {
            (_, true) => self.batch_memory().of(""),
            (user, false) => self.batch_memory().of(&user),
        };
        let job = Job {
            replication: replication.clone(),
            id: base,
            source: opened.0,
            target: opened.1,
            progress,
            memory,
            stop,
        };
        tracing::info!(
            id,
            source = replication.source.shown(),
            target = replication.target.shown(),
            "replication starts"
        );
        let started = || {
            if let (Some(doc), Some(listener)) = (&replication.doc, self.listener()) {
                listener.started(doc, &id);
            }
        };
        job.run(started).await
    }

    async fn open_ends(&self, replication: &Replication) -> Result<(Db, Db), Error> {
        let selection = Some(&replication.selection);
        let source = self.open(&replication.source, Lane::Source, replication, selection);
        let is_remote = |end: &Endpoint| matches!(end, Endpoint::Remote(_));
        // Checks the local target before it contacts another server: the user may have no access to
        // it.
        if is_remote(&replication.source) && !is_remote(&replication.target) {
            let target = self.open_target(replication).await?;
            return Ok((source.await?, target));
        }
        let source = source.await?;
        Ok((source, self.open_target(replication).await?))
    }

    async fn open_target(&self, replication: &Replication) -> Result<Db, Error> {
        if let (Endpoint::Local(name), true) = (&replication.target, replication.create_target) {
            let params = &replication.create_target_params;
            self.environment
                .create(name, &replication.user, params)
                .await?;
        }
        self.open(&replication.target, Lane::Target, replication, None)
            .await
    }

    fn ended(&self, id: &str, serial: u64, result: Result<RunResult, Error>) {
        let history_max = self.environment.settings().max_history;
        let mut jobs = self.jobs.lock();
        let Some(job) = jobs.get_mut(id).filter(|job| job.serial == serial) else {
            return;
        };
        job.run = None;
        let replication = job.replication.clone();
        match result {
            Ok(RunResult::Stopped) => job.note(Event::now(EventKind::Stopped), history_max),
            Ok(RunResult::Completed(result)) => {
                let stats = job.final_stats();
                job.outcome.send_replace(Some(Outcome::Completed(result)));
                jobs.remove(id);
                counters::JOBS_REMOVED.count();
                drop(jobs);
                tracing::info!(id, "replication completed");
                if let (Some(doc), Some(listener)) = (&replication.doc, self.listener()) {
                    listener.completed(doc, stats);
                }
            }
            Err(error) => {
                tracing::warn!(id, error = error.text(), "replication failed");
                job.crashed(&error, history_max);
                match &replication.doc {
                    // It is continued until it is cancelled.
                    None if replication.kept.is_some() => {}
                    // The requester gets the error; no retry would be for anyone.
                    None => {
                        job.outcome.send_replace(Some(Outcome::Failed(error)));
                        jobs.remove(id);
                        counters::JOBS_REMOVED.count();
                    }
                    Some(doc) => {
                        drop(jobs);
                        if let Some(listener) = self.listener() {
                            listener.crashed(doc, id, &error);
                        }
                    }
                }
            }
        }
        self.wake.notify_one();
    }
}

/// The jobs that wait for a place: those that never ran come first, then those that have waited longest. And when another one
/// does.
fn waiting_jobs(jobs: &HashMap<String, Entry>, now: Instant) -> (Vec<String>, Option<Instant>) {
    let mut next: Option<Instant> = None;
    let mut waiting: Vec<(Option<Instant>, &String)> = vec![];
    for (id, job) in jobs.iter().filter(|(_, job)| !job.is_running()) {
        match job.ready_at() {
            Some(at) if at > now => next = Some(next.map_or(at, |n| n.min(at))),
            _ => waiting.push((job.last_started, id)),
        }
    }
    waiting.sort();
    let waiting = waiting.into_iter().map(|(_, id)| id.clone());
    (waiting.collect(), next)
}

/// The continuous jobs that run, those that have run longest first.
fn continuous_by_age(jobs: &HashMap<String, Entry>) -> Vec<String> {
    let mut running: Vec<(Option<Instant>, String)> = jobs
        .iter()
        .filter(|(_, job)| job.is_running() && job.replication.continuous)
        .map(|(id, job)| (job.last_started, id.clone()))
        .collect();
    running.sort();
    running.into_iter().map(|(_, id)| id).collect()
}

fn give_way(jobs: &mut HashMap<String, Entry>, id: &str, history_max: usize) {
    if let Some(job) = jobs.get_mut(id) {
        job.give_way(history_max);
    }
}

/// Returns the response to a request that started a continuous job or cancelled one.
pub fn local_id_json(id: &str) -> Value {
    json!({"ok": true, "_local_id": id})
}
