//! The scheduler's record of a job.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use super::Outcome;
use super::backoff::crash_backoff;
use crate::counters;
use crate::error::Error;
use crate::options::Replication;
use crate::progress::Progress;
use crate::selections::Room;
use crate::time::{iso8601, unix};

/// The state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobState {
    Pending,
    Running,
    /// Failed, and waiting for a retry.
    Crashing,
}

impl JobState {
    pub fn name(self) -> &'static str {
        match self {
            JobState::Pending => "pending",
            JobState::Running => "running",
            JobState::Crashing => "crashing",
        }
    }
}

#[derive(Clone, Debug)]
pub enum EventKind {
    Added,
    Started,
    Stopped,
    /// The reason of the crash.
    Crashed(String),
}

#[derive(Clone, Debug)]
pub struct Event {
    kind: EventKind,
    at: SystemTime,
}

impl Event {
    pub fn now(kind: EventKind) -> Event {
        Event {
            kind,
            at: SystemTime::now(),
        }
    }

    fn json(&self) -> Value {
        let timestamp = iso8601(self.at);
        match &self.kind {
            EventKind::Added => json!({"timestamp": timestamp, "type": "added"}),
            EventKind::Started => json!({"timestamp": timestamp, "type": "started"}),
            EventKind::Stopped => json!({"timestamp": timestamp, "type": "stopped"}),
            EventKind::Crashed(reason) => {
                json!({"timestamp": timestamp, "type": "crashed", "reason": reason})
            }
        }
    }
}

/// A run in progress.
pub struct Run {
    pub stop: watch::Sender<bool>,
    /// Ends it wherever it is.
    pub kill: watch::Sender<bool>,
    pub ended: watch::Receiver<bool>,
    pub serial: u64,
}

/// A run that was stopped, and records its progress.
pub struct Ending {
    pub ended: watch::Receiver<bool>,
    /// Ends it wherever it is.
    pub kill: watch::Sender<bool>,
}

impl From<Run> for Ending {
    fn from(run: Run) -> Ending {
        Ending {
            ended: run.ended,
            kill: run.kill,
        }
    }
}

pub struct Entry {
    pub replication: Arc<Replication>,
    pub progress: Arc<Progress>,
    pub run: Option<Run>,
    /// The run of a job that this one replaced, which has to end first.
    pub after: Option<Ending>,
    pub last_started: Option<Instant>,
    pub outcome: watch::Sender<Option<Outcome>>,
    /// The serial number of the latest run.
    pub serial: u64,
    /// Newest first.
    history: VecDeque<Event>,
    added: SystemTime,
    not_before: Option<Instant>,
    /// Consecutive crashes.
    crashes: u32,
    crash: Option<(Instant, String)>,
    /// Memory of its ids or selector.
    _room: Room,
}

impl Entry {
    pub fn new(
        replication: Arc<Replication>,
        not_before: Option<Instant>,
        after: Option<Ending>,
        room: Room,
    ) -> Entry {
        counters::JOBS_ADDED.count();
        Entry {
            replication,
            progress: Arc::default(),
            run: None,
            after,
            last_started: None,
            outcome: watch::Sender::new(None),
            serial: next_serial(),
            history: VecDeque::from([Event::now(EventKind::Added)]),
            added: SystemTime::now(),
            not_before,
            crashes: 0,
            crash: None,
            _room: room,
        }
    }

    pub fn is_running(&self) -> bool {
        self.run.is_some()
    }

    pub fn next_serial(&mut self) -> u64 {
        self.serial = next_serial();
        self.serial
    }

    pub fn note(&mut self, event: Event, max: usize) {
        match event.kind {
            EventKind::Added => {}
            EventKind::Started => counters::JOBS_STARTED.count(),
            EventKind::Stopped => counters::JOBS_STOPPED.count(),
            EventKind::Crashed(_) => counters::JOBS_CRASHED.count(),
        }
        self.history.push_front(event);
        self.history.truncate(max.max(1));
    }

