//! One server of a run, or a cluster: its databases, its populated data sets and its processes.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::future::Future;
use std::rc::Rc;
use std::time::{Duration, Instant};

use command_line::{LoginPlace, RefusedRequest, connection_failure, not_couchdb};
use serde_json::Value;

use crate::client::Connection;
use crate::documents::{Ids, Order, Shape};
use crate::error::BenchError;
use crate::pace::Pace;
use crate::procfs;
use crate::progress;
use crate::slice::{Check, ClosedLoop, Requests, Slice};
use crate::target::Target;
use crate::timeline::Events;
use crate::variation::Variation;

/// Documents in one `_bulk_docs` request, unless a workload has another number.
pub(crate) const BULK_DOCS: u64 = 1_000;
const POPULATE_CLIENTS: usize = 2;
const CLEANUP_CLIENTS: usize = 8;
/// How often a compaction is polled: a short one is timed to about 2 %, a long one is not disturbed.
const COMPACTION_POLL_MIN: Duration = Duration::from_millis(5);
const COMPACTION_POLL_MAX: Duration = Duration::from_millis(200);
const COMPACTION_MAX: Duration = Duration::from_secs(600);
const SETTLING_POLL: Duration = Duration::from_millis(50);
const SETTLING_POLLS_MAX: u32 = 1_200;
/// The interval between checks for tasks, the number of consecutive checks without tasks, and the maximum number of checks.
const REST_POLL: Duration = Duration::from_millis(100);
const REST_POLLS_IDLE: u32 = 5;
const REST_POLLS_MAX: u32 = 300;

/// A measured part of a workload: one line of the table.
pub(crate) struct WorkloadPart {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) slice: Slice,
    pub(crate) cpu_seconds: Option<f64>,
    pub(crate) peak_resident_bytes: Option<u64>,
}

impl WorkloadPart {
    /// Adds another measurement of the same part.
    fn append(&mut self, other: Self) {
        self.slice.append(other.slice);
        let seconds = self.cpu_seconds.zip(other.cpu_seconds);
        self.cpu_seconds = seconds.map(|(one, more)| one + more);
        self.peak_resident_bytes = self.peak_resident_bytes.max(other.peak_resident_bytes);
    }

    /// Adds the parts of another slice of the same round. An unknown part is a new one.
    pub(crate) fn append_all(parts: &mut Vec<Self>, others: Vec<Self>) {
        for other in others {
            match parts.iter_mut().find(|part| part.name == other.name) {
                Some(part) => part.append(other),
                None => parts.push(other),
            }
        }
    }
}

/// A database that has been filled once for all workloads that read it.
#[derive(Clone)]
pub(crate) struct FilledDatabase {
    pub(crate) database: String,
    pub(crate) documents: u64,
    pub(crate) ids: Ids,
}

impl FilledDatabase {
    /// Returns `count` GET requests of random documents.
    pub(crate) fn random_reads(&self, target: &Target, count: usize) -> Vec<Vec<u8>> {
        let read = || {
            let mut path = format!("/{}/", self.database).into_bytes();
            self.ids
                .push_nth(&mut path, fastrand::u64(..self.documents));
            target.request("GET", &String::from_utf8_lossy(&path), None)
        };
        std::iter::repeat_with(read).take(count).collect()
    }
}

/// A server, or a cluster, and the objects that this run has created on it.
pub(crate) struct System {
    /// The server, or the cluster's first node.
    pub(crate) target: Rc<Target>,
    /// All nodes, the first among them.
    pub(crate) nodes: Vec<Rc<Target>>,
    /// The first node's process, when it is on this machine.
    pub(crate) pid: Option<u32>,
    /// The processes of all nodes that are on this machine.
    pub(crate) pids: Vec<u32>,
    /// Events of a workload on the server, which the report marks.
    pub(crate) events: Rc<Events>,
    /// Random part of all database names of this run.
    run: String,
    databases: RefCell<BTreeSet<String>>,
    populated: RefCell<HashMap<(Shape, u64), FilledDatabase>>,
    variation: Cell<Variation>,
}

impl System {
    /// A server, or a cluster's first node, and its process.
    pub(crate) fn new(target: Target, pid: Option<u32>) -> Self {
        let target = Rc::new(target);
        Self {
            nodes: vec![Rc::clone(&target)],
            target,
            pid,
            pids: Vec::from_iter(pid),
            events: Rc::new(Events::new()),
            run: format!("{:08x}", fastrand::u32(..)),
            databases: RefCell::default(),
            populated: RefCell::default(),
            variation: Cell::default(),
        }
    }

