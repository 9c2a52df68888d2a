//! YCSB's core workloads A to F.
//!
//! Proportions, distributions and records are YCSB's (`workloads/workload[a-f]` of its distribution). CouchDB has no update without a
//! revision, so an update reads first, and reads again when another client was faster: both requests are its latency. A
//! read-modify-write therefore sends the same requests.

use std::time::Duration;

use super::super::{Outcome, Workload};
use super::caller::Caller;
use super::distribution::Keys;
use super::kind::Kind;
use super::pool::Pool;
use super::records;
use super::run::{OperationResult, Operator, Updates, overwrite, run, update};
use super::weights::Weights;
use crate::error::BenchError;
use crate::system::{System, Watch, WorkloadPart};

/// Most documents of a scan; each number up to it is as frequent.
const SCAN_DOCS_MAX: u64 = 100;

/// One of the workloads, over a number of records.
pub(crate) struct Ycsb {
    name: &'static str,
    weights: Weights,
    keys: Keys,
    records: u64,
    connections: usize,
}

impl Ycsb {
    /// The workload of that name; `None` when YCSB does not have it.
    pub(crate) fn named(name: &'static str, records: u64, connections: usize) -> Option<Self> {
        use Kind::{Insert, Read, ReadModifyWrite, Scan, Update};
        let (weights, keys): (&[(Kind, f64)], Keys) = match name {
            "ycsb_a" => (&[(Read, 50.0), (Update, 50.0)], Keys::Zipfian),
            "ycsb_b" => (&[(Read, 95.0), (Update, 5.0)], Keys::Zipfian),
            "ycsb_c" => (&[(Read, 100.0)], Keys::Zipfian),
            "ycsb_d" => (&[(Read, 95.0), (Insert, 5.0)], Keys::Latest),
            "ycsb_e" => (&[(Scan, 95.0), (Insert, 5.0)], Keys::Zipfian),
            "ycsb_f" => (&[(Read, 50.0), (ReadModifyWrite, 50.0)], Keys::Zipfian),
            _ => return None,
        };
        Some(Self {
            name,
            weights: Weights::new(weights),
            keys,
            records,
            connections,
        })
    }

    /// The line of a kind of operation.
    fn line(&self, kind: Kind) -> &'static str {
        match (self.name, kind) {
            ("ycsb_a", Kind::Read) => "ycsb_a_read",
            ("ycsb_a", _) => "ycsb_a_update",
            ("ycsb_b", Kind::Read) => "ycsb_b_read",
            ("ycsb_b", _) => "ycsb_b_update",
            ("ycsb_c", _) => "ycsb_c_read",
            ("ycsb_d", Kind::Read) => "ycsb_d_read",
            ("ycsb_d", _) => "ycsb_d_insert",
            ("ycsb_e", Kind::Scan) => "ycsb_e_scan",
            ("ycsb_e", _) => "ycsb_e_insert",
            (_, Kind::Read) => "ycsb_f_read",
            (_, _) => "ycsb_f_rmw",
        }
    }
}

/// A database of records on one server.
pub(crate) struct State {
    client: Client,
    updates: Updates,
}

#[derive(Clone)]
struct Client {
    database: String,
    weights: Weights,
    pool: Pool,
    rng: fastrand::Rng,
}

impl Client {
    fn path(&self, number: u64) -> String {
        format!("/{}/{}", self.database, records::key(number))
    }

    fn any(&mut self) -> u64 {
        self.pool.any(&mut self.rng)
    }

    async fn insert(&mut self, caller: &mut Caller) -> Result<(), BenchError> {
        let body = records::body(&mut self.rng);
        let document = |number| (self.path(number), body);
        self.pool.insert(caller, document).await
    }

    async fn scan(&mut self, caller: &mut Caller) -> Result<(), BenchError> {
        let (from, rows) = (records::key(self.any()), self.rng.u64(1..=SCAN_DOCS_MAX));
        let path = format!(
            "/{}/_all_docs?include_docs=true&limit={rows}&startkey=%22{from}%22",
            self.database
        );
        caller.require("GET", &path, None).await?;
        // The first record of the range exists, so a range without documents is an error.
        if memchr::memmem::find(&caller.reply, br#""field0":""#).is_none() {
            return Err(caller.refused("GET", &path, 200));
        }
        Ok(())
    }
}

impl Operator for Client {
    fn choose(&mut self) -> Kind {
        self.weights.choose(&mut self.rng)
    }

    async fn perform(
        &mut self,
        kind: Kind,
        caller: &mut Caller,
    ) -> Result<OperationResult, BenchError> {
        let mut done = OperationResult::default();
        match kind {
            Kind::Insert => self.insert(caller).await?,
            Kind::Scan => self.scan(caller).await?,
            Kind::Update | Kind::ReadModifyWrite => {
                let number = self.any();
                let path = self.path(number);
                let field = records::any_field(&mut self.rng);
                let content = records::content(&mut self.rng);
                let change = |document: &mut [u8]| overwrite(document, &field, &content);
                done = update(caller, &path, change).await?;
            }
            _ => {
                let number = self.any();
                let path = self.path(number);
                caller.require("GET", &path, None).await?;
            }
        }
        Ok(done)
    }
}

impl Workload for Ycsb {
    type State = State;

    fn is_sliced(&self) -> bool {
        true
    }

    async fn prepare(&self, system: &System) -> Result<State, BenchError> {
        let database = system.create(self.name).await?;
        records::load(system, &database, self.records).await?;
        let grows = self.weights.has(Kind::Insert);
        let client = Client {
            database,
            weights: self.weights.clone(),
            pool: Pool::new(self.keys, self.records, grows),
            rng: fastrand::Rng::new(),
        };
        Ok(State {
            client,
            updates: Updates::default(),
        })
    }

    async fn round(
        &self,
        system: &System,
        state: &mut State,
        length: Duration,
    ) -> Result<Vec<WorkloadPart>, BenchError> {
        let watch = Watch::start(&system.pids);
        let client = |_| Client {
            rng: fastrand::Rng::new(),
            ..state.client.clone()
        };
        let ran = run(&system.target, self.connections, length, client).await?;
        state.updates.add(&ran);
        Ok(ran.into_parts(self.name, watch, |kind| self.line(kind)))
    }

    async fn finish(&self, system: &System, state: State) -> Result<Outcome, BenchError> {
        let mut notes = vec![format!(
            "{}: {} records of 10 x 100 bytes, {:?} keys, {} connections; an update is a GET for the revision and a PUT",
            self.name, self.records, self.keys, self.connections
        )];
        notes.extend(state.updates.note(self.name, &system.target.label));
        Ok(Outcome {
            notes,
            ..Outcome::default()
        })
    }
}
