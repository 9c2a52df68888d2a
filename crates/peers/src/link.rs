//! One connection to a peer, reconnected whenever it breaks.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use crate::hello::Hello;
use crate::line::{Line, WatchedSocket};
use crate::options::{CONNECTION_WINDOW_BYTES, Options, RESETS_MAX, STREAM_WINDOW_BYTES};
use crate::queue::Queue;
use crate::registry::{Registration, SharedState};
use crate::tls::explain;
use crate::{Body, NodeId, node_name};

/// Maximum size of a refusal's text, in bytes.
pub(crate) const TEXT_BYTES_MAX: usize = 64 << 10;
/// A connection that lasted this time was good: the next attempt is made immediately.
const GOOD_AFTER: Duration = Duration::from_secs(1);

/// The state of a connection for calls.
#[derive(Clone)]
pub(crate) enum State {
    /// The first attempt is under way.
    Trying,
    Up(SendRequest<Body>, Arc<Line>),
    /// The result of the last attempt.
    Down(String),
}

/// The purpose of a connection. Each channel of messages has one of its own: a large body in the same
/// socket would delay them.
pub(crate) enum Lane {
    Messages(Arc<Queue>),
    Calls(watch::Sender<State>),
}

/// Keeps a connection to a node, permanently.
pub(crate) async fn keep(
    shared: Arc<SharedState>,
    node: NodeId,
    addresses: Vec<String>,
    lane: Lane,
) {
    let options = &shared.options;
    let mut pause = options.retry_min;
    let mut last = String::new();
    let mut arrivals = shared.known(node).arrivals.subscribe();
    let (mut is_called, mut is_restarted) = (false, false);
    loop {
        arrivals.mark_unchanged();
        let attempt = tokio::select! {
            attempt = connect_any(&shared, node, &addresses) => attempt,
            // It has connected to this node: what an interruption swallowed is not answered after it.
            // Not twice in a row, or two nodes would interrupt each other's attempts forever.
            Ok(()) = arrivals.changed(), if !is_restarted => {
                is_restarted = true;
                continue;
            }
        };
        is_restarted = false;
        let why = match attempt {
            Err(why) => why,
            Ok(connected) => {
                let since = tokio::time::Instant::now();
                last.clear();
                let why = use_it(connected, &lane, options).await;
                if since.elapsed() > GOOD_AFTER {
                    pause = options.retry_min;
                }
                why
            }
        };
        // Not again and again while it stays so.
        if why != last {
            tracing::warn!(node, "no connection to a node of the cluster: {why}");
            last.clone_from(&why);
        }
        if let Lane::Calls(state) = &lane {
            state.send_replace(State::Down(why));
        }
        // Half of it is left to chance, so that nodes do not come in step.
        let waits = pause.mul_f64(0.5 + fastrand::f64() / 2.0);
        pause = (pause * 2).min(options.retry_max);
        is_called = tokio::select! {
            () = tokio::time::sleep(waits) => false,
            // It has connected to this node. Not twice in a row, or two nodes whose connections
            // break at once would call each other without a pause.
            Ok(()) = arrivals.changed(), if !is_called => true,
        };
    }
}

/// Resolves to the reason for the end of the connection.
async fn use_it(mut connected: Connected, lane: &Lane, options: &Options) -> String {
    let line = connected.raw.line.clone();
    let work = async {
        match lane {
            Lane::Messages(queue) => connected.send_all(queue).await,
            Lane::Calls(state) => {
                state.send_replace(State::Up(connected.raw.sender.clone(), line.clone()));
                connected.raw.driver.join_next().await;
                "the connection broke".into()
            }
        }
    };
    let why = tokio::select! {
        why = work => why,
        () = line.silent(options.silence_max) => format!("nothing was heard for {:?}", options.silence_max),
    };
    line.failure().unwrap_or(why)
}

/// A connection whose sides have greeted each other. It ends when this is dropped.
struct Connected {
    raw: RawConnection,
    _entered: Registration,
}

impl Connected {
    /// Sends what comes into the queue, in one request, until that breaks.
    async fn send_all(&mut self, queue: &Arc<Queue>) -> String {
        let body = Body::of(queue.body());
        let request = request(Method::POST, queue.channel().path(), body);
        let response = match self.raw.sender.send_request(request).await {
            Ok(response) => response,
            Err(e) => return format!("sending messages: {e}"),
        };
        if response.status() != StatusCode::OK {
            return refusal_text(response).await;
        }
        let mut body = Body::of(response.into_body());
        match body.next().await {
            Some(Err(e)) => e.to_string(),
            _ => "the other side takes no more messages".into(),
        }
    }
}

