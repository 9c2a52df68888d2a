//! How `settee bench` measures, against a fake server: repeats, rates, numbers of requests, sweeps, and the files of a run.
use crate::fake;

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bench::{BenchError, BenchOptions, Measurement, Mix, OwnData, Report, UrlList, run};
use fake::Fake;

fn options(urls: &[&Fake], workload: &str) -> BenchOptions {
    BenchOptions {
        servers: urls.iter().map(|fake| vec![fake.url.clone()]).collect(),
        workloads: vec![workload.to_owned()],
        scale: 0.0005,
        seconds: 0.02,
        connections: 4,
        ..BenchOptions::default()
    }
}

async fn measured(options: BenchOptions) -> (Report, String) {
    let mut out = Vec::new();
    let report = run(options, None, &mut out).await.unwrap();
    assert!(report.failures.is_empty(), "{:?}", report.failures);
    (report, String::from_utf8(out).unwrap())
}

async fn refused(options: BenchOptions) -> String {
    let refused = run(options, None, &mut Vec::new()).await;
    refused.unwrap_err().to_string()
}

fn first(report: &Report) -> &Measurement {
    report.lines[0].sides[0].as_ref().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn repeats_of_two_servers_have_intervals_and_a_verdict() {
    let (a, b) = (Fake::start().await, Fake::start().await);
    let mut options = options(&[&a, &b], "get");
    options.repeats = 5;
    let (report, table) = measured(options).await;
    for line in &report.lines {
        for side in line.sides.iter().flatten() {
            assert_eq!(side.round_rates.len(), 25, "{}", line.name);
            let interval = side.rate_interval.unwrap();
            assert!(interval.low <= interval.value && interval.value <= interval.high);
            assert!(side.latency_ms_p50_interval.is_some());
        }
        let compared = report
            .comparisons
            .iter()
            .any(|each| each.name == line.name && each.figure == "rate");
        assert!(compared, "{}", line.name);
    }
    assert!(
        table.contains("A over B") && table.contains("95 % interval"),
        "{table}"
    );
    assert!(report.busy_before.is_some() && report.busy_during.is_some());
    assert!(
        report
            .ceilings
            .iter()
            .all(|ceiling| ceiling.before > 0.0 && ceiling.after.is_some())
    );
    assert!(!report.timeline.servers[0].is_empty());
    for fake in [&a, &b] {
        assert!(fake.contents.lock().unwrap().databases.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_servers_take_short_turns_on_connections_that_stay_open() {
    const CLIENTS: usize = 8;
    for workload in ["get_random", "mix"] {
        let (a, b) = (Fake::start().await, Fake::start().await);
        let mut options = options(&[&a, &b], workload);
        // Each of the five rounds is four turns.
        (options.seconds, options.connections) = (1.0, CLIENTS);
        options.mix = Some(Mix::named("read=1").unwrap());
        let began = std::time::Instant::now();
        let (report, _) = measured(options).await;
        let sides: Vec<_> = report.lines[0].sides.iter().flatten().collect();
        for side in &sides {
            assert_eq!((side.round_rates.len(), side.errors), (5, 0));
            assert!(side.seconds >= 1.0, "{}", side.seconds);
        }
        // A turn is of one side alone.
        let both: f64 = sides.iter().map(|side| side.seconds).sum();
        assert!(both <= began.elapsed().as_secs_f64(), "{both}");
        for fake in [&a, &b] {
            let opened = fake.connections.load(Ordering::Relaxed);
            // Those of the clients, and some that carry one request each.
            assert!((CLIENTS..4 * CLIENTS).contains(&opened), "{opened}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fixed_amounts_of_work_are_repeated_too() {
    let fake = Fake::start().await;
    let mut options = options(&[&fake], "ids");
    options.repeats = 5;
    let (report, _) = measured(options).await;
    assert!(
        report
            .lines
            .iter()
            .all(|line| line.sides[0].as_ref().unwrap().rate_interval.is_some())
    );
    let figure = &report.figures[0];
    assert!(figure.intervals[0].is_some(), "{figure:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_in_each_order_are_compacted_under_the_clock() {
    const COMPACTION: Duration = Duration::from_millis(60);
    let fake = Fake::start().await;
    fake.contents.lock().unwrap().compaction = COMPACTION;
    let (report, _) = measured(options(&[&fake], "ids")).await;
    for order in ["ids_sequential", "ids_by_time", "ids_random"] {
        let side = |name: &str| {
            let line = report.lines.iter().find(|line| line.name == name);
            line.unwrap().sides[0].clone().unwrap()
        };
        let compacted = side(&format!("{order}_compaction"));
        assert_eq!((side(order).count, compacted.count), (500, 500), "{order}");
        assert!(compacted.seconds >= COMPACTION.as_secs_f64(), "{order}");
        // The server says what it has, and nobody measured its disk.
        let figures = report.figures.iter().map(|figure| &*figure.name);
        let of_order: Vec<&str> = figures.filter(|name| name.starts_with(order)).collect();
        let sizes = ["", " after compaction"]
            .map(|when| ["file", "active"].map(|size| format!("{order} sizes.{size}{when}")));
        assert_eq!(of_order, sizes.concat());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn query_servers_are_counted_by_language() {
    let sleep = || {
        std::process::Command::new("sleep")
            .arg("600")
            .spawn()
            .unwrap()
    };
    // The fake server is in this process: its children are the server's.
    let mut children = [sleep(), sleep(), sleep()];
    let ids = children.each_ref().map(std::process::Child::id);
    let fake = Fake::start().await;
    for is_reported in [true, false] {
        fake.contents.lock().unwrap().top = is_reported.then(|| {
            serde_json::json!({"languages": [
                {"language": "javascript", "process_ids": ids[..1]},
                {"language": "nodejs", "process_ids": ids[1..]},
            ]})
        });
        let (report, table) = measured(options(&[&fake], "views_first_build")).await;
        let processes = |part: &str| {
            let name = format!("{part}: query servers");
            let figure = report.figures.iter().find(|figure| figure.name == name);
            figure.map(|figure| figure.sides[0].unwrap())
        };
        let found = ["first_build javascript", "first_build nodejs"].map(processes);
        // Of a server that does not report them those count that work, and these sleep.
        let expected = [Some(1.0), Some(2.0)];
        assert_eq!(found == expected, is_reported, "{found:?}");
        let is_noted = table.contains("does not report them by language");
        assert_eq!(is_noted, !is_reported, "{table}");
    }
    for child in &mut children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn few_repeats_say_that_they_are_few() {
    let fake = Fake::start().await;
    let mut options = options(&[&fake], "get");
    options.repeats = 3;
    let (report, table) = measured(options).await;
    assert!(first(&report).rate_interval.is_none() && report.comparisons.is_empty());
    assert!(table.contains("3 repeats have no intervals"), "{table}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_connection_sends_the_requests_that_were_asked_for() {
    let fake = Fake::start().await;
    for (workload, connections, requests) in [
        ("get_random", 3, 7),
        ("get_random", 1, 1),
        ("get_random", 5, 203),
        ("ycsb_c", 3, 7),
        ("peer_get_random", 3, 7),
    ] {
        let mut options = options(&[&fake], workload);
        options.connections = connections;
        options.requests = Some(requests);
        // A time that would never end.
        options.seconds = 86_400.0;
        let (report, _) = measured(options).await;
        let count = first(&report).count;
        assert_eq!(count, connections as u64 * requests, "{workload}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_request_has_a_connection_of_its_own_when_that_was_asked_for() {
    for (workload, is_new) in [
        ("get_random", true),
        ("ycsb_c", true),
        ("get_random", false),
        ("ycsb_c", false),
    ] {
        let fake = Fake::start().await;
        let mut options = options(&[&fake], workload);
        (options.connections, options.requests) = (3, Some(40));
        options.new_connections = is_new;
        let (report, table) = measured(options).await;
        let side = first(&report);
        assert_eq!((side.count, side.errors), (120, 0), "{workload}");
        let opened = fake.connections.load(Ordering::Relaxed);
        assert_eq!(opened >= 120, is_new, "{workload}: {opened}");
        let is_told = table.contains("a new one for each request");
        assert_eq!(
            (is_told, report.new_connections),
            (is_new, is_new),
            "{table}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_with_new_connections_ends_after_its_time() {
    let fake = Fake::start().await;
    let mut options = options(&[&fake], "full_commit");
    options.new_connections = true;
    let (report, table) = measured(options).await;
    // Both requests of an operation are on one connection.
    assert_eq!(report.errors(), 0, "{table}");
    let opened = fake.connections.load(Ordering::Relaxed) as u64;
    assert!(opened >= first(&report).count, "{opened}");
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_of_a_list_are_requested_by_weights_and_in_streams() {
    let fake = Fake::start().await;
    let shop = ["a", "b", "c"].map(|id| (id.to_owned(), serde_json::json!({"_id": id})));
    {
        let mut contents = fake.contents.lock().unwrap();
        contents.databases.insert("shop".to_owned(), shop.into());
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("list.txt");
    let listed = |text: &str| {
        std::fs::write(&file, text).unwrap();
        UrlList::read(&file)
    };
    let mut options = options(&[&fake], "urls");
    (options.connections, options.requests) = (4, Some(50));
    options.urls = Some(listed("9 /shop/a\n1 /shop/b\n2x /shop/c\n").unwrap());
    let (report, table) = measured(options.clone()).await;
    let count = |name: &str| {
        let line = report.lines.iter().find(|line| line.name == name);
        line.map_or(0, |line| line.sides[0].as_ref().unwrap().count)
    };
    // Each of four clients and each of two sends 50.
    assert_eq!(
        (count("urls"), count("urls /shop/c")),
        (300, 100),
        "{table}"
    );
    assert_eq!(count("urls /shop/a") + count("urls /shop/b"), 200);
    assert!(count("urls /shop/a") > count("urls /shop/b"), "{table}");
    assert!(fake.contents.lock().unwrap().databases.contains_key("shop"));

    options.urls = Some(listed("1 /shop/nothing\n").unwrap());
    let report = run(options.clone(), None, &mut Vec::new()).await.unwrap();
    assert!(
        report.failures[0].reason.contains("/shop/nothing"),
        "{:?}",
        report.failures
    );
    options.urls = None;
    let report = run(options, None, &mut Vec::new()).await.unwrap();
    assert!(
        report.failures[0].reason.contains("--urls FILE"),
        "{:?}",
        report.failures
    );
    let error = listed("1 /a\n2 a\n").unwrap_err().to_string();
    assert!(error.contains("list.txt: line 2"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn own_documents_are_loaded_and_their_views_built_and_read() {
    let fake = Fake::start().await;
    let dir = tempfile::tempdir().unwrap();
    let [documents, design] = ["shop.jsonl", "design.json"].map(|name| dir.path().join(name));
    let line = |n: u32| format!("{{\"_id\":\"own-{n}\",\"_rev\":\"1-a\",\"amount\":{n}}}\n");
    std::fs::write(&documents, (0..1_200).map(line).collect::<String>()).unwrap();
    let map = r#"{"language": "javascript", "views": {"by_amount": {"map": "function (doc) { emit(doc.amount, 1); }"}}}"#;
    std::fs::write(&design, map).unwrap();
    let mut options = options(&[&fake], "own");
    options.own = Some(OwnData::read(&documents, Some(&design)).unwrap());
    let (report, table) = measured(options).await;
    assert_eq!(report.errors(), 0, "{table}");
    let lines = report.lines.iter();
    let counts: Vec<(&str, u64)> = lines
        .map(|line| (&*line.name, line.sides[0].as_ref().unwrap().count))
        .collect();
    // In three rounds.
    assert_eq!(counts[..2], [("own_load", 3_600), ("own_build", 3_600)]);
    assert!(
        counts[2].0 == "own_read by_amount" && counts[2].1 > 0,
        "{counts:?}"
    );
    let contents = fake.contents.lock().unwrap();
    let bulks: Vec<usize> = contents
        .bulks
        .iter()
        .map(|(documents, _)| *documents)
        .collect();
    assert_eq!(bulks.iter().sum::<usize>(), 3_600);
    assert!(contents.databases.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_is_of_new_connections() {
    let fake = Fake::start().await;
    let mut options = options(&[&fake], "flooded");
    options.scale = 0.01;
    let (report, table) = measured(options).await;
    assert_eq!(report.errors(), 0, "{table}");
    let names: Vec<&str> = report.lines.iter().map(|line| &*line.name).collect();
    let expected = ["config_before_flood", "flooded_get", "config_flooded"];
    assert_eq!(names, expected);
    let sides = report
        .lines
        .iter()
        .flat_map(|line| line.sides.iter().flatten());
    let requests: u64 = sides.map(|side| side.count).sum();
    let opened = fake.connections.load(Ordering::Relaxed) as u64;
    assert!(opened >= requests, "{opened} for {requests}");
    assert!(table.contains("flooded: 24 clients on"), "{table}");
}

#[tokio::test(flavor = "multi_thread")]
async fn operations_and_the_rows_of_peers_are_sent_at_a_rate_too() {
    let fake = Fake::start().await;
    for workload in ["ycsb_c", "peer_get_random"] {
        let mut options = options(&[&fake], workload);
        options.rate = Some(1_000.0);
        options.seconds = 0.5;
        let (report, _) = measured(options).await;
        let side = first(&report);
        let open = side.open.unwrap();
        assert_eq!(open.due, 500, "{workload}");
        assert_eq!(side.count + open.unsent, 500, "{workload}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn at_a_rate_what_waits_behind_a_stalled_server_is_counted() {
    let fake = Fake::start().await;
    let mut options = options(&[&fake], "get_random");
    options.rate = Some(500.0);
    options.seconds = 3.0;
    let contents = fake.contents.clone();
    let stall = std::thread::spawn(move || {
        while !contents
            .lock()
            .unwrap()
            .databases
            .values()
            .any(|documents| documents.len() >= 100)
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(700));
        let held = contents.lock();
        std::thread::sleep(Duration::from_millis(600));
        drop(held);
    });
    let (report, _) = measured(options).await;
    stall.join().unwrap();
    let side = first(&report);
    let open = side.open.unwrap();
    assert_eq!(open.due, 1_500);
    // Only four clients were stuck, and a closed loop would have counted four.
    assert!(
        side.latency_ms_p95 > 200.0 && side.latency_ms_p99 > 400.0,
        "{side:?}"
    );
    assert!(open.backlog_max > 100, "{open:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_that_cannot_be_reached_is_told() {
    let fake = Fake::start().await;
    let mut options = options(&[&fake], "get_random");
    options.rate = Some(1_000_000.0);
    options.connections = 1;
    options.seconds = 0.1;
    let (report, table) = measured(options).await;
    let open = first(&report).open.unwrap();
    assert_eq!(open.due, 100_000);
    assert!(open.unsent > 0 && open.backlog_max > 0, "{open:?}");
    assert!(
        table.contains("did not reach 1000000 requests/s"),
        "{table}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn repeats_are_apart_as_wished_or_that_is_refused() {
    let fake = Fake::start().await;
    let mut paused = options(&[&fake], "get");
    (paused.repeats, paused.pause_s) = (2, 0.05);
    let began = std::time::Instant::now();
    let (report, table) = measured(paused).await;
    assert!(
        table.contains("a pause of 0.05 s before each repeat"),
        "{table}"
    );
    assert!(began.elapsed() >= Duration::from_millis(50));
    assert_eq!(report.repeats, 2);
    type Change = fn(&mut BenchOptions);
    let wrong: [(Change, &str); 4] = [
        (|options| options.pause_s = f64::NAN, "the pause must be"),
        (|options| options.pause_s = -1.0, "the pause must be"),
        (|options| options.has_new_servers = true, "omit --url"),
        (
            |options| options.languages = vec!["lua".to_owned()],
            "there is no \"lua\"",
        ),
    ];
    for (change, why) in wrong {
        let mut options = options(&[&fake], "get");
        change(&mut options);
        let error = refused(options).await;
        assert!(error.contains(why), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn databases_have_the_shards_that_were_asked_for() {
    let fake = Fake::start().await;
    let mut sharded = options(&[&fake], "get_random");
    sharded.q = Some(7);
    let (_, table) = measured(sharded).await;
    assert!(table.contains("q=7 shards"), "{table}");
    let created = fake.contents.lock().unwrap().created.clone();
    assert!(
        !created.is_empty() && created.iter().all(|(_, q)| *q == 7),
        "{created:?}"
    );
    // A sweep of something else keeps them, and one of shards has its own.
    for (sweep, wanted) in [("connections=1,3", vec![7]), ("q=3,4", vec![3, 4, 3])] {
        let fake = Fake::start().await;
        let mut options = options(&[&fake], "get_random");
        (options.q, options.sweep) = (Some(7), Some(sweep.to_owned()));
        measured(options).await;
        let created = fake.contents.lock().unwrap().created.clone();
        let mut shards: Vec<u64> = created.iter().map(|(_, q)| *q).collect();
        shards.dedup();
        assert_eq!(shards, wanted, "{sweep}");
    }
    let mut none = options(&[&fake], "get");
    none.q = Some(0);
    assert!(refused(none).await.contains("--q is a number"));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_chosen_languages_are_measured() {
    let fake = Fake::start().await;
    let mut options = options(&[&fake], "views_declarations");
    options.languages = vec!["nodejs".to_owned()];
    let (report, _) = measured(options).await;
    let names: Vec<&str> = report.lines.iter().map(|line| &*line.name).collect();
    let expected = [
        "declarations_trivial nodejs",
        "declarations_real nodejs",
        "declarations_real rust",
    ];
    assert_eq!(names, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_of_connections_measures_the_first_value_again() {
    let fake = Fake::start().await;
    let mut options = options(&[&fake], "get");
    options.sweep = Some("connections=1,3".to_owned());
    options.repeats = 5;
    let (report, table) = measured(options).await;
    let sweep = report.sweep.unwrap();
    assert_eq!(
        (sweep.what.as_str(), sweep.values.len()),
        ("connections", 2)
    );
    let line = &sweep.lines[0];
    assert!(line.points.iter().all(Option::is_some) && line.again.is_some());
    assert!(line.drift.is_some() && line.drift_interval.is_some());
    assert!(
        line.against_first
            .iter()
            .any(|each| each.name == "3" && each.figure == "rate")
    );
    assert!(
        table.contains("1 again") && table.contains("drift"),
        "{table}"
    );
    assert!(report.lines.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_swept_setting_is_put_back() {
    for before in [Some("old"), None] {
        let fake = Fake::start().await;
        let name = "couchdb/delayed_commits".to_owned();
        if let Some(before) = before {
            let mut contents = fake.contents.lock().unwrap();
            contents.settings.insert(name.clone(), before.to_owned());
        }
        let mut options = options(&[&fake], "single");
        options.sweep = Some(format!("{name}=true,false"));
        let (report, _) = measured(options).await;
        assert_eq!(report.sweep.unwrap().lines[0].points.len(), 2);
        let contents = fake.contents.lock().unwrap();
        let set: Vec<Option<&str>> = contents.settings_set.iter().map(Option::as_deref).collect();
        assert_eq!(set, [Some("true"), Some("false"), Some("true"), before]);
        assert_eq!(contents.settings.get(&name).map(String::as_str), before);
    }
}

/// A sweep on a new fake server, its report, and the server's contents.
async fn swept(workload: &str, sweep: &str) -> (Report, String, Fake) {
    let fake = Fake::start().await;
    let mut options = options(&[&fake], workload);
    options.sweep = Some(sweep.to_owned());
    let (report, table) = measured(options).await;
    (report, table, fake)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_value_of_q_has_databases_of_its_own() {
    for sweep in ["q=2,60", "cluster/q=2,60"] {
        for workload in ["get_random", "single", "many_dbs", "replication"] {
            let (report, _, fake) = swept(workload, sweep).await;
            let points = &report.sweep.unwrap().lines[0].points;
            assert!(points.iter().all(Option::is_some), "{sweep} of {workload}");
            let contents = fake.contents.lock().unwrap();
            let mut shards: Vec<u64> = contents.created.iter().map(|(_, q)| *q).collect();
            shards.dedup();
            // The first value is measured again.
            assert_eq!(shards, [2, 60, 2], "{sweep} of {workload}");
            assert!(contents.databases.is_empty());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_ignores_q_is_not_swept_by_it() {
    let fake = Fake::start().await;
    fake.contents.lock().unwrap().ignores_q = true;
    let mut options = options(&[&fake], "get_random");
    options.sweep = Some("q=2,60".to_owned());
    let report = run(options, None, &mut Vec::new()).await.unwrap();
    let reason = &report.failures[0].reason;
    assert!(reason.contains("with q=60, and reports q=2"), "{reason}");
    assert!(report.sweep.unwrap().lines.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_share_what_they_read() {
    let (_, _, fake) = swept("get_random", "connections=1,3").await;
    assert_eq!(fake.contents.lock().unwrap().created.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_and_bulks_have_the_swept_sizes() {
    type OfBulk = fn(&(usize, usize)) -> usize;
    let cases: [(&str, &str, OfBulk, [usize; 3]); 2] = [
        (
            "bulk_300",
            "bulk_docs=7,50",
            |(count, _)| *count,
            [7, 50, 7],
        ),
        (
            "get_random",
            "document_bytes=200,20000",
            // Commas and brackets are not the documents'.
            |(count, bytes)| bytes / count / 200 * 200,
            [200, 20_000, 200],
        ),
    ];
    for (workload, sweep, of_bulk, expected) in cases {
        let (_, _, fake) = swept(workload, sweep).await;
        let contents = fake.contents.lock().unwrap();
        let mut found: Vec<usize> = contents.bulks.iter().map(of_bulk).collect();
        found.dedup();
        assert_eq!(found, expected, "{sweep}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_a_running_server_does_not_follow_are_refused() {
    let fake = Fake::start().await;
    let row = |section: &str, key: &str, restart: bool| serde_json::json!({"section": section, "key": key, "restart": restart});
    let table = [row("chttpd", "backlog", true), row("log", "level", false)];
    fake.contents.lock().unwrap().setting_table = Some(serde_json::json!(table));
    let of = |sweep: &str| {
        let mut options = options(&[&fake], "get");
        options.sweep = Some(sweep.to_owned());
        options
    };
    let error = refused(of("chttpd/backlog=1,2")).await;
    assert!(error.contains("only when it starts"), "{error}");
    let error = refused(of("log/lewel=info,debug")).await;
    assert!(error.contains("has no such setting"), "{error}");
    assert!(fake.contents.lock().unwrap().settings_set.is_empty());
    let (report, table) = measured(of("log/level=info,debug")).await;
    assert!(report.sweep.unwrap().lines[0].again.is_some());
    assert!(!table.contains("does not report which settings"), "{table}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_a_table_of_settings_is_swept_with_a_warning() {
    let (_, table, fake) = swept("get", r#"cors/origins=["http://a,http://b","*"]"#).await;
    assert!(table.contains("does not report which settings"), "{table}");
    let contents = fake.contents.lock().unwrap();
    let set: Vec<&str> = contents
        .settings_set
        .iter()
        .flatten()
        .map(|v| &**v)
        .collect();
    assert_eq!(set, ["http://a,http://b", "*", "http://a,http://b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_setting_is_put_back_when_the_server_refuses_a_value() {
    let fake = Fake::start().await;
    let name = "couchdb/delayed_commits".to_owned();
    fake.contents
        .lock()
        .unwrap()
        .settings
        .insert(name.clone(), "old".to_owned());
    let mut options = options(&[&fake], "single");
    options.sweep = Some(format!("{name}=true,refused"));
    let report = run(options, None, &mut Vec::new()).await.unwrap();
    assert!(
        report.failures[0].reason.contains("this value is refused"),
        "{:?}",
        report.failures
    );
    assert_eq!(fake.contents.lock().unwrap().settings[&name], "old");
}

fn files(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_saved_and_the_next_one_compared_with_it() {
    let fake = Fake::start().await;
    let dir = tempfile::tempdir().unwrap();
    let saved = dir.path().join("run.json");
    let mut options = options(&[&fake], "get");
    options.repeats = 5;
    options.save = Some(saved.clone());
    measured(options.clone()).await;
    assert_eq!(files(dir.path()), ["run.json"]);
    assert!(!std::fs::read_to_string(&saved).unwrap().contains("secret"));
    options.save = None;
    options.compare = Some(saved);
    options.report = Some(dir.path().join("report.html"));
    options.repeats = 6;
    let (report, table) = measured(options).await;
    let against = report.against.unwrap();
    assert_eq!(against.file, "run.json");
    assert_eq!(against.differences, ["--repeats: 6 now, 5 then"]);
    assert!(report.comparisons.iter().any(|each| each.figure == "rate"));
    assert!(table.contains("was not interleaved"), "{table}");
    let html = std::fs::read_to_string(dir.path().join("report.html")).unwrap();
    assert!(html.contains("Not interleaved") && !html.contains("secret"));
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_cannot_be_used_are_told_before_anything_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    // Nothing listens there: a measurement would fail in another way.
    let nobody = || BenchOptions {
        servers: vec![vec!["http://127.0.0.1:1".to_owned()]],
        ..BenchOptions::default()
    };
    let path = dir.path().join("damaged.json");
    std::fs::write(
        &path,
        "{\"format\":\"settee bench\",\"version\":1,\"crc32\":7}\n{}\n",
    )
    .unwrap();
    let mut options = nobody();
    options.compare = Some(path);
    assert!(refused(options).await.contains("damaged"));
    let mut options = nobody();
    options.save = Some(dir.path().join("none/run.json"));
    assert!(refused(options).await.contains("none/run.json"));
    let mut options = nobody();
    options.report = Some(dir.path().join("report.html"));
    options.flames = vec![dir.path().join("none.svg")];
    assert!(refused(options).await.contains("none.svg"));
    assert_eq!(files(dir.path()), ["damaged.json"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn options_that_make_no_sense_are_refused() {
    let fake = Fake::start().await;
    let two = options(&[&fake, &fake], "get");
    let mut wrong: Vec<BenchOptions> = vec![options(&[&fake], "get"); 9];
    wrong[0].repeats = 0;
    wrong[1].rate = Some(0.0);
    wrong[2].requests = Some(0);
    wrong[3].sweep = Some("threads=1,2".to_owned());
    wrong[4].profile = true;
    wrong[5] = two;
    wrong[5].sweep = Some("connections=1,2".to_owned());
    wrong[6].workloads.push("faults".to_owned());
    wrong[6].sweep = Some("connections=1,2".to_owned());
    wrong[7] = options(&[&fake], "single");
    wrong[7].sweep = Some("connections=1,2".to_owned());
    wrong[8] = options(&[&fake], "lightning");
    wrong[8].sweep = Some("q=1,2".to_owned());
    for options in wrong {
        let error = run(options, None, &mut Vec::new()).await.unwrap_err();
        assert!(matches!(error, BenchError::Options(_)), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_holds_flame_graphs_that_were_given_and_asks_for_others() {
    let fake = Fake::start().await;
    let dir = tempfile::tempdir().unwrap();
    let svg = dir.path().join("a.svg");
    std::fs::write(
        &svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\"><script>1</script></svg>",
    )
    .unwrap();
    let mut options = options(&[&fake], "get");
    options.report = Some(dir.path().join("report.html"));
    options.flames = vec![svg];
    options.profile = true;
    let (report, table) = measured(options).await;
    let html = std::fs::read_to_string(dir.path().join("report.html")).unwrap();
    assert!(html.contains("data:image/svg+xml;base64,") && !html.contains("<script"));
    assert!(table.contains("has no /_settee/profile"), "{table}");
    // The round with the profile is not counted.
    assert_eq!(first(&report).round_rates.len(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn workloads_that_are_about_a_load_are_not_paced() {
    let fake = Fake::start().await;
    let mut options = options(&[&fake], "saturated");
    options.rate = Some(10.0);
    let (report, table) = measured(options).await;
    assert!(table.contains("saturated: neither at a rate"), "{table}");
    assert!(
        report
            .lines
            .iter()
            .all(|line| line.sides[0].as_ref().unwrap().open.is_none())
    );
}
