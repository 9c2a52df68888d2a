//! Batches written to the database, a few requests at a time, and what the server said of each
//! document.

use indicatif::ProgressBar;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, RequestBuilder, StatusCode, Url};
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::batch::{Batch, Message};
use crate::document::Document;
use crate::report::{LoadCause, LoadReport, Side};
use crate::without_credentials;

/// `error` of documents that are refused before they are sent.
const NOT_SENT: &str = "load";

/// Bytes that are read of the response about the database. A longer response is not from CouchDB.
const BODY_BYTES_MAX: usize = 1 << 20;

/// Creates the database unless it exists. Returns whether it was created.
///
/// The database is read first: a user who may write to it may not be allowed to create databases.
pub(crate) async fn prepare(
    client: &Client,
    database: &Url,
    create: bool,
) -> Result<bool, LoadCause> {
    let read = Response::of(client.get(database.clone()), database, false).await?;
    if read.is_success() {
        return Ok(false);
    }
    let is_missing = read.is_couchdb && read.status == StatusCode::NOT_FOUND;
    if !create || !is_missing {
        return Err(read.refusal(Side::Target, database));
    }
    let created = Response::of(client.put(database.clone()), database, true).await?;
    if created.is_success() {
        return Ok(true);
    }
    // file_exists: another client created it meanwhile.
    if created.is_couchdb && created.status == StatusCode::PRECONDITION_FAILED {
        return Ok(false);
    }
    Err(created.refusal(Side::NewDatabase, database))
}

/// A response about the database.
struct Response {
    status: StatusCode,
    /// At least the beginning.
    body: Vec<u8>,
    /// Any web server may answer, a few of them whatever is requested; CouchDB's bodies are JSON.
    is_couchdb: bool,
}

impl Response {
    /// Sends a request. `has_answered`: the server answered an earlier one.
    async fn of(
        request: RequestBuilder,
        database: &Url,
        has_answered: bool,
    ) -> Result<Response, LoadCause> {
        let silence = |source| LoadCause::Http {
            url: database.clone(),
            has_answered,
            source,
        };
        let mut response = request.send().await.map_err(silence)?;
        let status = response.status();
        let mut body = vec![];
        while body.len() <= BODY_BYTES_MAX
            && let Some(piece) = response.chunk().await.map_err(silence)?
        {
            body.extend_from_slice(&piece);
        }
        let is_whole = body.len() <= BODY_BYTES_MAX;
        let is_couchdb = is_whole && serde_json::from_slice::<IgnoredAny>(&body).is_ok();
        Ok(Response {
            status,
            body,
            is_couchdb,
        })
    }

    fn is_success(&self) -> bool {
        self.is_couchdb && self.status.is_success()
    }

    fn refusal(&self, side: Side, database: &Url) -> LoadCause {
        LoadCause::Refused {
            side,
            url: database.clone(),
            status: self.status.as_u16(),
            body: String::from_utf8_lossy(&self.body).into_owned(),
        }
    }
}

/// Writes batches as they come.
pub(crate) struct Writer {
    client: Client,
    bulk_docs: Url,
    parallel: usize,
}

/// The server's reply to a batch.
#[derive(Debug, Default)]
struct BatchOutcome {
    written: u64,
    refused: Vec<RefusedDocument>,
}

/// One document of a reply that was not written.
#[derive(Debug, Deserialize)]
struct RefusedDocument {
    #[serde(default)]
    id: String,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    reason: Option<String>,
}

impl Writer {
    pub(crate) fn new(client: Client, database: Url, parallel: usize) -> Self {
        let mut bulk_docs = database;
        if let Ok(mut path) = bulk_docs.path_segments_mut() {
            path.push("_bulk_docs");
        }
        Self {
            client,
            bulk_docs,
            parallel,
        }
    }

    /// Writes until no more messages come, or the server refuses a whole request.
    pub(crate) async fn write(
        self,
        mut messages: mpsc::Receiver<Message>,
        report: &mut LoadReport,
        bar: &ProgressBar,
    ) -> Result<(), LoadCause> {
        let mut requests = JoinSet::new();
        while let Some(message) = messages.recv().await {
            match message {
                Message::Refused { label, reason } => {
                    report.read += 1;
                    report.refuse(NOT_SENT, &reason, &label);
                }
                Message::Note(text) => report.notes.push(text),
                Message::Batch(batch) => {
                    report.read += batch.documents.len() as u64;
                    report.bytes += batch.bytes as u64;
                    if requests.len() >= self.parallel {
                        self.join_one(&mut requests, report, bar).await?;
                    }
                    let (client, url) = (self.client.clone(), self.bulk_docs.clone());
                    requests.spawn(write_batch(client, url, batch));
                }
            }
        }
        while !requests.is_empty() {
            self.join_one(&mut requests, report, bar).await?;
        }
        Ok(())
    }

