//! `settee bench record`: a proxy between clients and a server that records requests.
//!
//! Each client's connection has one to the server, so that the order of requests does not change.
//! Bodies stream both ways. A recording has of each request: method, path, query, a few headers,
//! the body, the time, the response's status, and the revisions in the response. See
//! [`secrets`](super::secrets) for the parts that are never recorded.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::client::conn::http1 as client;
use hyper::header::{CONNECTION, ETAG, EXPECT, HeaderMap, HeaderName, HeaderValue};
use hyper::server::conn::http1 as server;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};

use super::entry::{Entry, HEADERS};
use super::recorder::Recorder;
use super::tee::{Exchange, Tee, Way, lock};
use crate::error::BenchError;
use crate::run::interrupted;
use crate::target::Target;

/// Interval of writes to the file: a killed recorder loses at most this.
const FLUSH: Duration = Duration::from_secs(1);
/// Time for requests in progress to finish when the recording ends.
const GRACE: Duration = Duration::from_millis(200);
/// Headers of one connection, which are not passed on (RFC 9110, 7.6.1).
const OF_CONNECTION: [&str; 8] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Server, address and file of a recording.
#[derive(Debug, Clone)]
pub struct RecordOptions {
    /// Address and port to listen on; port 0 is a free one.
    pub listen: SocketAddr,
    /// The server, `http://host[:port][/prefix]`. Clients bring their own credentials.
    pub server: String,
    /// The file, which must not exist yet.
    pub file: PathBuf,
}

/// Figures of a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// Requests written down.
    pub requests: u64,
    /// Requests left out, by reason.
    pub left_out: BTreeMap<&'static str, u64>,
}

/// Records until Ctrl-C or SIGTERM. `ready` receives the address of the listening socket.
///
/// # Errors
/// [`BenchError`]: the server's URL, the address, and the file, also later, when it cannot be written any more.
pub async fn record(
    options: RecordOptions,
    ready: impl FnOnce(SocketAddr),
) -> Result<Recorded, BenchError> {
    let target = Target::resolve(&options.server).await?;
    if target.header("authorization").is_some() {
        return Err(BenchError::Options(format!(
            "{}: clients bring their own credentials, so the URL of a recording's server has none",
            target.label
        )));
    }
    let listener = TcpListener::bind(options.listen).await?;
    let recorder = Arc::new(Recorder::create(&options.file, &target.label)?);
    let interrupted = interrupted();
    ready(listener.local_addr()?);
    let mut connections = tokio::task::JoinSet::new();
    let serving = accept(&listener, &target, &recorder, &mut connections);
    let ended = tokio::select! {
        ended = serving => ended,
        ended = keep_flushing(&recorder) => ended,
        () = interrupted => Ok(()),
    };
    drop(listener);
    let all_ended = async { while connections.join_next().await.is_some() {} };
    // Idle connections and endless feeds are cut off.
    let _ = tokio::time::timeout(GRACE, all_ended).await;
    connections.shutdown().await;
    recorder.flush()?;
    let (requests, left_out) = recorder.counts();
    ended.map(|()| Recorded { requests, left_out })
}

async fn keep_flushing(recorder: &Recorder) -> Result<(), BenchError> {
    loop {
        tokio::time::sleep(FLUSH).await;
        recorder.flush()?;
    }
}

