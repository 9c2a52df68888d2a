//! One run of a replication: from the last checkpoint to the end of the source, or until it is
//! stopped.
//!
//! A reader turns the changes feed into batches; workers query the target for the revisions of a
//! batch that it lacks, read these from the source and write them; the job records a checkpoint up
//! to the first unfinished batch.

mod watermark;
mod worker;

use crate::counters;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use data_encoding::HEXLOWER;
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use self::watermark::Watermark;
use self::worker::Worker;
use crate::batch_memory::{Grant, JobMemory};
use crate::checkpoint::{Log, Session, common_ancestor};
use crate::db::http::number_of;
use crate::db::{Change, ChangesQuery, Db, Info, Read, retry_wait};
use crate::error::Error;
use crate::options::{Replication, Selection};
use crate::progress::{Counts, Progress};
use crate::spans;

/// Time limit of the last checkpoint when a job is stopped.
const LAST_CHECKPOINT_TIME_MAX: Duration = Duration::from_secs(5);
/// Batches waiting for a worker.
const BATCHES_WAITING_MAX: usize = 2;
/// Interval at which a running job queries a source on this server for its number of pending
/// changes.
const PENDING_EVERY_LOCAL: Duration = Duration::from_secs(1);
/// The same interval for a source behind HTTP.
const PENDING_EVERY_HTTP: Duration = Duration::from_secs(5);

/// The result of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum RunResult {
    /// Everything was copied: the members of `_replicate`'s response besides `ok`.
    Completed(Map<String, Value>),
    /// It was stopped.
    Stopped,
}

/// A run.
pub struct Job {
    pub replication: Arc<Replication>,
    /// The id of the checkpoints: [`base_id`](crate::id::base_id).
    pub id: String,
    pub source: Db,
    pub target: Db,
    pub progress: Arc<Progress>,
    pub memory: JobMemory,
    /// True when the run should end.
    pub stop: watch::Receiver<bool>,
}

/// The state from which a run starts to copy.
struct Start {
    source: Info,
    target: Info,
    source_log: Log,
    target_log: Log,
    seq: Value,
    history: Vec<Value>,
    started: SystemTime,
    session: String,
}

impl Job {
    /// Runs to the end. `running` is called once copying starts.
    ///
    /// # Errors
    /// The reason of the failure; progress until then is recorded.
    pub async fn run(mut self, running: impl FnOnce()) -> Result<RunResult, Error> {
        let mut stop = self.stop.clone();
        let id = self.id.clone();
        let start = tokio::select! {
            start = spans::record(spans::TaskSpan::of("replication start", &id), self.start()) => start?,
            () = stop_requested(&mut stop) => return Ok(RunResult::Stopped),
        };
        running();
        self.copy(start).await
    }

    async fn start(&mut self) -> Result<Start, Error> {
        let (source, target) = (&self.source, &self.target);
        let replication = &self.replication;
        let source_info = source.info().await?;
        if replication.create_target {
            target.create(&replication.create_target_params).await?;
        }
        let target_info = target.info().await?;
        let log_id = format!("_local/{}", self.id);
        let (source_log, target_log) = match replication.use_checkpoints {
            true => (
                read_log(source, &log_id).await?,
                read_log(target, &log_id).await?,
            ),
            false => (Log::default(), Log::default()),
        };
        let (common, history) = common_ancestor(&source_log, &target_log);
        let seq = replication.since_seq.clone().unwrap_or(common);
        if let Some(last) = history.first() {
            self.progress.raise_to(Counts::of_session(last));
        }
        self.progress.set_seqs(|seqs| {
            seqs.source = source_info.update_seq.clone();
            seqs.through = seq.clone();
            seqs.checkpointed = seq.clone();
        });
        Ok(Start {
            source: source_info,
            target: target_info,
            source_log,
            target_log,
            seq,
            history,
            started: SystemTime::now(),
            session: random_id(),
        })
    }

    fn query(&self, start: &Start) -> ChangesQuery {
        let replication = &self.replication;
        ChangesQuery {
            continuous: replication.continuous,
            winning_revs_only: replication.winning_revs_only,
            selection: replication.selection.clone(),
            // A target that was always empty needs every document, so the feed includes them.
            include_docs: start.target.is_empty
                && !matches!(replication.selection, Selection::Ids(_)),
            batch: replication.worker_batch_size,
        }
    }

    async fn copy(self, start: Start) -> Result<RunResult, Error> {
        let query = self.query(&start);
        let job = Arc::new(self);
        let (batches, waiting) = mpsc::channel(BATCHES_WAITING_MAX);
        let waiting = Arc::new(tokio::sync::Mutex::new(waiting));
        let through = Arc::new(Watermark::new(start.seq.clone()));
        // Tasks end with the set: dropping a job ends all of them.
        let mut tasks = JoinSet::new();
        let reader = Reader {
            job: job.clone(),
            query: query.clone(),
            seq: start.seq.clone(),
            through: through.clone(),
            batches,
            has_changes: false,
        };
        tasks.spawn(reader.run());
        for _ in 0..job.replication.worker_processes {
            let worker = Worker {
                job: job.clone(),
                waiting: waiting.clone(),
                through: through.clone(),
                target_was_empty: start.target.is_empty,
            };
            tasks.spawn(worker.run());
        }
        let mut recorder = Recorder {
            job: job.clone(),
            through,
            query,
            recorded: start.seq.clone(),
            start,
            result: None,
        };
        recorder.watch(tasks).await
    }
}

