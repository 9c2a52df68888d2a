//! The connections in both directions: when nodes were last heard from, whether two processes are
//! one node, and whose messages come next.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use rustls::ClientConfig;
use tokio::sync::watch;

use crate::channel::Channel;
use crate::hello::Hello;
use crate::line::{LastHeard, Line};
use crate::{Event, Identity, IdentityError, NodeId, Options, tls};

/// Maximum number of processes of a node, counted for each channel, whose last connection is remembered.
const TURNS_MAX: usize = 16;

/// A process of a node, and a channel of its messages.
type TurnOf = (u64, Channel);

/// A receiver of events.
pub(crate) type Report = Arc<dyn Fn(Event) + Send + Sync>;

/// State shared by clients and servers of this node.
pub(crate) struct SharedState {
    pub identity: Arc<Identity>,
    pub options: Options,
    pub tls: Arc<ClientConfig>,
    connections: AtomicU64,
    nodes: Mutex<HashMap<NodeId, Arc<NodeEntry>>>,
    report: RwLock<Option<Report>>,
}

/// The state of a node.
#[derive(Default)]
pub(crate) struct NodeEntry {
    pub heard: Arc<LastHeard>,
    /// Its messages, and their bytes.
    pub received: AtomicU64,
    pub received_bytes: AtomicU64,
    /// Counts the connections that it made to this node: it runs, and can probably be reached.
    pub arrivals: watch::Sender<u64>,
    lines: Mutex<Vec<(u64, Arc<Line>)>>,
    turns: Mutex<Vec<(TurnOf, Arc<Turn>)>>,
}

/// The number of the connection whose messages are accepted; locked while one is delivered.
pub(crate) type Turn = tokio::sync::Mutex<u64>;

impl SharedState {
    pub fn new(
        identity: Arc<Identity>,
        options: Options,
    ) -> Result<Arc<SharedState>, IdentityError> {
        Ok(Arc::new(SharedState {
            tls: tls::client(&identity)?,
            identity,
            options,
            connections: AtomicU64::new(0),
            nodes: Mutex::default(),
            report: RwLock::default(),
        }))
    }

    /// Returns this process's greeting for a new connection.
    pub fn hello(&self) -> Hello {
        let n = self.connections.fetch_add(1, Ordering::Relaxed) + 1;
        Hello::new(self.options.protocol, self.identity.instance(), n)
    }

    pub fn known(&self, node: NodeId) -> Arc<NodeEntry> {
        self.nodes.lock().entry(node).or_default().clone()
    }

    pub fn last_heard(&self, node: NodeId) -> Option<Instant> {
        self.nodes.lock().get(&node)?.heard.last()
    }

    /// Sets the receiver of events.
    pub fn report_to(&self, report: Report) {
        *self.report.write() = Some(report);
    }

    pub fn report(&self, event: Event) {
        let report = self.report.read().clone();
        if let Some(report) = report {
            report(event);
        }
    }

    /// Notes that a process of a node has a connection, until the answer is dropped.
    pub fn enter(self: &Arc<Self>, node: NodeId, instance: u64, line: Arc<Line>) -> Registration {
        let known = self.known(node);
        let mut others: Vec<Arc<Line>> = vec![];
        let is_copy = node == self.identity.node() && instance != self.identity.instance();
        {
            let mut lines = known.lines.lock();
            let differs = lines.iter().filter(|(i, _)| *i != instance);
            others.extend(differs.map(|(_, line)| line.clone()));
            lines.push((instance, line.clone()));
        }
        if is_copy {
            self.report(Event::DuplicateNode { node });
        } else if !others.is_empty() {
            tokio::spawn(watch(self.clone(), node, line.clone(), others));
        }
        Registration { known, line }
    }
}

/// Reports a node with two live processes. The process before a restart may seem to be alive for a
/// while, but sends nothing more.
async fn watch(shared: Arc<SharedState>, node: NodeId, new: Arc<Line>, others: Vec<Arc<Line>>) {
    let ping = shared.options.ping_every;
    // Data of the earlier process may still arrive.
    tokio::time::sleep(ping).await;
    let from = Instant::now();
    tokio::time::sleep(2 * ping + Duration::from_millis(100)).await;
    let speaks = |line: &Arc<Line>| line.last_heard().is_some_and(|at| at > from);
    if speaks(&new) && others.iter().any(speaks) {
        shared.report(Event::DuplicateNode { node });
    }
}

/// A registered connection.
pub(crate) struct Registration {
    known: Arc<NodeEntry>,
    line: Arc<Line>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut lines = self.known.lines.lock();
        lines.retain(|(_, line)| !Arc::ptr_eq(line, &self.line));
    }
}

impl NodeEntry {
    /// The current turn among the connections of a process for a channel.
    pub fn turn(&self, instance: u64, channel: Channel) -> Arc<Turn> {
        let mut turns = self.turns.lock();
        let wanted = (instance, channel);
        if let Some((_, turn)) = turns.iter().find(|(of, _)| *of == wanted) {
            return turn.clone();
        }
        if turns.len() >= TURNS_MAX {
            turns.remove(0);
        }
        let turn = Arc::new(Turn::default());
        turns.push((wanted, turn.clone()));
        turn
    }
}
