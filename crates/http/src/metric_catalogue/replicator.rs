//! Metrics of replications.

use metrics::List;
use replicator::counters as of;

use crate::app::App;

pub(super) fn list(list: &mut List, app: &App) {
    let [adds, starts, stops] =
        [&of::JOBS_ADDED, &of::JOBS_STARTED, &of::JOBS_STOPPED].map(|counter| counter.get());
    let [removes, crashes] = [&of::JOBS_REMOVED, &of::JOBS_CRASHED].map(|counter| counter.get());
    list.counters([
        (
            "couch_replicator/jobs/adds",
            "number of jobs added to replicator scheduler",
            adds,
        ),
        (
            "couch_replicator/jobs/starts",
            "number of jobs started by replicator scheduler",
            starts,
        ),
        (
            "couch_replicator/jobs/stops",
            "number of jobs stopped by replicator scheduler",
            stops,
        ),
        (
            "couch_replicator/jobs/removes",
            "number of jobs removed from replicator scheduler",
            removes,
        ),
        (
            "couch_replicator/jobs/crashes",
            "number of job crashes that the scheduler noticed",
            crashes,
        ),
    ]);
    let jobs = app.node.replicator.job_counts();
    list.gauges([
        (
            "couch_replicator/jobs/running",
            "replicator scheduler running jobs",
            jobs.running as u64,
        ),
        (
            "couch_replicator/jobs/pending",
            "replicator scheduler pending jobs",
            jobs.pending as u64,
        ),
        (
            "couch_replicator/jobs/crashed",
            "replicator scheduler crashed jobs",
            jobs.crashing as u64,
        ),
        (
            "couch_replicator/jobs/total",
            "total number of replicator scheduler jobs",
            jobs.total() as u64,
        ),
    ]);
    requests(list);
}

fn requests(list: &mut List) {
    let (requests, failures) = (of::REQUESTS.get(), of::REQUEST_FAILURES.get());
    let answers = of::RESPONSES.get();
    let [saved, unsaved] = [&of::CHECKPOINTS, &of::CHECKPOINT_FAILURES].map(|c| c.get());
    list.counters([
        (
            "couch_replicator/checkpoints/success",
            "number of checkpoints successfully saved",
            saved,
        ),
        (
            "couch_replicator/checkpoints/failure",
            "number of failed checkpoint saves",
            unsaved,
        ),
        (
            "couch_replicator/connect_to_applied",
            "number of HTTP requests sent to another address by [replicator] connect_to",
            of::CONNECT_TO_APPLIED.get(),
        ),
        (
            "couch_replicator/requests",
            "number of HTTP requests made by the replicator",
            requests,
        ),
        (
            "couch_replicator/responses/failure",
            "number of failed HTTP responses to the replicator",
            failures,
        ),
        (
            "couch_replicator/responses/success",
            "number of HTTP responses to the replicator",
            answers,
        ),
    ]);
}
