//! Nodes of a cluster in one process: real stores, a log in memory, and a network of calls.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use cluster::record::{RecordVersion, RecordVersions};
use cluster::replica::Message;
use cluster::slot::Network;
use cluster::{BoxFuture, CONTROL, Log, MemoryLog, NodeId, SlotNumber};
use database::{CreateOptions, Database, Databases, NewDatabase, Options, Property, Sequencer};
use database::{Durability, EditMode, Listing, Outcome, RowsQuery, ShownAttachments, WriteTiming};
use parking_lot::Mutex;
use peers::Body;
use storage::{ShardEdit, ShardPurge};
use tokio::time::Instant;

use crate::content::{ContentError, ContentExchange, ContentPeers, FETCH, PIN, STORE};
use crate::control::state::ControlState;
use crate::control::{Catalogue, OnSetting, stored_state};
use crate::copy::{Copier, CopySender, Source};
use crate::gateway::{ClusterSequencer, Gateway};
use crate::members::Members;
use crate::membership::Cluster;
use crate::replicas::Replicas;
use crate::slot_starter::SlotStarter;

pub const SLOTS: SlotNumber = 3;
const LOOK_EVERY: Duration = Duration::from_millis(20);
const TIME_MAX: Duration = Duration::from_secs(90);

/// A running node.
pub struct Node {
    pub databases: Arc<Databases>,
    pub catalogue: Arc<Catalogue>,
    pub replicas: Arc<Replicas>,
    pub gateway: Arc<Gateway>,
    pub contents: Arc<ContentExchange>,
    pub settings: Arc<Mutex<BTreeMap<String, String>>>,
    pub versions: RecordVersions,
    pub starter: SlotStarter,
}

/// The parts of a node that others reach.
type Reached = (Arc<Replicas>, Arc<CopySender>, Arc<ContentExchange>);

/// The network between nodes.
#[derive(Default)]
pub struct Net {
    nodes: Mutex<BTreeMap<NodeId, Reached>>,
    /// Percentage of copies that break off after some pieces.
    pub broken_copies: AtomicU32,
    pub copies: AtomicU32,
    /// Number of copies that are still to be refused.
    pub refused_copies: AtomicU32,
    /// Nodes that asked how the generation of a slot started.
    pub begun_asks: Mutex<BTreeSet<(NodeId, SlotNumber)>>,
    /// Nodes that answered which position they have reached in a slot.
    pub positions_told: Mutex<BTreeSet<(NodeId, SlotNumber)>>,
    /// Whether copies wait before they start.
    pub copies_wait: AtomicBool,
    /// Nodes to which no contents are sent, and nodes that get none at their own request.
    pub not_staged: Mutex<BTreeSet<NodeId>>,
    pub not_fetched: Mutex<BTreeSet<NodeId>>,
    /// Nodes that receive nothing of the contents that are sent to them, and for how many contents
    /// that is the case now.
    pub stalled: Mutex<BTreeSet<NodeId>>,
    pub stalled_calls: Arc<AtomicU32>,
    /// Nodes that do not answer requests to keep contents.
    pub silent: Mutex<BTreeSet<NodeId>>,
    /// Nodes that answer requests for contents as if the database was deleted.
    pub without_databases: Mutex<BTreeSet<NodeId>>,
}

/// Counts calls until they are dropped.
struct Counted(Arc<AtomicU32>);

