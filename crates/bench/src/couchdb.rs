//! CouchDB's figures from the manual's page on performance. A report quotes them next to its own figures; a run never measures them.
//!
//! Source: Apache CouchDB 3.5.0 (release build, Erlang 25.2, one node, default configuration, q=2) on a quiet 2-core
//! machine, the client on the same cores, Basic auth and keep-alive.

use serde::Serialize;

/// A figure of CouchDB 3.5.0 that was measured elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CouchDbFigure {
    /// The value, in the unit of its line.
    pub value: f64,
    /// A difference from this run's workload, or another remark.
    pub remark: &'static str,
    /// Whether it is the same work at full scale, so that a ratio has a meaning.
    pub comparable: bool,
}

/// The published view benchmark: other documents of that size, and another machine.
const LAPTOP: &str = "290,406 other declarations, 8 shards, 4-core laptop";

/// The figure for a line, when there is one.
pub(crate) fn figure(line: &str) -> Option<CouchDbFigure> {
    let (value, remark) = match line {
        "single" => (345.0, "p50 2.7 ms, p99 5.8 ms"),
        "bulk_doc_1000" => (17_400.0, "best run 22,700"),
        "bulk_parallel" => (32_000.0, "10 clients"),
        "bulk_300" => (20_700.0, ""),
        "get" => (2_016.0, "64 connections, p50 28 ms, p99 72 ms"),
        "changes" => (60_000.0, ""),
        "changes_include_docs" => (25_500.0, ""),
        "all_docs" => (163_000.0, ""),
        "first_build javascript" => (12_000.0, "200,000 documents, 16-17 s"),
        "first_build erlang" => (20_200.0, "200,000 documents"),
        "view_limit_1" => (1_119.0, "64 connections, p50 50 ms, p99 120 ms"),
        "declarations_trivial javascript" => (1_316.0, LAPTOP),
        "declarations_trivial python" => (1_342.0, LAPTOP),
        "declarations_trivial pypy" => (1_154.0, LAPTOP),
        "declarations_trivial erlang" => (1_614.0, LAPTOP),
        "declarations_real erlang" => (1_508.0, LAPTOP),
        "ids_sequential" => (13_200.0, "100,000 documents, bulks of 100"),
        "ids_random" => (3_270.0, "100,000 documents, bulks of 100"),
        "ids_sequential sizes.file" => (24.6e6, "100,000 documents"),
        "ids_random sizes.file" => (185e6, "100,000 documents, 114 MB after compaction"),
        _ => return None,
    };
    Some(CouchDbFigure {
        value,
        remark,
        comparable: !line.starts_with("ids_") && remark != LAPTOP,
    })
}
