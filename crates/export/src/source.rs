//! Requests to the server.

use std::borrow::Cow;
use std::io::BufReader;
use std::time::Duration;

use load::Scanner;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, RequestBuilder, Response, Url};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio::runtime::Handle;

use crate::error::ExportError;
use crate::members::without_attachments;
use crate::options::{ExportOptions, ExportReport, Selection};
use crate::response::{Body, Others, Visit, elements};

/// Documents of a response of `_find`: what a text index gives at a time.
const PAGE_DOCS: u64 = 200;
const BUFFER_BYTES: usize = 64 * 1024;
/// Maximum time to connect. A response has none: a view may have to be built first.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(30);
/// Bytes of a refusal that are read: any web server may answer.
const REFUSAL_BYTES_MAX: usize = 64 * 1024;

/// The elements to export, which can be read more than once.
pub(crate) struct Source {
    client: Client,
    runtime: Handle,
    database: Url,
    selection: Selection,
    limit: Option<u64>,
    /// Of the last pass.
    pub(crate) report: ExportReport,
}

#[derive(Deserialize)]
struct DocumentRow<'a> {
    id: Option<String>,
    #[serde(borrow)]
    doc: Option<&'a RawValue>,
}

impl Source {
    pub(crate) fn new(options: &ExportOptions, runtime: &Handle) -> Result<Self, ExportError> {
        // Fails when a provider is installed already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder().connect_timeout(CONNECT_TIME_MAX);
        let client = client
            .build()
            .map_err(|error| ExportError::Options(format!("HTTP cannot be set up: {error}")))?;
        let database = command_line::server_url(&options.database)
            .map_err(|failure| ExportError::Options(failure.message))?;
        Ok(Self {
            client,
            runtime: runtime.clone(),
            database,
            selection: options.selection.clone(),
            limit: options.limit,
            report: ExportReport::default(),
        })
    }

    /// Passes each element to `visit`, until that returns false or the limit is reached.
    pub(crate) fn each(&mut self, visit: &mut Visit<'_>) -> Result<(), ExportError> {
        self.report = ExportReport::default();
        let (limit, mut rows) = (self.limit.unwrap_or(u64::MAX), 0);
        if limit == 0 {
            return Ok(());
        }
        let mut counted = |element: &str| {
            rows += 1;
            visit(element).map(|goes_on| goes_on && rows < limit)
        };
        match self.selection.clone() {
            Selection::Documents {
                design,
                attachments,
            } => self.documents(design, attachments, &mut counted)?,
            Selection::View {
                design,
                view,
                parameters,
            } => {
                let mut url = self.below(&["_design", &design, "_view", &view])?;
                url.query_pairs_mut().extend_pairs(&parameters);
                self.read(self.client.get(url.clone()), &url, &mut counted)?;
            }
            Selection::Query(body) => self.query(body, &mut counted)?,
        }
        self.report.rows = rows;
        Ok(())
    }

    fn documents(
        &mut self,
        design: bool,
        attachments: bool,
        visit: &mut Visit<'_>,
    ) -> Result<(), ExportError> {
        let mut url = self.below(&["_all_docs"])?;
        let mut parameters = vec![("include_docs", "true")];
        if attachments {
            parameters.push(("attachments", "true"));
        }
        url.query_pairs_mut().extend_pairs(parameters);
        let mut without = 0;
        let request = self.client.get(url.clone());
        self.read(request, &url, &mut |element| {
            let row: DocumentRow<'_> = serde_json::from_str(element)
                .map_err(|error| ExportError::Element(error.to_string()))?;
            let id = row.id.unwrap_or_default();
            let Some(document) = row.doc else {
                return Err(ExportError::Element(format!("no document {id:?}")));
            };
            if !design && id.starts_with("_design/") {
                return Ok(true);
            }
            if attachments {
                return visit(document.get());
            }
            let plain = without_attachments(document.get())?;
            without += u64::from(matches!(plain, Cow::Owned(_)));
            visit(&plain)
        })?;
        self.report.without_attachments = without;
        Ok(())
    }

    /// Reads the pages of a query.
    fn query(
        &mut self,
        mut body: Map<String, Value>,
        visit: &mut Visit<'_>,
    ) -> Result<(), ExportError> {
        let url = self.below(&["_find"])?;
        if body.contains_key("aggregate") {
            return self.page(&url, &body, visit).map(|_| ());
        }
        let own = body.get("limit").and_then(Value::as_u64);
        let mut left = own.unwrap_or(u64::MAX).min(self.limit.unwrap_or(u64::MAX));
        loop {
            let wanted = left.min(PAGE_DOCS);
            body.insert("limit".to_owned(), wanted.into());
            let mut documents = 0;
            let others = self.page(&url, &body, &mut |element| {
                documents += 1;
                visit(element)
            })?;
            left = left.saturating_sub(documents);
            let next = others.as_deref().and_then(bookmark);
            let is_same = next.as_ref() == body.get("bookmark");
            match next {
                Some(next) if !is_same && documents == wanted && left > 0 => {
                    body.remove("skip");
                    body.insert("bookmark".to_owned(), next);
                }
                _ => return Ok(()),
            }
        }
    }

