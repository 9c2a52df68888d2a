//! A port of its own for Prometheus, which asks without a login: it tells numbers, and nothing else.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;

use crate::app::App;
use crate::metrics::catalogue;

/// The path that is answered.
const PATH: &str = "/_node/_local/_prometheus";

/// Answers whoever asks for the numbers, until it is dropped.
pub async fn serve_metrics(listener: TcpListener, app: Arc<App>) {
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(e) => {
                tracing::warn!(error = %e, "accepting a connection for metrics failed");
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                continue;
            }
        };
        let (app, silence_max) = (app.clone(), app.silence_max());
        tokio::spawn(async move {
            let service = service_fn(|req| {
                let answer = answer(&app, &req);
                async move { Ok::<_, Infallible>(answer) }
            });
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(silence_max)
                .serve_connection(TokioIo::new(stream), service);
            if let Err(e) = connection.await {
                tracing::debug!(error = %e, "a connection for metrics ended");
            }
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
