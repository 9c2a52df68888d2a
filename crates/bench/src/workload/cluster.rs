//! Reads and writes spread over all nodes of a cluster; of a server alone, all on that.

use std::rc::Rc;
use std::time::Duration;

use super::Workload;
use super::saturated::alone;
use crate::documents::{Ids, Order, Shape};
use crate::error::BenchError;
use crate::slice::{Check, Requests, Slice, spread};
use crate::system::{BULK_DOCS, FilledDatabase, System, Watch, WorkloadPart};
use crate::target::Target;

const BULK_CLIENTS: usize = 10;
const MIXED_READERS: usize = 32;
const MIXED_WRITERS: usize = 8;

/// A database that is written to, and the ids of its documents.
pub(crate) struct WrittenDatabase {
    database: String,
    ids: Ids,
    shape: Shape,
    /// Documents in one `_bulk_docs` request.
    bulk: u64,
}

impl WrittenDatabase {
    /// Creates a database that all nodes know.
    async fn new(system: &System, name: &str) -> Result<Self, BenchError> {
        let database = system.create(name).await?;
        system.settled(&database, 0).await?;
        Ok(Self {
            database,
            ids: Ids::new(Order::Sequential),
            shape: system.variation().shape(Shape::Foo),
            bulk: system.variation().bulk_docs(BULK_DOCS),
        })
    }

    /// PUTs of new documents to a node.
    fn puts(&self, node: &Rc<Target>) -> Requests {
        let (node, database, ids) = (Rc::clone(node), self.database.clone(), self.ids.clone());
        let shape = self.shape;
        Box::new(move |request| {
            let path = format!("/{database}/{}", ids.next_text());
            let mut body = Vec::with_capacity(16);
            shape.push_body(&mut body, ids.taken());
            node.write_request(request, "PUT", &path, "", Some(&body));
            Some(1)
        })
    }

    /// `_bulk_docs` of new documents to a node.
    fn bulks(&self, node: &Rc<Target>) -> Requests {
        let (node, ids) = (Rc::clone(node), self.ids.clone());
        let path = format!("/{}/_bulk_docs", self.database);
        let (shape, bulk) = (self.shape, self.bulk);
        let mut body = Vec::new();
        Box::new(move |request| {
            body.clear();
            shape.push_bulk(&mut body, &ids, bulk);
            node.write_request(request, "POST", &path, "", Some(&body));
            Some(bulk)
        })
    }
}

/// GETs of random documents from a node.
fn gets(populated: &FilledDatabase, node: &Rc<Target>, query: &'static str) -> Requests {
    let (node, populated) = (Rc::clone(node), populated.clone());
    let mut path = format!("/{}/", populated.database).into_bytes();
    let root = path.len();
    Box::new(move |request| {
        path.truncate(root);
        let number = fastrand::u64(..populated.documents);
        populated.ids.push_nth(&mut path, number);
        path.extend_from_slice(query.as_bytes());
        let path = std::str::from_utf8(&path).ok()?;
        node.write_request(request, "GET", path, "", None);
        Some(1)
    })
}

/// Documents that all nodes have.
async fn populated(system: &System, documents: u64) -> Result<FilledDatabase, BenchError> {
    let populated = system.populated(Shape::Bytes300, documents).await?;
    system.settled(&populated.database, documents).await?;
    Ok(populated)
}

/// PUT of new documents.
pub(crate) struct Put {
    name: &'static str,
    clients: usize,
}

impl Put {
    pub(crate) fn by(name: &'static str, clients: usize) -> Self {
        Self { name, clients }
    }
}

impl Workload for Put {
    type State = WrittenDatabase;

    fn is_sliced(&self) -> bool {
        true
    }

    async fn prepare(&self, system: &System) -> Result<WrittenDatabase, BenchError> {
        WrittenDatabase::new(system, self.name).await
    }