pub(crate) fn request(method: Method, path: &str, body: Body) -> Request<Body> {
    let mut request = Request::new(body);
    *request.method_mut() = method;
    // Paths of calls were checked.
    *request.uri_mut() = format!("https://peer{path}").parse().unwrap_or_default();
    request
}

pub(crate) async fn refusal_text(response: Response<Incoming>) -> String {
    let text = Body::of(response.into_body()).read(TEXT_BYTES_MAX).await;
    text.map_or_else(
        |e| e.to_string(),
        |text| String::from_utf8_lossy(&text).into_owned(),
    )
}

/// Tries one address after another.
async fn connect_any(
    shared: &Arc<SharedState>,
    node: NodeId,
    addresses: &[String],
) -> Result<Connected, String> {
    let mut failures = vec![];
    for address in addresses {
        let who = format!("node {node} at {address}");
        let time_max = shared.options.connect_time_max;
        match tokio::time::timeout(time_max, connect(shared, node, address, &who)).await {
            Ok(Ok(connected)) => return Ok(connected),
            Ok(Err(why)) => failures.push(why),
            Err(_) => failures.push(format!("{who} did not answer within {time_max:?}")),
        }
    }
    match failures.is_empty() {
        true => Err(format!("there is no address of node {node}")),
        false => Err(failures.join("; ")),
    }
}

async fn connect(
    shared: &Arc<SharedState>,
    node: NodeId,
    address: &str,
    who: &str,
) -> Result<Connected, String> {
    let name = node_name(&shared.identity.cluster(), node);
    let line = Line::new(who.into());
    let tls = shared.tls.clone();
    let mut raw =
        RawConnection::open(address, who, &name, tls, &shared.options, line.clone()).await?;
    let mut hello = request(Method::POST, "/hello", Body::empty());
    shared.hello().write(hello.headers_mut());
    let response = raw
        .sender
        .send_request(hello)
        .await
        .map_err(|e| line.failure().unwrap_or_else(|| format!("{who}: {e}")))?;
    let theirs = Hello::read(response.headers());
    let protocol = shared.options.protocol;
    if let Some(why) = theirs.as_ref().and_then(|t| t.mismatch(node, protocol)) {
        return Err(why);
    }
    let (StatusCode::OK, Some(theirs)) = (response.status(), theirs) else {
        return Err(format!("{who} refused: {}", refusal_text(response).await));
    };
    line.is_of(shared.known(node).heard.clone());
    Ok(Connected {
        raw,
        _entered: shared.enter(node, theirs.instance, line),
    })
}

/// A connection over which nothing was said yet. It ends when this is dropped.
pub(crate) struct RawConnection {
    pub sender: SendRequest<Body>,
    /// Ends with the connection.
    pub driver: JoinSet<()>,
    pub line: Arc<Line>,
}

impl Drop for RawConnection {
    fn drop(&mut self) {
        // Tasks of hyper hold the socket, too.
        self.line.cut();
    }
}

impl RawConnection {
    pub async fn open(
        address: &str,
        who: &str,
        name: &str,
        tls: Arc<ClientConfig>,
        options: &Options,
        line: Arc<Line>,
    ) -> Result<RawConnection, String> {
        let stream = connect_tcp(address)
            .await
            .map_err(|e| format!("{who}: {e}"))?;
        let name = ServerName::try_from(name.to_owned()).map_err(|e| e.to_string())?;
        let stream = TlsConnector::from(tls)
            .connect(name, stream)
            .await
            .map_err(|e| explain(&e, who))?;
        let stream = TokioIo::new(WatchedSocket::new(stream, line.clone()));
        let (sender, connection) = Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_concurrent_reset_streams(RESETS_MAX)
            .keep_alive_interval(options.ping_every)
            .keep_alive_timeout(options.silence_max)
            .keep_alive_while_idle(true)
            .handshake(stream)
            .await
            .map_err(|e| format!("{who}: {e}"))?;
        let mut driver = JoinSet::new();
        driver.spawn(async {
            // The line knows better what broke it.
            let _ = connection.await;
        });
        Ok(RawConnection {
            sender,
            driver,
            line,
        })
    }
}

/// Returns a connection to the first of an address's addresses that answers.
async fn connect_tcp(address: &str) -> std::io::Result<TcpStream> {
    let found: Vec<SocketAddr> = tokio::net::lookup_host(address).await?.collect();
    let stream = TcpStream::connect(&found[..]).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}
