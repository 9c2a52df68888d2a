//! The rows on the server that is measured, over HTTP.

use std::rc::Rc;
use std::time::Duration;

use serde_json::{Value, json};

use super::documents::{BULK_DOCS, Documents};
use super::row::Row;
use super::search::{Built, Interface};
use crate::documents::Shape;
use crate::error::BenchError;
use crate::slice::{Check, ClosedLoop, Requests};
use crate::system::{FilledDatabase, System, WorkloadPart};

const INDEX: &str = "by-customer-and-amount";

/// A server's database for the rows, and another one for writes.
pub(crate) struct HttpRows {
    populated: FilledDatabase,
    written: String,
    /// How it searches in texts, if it does and the row is about that.
    interface: Option<Interface>,
}

impl HttpRows {
    /// Writes the documents, and builds the indexes that the row needs.
    pub(crate) async fn prepare(
        system: &System,
        row: Row,
        documents: u64,
    ) -> Result<Self, BenchError> {
        let shape = match row.is_search() {
            true => Shape::Words,
            false => Shape::Bytes300,
        };
        let populated = system.populated(shape, documents).await?;
        let rows = Self {
            written: match row.writes() {
                true => system.create(row.name()).await?,
                false => String::new(),
            },
            populated,
            interface: match row.is_search() {
                true => Interface::of(system).await?,
                false => None,
            },
        };
        if let Some(interface) = rows.interface
            && row != Row::SearchBuild
        {
            interface.prepare(system, &rows.populated.database).await?;
            system.rest().await?;
        }
        if row == Row::Find {
            let index =
                json!({"index": {"fields": ["customer", "amount"]}, "ddoc": INDEX, "name": INDEX});
            let path = format!("/{}/_index", rows.populated.database);
            system
                .require("POST", &path, Some(index.to_string().as_bytes()))
                .await?;
            // The first query waits until the index is built.
            rows.find(system, &find(0, -1.0)).await?;
        }
        Ok(rows)
    }

    /// The documents, for a competitor.
    pub(crate) fn documents(&self) -> Documents {
        Documents::of(&self.populated)
    }

    /// Whether the server does this work at all.
    pub(crate) async fn does(&self, system: &System, row: Row) -> Result<bool, BenchError> {
        if row.is_search() {
            return Ok(self.interface.is_some());
        }
        if row != Row::Aggregate {
            return Ok(true);
        }
        let path = format!("/{}/_find", self.populated.database);
        let probe =
            json!({"selector": {"_id": ""}, "aggregate": {"compute": {"n": {"$count": true}}}});
        let (status, _) = system
            .call("POST", &path, Some(probe.to_string().as_bytes()))
            .await?;
        Ok(status == 200)
    }

    /// See [`Competitor::answer`](super::Competitor::answer).
    pub(crate) async fn answer(&self, system: &System, row: Row) -> Result<Value, BenchError> {
        let documents = self.documents();
        match row {
            Row::Get | Row::GetRandom => {
                let number = documents.count / 2;
                let path = format!("/{}/{}", self.populated.database, documents.id(number));
                let mut document = system.json("GET", &path).await?;
                if let Some(members) = document.as_object_mut() {
                    members.retain(|name, _| !name.starts_with('_'));
                }
                Ok(document)
            }
            Row::InsertOne | Row::Insert | Row::Bulk | Row::SearchBuild | Row::SearchFresh => {
                Ok(Value::Null)
            }
            Row::Search { wanted, .. } => {
                let Some(interface) = self.interface else {
                    return Ok(Value::Null);
                };
                let query = wanted.in_lucene(&wanted.fixed());
                let path = interface.path(&self.populated.database, &query);
                let answer = system.json("GET", &path).await?;
                Ok(json!({"hits": interface.hits(&answer)}))
            }
            Row::Find => {
                let found = self.find(system, &find(7, 100.0)).await?;
                Ok(numbers(&found["docs"]))
            }
            Row::Scan => {
                let found = self.find(system, &scan(documents.count)).await?;
                Ok(numbers(&found["docs"]))
            }
            Row::Aggregate => {
                let found = self.find(system, &aggregate()).await?;
                let groups = found["groups"].as_array().cloned().unwrap_or_default();
                let sums = groups
                    .iter()
                    .filter_map(|group| group["value"]["spent"].as_f64());
                Ok(json!({"groups": groups.len(), "sum": sums.sum::<f64>()}))
            }
        }
    }