impl Counted {
    fn new(calls: &Arc<AtomicU32>) -> Counted {
        calls.fetch_add(1, Relaxed);
        Counted(calls.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

struct NetOf {
    me: NodeId,
    net: Arc<Net>,
}

impl Network for NetOf {
    fn send(&self, to: NodeId, slot: SlotNumber, message: Message) {
        if matches!(message, Message::AskBegun) {
            self.net.begun_asks.lock().insert((self.me, slot));
        }
        if matches!(message, Message::PositionIs { .. }) {
            self.net.positions_told.lock().insert((self.me, slot));
        }
        let replicas = self.net.nodes.lock().get(&to).map(|node| node.0.clone());
        if let Some(replica) = replicas.as_ref().and_then(|replicas| replicas.get(slot)) {
            replica.deliver(self.me, message);
        }
    }
}

impl Source for NetOf {
    fn open(
        &self,
        from: NodeId,
        slot: SlotNumber,
        catalogue: u64,
    ) -> BoxFuture<'static, Result<Body, String>> {
        let net = self.net.clone();
        Box::pin(async move {
            while net.copies_wait.load(Relaxed) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let refused = &net.refused_copies;
            let left = refused.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
            if left.is_ok() {
                return Err("it refuses".into());
            }
            let sender = net.nodes.lock().get(&from).map(|node| node.1.clone());
            let mut body = sender.ok_or("it is down")?.send(slot, catalogue).await?;
            net.copies.fetch_add(1, Relaxed);
            if fastrand::u32(..100) >= net.broken_copies.load(Relaxed) {
                return Ok(body);
            }
            let mut pieces = vec![];
            for _ in 0..fastrand::usize(1..20) {
                pieces.extend(body.next().await);
            }
            Ok(Body::stream(futures_util::stream::iter(pieces)))
        })
    }
}

impl ContentPeers for NetOf {
    fn others(&self) -> Vec<NodeId> {
        let nodes = self.net.nodes.lock();
        nodes
            .keys()
            .copied()
            .filter(|node| *node != self.me)
            .collect()
    }

    fn call(
        &self,
        node: NodeId,
        path: String,
        body: Body,
        _: Duration,
    ) -> BoxFuture<'static, Result<Body, ContentError>> {
        let (net, me) = (self.net.clone(), self.me);
        Box::pin(async move {
            let (path, query) = path.split_once('?').unwrap();
            let is_refused = match path {
                FETCH => net.not_fetched.lock().contains(&me),
                _ => net.not_staged.lock().contains(&node),
            };
            if net.without_databases.lock().contains(&node) {
                return Err(ContentError::Gone);
            }
            while path == PIN && net.silent.lock().contains(&node) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            if path == STORE {
                let _counted = Counted::new(&net.stalled_calls);
                while net.stalled.lock().contains(&node) {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
            let contents = net.nodes.lock().get(&node).map(|node| node.2.clone());
            match contents.filter(|_| !is_refused) {
                Some(contents) => contents.answer(me, (path, query), body).await.unwrap(),
                None => Err(ContentError::Failed("it is down".into())),
            }
        })
    }
}

/// A weak reference to the gateway, without which no node would ever be dropped.
struct WeakSequencer(Weak<Gateway>);

impl WeakSequencer {
    fn with<T: 'static>(
        &self,
        ask: impl FnOnce(ClusterSequencer) -> database::SequencerFuture<T>,
    ) -> database::SequencerFuture<T> {
        match self.0.upgrade() {
            Some(gateway) => ask(ClusterSequencer(gateway)),
            None => Box::pin(async { Err(database::Error::ShuttingDown) }),
        }
    }
}

impl Sequencer for WeakSequencer {
    fn edit(
        &self,
        db: &Arc<Database>,
        edits: Vec<ShardEdit>,
        copies: Option<usize>,
        designs: Option<u64>,
    ) -> database::SequencerFuture<(Vec<storage::Outcome>, WriteTiming)> {
        self.with(|order| order.edit(db, edits, copies, designs))
    }

    fn purge(
        &self,
        db: &Arc<Database>,
        purges: Vec<ShardPurge>,
    ) -> database::SequencerFuture<(Vec<Vec<document::Rev>>, bool)> {
        self.with(|order| order.purge(db, purges))
    }

    fn create(&self, name: String, new: NewDatabase) -> database::SequencerFuture<()> {
        self.with(|order| order.create(name, new))
    }

    fn delete(&self, name: String) -> database::SequencerFuture<()> {
        self.with(|order| order.delete(name))
    }

    fn change(&self, db: &Database, property: Property) -> database::SequencerFuture<()> {
        self.with(|order| order.change(db, property))
    }

    fn copies(&self) -> u32 {
        self.0
            .upgrade()
            .map_or(1, |gateway| ClusterSequencer(gateway).copies())
    }

    fn fresh(&self, db: &Database) -> database::SequencerFuture<()> {
        self.with(|order| order.fresh(db))
    }
}

pub struct Nodes {
    pub log: MemoryLog,
    /// Logs that nodes use instead of that one.
    pub own: BTreeMap<NodeId, Arc<dyn Log>>,
    pub net: Arc<Net>,
    pub cluster: Cluster,
    root: tempfile::TempDir,
    dirs: Mutex<BTreeMap<NodeId, PathBuf>>,
    running: BTreeMap<NodeId, Node>,
}

fn admin() -> database::Caller {
    database::Caller {
        name: Some("adm".into()),
        roles: vec!["_admin".into()],
        requester: database::Requester::Admin,
    }
}

pub fn options() -> Options {
    let mut options = Options {
        auto_compact: false,
        ..Options::default()
    };
    options.store.block_cache_bytes = 4 << 20;
    options.store.write_buffers_bytes = 8 << 20;
    options
}

pub fn database(q: u32) -> CreateOptions {
    CreateOptions {
        q: Some(q),
        ..CreateOptions::default()
    }
}

impl Drop for Nodes {
    /// Stops all nodes: a process that exits while threads of a store are running may crash.
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let running: Vec<_> = self.running.keys().copied().collect();
        tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(async {
                for me in running {
                    self.stop(me).await;
                }
            });
        });
    }
}

