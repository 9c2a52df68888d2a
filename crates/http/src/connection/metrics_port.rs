//! A port of its own for Prometheus, which asks without a login: it tells numbers, and nothing else.

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
use tokio::sync::Semaphore;

use crate::app::App;
use crate::connection::server::AFTER_FAILED_ACCEPT;
use crate::connection::spelling::{Bodiless, Spelling};
use crate::metrics::catalogue;

/// The path that is answered.
const PATH: &str = "/_node/_local/_prometheus";

/// A connection that asks for nothing for so long is closed: places are few.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Connections that are answered at a time; others wait.
const CONNECTIONS_MAX: usize = 16;

/// Answers whoever asks for the numbers, until it is dropped.
pub async fn serve_metrics(listener: TcpListener, app: Arc<App>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        // Nobody closes the semaphore.
        let place = places.clone().acquire_owned().await.ok();
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(e) => {
                tracing::warn!(error = %e, "accepting a connection for metrics failed");
                tokio::time::sleep(AFTER_FAILED_ACCEPT).await;
                continue;
            }
        };
        let app = app.clone();
        tokio::spawn(async move {
            let bodiless = Arc::new(Bodiless::default());
            let service = service_fn(|req: hyper::Request<Incoming>| {
                let (app, bodiless) = (app.clone(), bodiless.clone());
                async move {
                    let is_to_head = req.method() == Method::HEAD;
                    let answered = tokio::task::spawn_blocking(move || answer(&app, &req)).await;
                    bodiless.note(is_to_head);
                    answered.map_err(|_| "the numbers could not be told")
                }
            });
            let stream = Spelling::new(stream, bodiless.clone());
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(SILENCE_MAX)
                .serve_connection(TokioIo::new(stream), service);
            if let Err(e) = connection.await {
                tracing::debug!(error = %e, "a connection for metrics ended");
            }
            drop(place);
        });
    }
}

fn answer(app: &App, req: &hyper::Request<Incoming>) -> Response<Full<Bytes>> {
    let (status, text) = match (req.method(), req.uri().path()) {
        (&Method::GET | &Method::HEAD, PATH) => (StatusCode::OK, catalogue::prometheus(app)),
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