    /// The variation of databases and documents by a sweep.
    pub(crate) fn variation(&self) -> Variation {
        self.variation.get()
    }

    /// Varies the databases and documents that are made from now on.
    pub(crate) fn vary(&self, variation: Variation) {
        self.variation.set(variation);
    }

    /// Another node of the cluster, and its process.
    pub(crate) fn add_node(&mut self, target: Target, pid: Option<u32>) {
        self.nodes.push(Rc::new(target));
        self.pids.extend(pid);
    }

    /// Sets the pace of the timed loops that start from now on, on all nodes.
    pub(crate) fn set_pace(&self, pace: Pace) {
        self.nodes.iter().for_each(|node| node.set_pace(pace));
    }

    /// Keeps the connections of timed loops from one to the next, on all nodes, or closes them.
    pub(crate) fn keep_connections(&self, wanted: bool) {
        self.nodes.iter().for_each(|node| node.kept().keep(wanted));
    }

    /// Sends one request on a separate connection; returns any status.
    pub(crate) async fn call(
        &self,
        method: &str,
        path: &str,
        body: Option<&[u8]>,
    ) -> Result<(u16, Vec<u8>), BenchError> {
        Self::call_node(&self.target, method, path, body).await
    }

    /// [`System::call`] of one node.
    pub(crate) async fn call_node(
        node: &Target,
        method: &str,
        path: &str,
        body: Option<&[u8]>,
    ) -> Result<(u16, Vec<u8>), BenchError> {
        let mut connection = Connection::open(node).await?;
        let request = node.request(method, path, body);
        let mut reply = Vec::new();
        let status = connection
            .exchange(&request, &mut reply)
            .await
            .map_err(|source| BenchError::Exchange {
                what: format!("{method} {path}"),
                source,
            })?;
        if !(200..300).contains(&status) {
            reply = connection.refusal().into_bytes();
        }
        Ok((status, reply))
    }

    /// Sends one request that must succeed, and returns its body.
    pub(crate) async fn require(
        &self,
        method: &str,
        path: &str,
        body: Option<&[u8]>,
    ) -> Result<Vec<u8>, BenchError> {
        Self::require_of(&self.target, method, path, body).await
    }

    /// [`System::require`] of one node.
    pub(crate) async fn require_of(
        node: &Target,
        method: &str,
        path: &str,
        body: Option<&[u8]>,
    ) -> Result<Vec<u8>, BenchError> {
        let (status, reply) = Self::call_node(node, method, path, body).await?;
        if (200..300).contains(&status) {
            return Ok(reply);
        }
        Err(BenchError::Refused {
            what: format!("{method} {path}"),
            status,
            body: String::from_utf8_lossy(&reply).into_owned(),
        })
    }

    /// Sends a first request to a node, and returns its JSON. A mistake in the node's URL or in its credentials is named.
    ///
    /// # Errors
    /// [`BenchError::Connect`], and [`BenchError::Server`].
    pub(crate) async fn first(node: &Target, path: &str) -> Result<Value, BenchError> {
        let called = Self::call_node(node, "GET", path, None).await;
        let (status, reply) = called.map_err(|error| match error {
            BenchError::Exchange { source, .. } => {
                BenchError::Server(connection_failure(node.url(), &source))
            }
            error => error,
        })?;
        match (status, serde_json::from_slice::<Value>(&reply)) {
            (200..=299, Ok(body)) => Ok(body),
            (status, body) => {
                let body = body.unwrap_or_default();
                let refused = RefusedRequest {
                    status,
                    reason: body["reason"].as_str(),
                    has_login: node.header("authorization").is_some(),
                    needs: "an admin",
                    login_place: LoginPlace::UrlOrCredentials,
                    location: None,
                };
                Err(BenchError::Server(refused.description(node.url())))
            }
        }
    }

    /// The welcome of a node, which is one of CouchDB's.
    pub(crate) async fn welcome(node: &Target) -> Result<Value, BenchError> {
        let welcome = Self::first(node, "/").await?;
        match welcome["couchdb"].is_string() {
            true => Ok(welcome),
            false => Err(BenchError::Server(not_couchdb(node.url(), 200))),
        }
    }

