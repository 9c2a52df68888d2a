//! Runs the continuous replications of `_replicate` that a cluster keeps, each on the node that is
//! to run its job.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::db::random;
use crate::environment::Environment;
use crate::error::Error;
use crate::job::stop_requested;
use crate::kept::KeptRequest;
use crate::placement::MOVED_JITTER_MAX;
use crate::scheduler::Scheduler;

/// Interval of attempts to start jobs that could not be started, for example without memory.
const RETRY_EVERY: Duration = Duration::from_secs(60);

/// The jobs of kept requests that this node runs.
pub struct Requested {
    environment: Arc<dyn Environment>,
    scheduler: Arc<Scheduler>,
    /// By id, with the requests for which they were started.
    jobs: Mutex<HashMap<String, KeptRequest>>,
    /// Those that could not be started, with the time of the last attempt.
    failed: Mutex<HashMap<String, (KeptRequest, Instant)>>,
    stopped: watch::Sender<bool>,
}

impl Requested {
    pub fn new(environment: Arc<dyn Environment>, scheduler: Arc<Scheduler>) -> Arc<Requested> {
        Arc::new(Requested {
            environment,
            scheduler,
            jobs: Mutex::default(),
            failed: Mutex::default(),
            stopped: watch::Sender::new(false),
        })
    }

    pub fn stop(&self) {
        self.stopped.send_replace(true);
    }

    /// Follows the kept requests until the server stops. Does nothing on a server without others.
    pub async fn run(self: Arc<Self>) {
        let Some(mut changed) = self.environment.kept().map(|kept| kept.changes()) else {
            return;
        };
        let placement = self.environment.placement();
        let Some(mut placed) = placement.map(|placement| placement.changes()) else {
            return;
        };
        let mut stopped = self.stopped.subscribe();
        // Not delayed by the parsing of requests.
        tokio::spawn(leave_to_others(Arc::downgrade(&self), placed.clone()));
        let mut jitter = self.environment.settings().startup_jitter;
        loop {
            // Selectors are compiled.
            let requested = self.clone();
            let follow = move || requested.follow(jitter);
            let Ok(all_run) = tokio::task::spawn_blocking(follow).await else {
                return;
            };
            jitter = Duration::ZERO;
            tokio::select! {
                Ok(()) = changed.changed() => {}
                Ok(()) = placed.changed() => {
                    jitter = self.environment.settings().startup_jitter.min(MOVED_JITTER_MAX);
                }
                () = tokio::time::sleep(RETRY_EVERY), if !all_run => {}
                () = stop_requested(&mut stopped) => return,
            }
        }
    }

    /// Starts and ends jobs. Returns false if one could not be started.
    fn follow(&self, jitter: Duration) -> bool {
        let Some(kept) = self.environment.kept() else {
            return true;
        };
        let all = kept.all();
        self.end_others(all.iter().map(|(id, _)| id.as_str()).collect());
        let mut all_run = true;
        for (id, request) in all {
            if self.failed_lately(&id, &request) {
                all_run = false;
                continue;
            }
            let started = self.start(&id, request.clone(), jitter);
            let mut failed = self.failed.lock();
            if let Err(e) = started {
                tracing::warn!(id, error = %e, "a continuous replication was not started: it is retried");
                failed.insert(id, (request, Instant::now()));
                all_run = false;
            } else {
                failed.remove(&id);
            }
        }
        all_run
    }

    /// Returns whether the last attempt to start a job failed a moment ago.
    fn failed_lately(&self, id: &str, request: &KeptRequest) -> bool {
        let failed = self.failed.lock();
        let last = failed.get(id).filter(|(of, _)| of == request);
        last.is_some_and(|(_, at)| at.elapsed() < RETRY_EVERY)
    }

    /// Ends the jobs whose requests are not kept any more.
    fn end_others(&self, kept: HashSet<&str>) {
        let mut failed = self.failed.lock();
        failed.retain(|id, _| kept.contains(id.as_str()));
        drop(failed);
        let mut jobs = self.jobs.lock();
        let gone = jobs.extract_if(|id, _| !kept.contains(id.as_str()));
        let gone: Vec<String> = gone.map(|(id, _)| id).collect();
        for id in gone {
            self.scheduler.remove(&id);
        }
    }

    /// Starts the job of a request if this node is to run it, and does not yet.
    fn start(&self, id: &str, request: KeptRequest, jitter: Duration) -> Result<(), Error> {
        let (Some(kept), Some(placement)) = (self.environment.kept(), self.environment.placement())
        else {
            return Ok(());
        };
        let is_started = self.jobs.lock().get(id) == Some(&request);
        if !placement.runs_request(id) || is_started && self.scheduler.replication(id).is_some() {
            return Ok(());
        }
        let replication = request.replication(&self.environment.settings())?;
        let room = self.scheduler.room_for(&replication)?;
        let mut jobs = self.jobs.lock();
        // What changes from here on waits for this lock, and finds the job.
        if !placement.runs_request(id) || kept.get(id).as_ref() != Some(&request) {
            return Ok(());
        }
        self.scheduler.refuse_document(id)?;
        let not_before = (!jitter.is_zero()).then(|| Instant::now() + jitter.mul_f64(random()));
        let _awaited = (self.scheduler).add(id, Arc::new(replication), not_before, room);
        jobs.insert(id.to_owned(), request);
        Ok(())
    }

    /// Ends the jobs that other nodes run from now on.
    fn leave_to_others(&self) {
        let Some(placement) = self.environment.placement() else {
            return;
        };
        let mut jobs = self.jobs.lock();
        let left = jobs.extract_if(|id, _| !placement.runs_request(id));
        let left: Vec<String> = left.map(|(id, _)| id).collect();
        for id in left {
            self.scheduler.leave_request(&id, placement.end_time());
        }
    }

    /// Ends a job whose request is not kept any more, and waits until it has ended.
    pub async fn end(&self, id: &str) {
        self.jobs.lock().remove(id);
        self.scheduler.remove_and_wait(id).await;
    }
}

/// Ends jobs that other nodes run from now on, until the server stops.
async fn leave_to_others(requested: Weak<Requested>, mut placed: watch::Receiver<u64>) {
    while placed.changed().await.is_ok() {
        let Some(requested) = requested.upgrade() else {
            return;
        };
        requested.leave_to_others();
    }
}
