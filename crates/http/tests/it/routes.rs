//! Routes over a socket: what no recorded scenario asks.
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use auth::Auth;
use config::{Config, Layers};
use database::{Databases, Options, StoreOptions};
use http_api::App;
use node::Node;
use proptest::prelude::*;

/// `admin:secret`
const BASIC: &str = "Authorization: Basic YWRtaW46c2VjcmV0";
/// Longest wait of a test: one that would hang fails instead.
const READ_TIME_MAX: Duration = Duration::from_secs(60);

/// One server for all tests of this file.
static SERVER: LazyLock<SocketAddr> = LazyLock::new(start);

fn start() -> SocketAddr {
    let dir = tempfile::tempdir().unwrap().keep();
    let mut layers = Layers::new(dir.join("local.ini"));
    layers.overrides = [
        ("admins", "admin", "secret"),
        ("chttpd", "changes_timeout", "50"),
        ("chttpd", "max_uri_length", "4000"),
    ]
    .map(|(section, key, value)| (section.into(), key.into(), value.into()))
    .into();
    let config = Config::load(layers).unwrap();
    let auth = Auth::new(config.clone()).unwrap();
    let options = Options {
        store: StoreOptions {
            block_cache_bytes: 8 << 20,
            write_buffers_bytes: 8 << 20,
            ..StoreOptions::default()
        },
        ..Options::default()
    };
    let databases = Databases::open(&dir.join("store"), options).unwrap();
    let memory = node::MemoryPlan::new(&config.settings());
    let app = App::new(Node::new(databases, config, auth, memory).unwrap(), || 0).unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || serve(app, tell));
    let address = told.recv().unwrap();
    SERVER_DATABASES.iter().for_each(|db| {
        assert_eq!(
            ask_at(address, "PUT", &format!("/{db}"), "", "").status,
            201
        );
    });
    address
}

const SERVER_DATABASES: [&str; 3] = ["db", "filtered", "prey"];

#[tokio::main(flavor = "current_thread")]
async fn serve(app: Arc<App>, tell: std::sync::mpsc::Sender<SocketAddr>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    tell.send(listener.local_addr().unwrap()).unwrap();
    http_api::serve(listener, app, std::future::pending()).await;
}

#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (n, value) = line.split_once(':')?;
            n.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

fn ask(method: &str, target: &str, headers: &str, body: &str) -> Answer {
    ask_at(*SERVER, method, target, headers, body)
}

