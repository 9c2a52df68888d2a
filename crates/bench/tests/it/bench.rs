//! `settee bench` against a fake server: what is measured, counted, reported and cleaned up.
use crate::fake;

use std::path::Path;

use bench::{BenchError, BenchOptions, Embedded, Report, run, workloads};
use fake::Fake;

fn options(urls: &[&Fake]) -> BenchOptions {
    BenchOptions {
        servers: urls.iter().map(|fake| vec![fake.url.clone()]).collect(),
        scale: 0.0005,
        seconds: 0.02,
        connections: 4,
        ..BenchOptions::default()
    }
}

async fn measured(options: BenchOptions) -> (Report, String) {
    let mut out = Vec::new();
    let report = run(options, None, &mut out).await.unwrap();
    (report, String::from_utf8(out).unwrap())
}

/// Does the workload run only when it is named? The suite `bench_workloads` runs these against a real server.
fn only_by_name(name: &str) -> bool {
    ["ycsb_", "flooded", "mix", "own", "urls", "faults_", "peer_"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

/// Some parts that a run without names has.
const PARTS: &[&str] = &[
    "ids_random",
    "ids_by_time",
    "ids_sequential_compaction",
    "ids_by_time_compaction",
    "ids_random_compaction",
    "skip_of_1000000",
    "config_saturated",
    "many_dbs_fill",
    "constant",
    "first_build javascript",
    "first_build_unprojected",
    "declarations_real nodejs",
    "declarations_real rust",
    "several_singly",
    "group_level_of_1000000",
    "catch_up_of_1000000",
    "view_range_100",
    "get_beside_build",
];

#[tokio::test(flavor = "multi_thread")]
async fn every_workload_measures_something_and_leaves_nothing_behind() {
    let fake = Fake::start().await;
    let (report, table) = measured(options(&[&fake])).await;
    assert!(report.failures.is_empty(), "{:?}", report.failures);
    assert_eq!(report.errors(), 0, "{table}");
    for workload in workloads() {
        let name = workload.name;
        let found = report.lines.iter().any(|line| line.name.starts_with(name))
            || table.contains(&format!("{name}:"))
            || matches!(name, "saturated" | "skip" | "ids" | "many_dbs")
            || name.starts_with("views_")
            || name.starts_with("cluster_")
            || only_by_name(name);
        assert!(found, "{name} is missing in {table}");
    }
    for line in &report.lines {
        let side = line.sides[0].as_ref().unwrap();
        assert!(side.count > 0 && side.seconds > 0.0, "{}", line.name);
        assert!(side.rate.min <= side.rate.max, "{}", line.name);
    }
    for part in PARTS {
        assert!(report.lines.iter().any(|line| line.name == *part), "{part}");
    }
    assert!(
        report
            .ratios
            .iter()
            .any(|ratio| ratio.over == "get" && ratio.under == "constant")
    );
    let figure = report
        .figures
        .iter()
        .find(|figure| figure.name == "ids_random sizes.file after compaction")
        .unwrap();
    assert_eq!(figure.sides, [Some(50_000.0)]);
    assert!(!table.contains("bytes on disk"), "{table}");
    let keys_and_values = "rows_build: keys and values a row";
    assert!(
        report
            .figures
            .iter()
            .any(|figure| figure.name == keys_and_values)
    );
    assert!(table.contains("python: absent on http://"), "{table}");
    assert!(table.contains("CouchDB 3.5"), "{table}");
    assert!(!table.contains("secret"));
    assert!(fake.contents.lock().unwrap().databases.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_need_a_server_that_they_may_kill() {
    let fake = Fake::start().await;
    let mut options = options(&[&fake]);
    options.workloads = vec!["faults".to_owned()];
    let (report, _) = measured(options).await;
    assert_eq!(report.failures.len(), 3);
    assert!(
        report.failures[0]
            .reason
            .contains("does not know how to start one")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_is_no_record_is_an_error_and_no_panic() {
    let fake = Fake::start().await;
    fake.contents.lock().unwrap().refuse_every = Some(1);
    let mut options = options(&[&fake]);
    options.workloads = vec!["ycsb_a".to_owned()];
    let (report, table) = measured(options).await;
    let update = report
        .lines
        .iter()
        .find(|line| line.name == "ycsb_a_update");
    let update = update.unwrap().sides[0].as_ref().unwrap();
    assert!(update.errors > 0 && update.count == 0, "{table}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_local_server_is_found_by_its_port() {
    let fake = Fake::start().await;
    let mut options = options(&[&fake]);
    options.workloads = vec!["bulk_doc_1000".to_owned()];
    let (report, _) = measured(options).await;
    assert_eq!(report.servers[0].pids, [std::process::id()]);
    let side = report.lines[0].sides[0].as_ref().unwrap();
    assert!(side.cpu_seconds.is_some() && side.peak_resident_bytes.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_servers_become_a_ratio() {
    let (a, b) = (Fake::start().await, Fake::start().await);
    let mut options = options(&[&a, &b]);
    options.workloads = vec!["get".to_owned(), "writers_32".to_owned()];
    let (report, table) = measured(options).await;
    for line in &report.lines {
        let ratio = line.a_over_b.unwrap();
        assert!(ratio.min <= ratio.max && ratio.value > 0.0, "{}", line.name);
    }
    assert!(table.contains("A/B"), "{table}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_measured_on_all_its_nodes_beside_a_server() {
    let (one, alone) = (Fake::start().await, Fake::start().await);
    let (two, three) = (one.node().await, one.node().await);
    let nodes = [&one, &two, &three];
    let mut options = options(&[&alone]);
    let urls = nodes.iter().map(|node| node.url.clone()).collect();
    options.servers.insert(0, urls);
    let (report, table) = measured(options).await;
    assert!(report.failures.is_empty(), "{:?}", report.failures);
    assert_eq!(report.errors(), 0, "{table}");
    assert!(
        table.contains("A: 3 nodes of a cluster, http://"),
        "{table}"
    );
    let names: Vec<&str> = report.lines.iter().map(|line| &*line.name).collect();
    let wanted = [
        "cluster_put",
        "cluster_writers_32",
        "cluster_bulk",
        "cluster_get",
        "cluster_get_r1",
        "cluster_get_one",
        "cluster_get_one_r1",
        "cluster_mixed_get",
        "cluster_mixed_put",
    ];
    assert_eq!(names, wanted);
    assert!(report.lines.iter().all(|line| line.a_over_b.is_some()));
    for node in nodes {
        let kinds = node.asked.lock().unwrap();
        for kind in ["PUT", "POST", "GET", "GET r=1"] {
            assert!(kinds.contains(kind), "{kind} did not reach {}", node.url);
        }
    }
    assert!(one.contents.lock().unwrap().databases.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_lacks_the_credentials_ends_the_run() {
    let fake = Fake::start().await;
    let mut options = options(&[&fake]);
    let other = fake.node().await.url.replace("admin:secret@", "");
    options.servers[0].push(other);
    let error = run(options, None, &mut Vec::new()).await.unwrap_err();
    let is_named = error.to_string().contains("401");
    assert!(
        matches!(error, BenchError::Server(_)) && is_named,
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn json_is_one_object_that_can_be_read_back() {
    let fake = Fake::start().await;
    let mut options = options(&[&fake]);
    options.workloads = vec!["single".to_owned()];
    options.json = true;
    let (_, text) = measured(options).await;
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["lines"][0]["name"], "single");
    assert!(
        value["lines"][0]["sides"][0]["latency_ms_p99"]
            .as_f64()
            .unwrap()
            > 0.0
    );
    assert_eq!(value["ratios"][0]["under"], "raw_fdatasync");
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_requests_are_counted_and_the_first_body_is_shown() {
    let fake = Fake::start().await;
    fake.contents.lock().unwrap().refuse_every = Some(3);
    let mut options = options(&[&fake]);
    options.workloads = vec!["writers_32".to_owned()];
    let (report, table) = measured(options).await;
    let side = report.lines[0].sides[0].as_ref().unwrap();
    assert!(side.errors > 0 && side.count > 0);
    assert!(table.contains("500: {\"error\":\"unlucky\""), "{table}");
}

#[tokio::test(flavor = "multi_thread")]
async fn builds_of_two_servers_take_turns_and_leave_no_design_document() {
    let (a, b) = (Fake::start().await, Fake::start().await);
    let mut options = options(&[&a, &b]);
    options.workloads = vec!["views_declarations".to_owned(), "views_several".to_owned()];
    options.keep = true;
    let (report, table) = measured(options).await;
    assert!(report.failures.is_empty(), "{table}");
    let line = report
        .lines
        .iter()
        .find(|line| line.name == "several_together")
        .unwrap();
    assert!(line.a_over_b.is_some());
    let several = ("several_together", "several_singly");
    assert!(
        report
            .ratios
            .iter()
            .any(|ratio| (ratio.over.as_str(), ratio.under.as_str()) == several)
    );
    for fake in [&a, &b] {
        let contents = fake.contents.lock().unwrap();
        let left: Vec<_> = contents
            .designs
            .keys()
            .filter(|(_, name)| name.starts_with("bench-"))
            .collect();
        assert!(left.is_empty(), "{left:?}");
        let declarations = contents
            .databases
            .iter()
            .find(|(name, _)| name.contains("declaration"))
            .unwrap();
        assert_eq!(declarations.1.len(), 10);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kept_databases_stay() {
    let fake = Fake::start().await;
    let mut options = options(&[&fake]);
    options.workloads = vec!["bulk_300".to_owned()];
    options.keep = true;
    measured(options).await;
    let contents = fake.contents.lock().unwrap();
    let name = contents.databases.keys().next().unwrap();
    assert!(
        name.starts_with("settee-bench-") && name.ends_with("-bulk-300"),
        "{name}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_credentials_are_found_before_anything_is_measured() {
    let fake = Fake::start().await;
    let mut options = options(&[&fake]);
    options.servers = vec![vec![fake.url.replace("admin:secret@", "")]];
    let error = run(options, None, &mut Vec::new()).await.unwrap_err();
    let is_named = error.to_string().contains("401");
    assert!(
        matches!(error, BenchError::Server(_)) && is_named,
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_is_named() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let options = BenchOptions {
        servers: vec![vec![format!("http://{address}")]],
        ..BenchOptions::default()
    };
    let error = run(options, None, &mut Vec::new())
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains(&format!("cannot connect to {address}")),
        "{error}"
    );
}

#[derive(Default)]
struct Memory {
    documents: Vec<(String, String)>,
}

impl Embedded for Memory {
    fn open(&mut self, dir: &Path) -> Result<(), String> {
        assert!(std::fs::read_dir(dir).unwrap().next().is_none());
        Ok(())
    }

    fn bulk(&mut self, documents: Vec<(String, String)>) -> Result<(), String> {
        self.documents = documents;
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lightning_measures_the_embedded_database_and_removes_its_folder() {
    let fake = Fake::start().await;
    let dir = tempfile::tempdir().unwrap();
    let mut options = options(&[&fake]);
    options.workloads = vec!["lightning".to_owned()];
    options.embedded_dir = Some(dir.path().to_owned());
    let embedded: Box<dyn Embedded> = Box::new(Memory::default());
    let report = run(options, Some(embedded), &mut Vec::new()).await.unwrap();
    let side = report.lines[0].sides[0].as_ref().unwrap();
    assert!(side.count >= 1_000 && side.count.is_multiple_of(1_000));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
