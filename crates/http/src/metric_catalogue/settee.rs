//! Metrics that CouchDB does not have, of one number each.

use std::time::SystemTime;

use database::counters as of_databases;
use metrics::{Counts, List};
use node::{backup_counters as of_backups, expiry_counters as of_expiry};
use telemetry::trace::{FAILED, MADE, SENT};

use crate::app::App;
use crate::server_routes::backup;

pub(super) fn list(list: &mut List, app: &App, c: &Counts) {
    let (databases, stats) = (&app.node.databases, &app.stats);
    let engine = databases.stats();
    let (received, sent) = (c.bytes_received, c.bytes_sent);
    list.counters([
        (
            "settee/commit_queue/requests",
            "number of requests that the commit queue took",
            engine.commits,
        ),
        (
            "settee/commit_queue/batches",
            "number of batches that they became",
            engine.commit_batches,
        ),
        (
            "settee/connections_accepted",
            "number of accepted connections",
            stats.connections_accepted(),
        ),
        (
            "settee/connections_closed_for_others",
            "number of connections closed to make room for others",
            app.places.closed(),
        ),
        (
            "settee/documents_in_memory/found",
            "number of single reads of documents that were served from memory",
            engine.documents_found,
        ),
        (
            "settee/documents_in_memory/read",
            "number of single reads of documents that the engine served",
            engine.documents_read,
        ),
        ("settee/sent_bytes", "bytes of bodies of answers", sent),
        (
            "settee/received_bytes",
            "bytes of bodies of requests",
            received,
        ),
    ]);
    failures(list, app);
    traces(list);
    backups(list, app);
    expiry(list, app);
    text_indexes(list, app);
    gauges(list, app, c);
}

fn failures(list: &mut List, app: &App) {
    if let Some(dropped) = app.stats.connections_dropped() {
        list.counters([(
            "settee/connections_dropped",
            "number of connections that the kernel dropped because too many waited to be accepted",
            dropped,
        )]);
    }
    let engine = app.node.databases.stats();
    list.counters([
        (
            "settee/storage_engine/errors",
            "number of errors for which the storage engine refused all writes",
            engine.engine_errors,
        ),
        (
            "settee/storage_engine/resumes",
            "number of times that the storage engine took writes again after errors",
            engine.engine_resumes,
        ),
        (
            "settee/storage_engine/compaction_failures",
            "number of compactions of the storage engine that failed and were retried",
            engine.compaction_failures,
        ),
        (
            "settee/log_lines_left_out",
            "number of warnings and errors that were counted instead of logged since they repeated another",
            telemetry::LINES_LEFT_OUT.get(),
        ),
    ]);
}

fn traces(list: &mut List) {
    list.counters([
        (
            "settee/trace_spans/made",
            "number of spans made for the collector of traces",
            MADE.get(),
        ),
        (
            "settee/trace_spans/sent",
            "number of spans that the collector of traces took",
            SENT.get(),
        ),
        (
            "settee/trace_spans/failed",
            "number of spans that could not be sent to the collector of traces",
            FAILED.get(),
        ),
    ]);
}

fn backups(list: &mut List, app: &App) {
    list.counters([
        (
            "settee/backups/made",
            "number of backups made to targets",
            of_backups::MADE.get(),
        ),
        (
            "settee/backups/failed",
            "number of backups to targets that failed",
            of_backups::FAILED.get(),
        ),
        (
            "settee/backups/copied_bytes",
            "bytes copied for backups that were made",
            of_backups::COPIED_BYTES.get(),
        ),
    ]);
    let known = app.node.backups.history();
    let last = app.node.databases.store().last_backup();
    // A failure that a backup came after is history.
    let failed = known.failed_since_success();
    list.gauges([
        (
            "settee/backups/last_success_unix_seconds",
            "when the last backup was made, in seconds since 1970; 0 without a known backup",
            last.map_or(0, backup::unix_s),
        ),
        (
            "settee/backups/last_failure_unix_seconds",
            "when the last backup failed, in seconds since 1970, while none was made after it; otherwise 0",
            failed.map_or(0, |of| backup::unix_s(of.ended)),
        ),
    ]);
}