    async fn join_one(
        &self,
        requests: &mut JoinSet<Result<BatchOutcome, LoadCause>>,
        report: &mut LoadReport,
        bar: &ProgressBar,
    ) -> Result<(), LoadCause> {
        let Some(joined) = requests.join_next().await else {
            return Ok(());
        };
        let written = joined
            .map_err(|error| LoadCause::Options(format!("a writing task has failed: {error}")))??;
        report.written += written.written;
        for document in written.refused {
            let error = document.error.unwrap_or_default();
            report.refuse(&error, &document.reason.unwrap_or_default(), &document.id);
        }
        let seconds = bar.elapsed().as_secs_f64().max(0.001);
        bar.set_message(format!(
            "{} ({:.0}/s), {} refused",
            command_line::counted(report.written, "docs"),
            report.written as f64 / seconds,
            report.refused_count()
        ));
        Ok(())
    }
}

/// Writes a batch. A batch that the server refuses as a whole because of its content is halved
/// until the documents at fault are found.
async fn write_batch(client: Client, url: Url, batch: Batch) -> Result<BatchOutcome, LoadCause> {
    let mut written = BatchOutcome::default();
    let mut waiting: Vec<&[Document]> = vec![&batch.documents];
    while let Some(documents) = waiting.pop() {
        match send(&client, &url, documents, batch.with_revs).await? {
            Reply::Documents(refused) => {
                written.written += (documents.len() - refused.len().min(documents.len())) as u64;
                written.refused.extend(refused);
            }
            Reply::Whole { error, reason } => match documents {
                [document] => written.refused.push(RefusedDocument {
                    id: document.label.clone(),
                    error: Some(error),
                    reason: Some(reason),
                }),
                documents => {
                    let (first, second) = documents.split_at(documents.len() / 2);
                    waiting.extend([second, first]);
                }
            },
        }
    }
    Ok(written)
}

enum Reply {
    /// These documents were refused; the others are written.
    Documents(Vec<RefusedDocument>),
    /// Nothing was written because of some document's content or the request's size.
    Whole { error: String, reason: String },
}

async fn send(
    client: &Client,
    url: &Url,
    documents: &[Document],
    with_revs: bool,
) -> Result<Reply, LoadCause> {
    // The database was read or created before.
    let http = |source| LoadCause::Http {
        url: url.clone(),
        has_answered: true,
        source,
    };
    let response = client
        .post(url.clone())
        .header(CONTENT_TYPE, "application/json")
        .body(Batch::body(documents, with_revs))
        .send()
        .await
        .map_err(http)?;
    let status = response.status();
    let body = response.bytes().await.map_err(http)?;
    if status.is_success() {
        let rows: Vec<RefusedDocument> =
            serde_json::from_slice(&body).map_err(|error| LoadCause::Reply {
                what: format!("POST {}", without_credentials(url)),
                problem: format!("the reply is not a list of documents: {error}"),
            })?;
        let refused = rows.into_iter().filter(|row| row.error.is_some()).collect();
        return Ok(Reply::Documents(refused));
    }
    if matches!(
        status,
        StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE
    ) {
        let said: RefusedDocument = serde_json::from_slice(&body).unwrap_or(RefusedDocument {
            id: String::new(),
            error: None,
            reason: None,
        });
        return Ok(Reply::Whole {
            error: said.error.unwrap_or_else(|| status.as_u16().to_string()),
            reason: said
                .reason
                .unwrap_or_else(|| String::from_utf8_lossy(&body).into_owned()),
        });
    }
    Err(LoadCause::Refused {
        side: Side::Target,
        url: url.clone(),
        status: status.as_u16(),
        body: String::from_utf8_lossy(&body).trim_end().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_file_in_place_of_a_database_is_not_read_to_its_end() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/db", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").ok();
            for _ in 0..4096 {
                stream.write_all(&[b' '; 4096]).ok();
            }
        });
        let database = Url::parse(&url).unwrap();
        match prepare(&Client::new(), &database, true).await {
            Err(LoadCause::Refused { status, body, .. }) => {
                assert_eq!(status, 200);
                assert!(body.len() < 4 * BODY_BYTES_MAX, "{}", body.len());
            }
            other => panic!("{other:?}"),
        }
    }
}
