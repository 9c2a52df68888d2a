//! Metrics of HTTP requests and their clients.

use metrics::{Counts, List, METHODS, Unit, Value};
use routes::Class;

use crate::app::App;

/// The statuses that are always listed, even without a response: CouchDB's, and others that this
/// server uses.
const STATUSES: [u16; 29] = [
    200, 201, 202, 204, 206, 301, 302, 304, 400, 401, 403, 404, 405, 406, 408, 409, 410, 412, 413,
    414, 415, 416, 417, 421, 431, 500, 501, 503, 507,
];

pub(super) fn list(list: &mut List, app: &App, c: &Counts) {
    let bulks = c.bulk_docs.len();
    list.counters([
        (
            "couchdb/httpd/requests",
            "number of HTTP requests",
            c.requests,
        ),
        (
            "couchdb/httpd/bulk_requests",
            "number of bulk requests",
            bulks,
        ),
        (
            "couchdb/httpd/aborted_requests",
            "number of aborted requests",
            c.aborted,
        ),
        (
            "couchdb/httpd/abandoned_streaming_requests",
            "number of answers that an error cut",
            c.cut,
        ),
        (
            "couchdb/httpd/view_reads",
            "number of view reads",
            c.of(Class::View),
        ),
        (
            "couchdb/httpd/purge_requests",
            "number of purge requests",
            c.of(Class::Purge),
        ),
    ]);
    partitions(list, c);
    let feeds = app.open_feeds() as u64;
    list.falling([(
        "couchdb/httpd/clients_requesting_changes",
        "number of clients for continuous _changes",
        feeds,
    )]);
    list.push(
        "couchdb/httpd/bulk_docs",
        "distribution of the number of docs in _bulk_docs requests",
        Value::Distribution(c.bulk_docs.clone(), Unit::Number),
    );
    answers(list, c);
    times(list, c);
    passwords(list);
}

fn passwords(list: &mut List) {
    let hits = auth::counters::CACHE_HITS.get();
    let misses = auth::counters::CACHE_MISSES.get();
    list.counters([
        (
            "couchdb/auth_cache_hits",
            "number of authentication cache hits",
            hits,
        ),
        (
            "couchdb/auth_cache_misses",
            "number of authentication cache misses",
            misses,
        ),
    ]);
}

fn partitions(list: &mut List, c: &Counts) {
    let of = |route| c.of_partitions(route);
    list.counters([
        (
            "couchdb/httpd/partition_view_requests",
            "number of partition view requests",
            of(Class::View),
        ),
        (
            "couchdb/httpd/partition_find_requests",
            "number of partition _find requests",
            of(Class::Find),
        ),
        (
            "couchdb/httpd/partition_explain_requests",
            "number of partition _explain requests",
            of(Class::Index),
        ),
        (
            "couchdb/httpd/partition_all_docs_requests",
            "number of partition _all_docs requests",
            of(Class::Listing),
        ),
    ]);
}

fn times(list: &mut List, c: &Counts) {
    list.times(
        "couchdb/request_time",
        "length of a request to the end of its answer's body, feeds aside",
        c.request_us(),
    );
    let infos = c.route(Class::DatabaseInfo).map(|of| of.whole_us.clone());
    list.times(
        "couchdb/dbinfo",
        "distribution of latencies for calls to retrieve DB info",
        infos.unwrap_or_else(telemetry::distribution),
    );
    for (path, route) in [
        ("dreyfus/httpd/search", Class::Search),
        ("nouveau/search_latency", Class::Nouveau),
    ] {
        let searches = c.route(route).map(|of| of.whole_us.clone());
        list.times(
            path,
            "distribution of overall search request latency as experienced by the end user",
            searches.unwrap_or_else(telemetry::distribution),
        );
    }
}

/// How many there were of each method and status.
fn answers(list: &mut List, c: &Counts) {
    let methods = METHODS.iter().zip(c.methods);
    let methods = methods.filter(|(name, n)| *n > 0 || **name != METHODS[METHODS.len() - 1]);
    list.push(
        "couchdb/httpd_request_methods",
        "number of HTTP requests of this method",
        Value::Labelled(methods.map(|(name, n)| ((*name).to_owned(), n)).collect()),
    );
    let statuses = c.statuses();
    let statuses = statuses.filter(|(status, n)| *n > 0 || STATUSES.contains(status));
    list.push(
        "couchdb/httpd_status_codes",
        "number of HTTP responses with this status",
        Value::Labelled(
            statuses
                .map(|(status, n)| (status.to_string(), n))
                .collect(),
        ),
    );
}
