//! Clients that are slow to send or to take, at a server without patience; and cookies in several fields.
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use auth::Auth;
use config::{Config, Layers};
use database::{Databases, Options, StoreOptions};
use http_api::App;
use node::Node;

/// `admin:secret`
const BASIC: &str = "Authorization: Basic YWRtaW46c2VjcmV0";
const SILENCE_MAX: Duration = Duration::from_millis(500);
const HEAD_TIME_MAX: Duration = Duration::from_millis(200);
/// Longest wait of a test: one that would hang fails instead.
const READ_TIME_MAX: Duration = Duration::from_secs(60);

static SERVER: LazyLock<SocketAddr> = LazyLock::new(|| {
    let dir = tempfile::tempdir().unwrap().keep();
    let mut layers = Layers::new(dir.join("local.ini"));
    layers.overrides = vec![
        ("admins".into(), "admin".into(), "secret".into()),
        ("chttpd".into(), "header_timeout".into(), "200".into()),
    ];
    let config = Config::load(layers).unwrap();
    let auth = Auth::new(config.clone()).unwrap();
    let functions = functions::Functions::new(Default::default(), Default::default());
    let options = Options {
        languages: functions.unwrap(),
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
    app.set_silence_max(SILENCE_MAX);
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            tell.send(listener.local_addr().unwrap()).unwrap();
            http_api::serve(listener, app, std::future::pending()).await;
        });
    });
    told.recv().unwrap()
});

fn connect() -> TcpStream {
    let connection = TcpStream::connect(*SERVER).unwrap();
    connection.set_read_timeout(Some(READ_TIME_MAX)).unwrap();
    connection
}

/// Sends bytes as they are, and reads until the server hangs up.
fn exchange(sent: &str) -> String {
    let mut connection = connect();
    connection.write_all(sent.as_bytes()).unwrap();
    let mut answer = vec![];
    connection.read_to_end(&mut answer).unwrap();
    String::from_utf8(answer).unwrap()
}

fn ask(method: &str, target: &str, headers: &str, body: &str) -> String {
    exchange(&format!(
        "{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}Content-Length: {}\r\n\r\n{body}",
        body.len()
    ))
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}

#[test]
fn a_connection_that_does_not_begin_is_hung_up_on() {
    let began = Instant::now();
    assert_eq!(exchange(""), "");
    assert!(began.elapsed() >= SILENCE_MAX);
    for begun in ["P", "PRI * HT", "GET / HT", "GET / HTTP/1.1\r\nHost: "] {
        let began = Instant::now();
        assert_eq!(exchange(begun), "", "{begun}");
        assert!(began.elapsed() >= HEAD_TIME_MAX, "{begun}");
    }
}

#[test]
fn a_connection_without_a_further_request_is_hung_up_on_after_the_silence() {
    let mut connection = connect();
    let mut began = Instant::now();
    for _ in 0..3 {
        // The time of the silence begins with the end of the last request.
        std::thread::sleep(SILENCE_MAX / 2);
        let head = b"GET /_up HTTP/1.1\r\nHost: x\r\n\r\n";
        connection.write_all(head).unwrap();
        began = Instant::now();
        let mut answer = vec![];
        while !answer.ends_with(b"}\n") {
            let mut piece = [0; 1024];
            let length = connection.read(&mut piece).unwrap();
            assert!(length > 0, "it was hung up on");
            answer.extend_from_slice(&piece[..length]);
        }
    }
    let mut rest = vec![];
    connection.read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty() && began.elapsed() >= SILENCE_MAX);
}