/// Returns a function that keeps the settings it is called with.
fn recorder(told: Arc<Mutex<BTreeMap<String, String>>>) -> OnSetting {
    Box::new(move |section, key, value| {
        let name = format!("{section}/{key}");
        match value {
            Some(value) => drop(told.lock().insert(name, value.into())),
            None => drop(told.lock().remove(&name)),
        }
    })
}

impl Nodes {
    /// Starts three nodes, which have all slots.
    pub async fn three() -> Nodes {
        Nodes::none().with_three().await
    }

    /// Starts three nodes, which have all slots.
    pub async fn with_three(self) -> Nodes {
        let mut nodes = self;
        for node in 1..=3 {
            nodes.start(node).await;
        }
        nodes.replicate_on(2).await;
        nodes.replicate_on(3).await;
        nodes
    }

    /// Creates a cluster without nodes.
    pub fn none() -> Nodes {
        Nodes {
            log: MemoryLog::new(),
            own: BTreeMap::new(),
            net: Arc::default(),
            cluster: Cluster::create("test", SLOTS, 1).unwrap(),
            root: tempfile::tempdir().unwrap(),
            dirs: Mutex::default(),
            running: BTreeMap::new(),
        }
    }

    /// Starts a node. A new one gets databases of its own first, so that numbers of shards differ
    /// between nodes.
    pub async fn start(&mut self, me: NodeId) {
        let versions = RecordVersions::new(RecordVersion::LATEST);
        // As if all nodes had announced it.
        versions.raise(RecordVersion::LATEST);
        self.start_program(me, versions).await;
    }

    /// Starts a node with a program of these record versions.
    pub async fn start_program(&mut self, me: NodeId, versions: RecordVersions) {
        let (dir, is_new) = match self.dirs.lock().get(&me) {
            Some(dir) => (dir.clone(), false),
            None => (self.root.path().join(format!("node-{me}")), true),
        };
        self.dirs.lock().insert(me, dir.clone());
        let databases = Databases::open(&dir, options()).unwrap();
        if is_new {
            for i in 1..me {
                let own = format!("own-{i}");
                databases.create(&own, database(i as u32)).await.unwrap();
            }
        }
        let settings = Arc::<Mutex<BTreeMap<String, String>>>::default();
        let on_setting = recorder(settings.clone());
        let catalogue = Catalogue::open(&databases, &on_setting).await.unwrap();
        let stamp = self.cluster.stamp(CONTROL, &versions).unwrap();
        let members = Arc::new(Members::new(me, stamp, catalogue.clone()));
        let replicas = Arc::new(Replicas::new(me, SLOTS));
        let net = self.net.clone();
        let between = Arc::new(NetOf { me, net });
        let of_store = (&databases, &catalogue);
        let nodes_of = Box::new(replicas.nodes_by_slot(&catalogue));
        let contents = ContentExchange::new(me, of_store, nodes_of, between.clone());
        contents.load_pins().await.unwrap();
        let copier = Copier::new(&databases, &catalogue, SLOTS, between.clone());
        let starter = SlotStarter {
            node: me,
            cluster: self.cluster.clone(),
            versions: versions.clone(),
            databases: databases.clone(),
            catalogue: catalogue.clone(),
            log: self.log_of(me),
            network: between,
            copier: Arc::new(copier),
            contents: contents.clone(),
        };
        starter.start_slots(&replicas, on_setting).unwrap();
        let gateway = Gateway::new(&databases, &catalogue, &members, &replicas, &contents).unwrap();
        databases.set_sequencer(Arc::new(WeakSequencer(Arc::downgrade(&gateway))));
        let sender = Arc::new(CopySender::new(&databases, &catalogue, SLOTS));
        let reached = (replicas.clone(), sender, contents.clone());
        self.net.nodes.lock().insert(me, reached);
        let node = Node {
            databases,
            catalogue,
            replicas,
            gateway,
            contents,
            settings,
            versions,
            starter,
        };
        self.running.insert(me, node);
    }

    fn log_of(&self, node: NodeId) -> Arc<dyn Log> {
        let own = self.own.get(&node).cloned();
        own.unwrap_or_else(|| Arc::new(self.log.clone()))
    }

