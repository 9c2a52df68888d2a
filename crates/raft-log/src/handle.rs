//! The log as the rest of the program uses it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use cluster::log::{AppendError, LogError, RawReadBackResult, RawRecord, Tail};
use cluster::record::BYTES_MAX;
use cluster::{BoxFuture, Log, NodeId, SlotNumber, TailSender, tail_channel};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use crate::disk::LogDisk;
use crate::driver::{Command, Driver, SizeLimit, Transport, maintain, write};
use crate::figures::LogFigures;
use crate::groups::{Core, CoreError};
use crate::message::{AppendOutcome, FetchRequest, Fetched, FoundRecord, Purpose};
use crate::options::{LogNode, Options};

/// The pause after an answer without a record that was not waited for.
const PAUSE: Duration = Duration::from_millis(200);

/// The reason why a log did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The groups.
    #[error(transparent)]
    Core(#[from] CoreError),
    /// The threads.
    #[error("the threads of the log did not start: {0}")]
    Thread(#[from] std::io::Error),
}

/// The log in the nodes, as one of them sees it.
pub struct RaftLog {
    options: Options,
    commands: Sender<Command>,
    runtime: Handle,
    is_reachable: Arc<AtomicBool>,
    figures: Arc<Mutex<LogFigures>>,
    is_stopped: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// Takes bundles of other nodes. It does not keep the log running.
#[derive(Clone)]
pub struct Inlet {
    commands: Sender<Command>,
}

impl Inlet {
    /// Handles a bundle of another node.
    pub fn deliver(&self, from: NodeId, bundle: Bytes) {
        // A log that was stopped expects nothing.
        let _ = self.commands.send(Command::Deliver { from, bundle });
    }
}

impl RaftLog {
    /// Starts a node's log, within tokio's runtime. The first node of a new cluster creates the
    /// groups.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start<D: LogDisk>(
        options: Options,
        disk: Arc<D>,
        transport: Arc<dyn Transport>,
        log_nodes: Vec<LogNode>,
        creates: bool,
    ) -> Result<RaftLog, StartError> {
        let mut core = Core::open(options.clone(), disk.clone())?;
        if creates {
            core.create_groups()?;
        }
        core.set_log_nodes(log_nodes);
        let (commands, todo) = channel();
        let (jobs, writes) = channel();
        let (maintenance, orders) = channel();
        let is_reachable = Arc::new(AtomicBool::new(false));
        let is_stopped = Arc::new(AtomicBool::new(false));
        let figures = Arc::new(Mutex::new(core.figures()));
        let driver = Driver {
            core,
            disk: disk.clone(),
            log: options.log,
            size_limit: SizeLimit::new(options.disk_bytes_max),
            transport,
            commands: todo,
            jobs,
            maintenance,
            is_reachable: is_reachable.clone(),
            figures: figures.clone(),
            appends: BTreeMap::new(),
            fetches: BTreeMap::new(),
            writing: 0,
            ticks: 0,
        };
        let (done, stopped) = (commands.clone(), is_stopped.clone());
        let maintained = disk.clone();
        let named = |name: &str| std::thread::Builder::new().name(name.into());
        let writer = named("raft-disk").spawn(move || write(&*disk, &writes, &done, &stopped))?;
        let maintainer = named("raft-reclaim").spawn(move || maintain(&*maintained, &orders))?;
        let driver = named("raft").spawn(move || driver.run())?;
        Ok(RaftLog {
            options,
            commands,
            runtime: Handle::current(),
            is_reachable,
            figures,
            is_stopped,
            threads: vec![driver, writer, maintainer],
        })
    }

    /// Returns where bundles of other nodes are delivered.
    pub fn inlet(&self) -> Inlet {
        Inlet {
            commands: self.commands.clone(),
        }
    }

    /// Sets the cluster's log nodes.
    pub fn set_log_nodes(&self, nodes: Vec<LogNode>) {
        self.send(Command::LogNodes(nodes));
    }

    /// Returns its figures.
    pub fn figures(&self) -> LogFigures {
        self.figures.lock().clone()
    }

    /// Returns its options.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Removes the records of a slot before the offset `unneeded`, which all replicas have. Later ones
    /// are removed only when the log is too large, and never those from `stable` on: no majority of
    /// replicas has them.
    pub fn trim(&self, slot: SlotNumber, unneeded: u64, stable: u64) {
        self.send(Command::Trim {
            slot,
            unneeded,
            stable,
        });
    }

    fn send(&self, command: Command) {
        // A thread that ended was stopped, or its error is logged.
        let _ = self.commands.send(command);
    }
}

impl Drop for RaftLog {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        self.send(Command::Stop);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the log panicked");
            }
        }
    }
}