    /// Like [`System::require`], with the body as JSON; an invalid body is null.
    pub(crate) async fn json(&self, method: &str, path: &str) -> Result<Value, BenchError> {
        let reply = self.require(method, path, None).await?;
        Ok(serde_json::from_slice(&reply).unwrap_or_default())
    }

    /// The name of a database of this run, noted so that [`System::clean_up`] deletes it.
    pub(crate) fn claim(&self, workload: &str) -> String {
        let name = format!("settee-bench-{}-{}", self.run, workload.replace('_', "-"));
        self.databases.borrow_mut().insert(name.clone());
        name
    }

    /// Creates an empty database, after deleting an earlier round's database.
    pub(crate) async fn create(&self, workload: &str) -> Result<String, BenchError> {
        let name = self.claim(workload);
        let path = format!("/{name}");
        let creation = format!("{path}{}", self.variation().create_query());
        match self.call("PUT", &creation, None).await? {
            (412, _) => {
                self.require("DELETE", &path, None).await?;
                self.require("PUT", &creation, None).await?;
            }
            (200..300, _) => {}
            (status, body) => {
                return Err(BenchError::Refused {
                    what: format!("PUT {creation}"),
                    status,
                    body: String::from_utf8_lossy(&body).into_owned(),
                });
            }
        }
        self.check_shards(&path).await?;
        Ok(name)
    }

    /// Refuses a database without the number of shards that a sweep requires: all its values would be
    /// the same.
    async fn check_shards(&self, path: &str) -> Result<(), BenchError> {
        let Some(q) = self.variation().q else {
            return Ok(());
        };
        let info = self.json("GET", path).await?;
        match info["cluster"]["q"].as_u64() {
            Some(found) if found == q => Ok(()),
            found => Err(BenchError::Options(format!(
                "{} was to create a database with q={q}, and reports {}",
                self.target.label,
                found.map_or_else(|| "no q".to_owned(), |found| format!("q={found}"))
            ))),
        }
    }

    /// A database of that many documents with sequential ids, filled on the first call.
    pub(crate) async fn populated(
        &self,
        shape: Shape,
        documents: u64,
    ) -> Result<FilledDatabase, BenchError> {
        let shape = self.variation().shape(shape);
        let known = self.populated.borrow().get(&(shape, documents)).cloned();
        if let Some(populated) = known {
            return Ok(populated);
        }
        let name = format!("{shape:?}-{documents}").to_lowercase();
        let name = name.replace(['(', ')'], "");
        let database = self.create(&name).await?;
        let ids = Ids::new(Order::Sequential);
        let fill = Fill {
            database: &database,
            shape,
            ids: &ids,
            documents,
            bulk: shape.bulk_docs(),
            clients: POPULATE_CLIENTS,
        };
        let slice = self.fill(fill).await?;
        if slice.errors.count > 0 {
            return Err(BenchError::Refused {
                what: format!("POST /{database}/_bulk_docs"),
                status: 0,
                body: slice.errors.first.unwrap_or_default(),
            });
        }
        Ok(self.remember(shape, documents, database, ids))
    }

    /// Removes a database whose content was changed, so that the next workload that requires one fills a new one.
    pub(crate) fn forget(&self, shape: Shape, documents: u64) {
        self.populated.borrow_mut().remove(&(shape, documents));
    }

    /// Removes all of them, so that they are deleted and filled again.
    pub(crate) fn forget_all(&self) {
        self.populated.borrow_mut().clear();
    }

    /// Lets later workloads read a database that is full already.
    pub(crate) fn remember(
        &self,
        shape: Shape,
        documents: u64,
        database: String,
        ids: Ids,
    ) -> FilledDatabase {
        let populated = FilledDatabase {
            database,
            documents,
            ids,
        };
        self.populated
            .borrow_mut()
            .insert((shape, documents), populated.clone());
        populated
    }