    async fn round(
        &self,
        system: &System,
        state: &mut WrittenDatabase,
        length: Duration,
    ) -> Result<Vec<WorkloadPart>, BenchError> {
        let puts = |node: &Rc<Target>, _| state.puts(node);
        let writing = spread(&system.nodes, self.clients, length, Check::Status, puts);
        Ok(vec![system.part(self.name, "docs", writing).await?])
    }
}

/// `_bulk_docs` of 1,000.
pub(crate) struct Bulk;

impl Workload for Bulk {
    type State = WrittenDatabase;

    fn is_sliced(&self) -> bool {
        true
    }

    async fn prepare(&self, system: &System) -> Result<WrittenDatabase, BenchError> {
        WrittenDatabase::new(system, "cluster_bulk").await
    }

    async fn round(
        &self,
        system: &System,
        state: &mut WrittenDatabase,
        length: Duration,
    ) -> Result<Vec<WorkloadPart>, BenchError> {
        let bulks = |node: &Rc<Target>, _| state.bulks(node);
        let writing = spread(&system.nodes, BULK_CLIENTS, length, Check::Bulk, bulks);
        Ok(vec![system.part("cluster_bulk", "docs", writing).await?])
    }
}

/// GET of random documents: the latest revision of the cluster, and the node's own one; by many
/// clients and by one.
pub(crate) struct Get {
    pub(crate) connections: usize,
    pub(crate) documents: u64,
}

impl Get {
    /// Name, query, clients.
    fn parts(&self) -> [(&'static str, &'static str, usize); 4] {
        [
            ("cluster_get", "", self.connections),
            ("cluster_get_r1", "?r=1", self.connections),
            ("cluster_get_one", "", 1),
            ("cluster_get_one_r1", "?r=1", 1),
        ]
    }
}

impl Workload for Get {
    type State = FilledDatabase;

    fn is_sliced(&self) -> bool {
        true
    }

    async fn prepare(&self, system: &System) -> Result<FilledDatabase, BenchError> {
        populated(system, self.documents).await
    }

    async fn round(
        &self,
        system: &System,
        state: &mut FilledDatabase,
        length: Duration,
    ) -> Result<Vec<WorkloadPart>, BenchError> {
        let mut parts = Vec::new();
        for (name, query, clients) in self.parts() {
            let read = |node: &Rc<Target>, _| gets(state, node, query);
            let reading = spread(&system.nodes, clients, length, Check::Status, read);
            parts.push(system.part(name, "req", reading).await?);
        }
        Ok(parts)
    }
}

/// Reads of random documents concurrent with writes of new ones to another database.
pub(crate) struct Mixed {
    pub(crate) documents: u64,
}

impl Workload for Mixed {
    type State = (FilledDatabase, WrittenDatabase);

    fn is_sliced(&self) -> bool {
        true
    }

    async fn prepare(
        &self,
        system: &System,
    ) -> Result<(FilledDatabase, WrittenDatabase), BenchError> {
        let populated = populated(system, self.documents).await?;
        Ok((
            populated,
            WrittenDatabase::new(system, "cluster_mixed").await?,
        ))
    }

    async fn round(
        &self,
        system: &System,
        (populated, written): &mut (FilledDatabase, WrittenDatabase),
        length: Duration,
    ) -> Result<Vec<WorkloadPart>, BenchError> {
        let gets = |node: &Rc<Target>, _| gets(populated, node, "");
        let puts = |node: &Rc<Target>, _| written.puts(node);
        let watch = Watch::start(&system.pids);
        let (read, wrote): (Slice, Slice) = tokio::try_join!(
            spread(&system.nodes, MIXED_READERS, length, Check::Status, gets),
            spread(&system.nodes, MIXED_WRITERS, length, Check::Status, puts),
        )?;
        Ok(vec![
            watch.part("cluster_mixed_get", "req", read),
            WorkloadPart {
                unit: "docs",
                ..alone("cluster_mixed_put", wrote)
            },
        ])
    }
}
