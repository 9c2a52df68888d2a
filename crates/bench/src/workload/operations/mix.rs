//! Mixes of operations that users define, over documents of 300 bytes.

use std::path::Path;
use std::time::Duration;

use serde_json::json;

use super::super::{Outcome, Workload};
use super::caller::Caller;
use super::distribution::Keys;
use super::kind::Kind;
use super::pool::Pool;
use super::run::{OperationResult, Operator, Updates, overwrite, run, update};
use super::weights::Weights;
use crate::documents::{Ids, Order, Shape};
use crate::error::BenchError;
use crate::system::{Fill, System, Watch, WorkloadPart};

/// Documents of a bulk, rows of a scan, and rows that a view, `_find` and `_changes` request.
const BULK_DOCS: u64 = 100;
const SCAN_ROWS: u64 = 50;
const ROWS: u64 = 10;
const FILL_BULK: u64 = 1_000;
const FILL_CLIENTS: usize = 2;
/// The text of the documents that an update changes, and how much of it.
const CHANGED: &[u8] = br#""text":""#;
const CHANGED_BYTES: usize = 16;
/// A file of a mix may not be larger.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// Mixes with names.
const PRESETS: &[(&str, &str)] = &[
    (
        "read-heavy",
        "read=85,scan=3,view=4,find=3,update=4,insert=1",
    ),
    ("write-heavy", "read=15,update=40,insert=40,bulk=5"),
    (
        "mixed",
        "read=50,update=20,insert=10,bulk=2,view=8,find=5,scan=3,changes=2",
    ),
];

/// Operations with their weights, and how documents are chosen.
#[derive(Debug, Clone, PartialEq)]
pub struct Mix {
    weights: Weights,
    keys: Keys,
}

impl Mix {
    /// A preset's name, `operation=weight` with commas between them, or a file with such pairs,
    /// also in lines of their own, where `#` begins a remark. `keys=uniform`, `zipfian` or `latest`
    /// defines how documents are chosen; without it, uniformly.
    ///
    /// # Errors
    /// [`BenchError::Options`]: an unknown operation, an invalid or negative weight, weights that
    /// are all 0, a file that cannot be read.
    pub fn named(text: &str) -> Result<Self, BenchError> {
        if let Some((_, preset)) = PRESETS.iter().find(|(name, _)| *name == text) {
            return Self::parse(preset);
        }
        if text.contains('=') {
            return Self::parse(text);
        }
        let presets: Vec<&str> = PRESETS.iter().map(|(name, _)| *name).collect();
        let unreadable = |reason: String| {
            let presets = presets.join(", ");
            BenchError::Options(format!(
                "--mix {text}: no preset ({presets}), no operation=weight, and no file that can be read: {reason}"
            ))
        };
        let path = Path::new(text);
        let size = std::fs::metadata(path).map_err(|error| unreadable(error.to_string()))?;
        if size.len() > FILE_BYTES_MAX {
            return Err(unreadable(format!("it has {} bytes", size.len())));
        }
        let file = std::fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))?;
        let lines = file
            .lines()
            .map(|line| line.split('#').next().unwrap_or_default());
        Self::parse(&lines.collect::<Vec<_>>().join(","))
    }

    fn parse(text: &str) -> Result<Self, BenchError> {
        let refuse = |reason: String| Err(BenchError::Options(format!("--mix: {reason}")));
        let mut weights: Vec<(Kind, f64)> = Vec::new();
        let mut keys = Keys::Uniform;
        for pair in text
            .split(',')
            .map(str::trim)
            .filter(|pair| !pair.is_empty())
        {
            let Some((name, value)) = pair.split_once('=') else {
                return refuse(format!("{pair:?} is not operation=weight"));
            };
            let (name, value) = (name.trim(), value.trim());
            if name == "keys" {
                match Keys::parse(value) {
                    Some(parsed) => keys = parsed,
                    None => return refuse(format!("keys={value}: uniform, zipfian or latest")),
                }
                continue;
            }
            let Some(kind) = Kind::parse(name) else {
                let known = Kind::ALL.map(Kind::name).join(", ");
                return refuse(format!("there is no operation {name:?}; there are {known}"));
            };
            let weight = value.parse::<f64>().ok();
            let Some(weight) = weight.filter(|weight| weight.is_finite() && *weight >= 0.0) else {
                return refuse(format!(
                    "{name}={value}: the weight must be a number, at least 0"
                ));
            };
            if weights.iter().any(|(known, _)| *known == kind) {
                return refuse(format!("{name} is there twice"));
            }
            weights.push((kind, weight));
        }
        weights.retain(|(_, weight)| *weight > 0.0);
        if weights.is_empty() {
            return refuse("no operation has a weight".to_owned());
        }
        Ok(Self {
            weights: Weights::new(&weights),
            keys,
        })
    }

    /// Whether any of its operations is of this kind.
    fn has(&self, kind: Kind) -> bool {
        self.weights.has(kind)
    }
}