    fn page(
        &mut self,
        url: &Url,
        body: &Map<String, Value>,
        visit: &mut Visit<'_>,
    ) -> Result<Option<Others>, ExportError> {
        let request = self.client.post(url.clone());
        let request = request.header(CONTENT_TYPE, "application/json");
        let request = request.body(Value::Object(body.clone()).to_string());
        self.read(request, url, visit)
    }

    /// Sends a request and passes the elements of the response to `visit`.
    fn read(
        &mut self,
        request: RequestBuilder,
        url: &Url,
        visit: &mut Visit<'_>,
    ) -> Result<Option<Others>, ExportError> {
        let silence = |source| ExportError::Http {
            url: Box::new(url.clone()),
            source,
        };
        let response = self.runtime.block_on(request.send()).map_err(silence)?;
        let status = response.status();
        if !status.is_success() {
            let body = self.runtime.block_on(start_of(response)).map_err(silence)?;
            return Err(ExportError::Refused {
                url: Box::new(url.clone()),
                status: status.as_u16(),
                body,
            });
        }
        let body = Body::new(self.runtime.clone(), response);
        let others = scan(body, url, status.as_u16(), visit);
        let others = others.map_err(|error| ExportError::within(url, error))?;
        for (name, value) in others.iter().flatten() {
            match name.as_str() {
                "warning" => self.warn(value),
                "error" => return Err(ExportError::Element(format!("error: {value}"))),
                _ => {}
            }
        }
        Ok(others)
    }

    /// Keeps a warning, which each page has.
    fn warn(&mut self, warning: &str) {
        let warning: Option<String> = serde_json::from_str(warning).ok();
        let known = &mut self.report.warnings;
        if let Some(warning) = warning.filter(|warning| !known.contains(warning)) {
            known.push(warning);
        }
    }

    fn below(&self, path: &[&str]) -> Result<Url, ExportError> {
        let mut url = self.database.clone();
        url.path_segments_mut()
            .map_err(|()| ExportError::Options("this is not the URL of a database".to_owned()))?
            .pop_if_empty()
            .extend(path);
        Ok(url)
    }
}

/// Returns the start of a body.
async fn start_of(mut response: Response) -> Result<String, reqwest::Error> {
    let mut start = Vec::new();
    while start.len() < REFUSAL_BYTES_MAX
        && let Some(piece) = response.chunk().await?
    {
        start.extend_from_slice(&piece);
    }
    Ok(String::from_utf8_lossy(&start).into_owned())
}

/// Passes the elements of a body to `visit`, and returns the other members.
fn scan(
    body: Body,
    url: &Url,
    status: u16,
    visit: &mut Visit<'_>,
) -> Result<Option<Others>, ExportError> {
    let mut name = url.clone();
    command_line::take_credentials(&mut name);
    let body = BufReader::with_capacity(BUFFER_BYTES, body);
    let mut scanner = Scanner::new(body, name.to_string())?;
    if scanner.peek()? != Some(b'{') {
        // Any web server may answer, a few of them whatever is requested.
        return Err(ExportError::Refused {
            url: Box::new(url.clone()),
            status,
            body: String::new(),
        });
    }
    elements(scanner, visit)
}

/// Where the next page begins.
fn bookmark(others: &[(String, String)]) -> Option<Value> {
    let (_, value) = others.iter().find(|(name, _)| name == "bookmark")?;
    let bookmark: String = serde_json::from_str(value).ok()?;
    (bookmark != "nil").then_some(Value::String(bookmark))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn endless_refusals_are_not_read_to_their_end() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/db", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).ok();
            stream.write_all(b"HTTP/1.1 500 No\r\n\r\n").ok();
            while stream.write_all(&[b'x'; 4096]).is_ok() {}
        });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let body = runtime.block_on(async {
            let response = Client::new().get(url).send().await.unwrap();
            start_of(response).await.unwrap()
        });
        assert!(body.len() >= REFUSAL_BYTES_MAX);
        assert!(body.len() < REFUSAL_BYTES_MAX + (1 << 20), "{}", body.len());
    }
}