    /// Writes documents by `_bulk_docs` until there are enough of them.
    pub(crate) async fn fill(&self, fill: Fill<'_>) -> Result<Slice, BenchError> {
        let bar = progress::bar(fill.documents, format!("filling {}", fill.database));
        let path = format!("/{}/_bulk_docs", fill.database);
        let requests = |_| -> Requests {
            let (target, ids, path, bar) = (
                Rc::clone(&self.target),
                fill.ids.clone(),
                path.clone(),
                bar.clone(),
            );
            let (shape, documents, bulk) = (fill.shape, fill.documents, fill.bulk);
            let mut body = Vec::new();
            Box::new(move |request| {
                let count = bulk.min(documents.saturating_sub(ids.taken()));
                (count > 0).then_some(())?;
                body.clear();
                shape.push_bulk(&mut body, &ids, count);
                target.write_request(request, "POST", &path, "", Some(&body));
                bar.set_position(ids.taken());
                Some(count)
            })
        };
        let filling = ClosedLoop::exhaustive(&self.target, Check::Bulk);
        let slice = filling.run(fill.clients, requests).await;
        bar.finish_and_clear();
        slice
    }

    /// Measures a part of a workload together with its costs for the processes of all nodes.
    pub(crate) async fn part(
        &self,
        name: &'static str,
        unit: &'static str,
        measuring: impl Future<Output = Result<Slice, BenchError>>,
    ) -> Result<WorkloadPart, BenchError> {
        let watch = Watch::start(&self.pids);
        let slice = measuring.await?;
        Ok(watch.part(name, unit, slice))
    }

    /// Waits until the database has `documents` documents on every node: a write may be acknowledged before all nodes have it.
    pub(crate) async fn settled(&self, database: &str, documents: u64) -> Result<(), BenchError> {
        let path = format!("/{database}");
        for node in &self.nodes {
            let mut polls = 0;
            while !has_documents(node, &path, documents).await? {
                polls += 1;
                if polls == SETTLING_POLLS_MAX {
                    return Err(BenchError::Options(format!(
                        "{} does not have the {documents} documents of {database} after a minute",
                        node.label
                    )));
                }
                tokio::time::sleep(SETTLING_POLL).await;
            }
        }
        Ok(())
    }

    /// Waits until no node has an active task or starts one: the space of deleted data is reclaimed after the response. Waits at most
    /// half a minute, because a replication may never end.
    pub(crate) async fn rest(&self) -> Result<(), BenchError> {
        for node in &self.nodes {
            let mut idle = 0;
            for _ in 0..REST_POLLS_MAX {
                let (_, tasks) = Self::call_node(node, "GET", "/_active_tasks", None).await?;
                idle = if tasks.trim_ascii() == b"[]" {
                    idle + 1
                } else {
                    0
                };
                if idle == REST_POLLS_IDLE {
                    break;
                }
                tokio::time::sleep(REST_POLL).await;
            }
        }
        Ok(())
    }

    /// `sizes.file` and `sizes.active` of a database, in bytes.
    pub(crate) async fn sizes(
        &self,
        database: &str,
    ) -> Result<(Option<f64>, Option<f64>), BenchError> {
        let info = self.json("GET", &format!("/{database}")).await?;
        let size = |name: &str| info["sizes"][name].as_f64();
        Ok((size("file"), size("active")))
    }

    /// Compacts a database and waits until that is done. Returns how long it took.
    pub(crate) async fn compact(&self, database: &str) -> Result<Duration, BenchError> {
        let start = Instant::now();
        self.require("POST", &format!("/{database}/_compact"), Some(b"{}"))
            .await?;
        while start.elapsed() < COMPACTION_MAX {
            let info = self.json("GET", &format!("/{database}")).await?;
            let took = start.elapsed();
            if info["compact_running"] != Value::Bool(true) {
                return Ok(took);
            }
            tokio::time::sleep((took / 50).clamp(COMPACTION_POLL_MIN, COMPACTION_POLL_MAX)).await;
        }
        Err(BenchError::Options(format!(
            "the compaction of {database} did not end within ten minutes"
        )))
    }

    /// Deletes the databases of this run that no later workload reads.
    pub(crate) async fn clean_up_unshared(&self) {
        let shared: BTreeSet<String> = self
            .populated
            .borrow()
            .values()
            .map(|populated| populated.database.clone())
            .collect();
        let doomed = self
            .databases
            .borrow()
            .difference(&shared)
            .cloned()
            .collect();
        self.delete(doomed).await;
    }

    /// Deletes every database of this run, and returns the names of those that are still there.
    pub(crate) async fn clean_up(&self) -> Result<Vec<String>, BenchError> {
        self.populated.borrow_mut().clear();
        let doomed = self.databases.borrow().iter().cloned().collect();
        self.delete(doomed).await;
        let prefix = format!("settee-bench-{}-", self.run);
        let all = self.json("GET", "/_all_dbs").await?;
        let names = all.as_array().into_iter().flatten();
        Ok(names
            .filter_map(|name| name.as_str())
            .filter(|name| name.starts_with(&prefix))
            .map(str::to_owned)
            .collect())
    }