fn expiry(list: &mut List, app: &App) {
    list.counters([
        (
            "settee/expiry/deleted",
            "number of expired documents that were deleted",
            of_expiry::DELETED.get(),
        ),
        (
            "settee/expiry/purged",
            "number of expired documents that were purged",
            of_expiry::PURGED.get(),
        ),
    ]);
    let all = app.node.expirer.facts();
    let facts = || all.iter().map(|(_, facts)| facts);
    let now = backup::unix_s(SystemTime::now());
    let overdue = facts().filter_map(|facts| facts.overdue_unix_s).min();
    list.gauges([
        (
            "settee/expiry/databases",
            "databases whose documents expire",
            facts().count() as u64,
        ),
        (
            "settee/expiry/invalid",
            "documents with an invalid time, which never expire",
            facts().map(|facts| facts.invalid).sum(),
        ),
        (
            "settee/expiry/overdue_seconds",
            "seconds since the earliest document expired that is still there; 0 without one",
            overdue.map_or(0, |at| now.saturating_sub(at)),
        ),
    ]);
}

fn text_indexes(list: &mut List, app: &App) {
    let open = app.node.databases.open_memory();
    list.gauges([
        (
            "settee/text_indexes/open",
            "text indexes that are open",
            open.text_indexes,
        ),
        (
            "settee/text_indexes/segments",
            "segments of text indexes that are open",
            open.text_segments,
        ),
    ]);
    list.counters([
        (
            "settee/view_indexes/left_out",
            "number of documents that views left out because their functions exceeded a limit, counted for each view",
            of_databases::VIEW_LEFT_OUT.get(),
        ),
        (
            "settee/filters/left_out",
            "number of documents that filter functions left out because they could not be passed to the function",
            of_databases::FILTER_LEFT_OUT.get(),
        ),
    ]);
    count_text_updates(list);
    for (path, help, times) in [
        (
            "settee/text_indexes/update_time",
            "time of updates of text indexes that had something to do by shard, without waiting for memory",
            &of_databases::TEXT_UPDATE_TIMES,
        ),
        (
            "settee/text_indexes/wait_time",
            "time that requests waited for a text index to be current or until their clients went, those aside that did not have to",
            &of_databases::TEXT_WAIT_TIMES,
        ),
        (
            "settee/text_indexes/search_time",
            "time of searches in text indexes, those of Mango among them, without waiting for their turn",
            &of_databases::TEXT_SEARCH_TIMES,
        ),
    ] {
        list.times(path, help, times.snapshot());
    }
}

fn count_text_updates(list: &mut List) {
    list.counters([
        (
            "settee/text_indexes/documents",
            "number of documents put into text indexes",
            of_databases::TEXT_DOCUMENTS.get(),
        ),
        (
            "settee/text_indexes/removals",
            "number of changed documents that gave nothing to a text index or were deleted",
            of_databases::TEXT_REMOVALS.get(),
        ),
        (
            "settee/text_indexes/left_out",
            "number of documents that text indexes left out because of the results of their functions",
            of_databases::TEXT_LEFT_OUT.get(),
        ),
        (
            "settee/text_indexes/commits",
            "number of commits of text indexes by shard",
            of_databases::TEXT_COMMITS.get(),
        ),
        (
            "settee/text_indexes/merges",
            "number of merges of segments of text indexes",
            of_databases::TEXT_MERGES.get(),
        ),
        (
            "settee/text_indexes/update_failures",
            "number of updates of text indexes that failed by shard, not of those that were stopped",
            of_databases::TEXT_UPDATE_FAILURES.get(),
        ),
    ]);
}

fn gauges(list: &mut List, app: &App, c: &Counts) {
    let (databases, stats) = (&app.node.databases, &app.stats);
    let (engine, open) = (databases.stats(), databases.open_memory());
    let waiting = databases.waiting_for_indexing() as u64;
    list.gauges([
        (
            "settee/memtable_bytes",
            "bytes in memory tables",
            engine.memtable_bytes,
        ),
        (
            "settee/block_cache_bytes",
            "bytes in the block cache",
            engine.block_cache_bytes,
        ),
        (
            "settee/connections",
            "open client connections",
            stats.connections(),
        ),
        (
            "settee/connections_max",
            "client connections that may be open",
            app.places.max() as u64,
        ),
        (
            "settee/writes_failing",
            "1 while all writes fail; otherwise 0",
            u64::from(databases.write_failure().is_some()),
        ),
        (
            "settee/requests_in_flight",
            "requests that are not answered to their end",
            stats.in_flight(c),
        ),
        (
            "settee/databases",
            "databases, open or not",
            databases.count() as u64,
        ),
        (
            "settee/open_indexes",
            "indexes of design documents that are open",
            open.indexes,
        ),
        (
            "settee/databases_to_index",
            "databases whose indexes were not checked yet",
            waiting,
        ),
    ]);
}