/// Periodically queries the number of pending changes after the watermark.
async fn watch_pending(job: Arc<Job>, query: ChangesQuery, through: Arc<Watermark>) {
    let mut ticks = tokio::time::interval(match job.source {
        Db::Local(_) => PENDING_EVERY_LOCAL,
        Db::Http(_) => PENDING_EVERY_HTTP,
    });
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut asked = None;
    loop {
        ticks.tick().await;
        let seq = through.seq();
        if asked.as_ref() == Some(&seq) {
            continue;
        }
        if let Some(pending) = job.source.pending(&query, &seq).await {
            job.progress.set_seqs(|seqs| seqs.pending = Some(pending));
        }
        asked = Some(seq);
    }
}

/// Waits until a job is stopped.
pub async fn stop_requested(stop: &mut watch::Receiver<bool>) {
    // A dropped sender counts as a stop.
    let _ = stop.wait_for(|stop| *stop).await;
}

async fn read_log(db: &Db, id: &str) -> Result<Log, Error> {
    Ok(db.read(id).await?.map_or_else(Log::default, Log::of))
}

/// Turns the changes feed into batches.
struct Reader {
    job: Arc<Job>,
    query: ChangesQuery,
    seq: Value,
    through: Arc<Watermark>,
    batches: mpsc::Sender<worker::Batch>,
    /// Whether there was a change.
    has_changes: bool,
}

