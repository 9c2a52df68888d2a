//! The list of workloads: their names and descriptions, the ones that a run has, and the pairs of
//! figures with a ratio.

use crate::error::BenchError;

/// A workload's name and description.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Description {
    /// As in [`BenchOptions::workloads`](crate::BenchOptions::workloads).
    pub name: &'static str,
    /// One line for people.
    pub what: &'static str,
}

const fn description(name: &'static str, what: &'static str) -> Description {
    Description { name, what }
}

const WORKLOADS: &[Description] = &[
    description(
        "bulk_doc_100",
        "_bulk_docs of 100 x {\"foo\":\"bar\"}, 1 client",
    ),
    description("bulk_doc_1000", "_bulk_docs of 1,000, 1 client"),
    description("bulk_doc_5000", "_bulk_docs of 5,000, 1 client"),
    description("bulk_doc_10000", "_bulk_docs of 10,000, 1 client"),
    description("bulk_parallel", "_bulk_docs of 1,000, 10 clients"),
    description("bulk_300", "_bulk_docs of 1,000 x 300 bytes, 1 client"),
    description(
        "single",
        "durable PUT of new documents, 1 client; compared with raw fdatasync of the disk",
    ),
    description("writers_32", "durable PUT of new documents, 32 clients"),
    description("batch_ok", "PUT ?batch=ok, 1 client"),
    description(
        "full_commit",
        "PUT with X-Couch-Full-Commit, then _ensure_full_commit, 1 client",
    ),
    description("lightning", "bulks of 1,000 in process, without HTTP"),
    description(
        "get",
        "GET of one document; compared with a constant reply of that size",
    ),
    description("get_random", "GET of random documents out of 200,000"),
    description("changes", "_changes of 200,000 rows"),
    description(
        "changes_include_docs",
        "_changes of 200,000 rows with include_docs",
    ),
    description("all_docs", "_all_docs of 200,000 rows"),
    description(
        "ids",
        "1,000,000 documents with sequential ids, ids by time, random ids; compaction; sizes",
    ),
    description(
        "skip",
        "_all_docs with skip=900,000 of 1,000,000 against skip=9,000 of 10,000",
    ),
    description(
        "saturated",
        "latency of _node/_local/_config and _dbs_info, idle and under 1,000+ connections",
    ),
    description(
        "flooded",
        "latency of _node/_local/_config, idle and while 2,400 clients read, each request on a new connection",
    ),
    description(
        "replication",
        "100,000 documents over HTTP from the server itself, or from a second one that bench starts; compared with _bulk_docs of 1,000",
    ),
    description(
        "attachments",
        "PUT and GET of attachments of 100 MB that cannot be compressed, 1 client",
    ),
    description("many_dbs", "20,000 databases of 5 documents; memory"),
    description(
        "views_first_build",
        "first builds over 300-byte documents, map + _sum in every language; map alone; unprojected",
    ),
    description(
        "views_declarations",
        "first builds over 16 KB declarations in every language; the same extraction in Rust",
    ),
    description(
        "views_several",
        "four views in one design document against four with one each",
    ),
    description(
        "views_rows",
        "1,000,000 rows against 10,000: bytes a row, reductions, group_level, catching up after 1,000 changes",
    ),
    description(
        "views_read",
        "limit=1, ranges of 100, group_level and whole reductions of a view",
    ),
    description(
        "find",
        "_find: indexed range of 10, covered range of 100, scans without an index; building a json index",
    ),
    description(
        "views_while_building",
        "latency of documents and of a finished view, idle and while indexes build",
    ),
    description(
        "fairness",
        "latency of documents during a scan, a feed, a bulk load, a compaction, a replication, a crowd",
    ),
    description(
        "cluster_put",
        "durable PUT of new documents, 1 client, on one node after the other",
    ),
    description(
        "cluster_writers_32",
        "durable PUT of new documents, 32 clients on all nodes",
    ),
    description(
        "cluster_bulk",
        "_bulk_docs of 1,000, 10 clients on all nodes",
    ),
    description(
        "cluster_get",
        "GET of random documents from all nodes, without and with r=1; by 1 client too",
    ),
    description(
        "cluster_mixed",
        "32 clients that read and 8 that write, on all nodes",
    ),
    description("ycsb_a", "YCSB A: 50 % reads, 50 % updates, zipfian"),
    description("ycsb_b", "YCSB B: 95 % reads, 5 % updates, zipfian"),
    description("ycsb_c", "YCSB C: reads, zipfian"),
    description("ycsb_d", "YCSB D: 95 % reads of the latest, 5 % inserts"),
    description(
        "ycsb_e",
        "YCSB E: 95 % ranges of 1 to 100 documents, 5 % inserts, zipfian",
    ),
    description(
        "ycsb_f",
        "YCSB F: 50 % reads, 50 % read-modify-writes, zipfian",
    ),
    description("mix", "operations by the weights of --mix"),
    description(
        "own",
        "loads the documents of --documents; builds and reads the views of --design",
    ),
    description(
        "urls",
        "GETs of the paths of --urls, by weights or by clients of their own",
    ),
    description(
        "faults_kill",
        "kill -9 of a server under load: time to recover, lost writes",
    ),
    description(
        "faults_stop",
        "SIGSTOP of a server under load: time to recover",
    ),
    description(
        "faults_databases",
        "kill -9 with 2,000 open databases: time until all answer",
    ),
    description("peer_get", "GET of one document; SELECT by id, GET"),
    description("peer_get_random", "GET of random documents out of 200,000"),
    description("peer_insert_1", "durable inserts of 300 bytes, 1 client"),
    description(
        "peer_insert",
        "durable inserts of 300 bytes, all connections",
    ),
    description(
        "peer_bulk",
        "durable inserts in batches of 1,000, 1 client; COPY, MSET",
    ),
    description("peer_find", "10 documents by two indexed fields, sorted"),
    description("peer_scan", "a scan of 200,000 documents by two fields"),
    description(
        "peer_aggregate",
        "a sum for each value of a field, over 200,000 documents",
    ),
    description(
        "peer_search_build",
        "a text index of 200,000 documents of 300 bytes",
    ),
    description("peer_search_term_1", "25 best hits of one word, 1 client"),
    description(
        "peer_search_and_1",
        "25 best hits of two words, both, 1 client",
    ),
    description(
        "peer_search_phrase_1",
        "25 best hits of two words, one behind the other, 1 client",
    ),
    description(
        "peer_search_prefix_1",
        "25 best hits of words that begin so, 1 client",
    ),
    description(
        "peer_search_term",
        "25 best hits of one word, all connections",
    ),
    description(
        "peer_search_and",
        "25 best hits of two words, both, all connections",
    ),
    description(
        "peer_search_phrase",
        "25 best hits of two words, one behind the other, all connections",
    ),
    description(
        "peer_search_prefix",
        "25 best hits of words that begin so, all connections",
    ),
    description(
        "peer_search_fresh",
        "a durable write and a search that finds it, 1 client",
    ),
];

