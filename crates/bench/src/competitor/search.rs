//! Text indexes of the server that is measured: by Nouveau's interface where it has that, otherwise by Clouseau's.

use std::time::{Duration, Instant};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::documents::Documents;
use super::drive::FAILURES_IN_A_ROW_MAX;
use crate::client::Connection;
use crate::error::BenchError;
use crate::slice::Slice;
use crate::system::System;
use crate::words;

/// The design document of the index that is searched in.
const DESIGN: &str = "bench-search";
/// The index's name.
const INDEX: &str = "words";
/// A build that takes longer has failed.
const BUILD_TIMEOUT: Duration = Duration::from_secs(3_600);

/// The unique name of a design document for one build.
pub(super) struct Built(String);

impl Built {
    pub(super) fn new() -> Self {
        Self(format!("bench-{:016x}", fastrand::u64(..)))
    }

    fn path(&self, database: &str) -> String {
        format!("/{database}/_design/{}", self.0)
    }
}

/// An interface of text indexes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interface {
    Nouveau,
    Clouseau,
}

impl Interface {
    /// The interface that a server has.
    pub(super) async fn of(system: &System) -> Result<Option<Self>, BenchError> {
        let probe = json!({"analyzer": "standard", "text": "a"}).to_string();
        for (path, interface) in [
            ("/_nouveau_analyze", Self::Nouveau),
            ("/_search_analyze", Self::Clouseau),
        ] {
            let (status, _) = system.call("POST", path, Some(probe.as_bytes())).await?;
            if status == 200 {
                return Ok(Some(interface));
            }
        }
        Ok(None)
    }

    /// A design document with an index of the texts. `mark` makes it another index than others.
    fn design(self, mark: &str) -> Value {
        match self {
            Self::Nouveau => {
                let function = format!(
                    "function (doc) {{ /* {mark} */ if (doc.text) index(\"text\", \"text\", doc.text); }}"
                );
                json!({"nouveau": {INDEX: {"default_analyzer": "standard", "index": function}}})
            }
            Self::Clouseau => {
                let function = format!(
                    "function (doc) {{ /* {mark} */ if (doc.text) index(\"text\", doc.text); }}"
                );
                json!({"indexes": {INDEX: {"analyzer": "standard", "index": function}}})
            }
        }
    }

    fn route(self) -> &'static str {
        match self {
            Self::Nouveau => "_nouveau",
            Self::Clouseau => "_search",
        }
    }

    /// The path of a search for the 25 best hits.
    pub(super) fn path(self, database: &str, query: &str) -> String {
        self.path_of(database, DESIGN, query)
    }

    fn path_of(self, database: &str, design: &str, query: &str) -> String {
        let query = utf8_percent_encode(query, NON_ALPHANUMERIC);
        let route = self.route();
        format!("/{database}/_design/{design}/{route}/{INDEX}?q={query}&limit=25")
    }

    /// The total number of hits in a response.
    pub(super) fn hits(self, answer: &Value) -> Value {
        match self {
            Self::Nouveau => answer["total_hits"].clone(),
            Self::Clouseau => answer["total_rows"].clone(),
        }
    }

    /// Writes the design document of the index that is searched in, and waits until it is built.
    pub(super) async fn prepare(self, system: &System, database: &str) -> Result<(), BenchError> {
        let path = format!("/{database}/_design/{DESIGN}");
        let design = self.design("searched in").to_string();
        let (status, _) = system.call("PUT", &path, Some(design.as_bytes())).await?;
        // It exists already: another workload has created it.
        if status != 409 && !(200..300).contains(&status) {
            system
                .require("PUT", &path, Some(design.as_bytes()))
                .await?;
        }
        self.wait(system, database, DESIGN).await
    }

    /// Searches until the index is built: a server that gives up waiting continues to build.
    async fn wait(self, system: &System, database: &str, design: &str) -> Result<(), BenchError> {
        let path = self.path_of(database, design, "text:baba");
        let start = Instant::now();
        loop {
            let (status, body) = system.call("GET", &path, None).await?;
            if status == 200 {
                return Ok(());
            }
            let body = String::from_utf8_lossy(&body).into_owned();
            if !body.contains("timeout") || start.elapsed() > BUILD_TIMEOUT {
                let what = format!("GET {path}");
                return Err(BenchError::Refused { what, status, body });
            }
        }
    }

    /// Builds an index of all documents, from the moment when its design document is sent.
    pub(super) async fn build(
        self,
        system: &System,
        database: &str,
        built: &Built,
        documents: u64,
    ) -> Result<Slice, BenchError> {
        let path = built.path(database);
        let design = self.design(&built.0).to_string();
        let start = Instant::now();
        system
            .require("PUT", &path, Some(design.as_bytes()))
            .await?;
        self.wait(system, database, &built.0).await?;
        Ok(Slice::of_one(documents, start.elapsed()))
    }

    /// Removes the index, and waits until its space was reclaimed.
    pub(super) async fn remove(
        self,
        system: &System,
        database: &str,
        built: &Built,
    ) -> Result<(), BenchError> {
        let path = built.path(database);
        let design = system.json("GET", &path).await?;
        let rev = design["_rev"].as_str().unwrap_or_default();
        system
            .require("DELETE", &format!("{path}?rev={rev}"), None)
            .await?;
        let clean_up = format!("/{database}/{}_cleanup", self.route());
        system.require("POST", &clean_up, Some(b"{}")).await?;
        system.rest().await
    }

    /// Writes a document with a word that is in no other, and searches for it, again and again: both together are one entry.
    pub(super) async fn fresh(
        self,
        system: &System,
        database: &str,
        documents: &Documents,
        length: Duration,
    ) -> Result<Slice, BenchError> {
        let mut connection = Connection::open(&system.target).await?;
        let mut slice = Slice::new();
        let mut failures_in_a_row = 0;
        let began = Instant::now();
        while began.elapsed() < length && failures_in_a_row < FAILURES_IN_A_ROW_MAX {
            let (id, _) = documents.next();
            let word = words::unheard_of();
            let put = format!("/{database}/{id}");
            let body = json!({"text": word}).to_string();
            let write = system.target.request("PUT", &put, Some(body.as_bytes()));
            let get = self.path(database, &format!("text:{word}"));
            let search = system.target.request("GET", &get, None);
            if !connection.is_usable() {
                connection = Connection::open(&system.target).await?;
            }
            let start = Instant::now();
            let answer = exchange_all(&mut connection, &[write, search]).await;
            let took = start.elapsed();
            let found = answer.and_then(|answer| {
                let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
                let not_found = || format!("a new document is not found: {answer}");
                (self.hits(&answer) == 1)
                    .then_some(())
                    .ok_or_else(not_found)
            });
            match found {
                Ok(()) => {
                    failures_in_a_row = 0;
                    slice.record(1, took);
                }
                Err(reason) => {
                    failures_in_a_row += 1;
                    slice.errors.add(1, || reason);
                }
            }
        }
        slice.seconds = began.elapsed().as_secs_f64();
        Ok(slice)
    }
}

/// Sends requests one after the other, while they succeed; returns the last response, or the error.
async fn exchange_all(
    connection: &mut Connection,
    requests: &[Vec<u8>],
) -> Result<Vec<u8>, String> {
    let mut answer = vec![];
    for request in requests {
        answer.clear();
        let status = connection.exchange(request, &mut answer).await;
        let status = status.map_err(|error| error.to_string())?;
        if !(200..300).contains(&status) {
            return Err(format!("status {status}: {}", connection.refusal()));
        }
    }
    Ok(answer)
}
