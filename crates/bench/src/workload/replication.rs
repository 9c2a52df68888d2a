//! A replication of small documents from one database to another, over HTTP, compared with bulk
//! writes of as many documents.

use std::time::Instant;

use serde_json::{Value, json};

use crate::documents::{Ids, Order, Shape};
use crate::error::BenchError;
use crate::slice::Slice;
use crate::system::{BULK_DOCS, Fill, System, WorkloadPart};

/// Each time into another database.
const ROUNDS: u32 = 3;

/// A server, and its URL with credentials for the server that replicates.
pub(crate) struct End<'a> {
    pub(crate) system: &'a System,
    pub(crate) url: &'a str,
}

/// Measures writes to `to` by `_bulk_docs`, with one client, and its pull replication from `from`.
pub(crate) async fn measure(
    from: End<'_>,
    to: End<'_>,
    documents: u64,
) -> Result<Vec<WorkloadPart>, BenchError> {
    let source = from.system.populated(Shape::Foo, documents).await?;
    let mut parts = vec![];
    for _ in 0..ROUNDS {
        let database = to.system.create("replication_bulk").await?;
        let fill = Fill {
            database: &database,
            shape: Shape::Foo,
            ids: &Ids::new(Order::Sequential),
            documents,
            bulk: BULK_DOCS,
            clients: 1,
        };
        let filling = to.system.fill(fill);
        parts.push(
            to.system
                .part("replication_bulk_docs", "docs", filling)
                .await?,
        );
        let target = to.system.create("replication").await?;
        let request = json!({
            "source": format!("{}/{}", from.url.trim_end_matches('/'), source.database),
            "target": format!("{}/{target}", to.url.trim_end_matches('/')),
        });
        let pulling = pull(to.system, request.to_string(), documents);
        parts.push(to.system.part("replication", "docs", pulling).await?);
    }
    Ok(parts)
}

async fn pull(system: &System, request: String, documents: u64) -> Result<Slice, BenchError> {
    let start = Instant::now();
    let reply = system
        .require("POST", "/_replicate", Some(request.as_bytes()))
        .await?;
    let took = start.elapsed();
    let reply: Value = serde_json::from_slice(&reply).unwrap_or_default();
    let written = reply["history"][0]["docs_written"].as_u64().unwrap_or(0);
    let mut slice = Slice::new();
    slice.record(written, took);
    slice.seconds = took.as_secs_f64();
    slice.errors.add(documents.saturating_sub(written), || {
        "documents were not written".to_owned()
    });
    Ok(slice)
}