/// Sends one request as the admin; `headers` are whole lines.
fn ask_at(address: SocketAddr, method: &str, target: &str, headers: &str, body: &str) -> Answer {
    let mut connection = TcpStream::connect(address).unwrap();
    connection.set_read_timeout(Some(READ_TIME_MAX)).unwrap();
    let request = format!(
        "{method} {target} HTTP/1.1\r\nHost: x\r\n{BASIC}\r\nConnection: close\r\n{headers}Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    connection.write_all(request.as_bytes()).unwrap();
    let mut answer = vec![];
    connection.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer {
        status,
        head: head.into(),
        body: body.into(),
    }
}

const JSON: &str = "Content-Type: application/json\r\n";

#[test]
fn every_route_names_the_methods_that_it_knows() {
    let routes = [
        ("/", "GET, HEAD"),
        ("/_all_dbs", "GET, HEAD"),
        ("/_dbs_info", "GET, HEAD, POST"),
        ("/_uuids", "GET"),
        ("/_session", "GET, HEAD, POST, DELETE"),
        ("/_node/_local/_config/a/b", "GET, PUT, DELETE"),
        ("/_node/_local/_config/a", "GET"),
        ("/_node/_local/_stats", "GET"),
        ("/_scheduler/jobs", "GET, HEAD"),
        ("/db", "DELETE, GET, HEAD, POST"),
        ("/db/a", "DELETE, GET, HEAD, POST, PUT, COPY"),
        ("/db/_local/a", "DELETE, GET, HEAD, POST, PUT, COPY"),
        ("/db/_design/a", "DELETE, GET, HEAD, POST, PUT, COPY"),
        ("/db/a/attachment", "DELETE, GET, HEAD, PUT"),
        ("/db/_all_docs", "GET, HEAD, POST"),
        ("/db/_all_docs/queries", "POST"),
        ("/db/_local_docs", "GET, HEAD, POST"),
        ("/db/_bulk_docs", "POST"),
        ("/db/_bulk_get", "POST"),
        ("/db/_changes", "GET, POST, HEAD"),
        ("/db/_revs_diff", "POST"),
        ("/db/_missing_revs", "POST"),
        ("/db/_revs_limit", "PUT, GET"),
        ("/db/_purge", "POST"),
        ("/db/_purged_infos", "GET"),
        ("/db/_purged_infos_limit", "GET, PUT"),
        ("/db/_security", "PUT, GET"),
        ("/db/_compact", "POST"),
        ("/db/_settee/preview", "POST"),
        ("/db/_ensure_full_commit", "POST"),
        ("/db/_shards", "GET"),
        ("/db/_sync_shards", "POST"),
        ("/db/_find", "POST"),
        ("/db/_index", "GET, POST"),
    ];
    for (path, methods) in routes {
        let answer = ask("FOO", path, "", "");
        assert_eq!(answer.status, 405, "{path}");
        assert_eq!(answer.header("allow"), Some(methods), "{path}");
        assert!(answer.body.contains("method_not_allowed"), "{path}");
    }
}

#[test]
fn doubled_and_trailing_slashes_and_encoded_names_lead_to_the_same_route() {
    for path in [
        "/db/_all_docs",
        "//db/_all_docs",
        "/db//_all_docs/",
        "/d%62/%5Fall_docs",
    ] {
        let answer = ask("GET", path, "", "");
        assert!(
            answer.body.starts_with("{\"total_rows\":"),
            "{path}: {answer:?}"
        );
    }
}

#[test]
fn a_path_with_its_query_has_a_longest_length() {
    for target in [
        format!("/db/_all_docs?x={}", "k".repeat(4000)),
        format!("/db/{}", "k".repeat(4000)),
    ] {
        let answer = ask("GET", &target, "", "");
        assert_eq!(answer.status, 414);
        assert!(answer.body.contains("\"too_long\""), "{answer:?}");
    }
}

#[test]
fn a_feed_waits_no_longer_than_the_configuration_allows() {
    for feed in ["longpoll", "continuous", "eventsource"] {
        let target = format!("/db/_changes?feed={feed}&since=now&timeout=3600000");
        assert_eq!(ask("GET", &target, "", "").status, 200);
    }
}

#[test]
fn a_selector_sees_documents_that_are_deep_and_integers_that_are_huge() {
    let deep = format!("{{\"v\":1,\"a\":{}{}}}", "[".repeat(200), "]".repeat(200));
    let huge = format!("{{\"v\":1,\"n\":1{}}}", "0".repeat(400));
    assert_eq!(ask("PUT", "/filtered/deep", "", &deep).status, 201);
    assert_eq!(ask("PUT", "/filtered/huge", "", &huge).status, 201);
    let rows = |target: &str, body: &str| ask("POST", target, JSON, body).body;

    let both = rows(
        "/filtered/_changes?filter=_selector",
        "{\"selector\":{\"v\":1}}",
    );
    assert!(
        both.contains("\"id\":\"deep\"") && both.contains("\"id\":\"huge\""),
        "{both}"
    );

    let one = "{\"selector\":{\"n\":{\"$gt\":1}},\"fields\":[\"v\"]}";
    let one = rows("/filtered/_changes?filter=_selector&include_docs=true", one);
    assert!(
        one.contains("\"doc\":{\"v\":1}") && !one.contains("\"id\":\"deep\""),
        "{one}"
    );
}

/// Pieces of paths and queries that lead into routes, and such as lead astray.
fn target() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        3 => prop::sample::select(vec![
            "/", "//", "?", "&", "=", "prey", "a", "_all_docs", "_changes", "_design", "_local", "_partition", "_shards",
            "_view", "queries", "_node", "_local", "_config", "_stats", "_scheduler", "docs", "_reshard", "_users",
            "keys", "rev", "open_revs", "since", "limit", "feed", "longpoll", "startkey", "%5B%22", "%FF", "%00", "%2F",
            "%", "+", "1-a", "-1", "all", "true", "[", "{}", "99999999999999999999", "now", "atts_since",
        ])
        .prop_map(str::to_owned),
        1 => "[!-~]{0,6}",
        1 => "[\u{80}-\u{2fff}]{1,2}",
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| format!("/{}", pieces.concat()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    /// A panic would end the connection without an answer.
    #[test]
    fn no_target_goes_unanswered(
        method in prop::sample::select(vec!["GET", "HEAD", "POST", "PUT", "DELETE", "COPY", "FOO"]),
        target in target(),
    ) {
        // Deleted and created again periodically: the other tests have their own databases.
        let answer = ask(method, &target, JSON, "{}");
        prop_assert!((200..600).contains(&answer.status));
        prop_assert!(answer.status < 500 || answer.status == 501 || answer.status == 503, "{:?}", answer);
        if answer.status >= 400 && answer.status != 414 && method != "HEAD" && !answer.body.is_empty() {
            prop_assert!(answer.body.contains("\"error\":"), "{:?}", answer);
        }
    }
}
