//! A separate port for Prometheus, without a login: it serves metrics, and nothing else.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

use crate::app::App;
use crate::browsers::dev::DevRequest;
use crate::connection::AFTER_FAILED_ACCEPT;
use crate::connection::head_timeout::HEAD_BYTES_MAX;
use crate::connection::spelling::{Bodiless, Spelling};
use crate::metric_catalogue;

/// The path that is answered.
const PATH: &str = "/_node/_local/_prometheus";

/// A connection without a request for 30 s is closed: places are few.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Connections that are served at a time; for another one the oldest is closed. One more may be accepted meanwhile.
const CONNECTIONS_MAX: usize = 15;
/// A connection is closed after this time, when running requests have been answered,
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(120);
/// which may take 1 s.
const LAST_ANSWER_TIME_MAX: Duration = Duration::from_secs(1);

/// Answers requests for metrics, until it is dropped.
pub async fn serve_metrics(listener: TcpListener, app: Arc<App>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    // Dropping one has a connection end. At most one more than there are connections.
    let mut served: VecDeque<oneshot::Sender<()>> = VecDeque::new();
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(e) => {
                tracing::warn!(error = %e, "accepting a connection for metrics failed");
                tokio::time::sleep(AFTER_FAILED_ACCEPT).await;
                continue;
            }
        };
        served.retain(|ends| !ends.is_closed());
        if places.available_permits() == 0 {
            served.pop_front();
        }
        // Nothing closes the semaphore.
        let place = places.clone().acquire_owned().await.ok();
        let (ends, ended) = oneshot::channel::<()>();
        served.push_back(ends);
        let app = app.clone();
        tokio::spawn(async move {
            let bodiless = Arc::new(Bodiless::default());
            let service = service_fn(|req: hyper::Request<Incoming>| {
                let (app, bodiless) = (app.clone(), bodiless.clone());
                async move {
                    let is_to_head = req.method() == Method::HEAD;
                    let answered =
                        tokio::task::spawn_blocking(move || answer(&app, &req, peer.ip())).await;
                    bodiless.note(is_to_head);
                    answered.map_err(|_| "the metrics could not be collected")
                }
            });
            let stream = Spelling::new(stream, bodiless.clone());
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(SILENCE_MAX)
                .max_buf_size(HEAD_BYTES_MAX)
                .serve_connection(TokioIo::new(stream), service);
            let mut connection = std::pin::pin!(connection);
            let whole = tokio::select! {
                done = &mut connection => done,
                // A client that does not read what it requested would keep others out.
                _ = timeout(CONNECTION_TIME_MAX, ended) => {
                    connection.as_mut().graceful_shutdown();
                    let rest = timeout(LAST_ANSWER_TIME_MAX, connection).await;
                    rest.unwrap_or(Ok(()))
                }
            };
            if let Err(e) = whole {
                tracing::debug!(error = %e, "a connection for metrics ended");
            }
            drop(place);
        });
    }
}

fn answer(app: &App, req: &hyper::Request<Incoming>, peer: IpAddr) -> Response<Full<Bytes>> {
    let refused = app.settings().dev.as_ref().and_then(|dev| {
        let request = DevRequest::of_request(req, peer);
        dev.check(request).err()
    });
    let (status, text) = match (req.method(), req.uri().path()) {
        _ if refused.is_some() => (
            StatusCode::FORBIDDEN,
            refused.map_or_else(String::new, |e| format!("{}\n", e.reason)),
        ),
        (&Method::GET | &Method::HEAD, PATH) => (StatusCode::OK, metric_catalogue::prometheus(app)),
        (_, PATH) => (
            StatusCode::METHOD_NOT_ALLOWED,
            "Only GET,HEAD allowed\n".into(),
        ),
        _ => (StatusCode::NOT_FOUND, format!("only {PATH} is here\n")),
    };
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; version=2.0");
    response.headers_mut().insert(CONTENT_TYPE, plain);
    response
}