    /// Stops the run, if any. Returns a signal of its end.
    pub fn retire(self) -> Option<Ending> {
        counters::JOBS_REMOVED.count();
        let run = self.run?;
        counters::JOBS_STOPPED.count();
        run.stop.send_replace(true);
        Some(run.into())
    }

    /// Stops the run, if any. Returns all runs of the job that have not ended.
    pub fn leave(mut self) -> Vec<Ending> {
        let after = self.after.take();
        after.into_iter().chain(self.retire()).collect()
    }

    /// Stops to make room for others; the job continues later.
    pub fn give_way(&mut self, history_max: usize) {
        let Some(run) = self.run.take() else { return };
        run.stop.send_replace(true);
        self.after = Some(run.into());
        // Further events of this run are ignored.
        self.serial = next_serial();
        self.note(Event::now(EventKind::Stopped), history_max);
    }

    pub fn crashed(&mut self, error: &Error, history_max: usize) {
        self.crashes = self.crashes.saturating_add(1);
        self.crash = Some((Instant::now() + crash_backoff(self.crashes), error.text()));
        self.note(Event::now(EventKind::Crashed(error.text())), history_max);
    }

    /// Resets the crashes of a job that has run long enough to be healthy.
    pub fn forget_crashes(&mut self, now: Instant, threshold: Duration) {
        let healthy = |at| now.saturating_duration_since(at) >= threshold;
        if self.is_running() && self.last_started.is_some_and(healthy) {
            self.crashes = 0;
            self.crash = None;
        }
    }

    /// Returns when it may start.
    pub fn ready_at(&self) -> Option<Instant> {
        let crash = self.crash.as_ref().map(|(until, _)| *until);
        crash.max(self.not_before)
    }

    pub fn final_stats(&self) -> Map<String, Value> {
        let mut stats = self.progress.stats();
        stats.insert("start_time".into(), iso8601(self.added).into());
        stats
    }

    pub fn state(&self) -> JobState {
        match (&self.run, &self.crash) {
            (Some(_), _) => JobState::Running,
            (None, Some(_)) => JobState::Crashing,
            (None, None) => JobState::Pending,
        }
    }

    pub fn summary(&self) -> (JobState, Value, u32, SystemTime) {
        let state = self.state();
        let info = match (state, &self.crash) {
            (JobState::Crashing, Some((_, reason))) => json!({"error": reason}),
            _ => self.progress.info_json(),
        };
        let changed = self.history.front().map_or(self.added, |event| event.at);
        (state, info, self.crashes, changed)
    }

    pub fn json(&self, id: &str, node: &str) -> Value {
        let r = &self.replication;
        let info = match self.is_running() || self.crash.is_none() {
            true => self.progress.info_json(),
            false => self.summary().1,
        };
        json!({
            "database": r.doc.as_ref().map(|d| d.db.as_str()),
            "id": id,
            "pid": self.pid(),
            "source": r.source.shown(),
            "target": r.target.shown(),
            "user": r.user.name,
            "doc_id": r.doc.as_ref().map(|d| d.id.as_str()),
            "info": info,
            "history": self.history.iter().map(Event::json).collect::<Vec<_>>(),
            "node": node,
            "start_time": iso8601(self.added),
        })
    }

    fn pid(&self) -> Value {
        match &self.run {
            Some(run) => format!("<0.{}.0>", run.serial).into(),
            None => Value::Null,
        }
    }

    pub fn task(&self, id: &str, node: &str) -> Value {
        let r = &self.replication;
        let mut task = json!({
            "type": "replication",
            "node": node,
            "pid": self.pid(),
            "replication_id": id,
            "user": r.user.name,
            "database": r.doc.as_ref().map(|d| d.db.as_str()),
            "doc_id": r.doc.as_ref().map(|d| d.id.as_str()),
            "source": r.source.shown(),
            "target": r.target.shown(),
            "continuous": r.continuous,
            "checkpoint_interval": r.checkpoint_interval.as_millis() as u64,
            "started_on": unix(self.added),
            "updated_on": unix(SystemTime::now()),
        });
        if let Value::Object(members) = &mut task {
            members.extend(self.progress.info());
        }
        task
    }
}

/// Returns a number that distinguishes runs.
fn next_serial() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