#[test]
fn a_head_that_trickles_in_is_not_waited_for() {
    for (before, head) in [
        (
            "",
            "GET / HTTP/1.1\r\nHost: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        ),
        (
            "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            "GET /xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        ),
        (
            "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: x\r\n\r\n",
            "GET /xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        ),
    ] {
        let mut connection = connect();
        connection.write_all(before.as_bytes()).unwrap();
        for byte in head.as_bytes() {
            // The server hangs up before all is sent.
            let _ = connection.write_all(&[*byte]);
            std::thread::sleep(HEAD_TIME_MAX / 10);
        }
        let mut answer = vec![];
        // A reset is as good as an end.
        let _ = connection.read_to_end(&mut answer);
        let answers = String::from_utf8_lossy(&answer)
            .matches("HTTP/1.1 ")
            .count();
        assert_eq!(answers, before.matches("HTTP/1.1").count(), "{head}");
    }
}

#[test]
fn a_body_that_stops_is_not_waited_for() {
    let headers = format!("Host: x\r\n{BASIC}\r\nContent-Type: application/json\r\n");
    ask("PUT", "/stopped", &format!("{BASIC}\r\n"), "");
    for head in [
        format!("PUT /stopped/a HTTP/1.1\r\n{headers}Content-Length: 100\r\n\r\n{{\"a\":"),
        format!(
            "POST /stopped/_bulk_docs HTTP/1.1\r\n{headers}Transfer-Encoding: chunked\r\n\r\n5\r\n{{\"a\":"
        ),
        format!("PUT /stopped/a/file HTTP/1.1\r\n{headers}Content-Length: 100\r\n\r\nsome"),
    ] {
        let answer = exchange(&head);
        assert_eq!(status(&answer), "408", "{answer}");
        assert!(answer.contains("\"request_timeout\""), "{answer}");
    }
}

#[test]
fn a_body_that_trickles_in_is() {
    ask("PUT", "/trickle", &format!("{BASIC}\r\n"), "");
    let head = format!("PUT /trickle/a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{BASIC}\r\n");
    let trickle = || {
        let mut connection = connect();
        write!(connection, "{head}Content-Length: 7\r\n\r\n").unwrap();
        for byte in b"{\"a\":1}" {
            std::thread::sleep(SILENCE_MAX / 4);
            // The server hangs up on one who was silent for too long.
            let _ = connection.write_all(&[*byte]);
        }
        let mut answer = String::new();
        let _ = connection.read_to_string(&mut answer);
        answer
    };
    // On a busy machine a byte may come too late.
    assert!((0..10).any(|_| status(&trickle()) == "201"));
}

#[test]
fn a_session_is_found_in_any_cookie_field() {
    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    let login = ask("POST", "/_session", form, "name=admin&password=secret");
    let cookie = login.split("AuthSession=").nth(1).unwrap();
    let cookie = cookie.split(';').next().unwrap();
    for headers in [
        format!("Cookie: AuthSession={cookie}\r\n"),
        format!("Cookie: theme=dark\r\nCookie: AuthSession={cookie}\r\n"),
        format!(
            "Cookie: a=b; AuthSession=\r\nCookie: c=d\r\ncookie: e=f; AuthSession={cookie}\r\n"
        ),
    ] {
        let answer = ask("GET", "/_session", &headers, "");
        assert!(answer.contains("\"name\":\"admin\""), "{headers}{answer}");
    }
}

#[test]
fn readers_of_lists_who_take_nothing_stop_nobody() {
    let json = format!("{BASIC}\r\nContent-Type: application/json\r\n");
    ask("PUT", "/lists", &json, "");
    let design = r#"{"views":{"v":{"map":"function(doc) { emit(1); }"}}, "lists":{
        "long":"function(head, req) { var s = new Array(10000).join('x'); for (var i = 0; i < 10000; i++) send(s); }",
        "short":"function(head, req) { send('short'); }"}}"#;
    let made = ask("PUT", "/lists/_design/d", &json, design);
    assert_eq!(status(&made), "201", "{made}");
    let readers: Vec<TcpStream> = (0..80)
        .map(|_| {
            let mut reader = connect();
            let request =
                format!("GET /lists/_design/d/_list/long/v HTTP/1.1\r\nHost: x\r\n{BASIC}\r\n\r\n");
            reader.write_all(request.as_bytes()).unwrap();
            reader
        })
        .collect();
    let written = ask("PUT", "/lists/a", &json, "{}");
    assert_eq!(status(&written), "201", "{written}");
    let short = ask("GET", "/lists/_design/d/_list/short/v", &json, "");
    assert!(short.ends_with("short"), "{short}");
    // The waiting readers see that their response is not complete. They are most of them; which
    // ones is up to the scheduler.
    assert!(readers.into_iter().any(|mut reader| {
        let mut answer = vec![];
        let cut = reader.read_to_end(&mut answer);
        (cut.is_err() || !answer.ends_with(b"0\r\n\r\n")) && answer.len() < 50_000_000
    }));
}
