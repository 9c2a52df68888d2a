//! Where traces go: a collector that speaks OTLP over HTTP.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use config::Config;
use opentelemetry::trace::{
    SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, SpanData, SpanExporter as Exporter, SpanProcessor as _,
};
use telemetry::trace::{Context, Export, FAILED, Kind, MADE, SENT, Span, Value, export_to};
use tokio::runtime::Handle;

use crate::Failure;

/// The path of OTLP's spans, after the collector's address.
const PATH: &str = "/v1/traces";
/// A collector that takes longer is given up, for these spans.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of a collector's response that are read.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Spans that wait, at most.
const WAITING_MAX: u64 = 2048;
/// How long the last spans may take when the server stops.
const LAST_MAX: Duration = Duration::from_secs(2);

/// Traces are exported while this is held.
pub struct Traces(Option<Arc<Spans>>);

impl Traces {
    /// Exports traces, if the settings name a collector. They are sent by a separate thread, and
    /// requests to the collector are made on `runtime`.
    pub fn start(config: &Config, runtime: &Handle) -> Result<Traces, Failure> {
        let settings = &config.settings().tracing;
        if settings.otlp_endpoint.is_empty() {
            return Ok(Traces(None));
        }
        let wrong =
            |e: &dyn std::fmt::Display| Failure::usage(format!("[tracing] otlp_endpoint: {e}"));
        // reqwest takes the process's provider. Set already is fine too.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let url = endpoint(&settings.otlp_endpoint).map_err(|e| wrong(&e))?;
        let client = reqwest::Client::builder().timeout(PATIENCE).build();
        let client = Collector {
            client: client.map_err(Failure::new)?,
            runtime: runtime.clone(),
        };
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(client)
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(url)
            .with_timeout(PATIENCE)
            .build();
        let waiting = Arc::new(SpanQueue::default());
        let exporter = CountingExporter {
            exporter: exporter.map_err(|e| wrong(&e))?,
            waiting: waiting.clone(),
        };
        // `SpanQueue` has the word about what is too much.
        let queue = BatchConfigBuilder::default().with_max_queue_size(2 * WAITING_MAX as usize);
        let mut batches = BatchSpanProcessor::builder(exporter)
            .with_batch_config(queue.build())
            .build();
        batches.set_resource(&resource(config));
        let scope = InstrumentationScope::builder("settee")
            .with_version(env!("CARGO_PKG_VERSION"))
            .build();
        let spans = Arc::new(Spans {
            batches,
            scope,
            config: config.clone(),
            waiting,
        });
        export_to(Box::new(SpanReceiver(spans.clone())));
        Ok(Traces(Some(spans)))
    }

    /// Sends the remaining spans.
    pub fn end(&self) {
        let Some(spans) = &self.0 else { return };
        spans.waiting.is_over.store(true, Relaxed);
        if let Err(e) = spans.batches.shutdown_with_timeout(LAST_MAX) {
            tracing::warn!(error = %e, "the last traces were not sent");
        }
    }
}

/// The whole URL: the setting names the collector, or is the whole URL.
fn endpoint(said: &str) -> Result<String, String> {
    let url = reqwest::Url::parse(said).map_err(|e| e.to_string())?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err("it is not an http or https URL".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("credentials go into OTEL_EXPORTER_OTLP_HEADERS".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("its path may not be followed by a query or a fragment".to_owned());
    }
    let said = said.trim_end_matches('/');
    Ok(match said.ends_with(PATH) {
        true => said.to_owned(),
        false => format!("{said}{PATH}"),
    })
}

fn resource(config: &Config) -> Resource {
    let settings = config.settings();
    Resource::builder()
        .with_service_name(settings.tracing.service_name.clone())
        .with_attributes([
            KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
            KeyValue::new("process.pid", i64::from(std::process::id())),
        ])
        .build()
}

/// Makes requests to the collector on the server's runtime: the thread that waits for them has none.
#[derive(Debug)]
struct Collector {
    client: reqwest::Client,
    runtime: Handle,
}

#[async_trait::async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let client = self.client.clone();
        let sending = self.runtime.spawn(async move {
            let request = reqwest::Request::try_from(request)?;
            let mut answer = client.execute(request).await?;
            let head = (answer.status(), std::mem::take(answer.headers_mut()));
            let mut body = Vec::new();
            // Only the first part of a response is of interest.
            while let Some(piece) = answer.chunk().await?
                && body.len() < ANSWER_BYTES_MAX
            {
                body.extend_from_slice(&piece);
            }
            Ok::<_, reqwest::Error>((head, body))
        });
        let ((status, headers), body) = sending.await??;
        let mut response = Response::new(body.into());
        (*response.status_mut(), *response.headers_mut()) = (status, headers);
        Ok(response)
    }
}

/// Spans that are on their way to the collector.
#[derive(Debug, Default)]
struct SpanQueue {
    count: AtomicU64,
    /// Spans that were dropped, since too many waited, after the last log line about it.
    dropped: AtomicU64,
    /// No more are taken.
    is_over: AtomicBool,
}