/// Names that stand for all workloads that begin with the prefix.
const GROUPS: &[(&str, &str)] = &[
    ("views", "views_"),
    (CLUSTER, "cluster_"),
    ("ycsb", "ycsb_"),
    (FAULTS, "faults_"),
    (PEERS, "peer_"),
    ("search", "peer_search_"),
];

/// The group of the workloads that a peer is measured in.
const PEERS: &str = "peers";

/// The group of the workloads that happen to a server of the bench's own.
const FAULTS: &str = "faults";

/// Groups and workloads that run only when they are named.
const BY_NAME: [&str; 7] = ["ycsb", FAULTS, PEERS, "flooded", "mix", "own", "urls"];

/// The group of workloads that are spread over all nodes of a cluster.
const CLUSTER: &str = "cluster";

/// Numerators and denominators that are worth a line, when both were measured.
pub(crate) const RATIOS: &[(&str, &str)] = &[
    ("get", "constant"),
    ("single", "raw_fdatasync"),
    ("writers_32", "single"),
    ("ids_sequential", "ids_by_time"),
    ("ids_sequential", "ids_random"),
    ("ids_sequential_compaction", "ids_by_time_compaction"),
    ("ids_sequential_compaction", "ids_random_compaction"),
    (
        "ids_by_time sizes.file after compaction",
        "ids_sequential sizes.file after compaction",
    ),
    (
        "ids_random sizes.file after compaction",
        "ids_sequential sizes.file after compaction",
    ),
    ("replication", "replication_bulk_docs"),
    ("skip_of_10000", "skip_of_1000000"),
    ("attachments_get", "attachments_put"),
    ("config_idle", "config_saturated"),
    ("dbs_info_idle", "dbs_info_saturated"),
    ("config_before_flood", "config_flooded"),
    ("first_build javascript", "first_build_map_only"),
    ("first_build_unprojected", "first_build javascript"),
    ("first_build_unprojected", "first_build nodejs"),
    ("first_build javascript", "first_build nodejs"),
    ("declarations_real rust", "declarations_real javascript"),
    ("declarations_real javascript", "declarations_real nodejs"),
    ("several_together", "several_singly"),
    ("reduce_of_10000", "reduce_of_1000000"),
    ("reduce_range_of_10000", "reduce_range_of_1000000"),
    ("group_level_of_10000", "group_level_of_1000000"),
    ("catch_up_of_10000", "catch_up_of_1000000"),
    ("cluster_writers_32", "cluster_put"),
    ("cluster_get_r1", "cluster_get"),
    ("cluster_get_one_r1", "cluster_get_one"),
    ("cluster_mixed_get", "cluster_get"),
];