    /// Returns an unused folder.
    pub fn folder(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Gives a node that has not started yet a store.
    pub fn place(&self, node: NodeId, dir: &Path) {
        self.dirs.lock().insert(node, dir.to_owned());
    }

    /// Returns the folder of a node's store.
    pub fn dir(&self, node: NodeId) -> PathBuf {
        self.dirs.lock()[&node].clone()
    }

    pub fn node(&self, node: NodeId) -> &Node {
        &self.running[&node]
    }

    /// Stops a node, and waits until it has released its store.
    pub async fn stop(&mut self, me: NodeId) {
        self.net.nodes.lock().remove(&me);
        let node = self.running.remove(&me).expect("it runs");
        // As `Member::stop` does: a copy that waits for a version would hold the store for half a minute.
        node.catalogue.close();
        node.replicas.stop().await;
        let store = Arc::downgrade(node.databases.store().engine());
        node.databases.close();
        drop(node);
        until("let go", || store.strong_count() == 0).await;
    }

    /// Simulates a power cut: the node restarts from its disk at this moment.
    pub async fn kill(&mut self, me: NodeId) {
        let image = self.root.path().join(format!("{me}-{}", fastrand::u64(..)));
        let (databases, target) = (self.node(me).databases.clone(), image.clone());
        let copied = tokio::task::spawn_blocking(move || databases.backup(&target));
        copied.await.unwrap().unwrap();
        self.stop(me).await;
        self.dirs.lock().insert(me, image);
    }

    /// Makes a node a replica of all slots.
    pub async fn replicate_on(&self, new: NodeId) {
        for (slot, replica) in self.node(1).replicas.all() {
            let mut last = None;
            let deadline = Instant::now() + TIME_MAX;
            while Instant::now() < deadline {
                let mut members = replica.status().members;
                if members.contains(&new) {
                    last = None;
                    break;
                }
                members.push(new);
                let soon = Instant::now() + Duration::from_secs(5);
                last = replica.change(members, soon).await.err();
            }
            assert!(last.is_none(), "slot {slot}: {last:?} {}", self.describe());
        }
    }

    pub fn describe(&self) -> String {
        let mut all = String::new();
        for (id, node) in &self.running {
            for (slot, replica) in node.replicas.all() {
                all += &format!("\n{id}/{slot}: {:?}", replica.status());
            }
        }
        all
    }

    /// Trims the logs of all slots to what follows.
    pub fn trim(&self) {
        for slot in (0..SLOTS).chain([CONTROL]) {
            self.log.trim(slot, usize::MAX);
        }
    }

    pub async fn enter(&self, at: NodeId, entry: crate::control::entry::Entry) {
        let done = self.node(at).gateway.enter(entry).await;
        done.expect("it is entered");
    }

    pub async fn create(&self, at: NodeId, name: &str, q: u32) {
        retry("created", || async {
            match self.node(at).databases.create(name, database(q)).await {
                Err(database::Error::DatabaseExists) => Ok(()),
                done => done.map(drop),
            }
        })
        .await;
    }

    /// Deletes a database, once the node knows it.
    pub async fn delete(&self, at: NodeId, name: &str) {
        retry("deleted", || self.node(at).databases.delete(name)).await;
    }

    /// Writes documents, given as JSON, with retries.
    pub async fn write(&self, at: NodeId, name: &str, docs: &[String]) -> Vec<Outcome> {
        let databases = &self.node(at).databases;
        retry("written", || async {
            let parse = |doc: &String| document::parse_document(doc.as_bytes()).unwrap();
            let edits = docs.iter().map(parse).collect();
            let db = databases.get(name)?;
            let mode = EditMode::Interactive;
            let (outcomes, _) = db.update(edits, mode, Durability::Synced).await?;
            Ok(outcomes)
        })
        .await
    }

    /// Writes revisions as a replicator does, with retries, until they are written or refused.
    pub async fn replicate(&self, at: NodeId, name: &str, docs: &[String]) -> Vec<Outcome> {
        let databases = &self.node(at).databases;
        retry("replicated", || async {
            let parse = |doc: &String| document::parse_document(doc.as_bytes()).unwrap();
            let edits = docs.iter().map(parse).collect();
            let db = databases.get(name)?;
            let mode = EditMode::Replicated;
            let (outcomes, _) = db.update(edits, mode, Durability::Synced).await?;
            Ok(outcomes)
        })
        .await
    }

    /// Writes documents as a client's request that names the design documents that validated it.
    pub async fn write_validated(&self, at: NodeId, name: &str, docs: &[String]) {
        let databases = &self.node(at).databases;
        let outcomes = retry("written", || async {
            let parse = |doc: &String| document::parse_document(doc.as_bytes()).unwrap();
            let edits = docs.iter().map(parse).collect();
            let db = databases.get(name)?;
            let (mode, durability) = (EditMode::Interactive, Durability::Synced);
            let done = db.update_bulk_as(admin(), edits, mode, durability).await?;
            Ok(done.0)
        });
        let is_written = |outcome: &Outcome| matches!(outcome, Outcome::Ok { .. });
        assert!(outcomes.await.iter().all(is_written));
    }

    /// From here on only edits that were validated by these design documents count.
    pub async fn bar(&self, at: NodeId, name: &str, designs: u64, follows: u64) {
        let node = self.node(at);
        // It can have been created at another node a moment ago.
        let db = retry("found", || async { node.databases.get(name) }).await;
        let database = *db.uuid().as_bytes();
        for slot in 0..SLOTS {
            let body = cluster::record::Body::Barrier {
                database,
                designs,
                number: designs,
                follows,
            };
            // On a busy machine a node may be behind for a moment.
            let append = || async {
                let done = node.gateway.proposer.append(slot, body.clone()).await;
                done.map_err(|e| database::Error::Internal(format!("{e:?}")))
            };
            retry("appended", append).await;
        }
    }

    /// Waits until these nodes have equal states, and checks that.
    pub async fn agree(&self, ids: &[NodeId]) {
        let began = Instant::now();
        while !self.are_at_one_place(ids) {
            let late = began.elapsed() > TIME_MAX;
            assert!(!late, "never at one place: {}", self.describe());
            tokio::time::sleep(LOOK_EVERY).await;
        }
        let first = self.node(ids[0]);
        for id in &ids[1..] {
            let node = self.node(*id);
            let state = |node: &Node| node.catalogue.with(ControlState::clone);
            assert_eq!(state(node).databases, state(first).databases);
            assert_eq!(stored_state(&node.databases).unwrap(), state(first));
            for (name, wanted) in &state(first).databases {
                let [a, b] = [first, node].map(|n| n.databases.get(name).unwrap());
                assert_eq!(b.uuid(), wanted.uuid);
                assert_eq!(a.security(), b.security());
                assert_eq!(a.revs_limit(), b.revs_limit());
                assert_eq!(a.deleted_document_ttl(), b.deleted_document_ttl());
                assert_eq!(a.expiry(), b.expiry());
                same_shards(&a, &b);
                assert_eq!(listing(&a), listing(&b), "{name} at {id}");
            }
            let extra = node.databases.stored().unwrap().into_iter();
            let extra = extra.filter(|db| db.is_sequenced).count();
            assert_eq!(extra, state(first).databases.len());
        }
    }

    fn are_at_one_place(&self, ids: &[NodeId]) -> bool {
        (0..SLOTS).chain([CONTROL]).all(|slot| {
            let at = |id: &NodeId| {
                let status = self.node(*id).replicas.get(slot)?.status();
                let is_there = status.proposes && status.stable == status.position.next_offset;
                is_there.then_some(status.position.chain)
            };
            let first = at(&ids[0]);
            first.is_some() && ids.iter().all(|id| at(id) == first)
        })
    }
}

fn same_shards(a: &Database, b: &Database) {
    for (a, b) in a.all_shards().iter().zip(b.all_shards()) {
        let (of_a, of_b) = (a.recount_digest().unwrap(), b.recount_digest().unwrap());
        assert_eq!(of_a, of_b);
        assert_eq!(of_a.kept.unwrap_or(0), of_a.counted);
        let [mut a, mut b] = [a.meta(), b.meta()];
        (a.superseded_rows, b.superseded_rows) = (0, 0);
        assert_eq!(a, b);
    }
}

/// Lists all documents with their attachments, as text.
pub fn listing(db: &Database) -> String {
    let query = RowsQuery {
        listing: Listing::AllDocs,
        start: None,
        end: None,
        inclusive_end: true,
        keys: None,
        limit: None,
        skip: 0,
        descending: false,
        include_docs: true,
        conflicts: true,
        attachments: ShownAttachments {
            bytes: true,
            encoding_info: false,
        },
        update_seq: true,
    };
    let mut rows = db.rows(query).unwrap();
    let mut out = vec![];
    while rows.next_chunk(&mut out, 1 << 20).unwrap() {}
    String::from_utf8(out).unwrap()
}

pub async fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < TIME_MAX, "never {what}");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn retry<T, F: Future<Output = Result<T, database::Error>>>(
    what: &str,
    work: impl Fn() -> F,
) -> T {
    let began = Instant::now();
    loop {
        match work().await {
            Ok(done) => return done,
            Err(e) => assert!(began.elapsed() < TIME_MAX, "never {what}: {e}"),
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