impl Reader {
    async fn run(mut self) -> Result<(), Error> {
        let mut failures = 0;
        loop {
            match self.read_feed(&mut failures).await {
                Ok(()) => return Ok(()),
                // Without documents rows are short: those are read one by one then.
                Err(Error::LongRow(_)) if self.query.include_docs => {
                    self.query.include_docs = false;
                }
                Err(e @ (Error::Request(_) | Error::Database(_))) => {
                    // The source disconnected: continue where the feed broke off.
                    if failures >= self.job.replication.retries_per_request {
                        return Err(e);
                    }
                    tokio::time::sleep(retry_wait(failures)).await;
                    failures += 1;
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Reads to the end of the source; in a continuous replication a feed that ended is reopened.
    async fn read_feed(&mut self, failures: &mut u32) -> Result<(), Error> {
        loop {
            let mut feed = self.job.source.changes(&self.query, &self.seq).await?;
            loop {
                match feed.read(&self.job.memory.changes).await? {
                    Read::Changes(changes, seq, memory) => {
                        *failures = 0;
                        self.seq = seq.clone();
                        self.has_changes = true;
                        self.send(changes, seq, memory).await?;
                    }
                    Read::End(seq, pending) => {
                        self.job.progress.set_seqs(|seqs| seqs.pending = pending);
                        // A job that ends without a change records nothing, as in CouchDB.
                        let is_news = self.query.continuous || self.has_changes;
                        if let Some(seq) = seq.filter(|seq| is_news && *seq != self.seq) {
                            self.seq = seq.clone();
                            let memory = self.job.memory.changes.empty();
                            self.send(vec![], seq, memory).await?;
                        }
                        if self.query.continuous {
                            break;
                        }
                        return Ok(());
                    }
                }
            }
            // The server ended the feed: if the database was deleted, the next request returns
            // that.
            tokio::time::sleep(retry_wait(*failures)).await;
            *failures = (*failures + 1).min(8);
        }
    }

    async fn send(&self, changes: Vec<Change>, seq: Value, memory: Grant) -> Result<(), Error> {
        let number = self.through.begin(seq);
        let batch = worker::Batch {
            number,
            changes,
            memory,
        };
        self.batches.send(batch).await.map_err(|_| Error::Stopped)
    }
}

/// Records checkpoints, and waits for the end of the job.
struct Recorder {
    job: Arc<Job>,
    through: Arc<Watermark>,
    query: ChangesQuery,
    start: Start,
    /// The seq of the last checkpoint.
    recorded: Value,
    /// The last checkpoint.
    result: Option<Map<String, Value>>,
}

impl Recorder {
    async fn watch(&mut self, mut tasks: JoinSet<Result<(), Error>>) -> Result<RunResult, Error> {
        let mut stop = self.job.stop.clone();
        // Aborted when this function returns.
        let mut watching = JoinSet::new();
        watching.spawn(watch_pending(
            self.job.clone(),
            self.query.clone(),
            self.through.clone(),
        ));
        let interval = self
            .job
            .replication
            .checkpoint_interval
            .max(Duration::from_millis(10));
        let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + interval, interval);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop_requested(&mut stop) => {
                    tasks.abort_all();
                    self.last_checkpoint().await;
                    return Ok(RunResult::Stopped);
                }
                _ = ticks.tick() => self.checkpoint().await?,
                done = tasks.join_next() => match done {
                    None => break,
                    Some(Ok(Ok(()))) => {}
                    Some(Ok(Err(e))) => {
                        tasks.abort_all();
                        self.last_checkpoint().await;
                        return Err(e);
                    }
                    Some(Err(e)) => return Err(Error::Request(format!("a worker failed: {e}"))),
                },
            }
        }
        self.checkpoint().await?;
        Ok(RunResult::Completed(self.completed()))
    }

    /// Records the progress if possible; nothing depends on it.
    async fn last_checkpoint(&mut self) {
        let recorded = tokio::time::timeout(LAST_CHECKPOINT_TIME_MAX, self.checkpoint()).await;
        if !matches!(recorded, Ok(Ok(()))) {
            tracing::debug!(id = self.job.id, "no last checkpoint");
        }
    }

    fn completed(&mut self) -> Map<String, Value> {
        if !self.job.replication.use_checkpoints {
            return Map::from_iter([("use_checkpoints".to_owned(), json!(false))]);
        }
        self.result.take().unwrap_or_else(|| {
            let mut result = Map::from_iter([("no_changes".to_owned(), json!(true))]);
            result.extend(self.start.source_log.body.clone());
            result
        })
    }

    /// Records a checkpoint if there was progress since the last one.
    async fn checkpoint(&mut self) -> Result<(), Error> {
        let recorded = self.record().await;
        match recorded {
            Ok(false) => {}
            Ok(true) => counters::CHECKPOINTS.count(),
            Err(_) => counters::CHECKPOINT_FAILURES.count(),
        }
        recorded.map(|_| ())
    }

    /// Records a checkpoint; returns whether there was progress.
    async fn record(&mut self) -> Result<bool, Error> {
        let job = self.job.clone();
        let through = self.through.seq();
        if !job.replication.use_checkpoints || self.is_recorded(&through) {
            return Ok(false);
        }
        // Read before the commit, so that everything counted is on disk.
        let counts = job.progress.counts();
        self.commit().await?;
        let started = httpdate::fmt_http_date(self.start.started);
        let now = httpdate::fmt_http_date(SystemTime::now());
        let body = Session {
            id: &self.start.session,
            started: &started,
            now: &now,
            start_seq: &self.start.seq,
            through: &through,
            counts,
            by_ids: matches!(job.replication.selection, Selection::Ids(_)),
        }
        .checkpoint(&self.start.history);
        let id = format!("_local/{}", job.id);
        for (db, log, side) in [
            (&job.source, &mut self.start.source_log, "source"),
            (&job.target, &mut self.start.target_log, "target"),
        ] {
            let written = db.write_local(&id, log.rev.as_deref(), &body).await;
            let rev = written.map_err(|e| match e {
                Error::CheckpointCommitFailure(reason) => Error::CheckpointCommitFailure(format!(
                    "Error updating the {side} checkpoint document: {reason}"
                )),
                e => e,
            })?;
            log.rev = Some(rev);
            log.body = body.clone();
        }
        self.recorded = through.clone();
        self.result = Some(body);
        let pending = job.source.pending(&self.query, &through).await;
        job.progress.set_seqs(|seqs| {
            seqs.checkpointed = through;
            seqs.pending = pending.or(seqs.pending);
        });
        Ok(true)
    }

    /// A feed without a change may end at a seq that is spelled differently from its start.
    fn is_recorded(&self, through: &Value) -> bool {
        let nothing_read = self.through.batches_with_changes() == 0;
        let same = || {
            let number = number_of(through);
            number.is_some() && number == number_of(&self.recorded)
        };
        *through == self.recorded || nothing_read && same()
    }

    /// Ensures that everything is on disk, in databases that were not recreated meanwhile.
    async fn commit(&self) -> Result<(), Error> {
        let (source, target) = tokio::join!(
            self.job.source.ensure_full_commit(),
            self.job.target.ensure_full_commit()
        );
        let failed = |side: &str, e: Error| {
            Error::CheckpointCommitFailure(format!("Failure on {side} commit: {}", e.text()))
        };
        let target = target.map_err(|e| failed("target", e))?;
        let source = source.map_err(|e| failed("source", e))?;
        let changed = |before: &Option<String>, now: &Option<String>| matches!((before, now), (Some(b), Some(n)) if b != n);
        let which = match (
            changed(&self.start.source.instance_start_time, &source),
            changed(&self.start.target.instance_start_time, &target),
        ) {
            (false, false) => return Ok(()),
            (true, false) => "Source database",
            (false, true) => "Target database",
            (true, true) => "Source and target databases",
        };
        Err(Error::CheckpointCommitFailure(format!(
            "{which} out of sync: recreated since the replication started."
        )))
    }
}

/// Returns 32 hexadecimal digits.
fn random_id() -> String {
    let mut bytes = [0u8; 16];
    // Without random numbers the clock distinguishes sessions.
    if getrandom::fill(&mut bytes).is_err() {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        bytes = now.map_or(0, |d| d.as_nanos()).to_be_bytes();
    }
    HEXLOWER.encode(&bytes)
}