/// A mix over a number of documents.
pub(crate) struct MixWorkload {
    pub(crate) mix: Mix,
    pub(crate) documents: u64,
    pub(crate) connections: usize,
}

/// A database on one server.
pub(crate) struct State {
    client: Client,
    updates: Updates,
}

#[derive(Clone)]
struct Client {
    database: String,
    ids: Ids,
    weights: Weights,
    pool: Pool,
    rng: fastrand::Rng,
}

/// The line of a kind of operation.
fn line(kind: Kind) -> &'static str {
    match kind {
        Kind::Read => "mix_read",
        Kind::Update => "mix_update",
        Kind::Insert => "mix_insert",
        Kind::ReadModifyWrite => "mix_rmw",
        Kind::Scan => "mix_scan",
        Kind::Bulk => "mix_bulk",
        Kind::View => "mix_view",
        Kind::Find => "mix_find",
        Kind::Changes => "mix_changes",
    }
}

impl Client {
    fn any(&mut self) -> u64 {
        self.pool.any(&mut self.rng)
    }

    fn id(&self, number: u64) -> String {
        let mut id = Vec::with_capacity(32);
        self.ids.push_nth(&mut id, number);
        String::from_utf8_lossy(&id).into_owned()
    }

    fn path(&self, number: u64) -> String {
        format!("/{}/{}", self.database, self.id(number))
    }

    async fn insert(&self, caller: &mut Caller) -> Result<(), BenchError> {
        let document = |number| {
            let mut body = Vec::with_capacity(300);
            Shape::Bytes300.push_body(&mut body, number);
            (self.path(number), body)
        };
        self.pool.insert(caller, document).await
    }

    /// Writes documents under ids that no other operation uses: a bulk is not part of the sequence.
    async fn bulk(&mut self, caller: &mut Caller) -> Result<(), BenchError> {
        let mut body = Vec::new();
        Shape::Bytes300.push_bulk(&mut body, &Ids::new(Order::Sequential), BULK_DOCS);
        let path = format!("/{}/_bulk_docs", self.database);
        caller.require("POST", &path, Some(&body)).await?;
        match memchr::memmem::find(&caller.reply, br#""error":"#) {
            None => Ok(()),
            Some(_) => Err(caller.refused("POST", &path, 201)),
        }
    }

    async fn query(&mut self, kind: Kind, caller: &mut Caller) -> Result<(), BenchError> {
        let database = self.database.clone();
        let path = match kind {
            Kind::Scan => {
                let number = self.any();
                let from = self.id(number);
                format!(
                    "/{database}/_all_docs?include_docs=true&limit={SCAN_ROWS}&startkey=%22{from}%22"
                )
            }
            Kind::View => {
                let customer = self.any() % 1_000;
                format!(
                    "/{database}/_design/mix/_view/by_customer?reduce=false&limit={ROWS}&key=%22customer-{customer}%22"
                )
            }
            Kind::Changes => format!("/{database}/_changes?descending=true&limit={ROWS}"),
            _ => {
                let number = self.any();
                let to = number + ROWS;
                let query = json!({
                    "selector": {"number": {"$gte": number, "$lt": to}}, "limit": ROWS,
                });
                let (path, query) = (format!("/{database}/_find"), query.to_string());
                return caller.require("POST", &path, Some(query.as_bytes())).await;
            }
        };
        caller.require("GET", &path, None).await
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
        match kind {
            Kind::Read => {
                let number = self.any();
                let path = self.path(number);
                caller.require("GET", &path, None).await?;
            }
            Kind::Update | Kind::ReadModifyWrite => {
                let number = self.any();
                let path = self.path(number);
                let text: [u8; CHANGED_BYTES] =
                    std::array::from_fn(|_| self.rng.alphanumeric() as u8);
                return update(caller, &path, |document| {
                    overwrite(document, CHANGED, &text)
                })
                .await;
            }
            Kind::Insert => self.insert(caller).await?,
            Kind::Bulk => self.bulk(caller).await?,
            Kind::Scan | Kind::View | Kind::Find | Kind::Changes => {
                self.query(kind, caller).await?
            }
        }
        Ok(OperationResult::default())
    }
}