/// All workloads, in the order in which they are run.
pub fn workloads() -> &'static [Description] {
    WORKLOADS
}

/// The workloads of these names in the order of [`workloads`]; without names, those for a cluster,
/// those of peers, or all others that need not be named.
pub(crate) fn select(
    names: &[String],
    is_for_cluster: bool,
    has_competitor: bool,
) -> Result<Vec<&'static str>, BenchError> {
    let known = || WORKLOADS.iter().map(|workload| workload.name);
    if let Some(name) = names
        .iter()
        .find(|name| !known().any(|known| means(name, known)))
    {
        let groups = GROUPS.iter().map(|(group, _)| *group);
        return Err(BenchError::UnknownWorkload {
            name: name.clone(),
            known: known().chain(groups).collect::<Vec<_>>().join(", "),
        });
    }
    let of_group = |known: &str| match (has_competitor, is_for_cluster) {
        (true, _) => means(PEERS, known),
        (false, true) => means(CLUSTER, known),
        (false, false) => {
            !means(CLUSTER, known) && !BY_NAME.into_iter().any(|name| means(name, known))
        }
    };
    let is_selected = |known: &&str| match names.is_empty() {
        true => of_group(known),
        false => names.iter().any(|name| means(name, known)),
    };
    if let Some(other) = known()
        .filter(is_selected)
        .find(|known| has_competitor && !means(PEERS, known))
    {
        return Err(BenchError::Options(format!(
            "{other} is not measured on peers; the group {PEERS} is"
        )));
    }
    Ok(known().filter(is_selected).collect())
}

/// Is it one of those that happen to a server of the bench's own?
pub(super) fn is_fault(workload: &str) -> bool {
    means(FAULTS, workload)
}

/// Is this the workload's name, or that of its group?
fn means(name: &str, workload: &str) -> bool {
    let in_group = |(group, prefix): &(&str, &str)| *group == name && workload.starts_with(prefix);
    name == workload || GROUPS.iter().any(in_group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selected_workloads_run_in_the_order_of_the_list() {
        let names = ["get".to_owned(), "bulk_300".to_owned()];
        assert_eq!(select(&names, false, false).unwrap(), ["bulk_300", "get"]);
        assert_eq!(select(&names, true, false).unwrap(), ["bulk_300", "get"]);
    }

    #[test]
    fn without_names_a_cluster_has_its_own_workloads_and_a_server_the_others() {
        let (cluster, server) = (select(&[], true, false), select(&[], false, false));
        let (cluster, server) = (cluster.unwrap(), server.unwrap());
        let by_name: Vec<String> = BY_NAME.map(str::to_owned).to_vec();
        let named = select(&by_name, false, false).unwrap();
        assert_eq!(cluster.len() + server.len() + named.len(), WORKLOADS.len());
        assert!(cluster.iter().all(|name| name.starts_with("cluster_")));
        assert!(!cluster.is_empty() && server.contains(&"get"));
    }

    #[test]
    fn a_group_stands_for_its_workloads() {
        let selected = select(&["views".to_owned(), "get".to_owned()], false, false).unwrap();
        assert_eq!(selected[0], "get");
        assert!(selected.len() > 3 && selected[1..].iter().all(|name| name.starts_with("views_")));
    }

    #[test]
    fn beside_a_peer_only_its_workloads_run() {
        let all = select(&[], false, true).unwrap();
        assert!(all.len() > 5 && all.iter().all(|name| name.starts_with("peer_")));
        let error = select(&["get".to_owned()], false, true).unwrap_err();
        assert!(error.to_string().contains("peers"), "{error}");
    }

    #[test]
    fn an_unknown_workload_is_answered_with_the_known_ones() {
        let error = select(&["speed".to_owned()], false, false)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("\"speed\"") && error.contains("bulk_doc_1000"),
            "{error}"
        );
    }
}
