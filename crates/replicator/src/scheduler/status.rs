//! Reports about the jobs of the scheduler.

use std::time::SystemTime;

use serde_json::Value;

use super::Scheduler;
use super::entry::{Entry, JobState};

impl Scheduler {
    /// Returns all jobs by id, as in `_scheduler/jobs`.
    pub fn jobs_json(&self) -> Vec<Value> {
        let node = self.environment.node();
        let jobs = self.jobs.lock();
        let mut ids: Vec<&String> = jobs.keys().collect();
        ids.sort();
        ids.into_iter()
            .filter_map(|id| Some(jobs.get(id)?.json(id, &node)))
            .collect()
    }

    pub fn job_json(&self, id: &str) -> Option<Value> {
        let node = self.environment.node();
        self.jobs.lock().get(id).map(|job| job.json(id, &node))
    }

    /// Returns the job's fields in `_scheduler/docs`: state, info, number of crashes, time of the
    /// last change.
    pub fn summary(&self, id: &str) -> Option<(JobState, Value, u32, SystemTime)> {
        self.jobs.lock().get(id).map(Entry::summary)
    }

    /// Returns the running jobs as in `_active_tasks`: like CouchDB, those that know their start.
    pub fn tasks(&self) -> Vec<Value> {
        let node = self.environment.node();
        let jobs = self.jobs.lock();
        let is_shown = |job: &Entry| job.is_running() && job.progress.has_begun();
        let running = jobs.iter().filter(|(_, job)| is_shown(job));
        running.map(|(id, job)| job.task(id, &node)).collect()
    }

    /// Returns the number of jobs by state.
    pub fn counts(&self) -> JobCounts {
        let jobs = self.jobs.lock();
        let mut counts = JobCounts::default();
        for job in jobs.values() {
            match job.state() {
                JobState::Pending => counts.pending += 1,
                JobState::Running => counts.running += 1,
                JobState::Crashing => counts.crashing += 1,
            }
        }
        counts
    }
}

/// The number of jobs by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobCounts {
    /// Waiting to run.
    pub pending: usize,
    /// Running.
    pub running: usize,
    /// Failed, and waiting for a retry.
    pub crashing: usize,
}

impl JobCounts {
    /// Returns the number of all jobs.
    pub fn total(&self) -> usize {
        self.pending + self.running + self.crashing
    }
}