async fn accept(
    listener: &TcpListener,
    target: &Target,
    recorder: &Arc<Recorder>,
    connections: &mut tokio::task::JoinSet<()>,
) -> Result<(), BenchError> {
    for number in 0.. {
        let Ok((socket, _)) = listener.accept().await else {
            // Out of open files, mostly: those that are open will end.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        // Without it small answers wait; that it is refused is no reason to end.
        let _ = socket.set_nodelay(true);
        let upstream = Upstream {
            target: target.clone(),
            sender: None,
        };
        let proxy = Arc::new(Proxy {
            number,
            recorder: Arc::clone(recorder),
            upstream: tokio::sync::Mutex::new(upstream),
        });
        connections.spawn(async move {
            let service = service_fn(move |request| {
                let proxy = Arc::clone(&proxy);
                async move { Ok::<_, Infallible>(proxy.pass(request).await) }
            });
            // A disconnected client is not an error of the proxy.
            let _ = server::Builder::new()
                .serve_connection(TokioIo::new(socket), service)
                .await;
        });
        while connections.try_join_next().is_some() {}
    }
    Ok(())
}

/// The connection to the server that belongs to a client's.
struct Upstream {
    target: Target,
    sender: Option<client::SendRequest<Tee>>,
}

impl Upstream {
    async fn sender(&mut self) -> Result<&mut client::SendRequest<Tee>, String> {
        let is_usable = match &mut self.sender {
            Some(sender) => sender.ready().await.is_ok(),
            None => false,
        };
        if !is_usable {
            let stream = TcpStream::connect(self.target.address).await;
            let stream = stream.map_err(|error| error.to_string())?;
            let _ = stream.set_nodelay(true);
            let (sender, connection) = client::handshake(TokioIo::new(stream))
                .await
                .map_err(|error| error.to_string())?;
            tokio::spawn(connection);
            self.sender = Some(sender);
        }
        Ok(self.sender.as_mut().expect("set just now"))
    }
}

/// One client's connection.
struct Proxy {
    number: u64,
    recorder: Arc<Recorder>,
    upstream: tokio::sync::Mutex<Upstream>,
}

impl Proxy {
    async fn pass(&self, request: Request<Incoming>) -> Response<Tee> {
        let (mut head, body) = request.into_parts();
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
        let mut entry = Entry::new(
            self.recorder.now_us(),
            self.number,
            head.method.as_str(),
            path,
        );
        entry.headers = kept(&head.headers);
        let encoding = head.headers.get("content-encoding");
        let is_compressed = encoding.is_some_and(|encoding| encoding != "identity");
        let exchange = Exchange::new(Arc::clone(&self.recorder), entry, is_compressed);
        let exchange = Arc::new(Mutex::new(exchange));
        let mut upstream = self.upstream.lock().await;
        let path = format!("{}{path}", upstream.target.prefix());
        let Ok(uri) = path.parse::<Uri>() else {
            return refused(&exchange, StatusCode::BAD_REQUEST);
        };
        head.uri = uri;
        head.version = hyper::Version::HTTP_11;
        remove_of_connection(&mut head.headers);
        head.headers.remove(EXPECT);
        let tee = Tee::new(body, &exchange, Way::Request);
        let sender = match upstream.sender().await {
            Ok(sender) => sender,
            Err(_) => return refused(&exchange, StatusCode::BAD_GATEWAY),
        };
        let Ok(answer) = sender.send_request(Request::from_parts(head, tee)).await else {
            return refused(&exchange, StatusCode::BAD_GATEWAY);
        };
        let (mut head, body) = answer.into_parts();
        let etag = head.headers.get(ETAG).and_then(|etag| etag.to_str().ok());
        lock(&exchange).answered(head.status.as_u16(), etag);
        remove_of_connection(&mut head.headers);
        Response::from_parts(head, Tee::new(body, &exchange, Way::Answer))
    }
}

/// A response of the proxy itself. It has no body: the status is enough.
fn refused(exchange: &Arc<Mutex<Exchange>>, status: StatusCode) -> Response<Tee> {
    let mut response = Response::new(Tee::empty(exchange));
    *response.status_mut() = status;
    response
}

fn remove_of_connection(headers: &mut HeaderMap) {
    let listed: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in listed {
        headers.remove(name);
    }
    for name in OF_CONNECTION {
        headers.remove(name);
    }
}

/// The headers that are written down.
fn kept(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |value: &HeaderValue| value.to_str().ok().map(str::to_owned);
    let of = |name: &'static str| {
        let values = headers.get_all(name).iter().filter_map(text);
        values.map(move |value| (name.to_owned(), value))
    };
    let kept = HEADERS.into_iter().flat_map(of);
    // A destination may be a URL, and that may have a user.
    kept.filter(|(_, value)| !value.contains("://")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_kept_by_name_and_never_those_with_credentials() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("authorization", "Basic YTpi"),
            ("cookie", "AuthSession=x"),
            ("x-auth-couchdb-token", "x"),
            ("proxy-authorization", "Basic YTpi"),
            ("referer", "http://a:b@host/"),
            ("destination", "http://a:b@host/db/x"),
            ("if-match", "\"1-x\""),
            ("content-type", "application/json"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        let names: Vec<String> = kept(&headers).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["content-type", "if-match"]);
    }

    #[test]
    fn headers_of_a_connection_are_not_passed_on() {
        let mut headers = HeaderMap::new();
        headers.insert("connection", HeaderValue::from_static("close, X-Mine"));
        headers.insert("x-mine", HeaderValue::from_static("1"));
        headers.insert("transfer-encoding", HeaderValue::from_static("chunked"));
        headers.insert("host", HeaderValue::from_static("a"));
        remove_of_connection(&mut headers);
        assert_eq!(headers.len(), 1);
    }
}
