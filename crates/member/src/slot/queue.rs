//! Keeps the order in which a slot's records reach the store: each is prepared, which may take a
//! while, and then queued with the commit thread. The next one does not wait until it is written.

use std::sync::Arc;

use cluster::record::Body;
use cluster::replica::{Cursor, DurableState, Promises};
use cluster::slot::{Outcomes, StoreError};
use cluster::{BoxFuture, SlotNumber};
use parking_lot::Mutex;
use storage::{SlotOutcome, SlotRequest, SlotWrite, Snapshot, Store};
use tokio::sync::{mpsc, oneshot};

use crate::content::LackedContent;

/// Rows of the slot that belong to the replica.
pub(crate) const CURSOR: &[u8] = b"@cursor";
pub(crate) const PROMISES: &[u8] = b"@promises";

type Result<T> = std::result::Result<T, StoreError>;

/// A record as operations of the store.
#[derive(Default)]
pub(crate) struct PreparedRecord {
    /// Rows of the slot.
    pub rows: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// The work in databases.
    pub requests: Vec<SlotRequest>,
    /// Outcomes that are known already, of requests without work for the store.
    pub outcomes: Outcomes<SlotOutcome>,
    /// Contents that could not be obtained, each with the error if the store needs it.
    pub lacking: Vec<LackedContent>,
}

/// Translates records to operations of the store.
pub(crate) trait Prepare: Send + Sync + 'static {
    /// One record at a time, in order.
    fn prepare(
        &self,
        body: Body,
        cursor: &Cursor,
    ) -> impl Future<Output = Result<PreparedRecord>> + Send;
}

/// The queue of a slot's writes to the store.
pub(crate) struct Queue {
    slot: SlotNumber,
    store: Arc<Store>,
    work: mpsc::UnboundedSender<QueueItem>,
    queue_end: Arc<Mutex<QueueEnd>>,
}

/// The slot's position after everything that was queued.
#[derive(Default)]
struct QueueEnd {
    at: Option<storage::Position>,
    /// A write failed: those after it fail as well.
    is_broken: bool,
}

enum QueueItem {
    Record {
        body: Option<Body>,
        cursor: Box<Cursor>,
        reply: oneshot::Sender<Result<Queued>>,
    },
    Promises {
        promises: Vec<u8>,
        reply: oneshot::Sender<Result<Queued>>,
    },
}

/// A write queued with the commit thread.
struct Queued {
    written: oneshot::Receiver<std::result::Result<Vec<SlotOutcome>, storage::Error>>,
    sessions: Vec<(u64, u64)>,
    outcomes: Outcomes<SlotOutcome>,
    lacking: Vec<LackedContent>,
}

impl Queue {
    /// Starts it; it ends when it is dropped.
    pub fn start<P: Prepare>(slot: SlotNumber, store: Arc<Store>, prepare: Arc<P>) -> Queue {
        let (work, todo) = mpsc::unbounded_channel();
        let queue_end = Arc::new(Mutex::new(QueueEnd::default()));
        let worker = Worker {
            slot,
            store: store.clone(),
            queue_end: queue_end.clone(),
            prepare,
        };
        tokio::spawn(worker.run(todo));
        Queue {
            slot,
            store,
            work,
            queue_end,
        }
    }

    /// Returns a handle to notify of a replaced state. Nothing may be queued meanwhile.
    pub fn renewal(&self) -> Renewal {
        Renewal {
            slot: self.slot,
            store: self.store.clone(),
            queue_end: self.queue_end.clone(),
        }
    }

    /// Returns the stored state of the replica.
    pub fn saved(&self) -> Result<Option<DurableState>> {
        let snapshot = self.store.snapshot();
        self.renewal().renew(&snapshot)?;
        let row = |key: &[u8]| {
            let rows = snapshot.slot_state(self.slot, key).map_err(failed)?;
            Ok(rows.into_iter().find(|(k, _)| k == key).map(|(_, v)| v))
        };
        let corrupt = || StoreError::Failed("the stored state of the replica is damaged".into());
        let promises = match row(PROMISES)? {
            Some(bytes) => Promises::decode(&bytes).ok_or_else(corrupt)?,
            None => Promises::default(),
        };
        let Some(cursor) = row(CURSOR)? else {
            return match promises == Promises::default() {
                true => Ok(None),
                // It promised before it applied anything.
                false => Err(corrupt()),
            };
        };
        let cursor = Cursor::decode(&cursor).ok_or_else(corrupt)?;
        Ok(Some(DurableState { cursor, promises }))
    }

    /// Queues a record.
    pub fn apply(
        &self,
        body: Option<Body>,
        cursor: &Cursor,
    ) -> BoxFuture<'static, Result<Outcomes<SlotOutcome>>> {
        let (reply, queued) = oneshot::channel();
        let cursor = Box::new(cursor.clone());
        self.push(QueueItem::Record {
            body,
            cursor,
            reply,
        });
        Box::pin(written(queued))
    }

    /// Queues promises.
    pub fn promise(&self, promises: &Promises) -> BoxFuture<'static, Result<()>> {
        let (reply, queued) = oneshot::channel();
        let promises = promises.encode();
        self.push(QueueItem::Promises { promises, reply });
        Box::pin(async move { written(queued).await.map(drop) })
    }

    fn push(&self, work: QueueItem) {
        // The receiver is gone once the runtime ends: then the reply is dropped with it.
        let _ = self.work.send(work);
    }

    /// Returns the position that readers see.
    pub fn position(&self) -> Result<cluster::Position> {
        let at = self.store.slot(self.slot).map_err(failed)?;
        Ok(at.map_or_else(cluster::Position::start, |at| from_stored(&at)))
    }
}