impl Log for RaftLog {
    fn append(
        &self,
        slot: SlotNumber,
        record: Vec<u8>,
    ) -> BoxFuture<'static, Result<u64, AppendError>> {
        let refused = |why: &str| -> BoxFuture<'static, Result<u64, AppendError>> {
            let refusal = Err(AppendError::Refused(why.into()));
            Box::pin(std::future::ready(refusal))
        };
        if !self.options.has_slot(slot) {
            return refused(&format!("there is no slot {slot}"));
        }
        if record.is_empty() || record.len() > BYTES_MAX {
            return refused(&format!("a record cannot have {} bytes", record.len()));
        }
        let (reply, outcome) = oneshot::channel();
        // The order of the calls is that of this queue.
        self.send(Command::Append {
            slot,
            record: record.into(),
            reply,
        });
        Box::pin(async move {
            match outcome.await {
                Ok(AppendOutcome::Stored(offset)) => Ok(offset),
                Ok(AppendOutcome::Refused | AppendOutcome::NotLeader(_)) => Err(
                    AppendError::Refused("no leader of the log took the record in time".into()),
                ),
                Ok(AppendOutcome::Unknown) => Err(AppendError::Unknown(
                    "the log's leader changed, or no majority answered in time".into(),
                )),
                Err(_) => Err(AppendError::Unknown("the log was stopped".into())),
            }
        })
    }

    fn follow(&self, slot: SlotNumber, from: u64) -> mpsc::Receiver<Tail> {
        let (to, tail) = tail_channel();
        let request = FetchRequest {
            slot,
            from,
            purpose: Purpose::Follow,
        };
        if self.options.has_slot(slot) {
            let commands = self.commands.clone();
            self.runtime
                .spawn(deliver_tail(commands, request, self.options.log, to));
        }
        tail
    }

    fn read_back(
        &self,
        slot: SlotNumber,
        offset: u64,
        epoch: i32,
    ) -> BoxFuture<'static, Result<RawReadBackResult, LogError>> {
        let epoch = u64::try_from(epoch).unwrap_or(0);
        let request = FetchRequest {
            slot,
            from: offset,
            purpose: Purpose::ReadBack { epoch },
        };
        let (commands, log) = (self.commands.clone(), self.options.log);
        Box::pin(async move {
            match fetch(&commands, request).await {
                Fetched::Found { start, records, .. } => Ok(match records.into_iter().next() {
                    Some(found) => RawReadBackResult::Record(raw(found, log)),
                    None if offset < start => RawReadBackResult::Trimmed,
                    None => RawReadBackResult::BeyondEnd,
                }),
                Fetched::Unavailable => Err(LogError("no leader of the log answered".into())),
            }
        })
    }

    fn is_reachable(&self) -> BoxFuture<'static, bool> {
        // A thread that panicked reports nothing any more. The third one maintains the disk only.
        let mut threads = self.threads.iter().take(2);
        let runs = threads.all(|thread| !thread.is_finished());
        let is_reachable = runs && self.is_reachable.load(Ordering::Relaxed);
        Box::pin(std::future::ready(is_reachable))
    }
}

async fn fetch(commands: &Sender<Command>, request: FetchRequest) -> Fetched {
    let (reply, fetched) = oneshot::channel();
    // Without the thread there is no answer.
    let _ = commands.send(Command::Fetch { request, reply });
    fetched.await.unwrap_or(Fetched::Unavailable)
}

/// Delivers records until the receiver is dropped.
async fn deliver_tail(
    commands: Sender<Command>,
    mut request: FetchRequest,
    log: u64,
    mut to: TailSender,
) {
    while !to.is_closed() {
        let fetched = tokio::select! {
            fetched = fetch(&commands, request) => fetched,
            () = to.closed() => return,
        };
        let must_pause = match fetched {
            Fetched::Unavailable => true,
            Fetched::Found {
                start,
                end,
                records,
            } => {
                let first = records.first().map(|record| record.offset);
                debug_assert!(first.is_none_or(|first| first == request.from));
                let is_outside = request.from < start || request.from > end;
                if records.is_empty() && !to.send(Tail::NoRecord { start, end }).await {
                    return;
                }
                for record in records {
                    request.from = record.offset + 1;
                    if !to.send(Tail::Record(raw(record, log))).await {
                        return;
                    }
                }
                is_outside
            }
        };
        if must_pause {
            tokio::select! {
                () = tokio::time::sleep(PAUSE) => {}
                () = to.closed() => return,
            }
        }
    }
}

fn raw(found: FoundRecord, log: u64) -> RawRecord {
    RawRecord {
        log,
        offset: found.offset,
        // A term grows with each election.
        epoch: i32::try_from(found.epoch).unwrap_or(i32::MAX),
        bytes: found.bytes.into(),
    }
}