    async fn find(&self, system: &System, query: &Value) -> Result<Value, BenchError> {
        let path = format!("/{}/_find", self.populated.database);
        let reply = system
            .require("POST", &path, Some(query.to_string().as_bytes()))
            .await?;
        Ok(serde_json::from_slice(&reply).unwrap_or_default())
    }

    /// Measures a row for about `length`.
    pub(crate) async fn round(
        &self,
        system: &System,
        row: Row,
        documents: &Documents,
        connections: usize,
        length: Duration,
    ) -> Result<WorkloadPart, BenchError> {
        if let Some(interface) = self.interface
            && row.is_unpaced()
        {
            let database = &self.populated.database;
            let (name, unit) = (row.name(), row.unit());
            if row == Row::SearchFresh {
                let measuring = interface.fresh(system, database, documents, length);
                return system.part(name, unit, measuring).await;
            }
            let built = Built::new();
            let measuring = interface.build(system, database, &built, documents.count);
            let part = system.part(name, unit, measuring).await?;
            interface.remove(system, database, &built).await?;
            return Ok(part);
        }
        let check = match row {
            Row::Bulk => Check::Bulk,
            _ => Check::Status,
        };
        let requests = |_| self.requests(system, row, documents.clone());
        let running = ClosedLoop::timed(&system.target, length, check);
        let running = running.run(row.clients(connections), requests);
        system.part(row.name(), row.unit(), running).await
    }

    fn requests(&self, system: &System, row: Row, documents: Documents) -> Requests {
        let (target, database) = (Rc::clone(&system.target), self.populated.database.clone());
        let written = self.written.clone();
        let interface = self.interface;
        let mut bulk = Vec::new();
        Box::new(move |request| match row {
            // They are no loops of requests.
            Row::SearchBuild | Row::SearchFresh => None,
            Row::Search { wanted, .. } => {
                let query = wanted.in_lucene(&wanted.any(documents.count));
                let path = interface?.path(&database, &query);
                target.write_request(request, "GET", &path, "", None);
                Some(1)
            }
            Row::Get | Row::GetRandom => {
                let number = match row {
                    Row::Get => documents.count / 2,
                    _ => fastrand::u64(..documents.count),
                };
                let path = format!("/{database}/{}", documents.id(number));
                target.write_request(request, "GET", &path, "", None);
                Some(1)
            }
            Row::InsertOne | Row::Insert => {
                let (id, text) = documents.next();
                let path = format!("/{written}/{id}");
                target.write_request(request, "PUT", &path, "", Some(text.as_bytes()));
                Some(1)
            }
            Row::Bulk => {
                bulk.clear();
                Shape::Bytes300.push_bulk(&mut bulk, &documents.new, BULK_DOCS);
                let path = format!("/{written}/_bulk_docs");
                target.write_request(request, "POST", &path, "", Some(&bulk));
                Some(BULK_DOCS)
            }
            Row::Find | Row::Scan | Row::Aggregate => {
                let (query, units) = match row {
                    Row::Find => (find(fastrand::u64(..1_000), fastrand::f64() * 500.0), 1),
                    Row::Scan => (scan(documents.count), documents.count),
                    _ => (aggregate(), documents.count),
                };
                let path = format!("/{database}/_find");
                target.write_request(
                    request,
                    "POST",
                    &path,
                    "",
                    Some(query.to_string().as_bytes()),
                );
                Some(units)
            }
        })
    }
}

fn find(customer: u64, above: f64) -> Value {
    json!({
        "selector": {"customer": format!("customer-{customer}"), "amount": {"$gt": above}},
        "sort": [{"customer": "asc"}, {"amount": "asc"}], "limit": 10, "use_index": [INDEX, INDEX],
    })
}

fn scan(documents: u64) -> Value {
    let last = documents - 1;
    json!({"selector": {"$or": [{"number": last}, {"absent": last}]}, "limit": 2})
}

fn aggregate() -> Value {
    json!({
        "selector": {"_id": {"$gt": null}},
        "aggregate": {"group_by": ["customer"], "compute": {"spent": {"$sum": "amount"}}},
    })
}

/// The documents' member `number`.
fn numbers(documents: &Value) -> Value {
    let documents = documents.as_array().into_iter().flatten();
    documents
        .map(|document| document["number"].clone())
        .collect()
}
