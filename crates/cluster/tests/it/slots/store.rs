//! A slot's state in memory: documents by id, and the outcome of each request.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cluster::BoxFuture;
use cluster::position::{NodeId, Position};
use cluster::record::{Body, Request, Work};
use cluster::replica::{Cursor, DurableState, Promises};
use cluster::slot::{Outcomes, SlotStore, StagedCopy, StoreError};
use tokio::sync::{mpsc, oneshot};

/// A panic leaves no broken state here.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// After this time a broken copy breaks off. It is longer than a replica waits for contents.
const BROKEN_COPY_TIME: Duration = Duration::from_secs(2);

/// A request's outcome: its position among all.
pub type Outcome = usize;

#[derive(Clone, Default)]
pub struct State {
    pub documents: BTreeMap<String, Vec<u8>>,
    /// Requests in the order of their application.
    pub lineage: Vec<(u64, u64)>,
    sessions: HashMap<(u64, u64), Outcome>,
    parts: HashMap<(u64, u64), BTreeMap<u32, Vec<u8>>>,
    pub others: Vec<Body>,
    cursor: Option<Cursor>,
}

impl State {
    fn apply(&mut self, body: Option<Body>, cursor: Cursor) -> Outcomes<Outcome> {
        self.cursor = Some(cursor);
        match body {
            None => vec![],
            Some(Body::Requests(requests)) => requests.iter().map(|r| self.request(r)).collect(),
            Some(Body::Part {
                gateway,
                counter,
                index,
                count,
                bytes,
            }) => {
                let parts = self.parts.entry((gateway, counter)).or_default();
                parts.insert(index, bytes);
                if index + 1 < count || parts.len() < count as usize {
                    return vec![];
                }
                let parts = self.parts.remove(&(gateway, counter)).unwrap_or_default();
                let whole: Vec<u8> = parts.into_values().flatten().collect();
                let request = Request::from_bytes(&whole).expect("a request");
                vec![self.request(&request)]
            }
            Some(other) => {
                self.others.push(other);
                vec![]
            }
        }
    }

    fn request(&mut self, request: &Request) -> ((u64, u64), Outcome) {
        let key = (request.gateway, request.counter);
        if let Some(outcome) = self.sessions.get(&key) {
            return (key, *outcome);
        }
        for work in &request.databases {
            if let Work::Edits(edits) = &work.work {
                for edit in edits {
                    let id = edit.id.as_str().to_owned();
                    self.documents.insert(id, edit.body.clone());
                }
            }
        }
        self.lineage.push(key);
        self.sessions.insert(key, self.lineage.len());
        (key, self.lineage.len())
    }
}

struct Write {
    body: Option<Body>,
    cursor: Cursor,
    done: oneshot::Sender<Result<Outcomes<Outcome>, StoreError>>,
}

/// The state that survives restarts.
#[derive(Default)]
pub struct Disk {
    state: Mutex<State>,
    promises: Mutex<Promises>,
    /// Writes fail.
    pub is_full: AtomicBool,
    /// Contents of the next record are not here, nor on a majority, until a copy is installed.
    pub lacks: AtomicBool,
    /// Number of copies from others that are still to break off.
    pub broken_copies: AtomicU32,
    has_failed: AtomicBool,
}

impl Disk {
    pub fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }
}

pub type Disks = Arc<BTreeMap<NodeId, Arc<Disk>>>;

pub struct MemoryStore {
    pub disk: Arc<Disk>,
    disks: Disks,
    writes: mpsc::UnboundedSender<Write>,
}

impl MemoryStore {
    pub fn new(me: NodeId, disks: &Disks, delay: Duration) -> MemoryStore {
        let disk = Arc::clone(&disks[&me]);
        let (writes, written) = mpsc::unbounded_channel();
        tokio::spawn(write(Arc::clone(&disk), written, delay));
        MemoryStore {
            disk,
            disks: Arc::clone(disks),
            writes,
        }
    }
}

/// Writes everything queued together.
async fn write(disk: Arc<Disk>, mut queue: mpsc::UnboundedReceiver<Write>, delay: Duration) {
    let mut batch = vec![];
    while queue.recv_many(&mut batch, 256).await > 0 {
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let lacks = disk.lacks.load(Ordering::SeqCst);
        if lacks || disk.is_full.load(Ordering::SeqCst) {
            disk.has_failed.store(true, Ordering::SeqCst);
        }
        let failed = disk.has_failed.load(Ordering::SeqCst);
        let mut state = disk.state();
        for write in batch.drain(..) {
            let result = match failed {
                true if lacks => Err(StoreError::Lacking {
                    text: "a content is not here".into(),
                    by_majority: true,
                }),
                true => Err(StoreError::Full("no room".into())),
                false => Ok(state.apply(write.body, write.cursor)),
            };
            let _ = write.done.send(result);
        }
    }
}

impl SlotStore for MemoryStore {
    type Outcome = Outcome;
    type Copy = Staged;

    fn saved(&self) -> Result<Option<DurableState>, StoreError> {
        self.disk.has_failed.store(false, Ordering::SeqCst);
        let cursor = self.disk.state().cursor.clone();
        let promises = locked(&self.disk.promises).clone();
        Ok(cursor.map(|cursor| DurableState { cursor, promises }))
    }

    fn apply(
        &self,
        body: Option<Body>,
        cursor: &Cursor,
    ) -> BoxFuture<'static, Result<Outcomes<Outcome>, StoreError>> {
        let (done, written) = oneshot::channel();
        let cursor = cursor.clone();
        let _ = self.writes.send(Write { body, cursor, done });
        Box::pin(async move {
            let gone = |_| Err(StoreError::Failed("the program ends".into()));
            written.await.unwrap_or_else(gone)
        })
    }

    fn promise(&self, promises: &Promises) -> BoxFuture<'static, Result<(), StoreError>> {
        *locked(&self.disk.promises) = promises.clone();
        Box::pin(std::future::ready(Ok(())))
    }

    fn position(&self) -> Result<Position, StoreError> {
        let state = self.disk.state();
        let position = state.cursor.as_ref().map(|cursor| cursor.position);
        Ok(position.unwrap_or_else(Position::start))
    }

    fn copy(&self, from: NodeId) -> BoxFuture<'static, Result<Staged, StoreError>> {
        let state = self.disks[&from].state().clone();
        let own = Arc::clone(&self.disk);
        let left = &own.broken_copies;
        let left = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
            left.checked_sub(1)
        });
        let breaks = left.is_ok();
        Box::pin(async move {
            if breaks {
                tokio::time::sleep(BROKEN_COPY_TIME).await;
                return Err(StoreError::Failed("it broke off".into()));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
            match state.cursor.clone() {
                Some(cursor) => Ok(Staged { state, cursor, own }),
                None => Err(StoreError::Failed("it has nothing".into())),
            }
        })
    }
}

pub struct Staged {
    state: State,
    cursor: Cursor,
    own: Arc<Disk>,
}

impl StagedCopy for Staged {
    fn cursor(&self) -> &Cursor {
        &self.cursor
    }

    fn install(self) -> BoxFuture<'static, Result<(), StoreError>> {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            *self.own.state() = self.state;
            self.own.lacks.store(false, Ordering::SeqCst);
            Ok(())
        })
    }
}