impl SpanQueue {
    /// Whether this number of further spans may wait.
    fn admits(&self, more: u64) -> bool {
        let before = self.count.fetch_add(more, Relaxed);
        let is_over = self.is_over.load(Relaxed);
        if before + more <= WAITING_MAX && !is_over {
            return true;
        }
        self.count.fetch_sub(more, Relaxed);
        self.dropped.fetch_add(more, Relaxed);
        FAILED.add(more);
        false
    }
}

/// Counts the spans that the collector accepted, and logs those that it did not.
#[derive(Debug)]
struct CountingExporter {
    exporter: SpanExporter,
    waiting: Arc<SpanQueue>,
}

impl Exporter for CountingExporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let count = batch.len() as u64;
        let done = self.exporter.export(batch).await;
        self.waiting.count.fetch_sub(count, Relaxed);
        let dropped = self.waiting.dropped.swap(0, Relaxed);
        if dropped > 0 {
            tracing::warn!(spans = dropped, "traces were dropped: too many waited");
        }
        match &done {
            Ok(()) => SENT.add(count),
            Err(e) => {
                FAILED.add(count);
                tracing::warn!(spans = count, error = %e, "traces were not sent");
            }
        }
        done
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

/// Takes spans, and has them sent in batches. When too many wait, new ones are dropped.
struct Spans {
    batches: BatchSpanProcessor,
    scope: InstrumentationScope,
    config: Config,
    waiting: Arc<SpanQueue>,
}

/// Receives spans from the rest of the server.
struct SpanReceiver(Arc<Spans>);

impl Export for SpanReceiver {
    fn ratio(&self) -> f64 {
        self.0.config.settings().tracing.sample_ratio
    }

    fn export(&self, span: Span) {
        let spans = &self.0;
        let count = 1 + span.parts.len() as u64;
        MADE.add(count);
        if !spans.waiting.admits(count) {
            return;
        }
        for part in spans.parts(&span) {
            spans.batches.on_end(part);
        }
        spans.batches.on_end(spans.whole(span));
    }
}

impl Spans {
    fn whole(&self, span: Span) -> SpanData {
        let mut data = self.data(span.context, span.parent.map_or(0, u64::from));
        data.parent_span_is_remote = span.kind == Kind::Server && span.parent.is_some();
        data.span_kind = match span.kind {
            Kind::Server => SpanKind::Server,
            Kind::Client => SpanKind::Client,
            Kind::Internal => SpanKind::Internal,
        };
        data.name = span.name;
        data.start_time = span.ended.checked_sub(span.took).unwrap_or(span.ended);
        data.end_time = span.ended;
        data.attributes = span.attributes.into_iter().map(key_value).collect();
        data.status = span.failed.map_or(Status::Unset, Status::error);
        data
    }

    /// One after another, from the beginning of the whole: how long each took was measured, when it began was not.
    fn parts(&self, span: &Span) -> Vec<SpanData> {
        let mut at = span.ended.checked_sub(span.took).unwrap_or(span.ended);
        let part = |part: &telemetry::trace::SpanPart| {
            let mut data = self.data(span.context.child(), span.context.span.into());
            data.name = part.name.into();
            data.start_time = at;
            at += part.took;
            data.end_time = at;
            data
        };
        span.parts.iter().map(part).collect()
    }

    fn data(&self, context: Context, parent: u64) -> SpanData {
        SpanData {
            span_context: SpanContext::new(
                TraceId::from(u128::from(context.trace)),
                SpanId::from(u64::from(context.span)),
                TraceFlags::SAMPLED,
                false,
                TraceState::default(),
            ),
            parent_span_id: SpanId::from(parent),
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name: "".into(),
            start_time: std::time::UNIX_EPOCH,
            end_time: std::time::UNIX_EPOCH,
            attributes: Vec::new(),
            dropped_attributes_count: 0,
            events: Default::default(),
            links: Default::default(),
            status: Status::Unset,
            instrumentation_scope: self.scope.clone(),
        }
    }
}

fn key_value((key, value): (&'static str, Value)) -> KeyValue {
    match value {
        Value::Text(text) => KeyValue::new(key, text.into_owned()),
        Value::Number(n) => KeyValue::new(key, i64::try_from(n).unwrap_or(i64::MAX)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_urls() {
        for said in ["http://h:4318", "http://h:4318/", "http://h:4318/v1/traces"] {
            assert_eq!(endpoint(said).unwrap(), "http://h:4318/v1/traces");
        }
        assert_eq!(
            endpoint("https://h/otlp").unwrap(),
            "https://h/otlp/v1/traces"
        );
        let wrong = ["h:4318", "ftp://h/", "http://", "4318", "grpc://h:4317"];
        let more = ["http://a:b@h:4318", "http://h:4318/?x=y"];
        for said in wrong.into_iter().chain(more) {
            assert!(endpoint(said).is_err(), "{said}");
        }
    }
}
