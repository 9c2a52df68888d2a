//! SQLite's FTS5 behind `scripts/bench/fts5.py`: a connection with a line of JSON for each order, and one for each answer.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use url::Url;

use super::documents::Documents;
use super::row::Row;
use crate::error::BenchError;
use crate::pace::{Pace, Pacing};
use crate::slice::Slice;
use crate::words;

/// Texts of one order.
const FILL_TEXTS: u64 = 5_000;

/// The process with the database.
pub(super) struct Fts5 {
    stream: Mutex<BufReader<TcpStream>>,
    label: String,
    settings: String,
}

impl Fts5 {
    /// Connects. The second value is the product with its version.
    pub(super) async fn open(url: &Url, label: &str) -> Result<(Self, String), BenchError> {
        let fail = |reason: String| BenchError::Competitor {
            competitor: label.to_owned(),
            reason,
        };
        let address = (
            url.host_str().unwrap_or("127.0.0.1"),
            url.port().unwrap_or(0),
        );
        let stream = TcpStream::connect(address).await;
        let stream = stream.map_err(|error| fail(error.to_string()))?;
        stream
            .set_nodelay(true)
            .map_err(|error| fail(error.to_string()))?;
        let mut fts5 = Self {
            stream: Mutex::new(BufReader::new(stream)),
            label: label.to_owned(),
            settings: String::new(),
        };
        let said = fts5.ask(&json!({"do": "about"})).await?;
        let text = |name: &str| said[name].as_str().unwrap_or_default().to_owned();
        fts5.settings = text("settings");
        Ok((fts5, format!("SQLite FTS5, version {}", text("version"))))
    }

    pub(super) fn notes(&self) -> Vec<String> {
        vec![format!(
            "SQLite: {}, one connection in a process of Python",
            self.settings
        )]
    }

    fn fail(&self, reason: String) -> BenchError {
        BenchError::Competitor {
            competitor: self.label.clone(),
            reason,
        }
    }

    async fn ask(&self, order: &Value) -> Result<Value, BenchError> {
        let mut stream = self.stream.lock().await;
        let line = format!("{order}\n");
        let sent = stream.write_all(line.as_bytes()).await;
        sent.map_err(|error| self.fail(error.to_string()))?;
        let mut answer = String::new();
        let read = stream.read_line(&mut answer).await;
        read.map_err(|error| self.fail(error.to_string()))?;
        let answer: Value = serde_json::from_str(&answer).unwrap_or_default();
        match answer["error"].as_str() {
            Some(reason) => Err(self.fail(reason.to_owned())),
            None if answer.is_null() => Err(self.fail("it went away".into())),
            None => Ok(answer),
        }
    }

    /// Writes the documents' texts, and builds an index of them.
    pub(super) async fn fill(&self, documents: &Documents) -> Result<(), BenchError> {
        self.ask(&json!({"do": "empty"})).await?;
        let mut from = 0;
        while from < documents.count {
            let to = documents.count.min(from + FILL_TEXTS);
            let texts = (from..to).map(|n| json!([documents.id(n), words::text(n)]));
            let texts: Vec<Value> = texts.collect();
            self.ask(&json!({"do": "texts", "texts": texts})).await?;
            from = to;
        }
        self.ask(&json!({"do": "build"})).await?;
        Ok(())
    }

    /// See [`Competitor::answer`](super::Competitor::answer).
    pub(super) async fn answer(&self, row: Row) -> Result<Value, BenchError> {
        let Row::Search { wanted, .. } = row else {
            return Ok(Value::Null);
        };
        let query = wanted.in_fts5(&wanted.fixed());
        self.ask(&json!({"do": "count", "query": query})).await
    }

    /// Measures a row for about `length`, or as `pace` defines.
    pub(super) async fn round(
        &self,
        row: Row,
        documents: &Documents,
        length: Duration,
        pace: Pace,
    ) -> Result<Slice, BenchError> {
        if row == Row::SearchBuild {
            let began = Instant::now();
            self.ask(&json!({"do": "build"})).await?;
            return Ok(Slice::of_one(documents.count, began.elapsed()));
        }
        let pacing = Pacing::start(pace, Some(length), 1)?;
        let mut turns = pacing.turns();
        let mut slice = Slice::new();
        while let Some(turn) = turns.next().await {
            let start = turn.start();
            let found = match row {
                Row::Search { wanted, .. } => {
                    let query = wanted.in_fts5(&wanted.any(documents.count));
                    self.ask(&json!({"do": "search", "query": query})).await?
                }
                _ => {
                    let (id, _) = documents.next();
                    let word = words::unheard_of();
                    self.ask(&json!({"do": "write", "id": id, "text": word}))
                        .await?;
                    self.ask(&json!({"do": "search", "query": word})).await?
                }
            };
            let hits = found["ids"].as_array().map_or(0, Vec::len);
            match row == Row::SearchFresh && hits != 1 {
                true => slice
                    .errors
                    .add(1, || format!("{hits} hits of a new document")),
                false => slice.record(1, start.elapsed()),
            }
        }
        slice.seconds = pacing.seconds();
        if let Some((open, waits)) = pacing.end() {
            slice.take_unsent(open, waits);
        }
        Ok(slice)
    }
}