/// Continues a queue from the store's current position.
pub(crate) struct Renewal {
    slot: SlotNumber,
    store: Arc<Store>,
    queue_end: Arc<Mutex<QueueEnd>>,
}

impl Renewal {
    /// Continues from the store's current position.
    pub fn renew_now(&self) -> Result<()> {
        self.renew(&self.store.snapshot())
    }

    fn renew(&self, snapshot: &Snapshot) -> Result<()> {
        let at = snapshot.slot(self.slot).map_err(failed)?;
        *self.queue_end.lock() = QueueEnd {
            at,
            is_broken: false,
        };
        Ok(())
    }
}

async fn written(queued: oneshot::Receiver<Result<Queued>>) -> Result<Outcomes<SlotOutcome>> {
    let stopped = || StoreError::Failed("the server is shutting down".into());
    let queued = queued.await.map_err(|_| stopped())??;
    let done = queued.written.await.map_err(|_| stopped())?;
    let done = done.map_err(|e| refused(e, queued.lacking))?;
    let mut outcomes = queued.outcomes;
    outcomes.extend(queued.sessions.into_iter().zip(done));
    Ok(outcomes)
}

/// Converts the error of a write, for the replica.
fn refused(e: storage::Error, lacking: Vec<LackedContent>) -> StoreError {
    let storage::Error::MissingContent { content, .. } = &e else {
        return failed(e);
    };
    let known = lacking.into_iter().find(|(id, _)| id == content);
    known.map_or_else(
        || StoreError::Lacking {
            text: e.to_string(),
            by_majority: false,
        },
        |(_, why)| why,
    )
}

struct Worker<P> {
    slot: SlotNumber,
    store: Arc<Store>,
    queue_end: Arc<Mutex<QueueEnd>>,
    prepare: Arc<P>,
}

impl<P: Prepare> Worker<P> {
    async fn run(self, mut todo: mpsc::UnboundedReceiver<QueueItem>) {
        while let Some(work) = todo.recv().await {
            // The caller may have gone.
            match work {
                QueueItem::Record {
                    body,
                    cursor,
                    reply,
                } => drop(reply.send(self.record(body, &cursor).await)),
                QueueItem::Promises { promises, reply } => {
                    drop(reply.send(self.promises(promises)))
                }
            }
        }
    }

    async fn record(&self, body: Option<Body>, cursor: &Cursor) -> Result<Queued> {
        self.refuse_broken()?;
        let prepared = match body {
            Some(body) => self.prepare.prepare(body, cursor).await,
            None => Ok(PreparedRecord::default()),
        };
        let mut prepared = prepared.inspect_err(|_| self.queue_end.lock().is_broken = true)?;
        prepared.rows.push((CURSOR.to_vec(), Some(cursor.encode())));
        let to = to_stored(&cursor.position);
        Ok(self.queue(prepared, |_| to))
    }

    fn promises(&self, promises: Vec<u8>) -> Result<Queued> {
        self.refuse_broken()?;
        let prepared = PreparedRecord {
            rows: vec![(PROMISES.to_vec(), Some(promises))],
            ..PreparedRecord::default()
        };
        let start = to_stored(&cluster::Position::start());
        Ok(self.queue(prepared, |at| at.unwrap_or(start)))
    }

    fn refuse_broken(&self) -> Result<()> {
        match self.queue_end.lock().is_broken {
            true => Err(StoreError::Failed(
                "a record before it was not written".into(),
            )),
            false => Ok(()),
        }
    }

    fn queue(
        &self,
        prepared: PreparedRecord,
        to: impl FnOnce(Option<storage::Position>) -> storage::Position,
    ) -> Queued {
        let session = |request: &SlotRequest| (request.session.gateway, request.session.counter);
        let sessions = prepared.requests.iter().map(session).collect();
        let mut way = self.queue_end.lock();
        let (from, to) = (way.at, to(way.at));
        way.at = Some(to);
        let write = SlotWrite {
            slot: self.slot,
            from,
            to,
            state: prepared.rows,
            requests: prepared.requests,
        };
        let written = self.store.committer.apply_slot(write);
        drop(way);
        Queued {
            written,
            sessions,
            outcomes: prepared.outcomes,
            lacking: prepared.lacking,
        }
    }
}

/// Converts an error of the store, for the replica.
pub(crate) fn failed(e: storage::Error) -> StoreError {
    match e {
        storage::Error::DiskFull { .. } => StoreError::Full(e.to_string()),
        e => StoreError::Failed(e.to_string()),
    }
}

/// Converts an error of opening a database, for the replica.
pub(crate) fn open_error(e: database::Error) -> StoreError {
    match e {
        database::Error::InsufficientStorage(reason) => StoreError::Full(reason),
        e => StoreError::Failed(e.to_string()),
    }
}

pub(crate) fn to_stored(position: &cluster::Position) -> storage::Position {
    storage::Position {
        generation: storage::Generation {
            number: position.generation.number,
            by: position.generation.by,
        },
        next_offset: position.next_offset,
        leader_epoch: position.leader_epoch,
        chain: position.chain,
    }
}

pub(crate) fn from_stored(position: &storage::Position) -> cluster::Position {
    cluster::Position {
        generation: cluster::Generation {
            number: position.generation.number,
            by: position.generation.by,
        },
        next_offset: position.next_offset,
        leader_epoch: position.leader_epoch,
        chain: position.chain,
    }
}