impl MixWorkload {
    /// Builds the indexes of views and queries before the clock runs.
    async fn index(&self, system: &System, client: &Client) -> Result<(), BenchError> {
        let database = &client.database;
        if self.mix.has(Kind::View) {
            let map = "function (doc) { emit(doc.customer, doc.amount); }";
            let design = json!({"views": {"by_customer": {"map": map, "reduce": "_sum"}}});
            let path = format!("/{database}/_design/mix");
            system
                .require("PUT", &path, Some(design.to_string().as_bytes()))
                .await?;
        }
        if self.mix.has(Kind::Find) {
            let index = json!({"index": {"fields": ["number"]}, "name": "by-number"});
            let path = format!("/{database}/_index");
            system
                .require("POST", &path, Some(index.to_string().as_bytes()))
                .await?;
        }
        let mut caller = Caller::connect(&system.target).await?;
        let mut client = client.clone();
        for kind in [Kind::View, Kind::Find] {
            if self.mix.has(kind) {
                client.query(kind, &mut caller).await?;
            }
        }
        Ok(())
    }
}

impl Workload for MixWorkload {
    type State = State;

    fn is_sliced(&self) -> bool {
        true
    }

    async fn prepare(&self, system: &System) -> Result<State, BenchError> {
        let database = system.create("mix").await?;
        let ids = Ids::new(Order::Sequential);
        let fill = Fill {
            database: &database,
            shape: Shape::Bytes300,
            ids: &ids,
            documents: self.documents,
            bulk: FILL_BULK,
            clients: FILL_CLIENTS,
        };
        if let Some(body) = system.fill(fill).await?.errors.first {
            return Err(BenchError::Refused {
                what: format!("POST /{database}/_bulk_docs"),
                status: 0,
                body,
            });
        }
        let grows = self.mix.has(Kind::Insert);
        let client = Client {
            database,
            ids,
            weights: self.mix.weights.clone(),
            pool: Pool::new(self.mix.keys, self.documents, grows),
            rng: fastrand::Rng::new(),
        };
        self.index(system, &client).await?;
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
        Ok(ran.into_parts("mix", watch, line))
    }

    async fn finish(&self, system: &System, state: State) -> Result<Outcome, BenchError> {
        let mut notes = vec![format!(
            "mix: {} documents of 300 bytes, {:?} keys, {} connections; an update is a GET and a PUT, a bulk {BULK_DOCS} documents, \
             a scan {SCAN_ROWS} rows with documents, the other queries {ROWS} rows",
            self.documents, self.mix.keys, self.connections
        )];
        notes.extend(state.updates.note("mix", &system.target.label));
        Ok(Outcome {
            notes,
            ..Outcome::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_mixes() {
        for (name, _) in PRESETS {
            assert!(Mix::named(name).unwrap().has(Kind::Read), "{name}");
        }
    }

    #[test]
    fn pairs_are_read_from_the_command_line_and_from_files() {
        let line = Mix::named("read=70, update=20,bulk=5,view=5.5,scan=0,keys=zipfian").unwrap();
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.mix");
        std::fs::write(
            &file,
            "# mine\nread=70,update=20 # both\nbulk=5\nview=5.5\n\nkeys=zipfian\n",
        )
        .unwrap();
        assert_eq!(Mix::named(file.to_str().unwrap()).unwrap(), line);
        assert!(!line.has(Kind::Scan));
        assert_eq!(line.keys, Keys::Zipfian);
    }

    #[test]
    fn what_is_no_mix_is_refused_with_a_reason() {
        for (text, reason) in [
            ("read=70,write=30", "no operation \"write\""),
            ("read=-1", "at least 0"),
            ("read=nan", "at least 0"),
            ("read=inf", "at least 0"),
            ("read=0", "no operation has a weight"),
            ("read=1,read=2", "twice"),
            ("read=1,update", "not operation=weight"),
            ("keys=best,read=1", "uniform, zipfian or latest"),
            ("reed-heavy", "no preset"),
        ] {
            let error = Mix::named(text).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
