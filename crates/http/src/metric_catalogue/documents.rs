//! Metrics of documents, queries, users' functions, and the disk.

use config::settings::MaintenanceMode;
use database::Databases;
use database::counters as of_databases;
use functions::counters as of_functions;
use metrics::{Counts, List, Unit, Value, process};
use node::auto_purge_counters as of_auto_purge;

use crate::app::App;

pub(super) fn list(list: &mut List, app: &App, c: &Counts) {
    let engine = app.node.databases.stats();
    let (writes, inserts) = (engine.document_writes, engine.document_inserts);
    let local = of_databases::LOCAL_WRITES.get();
    list.counters([
        (
            "couchdb/database_reads",
            "number of times a document was read from a database",
            c.document_reads,
        ),
        (
            "couchdb/database_writes",
            "number of times a database was changed",
            writes,
        ),
        (
            "couchdb/document_inserts",
            "number of documents inserted",
            inserts,
        ),
        (
            "couchdb/document_writes",
            "number of document write operations",
            writes,
        ),
        (
            "couchdb/local_document_writes",
            "number of _local document write operations",
            local,
        ),
        (
            "couchdb/commits",
            "number of commits performed",
            engine.commit_batches,
        ),
    ]);
    purges(list);
    files(list, app);
    functions(list);
    queries(list);
}

fn purges(list: &mut List) {
    let done = of_databases::PURGED_DOCUMENTS.get();
    let failed = of_databases::PURGE_FAILURES.get();
    list.counters([
        (
            "couchdb/database_purges",
            "number of times a database was purged",
            of_databases::PURGES.get(),
        ),
        (
            "couchdb/document_purges/total",
            "number of total document purge operations",
            done + failed,
        ),
        (
            "couchdb/document_purges/success",
            "number of successful document purge operations",
            done,
        ),
        (
            "couchdb/document_purges/failure",
            "number of failed document purge operations",
            failed,
        ),
        (
            "auto_purge/start",
            "count of auto-purge starts or resumes",
            of_auto_purge::STARTS.get(),
        ),
        (
            "auto_purge/complete",
            "count of auto-purge completions",
            of_auto_purge::COMPLETIONS.get(),
        ),
        (
            "auto_purge/db_open",
            "count of db opens by auto-purge plugin",
            of_auto_purge::OPENED.get(),
        ),
        (
            "auto_purge/purge",
            "count of purges by auto-purge plugin",
            of_auto_purge::PURGED.get(),
        ),
    ]);
}

fn files(list: &mut List, app: &App) {
    list.times(
        "couchdb/db_open_time",
        "milliseconds required to open a database",
        of_databases::OPENINGS.snapshot(),
    );
    let open = app.node.databases.open_memory().databases;
    list.falling([
        ("couchdb/open_databases", "number of open databases", open),
        (
            "couchdb/open_os_files",
            "number of file descriptors that are open",
            process::open_files(),
        ),
    ]);
    let couchdb = &app.settings().couchdb;
    list.gauges([
        (
            "couchdb/database_count",
            "number of databases",
            app.node.databases.count() as u64,
        ),
        (
            "couchdb/maintenance_mode",
            "set to 1 when node is in maintenance mode",
            u64::from(couchdb.maintenance_mode != MaintenanceMode::Off),
        ),
        (
            "couchdb/upgrade_in_progress",
            "set to 1 when upgrade_in_progress is toggled",
            u64::from(couchdb.upgrade_in_progress),
        ),
    ]);
    let syncs = Databases::sync_times();
    list.counters([("fsync/count", "number of fsync calls", syncs.len())]);
    let syncs = Value::Distribution(syncs, Unit::Microseconds);
    list.push("fsync/time", "microseconds to call fsync", syncs);
}

fn functions(list: &mut List) {
    let starts = of_functions::PROCESS_STARTS.get();
    let failures = of_functions::PROCESS_FAILURES.get();
    let ends = of_functions::PROCESS_ENDS.get();
    let rejects = of_databases::VALIDATION_REFUSALS.get();
    list.counters([
        (
            "couchdb/query_server/vdu_rejects",
            "number of rejections by validate_doc_update function",
            rejects,
        ),
        (
            "couchdb/query_server/process_starts",
            "number of OS process starts",
            starts,
        ),
        (
            "couchdb/query_server/process_exits",
            "number of normal OS process exits",
            ends,
        ),
        (
            "couchdb/query_server/process_error_exits",
            "number of error OS process exits",
            failures,
        ),
    ]);
    list.gauges([(
        "couchdb/query_server/process_count",
        "number of active query server processes",
        starts.saturating_sub(ends + failures),
    )]);
    list.times(
        "couchdb/query_server/vdu_process_time",
        "duration of validate_doc_update function calls",
        of_databases::VALIDATION_TIMES.snapshot(),
    );
    let logged = telemetry::LOGGED.each_ref();
    let logged = logged.map(|(level, counter)| ((*level).to_owned(), counter.get()));
    let logged = Value::Labelled(logged.into());
    list.push(
        "couch_log/level",
        "number of logged messages of this level",
        logged,
    );
}

fn queries(list: &mut List) {
    let [unindexed, warned, keys, docs, results] = [
        &of_databases::FIND_UNINDEXED,
        &of_databases::FIND_WARNED,
        &of_databases::FIND_KEYS_EXAMINED,
        &of_databases::FIND_DOCS_EXAMINED,
        &of_databases::FIND_RESULTS,
    ]
    .map(|counter| counter.get());
    list.counters([
        (
            "mango/unindexed_queries",
            "number of mango queries that could not use an index",
            unindexed,
        ),
        (
            "mango/too_many_docs_scanned",
            "number of mango queries with an index scan warning",
            warned,
        ),
        (
            "mango/keys_examined",
            "number of keys examined by mango queries of this node",
            keys,
        ),
        (
            "mango/docs_examined",
            "number of documents examined by mango queries of this node",
            docs,
        ),
        (
            "mango/results_returned",
            "number of rows returned by mango queries",
            results,
        ),
    ]);
    let times = of_databases::FIND_TIMES.snapshot();
    list.times(
        "mango/query_time",
        "length of time processing a mango query",
        times,
    );
}