    async fn delete(&self, doomed: Vec<String>) {
        let clients = CLEANUP_CLIENTS.min(doomed.len());
        let queue = Rc::new(RefCell::new(doomed.clone()));
        let requests = |_| -> Requests {
            let (target, queue) = (Rc::clone(&self.target), Rc::clone(&queue));
            Box::new(move |request| {
                let name = queue.borrow_mut().pop()?;
                target.write_request(request, "DELETE", &format!("/{name}"), "", None);
                Some(1)
            })
        };
        let deleting = ClosedLoop::exhaustive(&self.target, Check::Gone);
        // The end of the run checks whether they are gone, whatever the response was here.
        if deleting.run(clients, requests).await.is_ok() {
            let mut databases = self.databases.borrow_mut();
            for name in &doomed {
                databases.remove(name);
            }
        }
    }
}

async fn has_documents(node: &Target, path: &str, documents: u64) -> Result<bool, BenchError> {
    let (status, info) = System::call_node(node, "GET", path, None).await?;
    let info: Value = serde_json::from_slice(&info).unwrap_or_default();
    Ok(status == 200 && info["doc_count"].as_u64() >= Some(documents))
}

/// The documents that [`System::fill`] writes.
pub(crate) struct Fill<'a> {
    pub(crate) database: &'a str,
    pub(crate) shape: Shape,
    pub(crate) ids: &'a Ids,
    pub(crate) documents: u64,
    /// Documents in one request.
    pub(crate) bulk: u64,
    pub(crate) clients: usize,
}

/// CPU and memory of processes, those of all nodes together, from a moment on.
pub(crate) struct Watch {
    pids: Vec<u32>,
    cpu_seconds: Option<f64>,
}

impl Watch {
    pub(crate) fn start(pids: &[u32]) -> Self {
        for pid in pids {
            procfs::reset_peak(*pid);
        }
        Self {
            pids: pids.to_vec(),
            cpu_seconds: total(pids.iter().copied().map(procfs::cpu_seconds)),
        }
    }

    pub(crate) fn part(self, name: &'static str, unit: &'static str, slice: Slice) -> WorkloadPart {
        let pids = || self.pids.iter().copied();
        let after = total(pids().map(procfs::cpu_seconds));
        let cpu_seconds = after.zip(self.cpu_seconds);
        WorkloadPart {
            name,
            unit,
            slice,
            cpu_seconds: cpu_seconds.map(|(after, before)| after - before),
            peak_resident_bytes: total(pids().map(procfs::peak_resident_bytes)),
        }
    }
}

/// The sum over at least one process; `None` when one of them cannot be examined.
fn total<T: std::iter::Sum>(each: impl ExactSizeIterator<Item = Option<T>>) -> Option<T> {
    (each.len() > 0).then(|| each.sum()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(
        name: &'static str,
        seconds: f64,
        cpu_seconds: Option<f64>,
        peak: Option<u64>,
    ) -> WorkloadPart {
        let mut slice = Slice::new();
        slice.record(3, Duration::from_micros(10));
        slice.seconds = seconds;
        slice.errors.add(1, || "refused".to_owned());
        WorkloadPart {
            name,
            unit: "docs",
            slice,
            cpu_seconds,
            peak_resident_bytes: peak,
        }
    }

    #[test]
    fn the_slices_of_a_round_are_added_up_by_part() {
        let mut parts = vec![part("get", 0.5, Some(0.25), Some(7))];
        let more = vec![
            part("get", 1.0, Some(0.5), Some(5)),
            part("put", 1.0, None, None),
        ];
        WorkloadPart::append_all(&mut parts, more);
        let told = |part: &WorkloadPart| {
            let slice = &part.slice;
            let counts = (slice.count, slice.latencies_us.len(), slice.errors.count);
            (
                counts,
                slice.seconds,
                part.cpu_seconds,
                part.peak_resident_bytes,
            )
        };
        assert_eq!(told(&parts[0]), ((6, 2, 2), 1.5, Some(0.75), Some(7)));
        assert_eq!(told(&parts[1]), ((3, 1, 1), 1.0, None, None));
        assert_eq!(parts.len(), 2);
    }
}
