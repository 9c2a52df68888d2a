//! Drives one replica of a slot: a [`Replica`](crate::replica::Replica) with a log, a store, a
//! network and a clock.
//!
//! Each slot is one task that owns the state machine, so nothing is locked: records of the log,
//! messages, results of the store, and commands of handles reach it through channels, and outputs
//! of the state machine are carried out in order. Writes to the store are pipelined; slow
//! operations run in tasks of their own, which send their results back.

mod delay;
mod lag;
mod propose;
mod read;
mod task;
mod types;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, timeout_at};

pub use types::*;

use self::propose::{Failure, Load, Settlement};
use self::read::ReadCheck;
use self::task::{Command, Task};
use crate::log::Log;
use crate::position::NodeId;
use crate::record::{Body, EncodedRequest, Request};
use crate::replica::Message;

/// Maximum number of messages queued for the task; further ones are lost, and requested again.
const MESSAGES_MAX: usize = 1024;

/// A handle of a slot's replica on this node. Clones share the replica; it ends when [`Slot::stop`]
/// is called, or the last handle is dropped.
pub struct Slot<S: SlotStore> {
    shared: Arc<Shared<S>>,
}

struct Shared<S: SlotStore> {
    commands: mpsc::UnboundedSender<Command<S::Outcome>>,
    messages: mpsc::Sender<(NodeId, Message)>,
    ids: AtomicU64,
    store: Arc<S>,
    board: Arc<Board>,
}

/// State of the task that handles can see.
#[derive(Default)]
struct Board {
    status: Mutex<SlotStatus>,
    stable: watch::Sender<StableOffset>,
    /// Counts starts and ends of replacing the state by another replica's: odd meanwhile.
    replaced: AtomicU64,
}

impl Board {
    fn status(&self) -> MutexGuard<'_, SlotStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SlotStatus {
    /// Returns why the slot does not advance, as far as is known.
    pub fn reason(&self) -> String {
        match (self.halted, &self.error) {
            (Some(reason), _) => reason.to_string(),
            (None, Some(error)) => error.clone(),
            (None, None) if self.sealed => "a new generation of its log is about to begin".into(),
            (None, None) if self.proposes => "a majority of its replicas does not answer".into(),
            (None, None) => {
                "it makes sure with the other replicas that the log is still the same".into()
            }
        }
    }
}

impl<S: SlotStore> Clone for Slot<S> {
    fn clone(&self) -> Slot<S> {
        Slot {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<S: SlotStore> Slot<S> {
    /// Starts the replica on the current runtime.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn start(
        options: SlotOptions,
        store: Arc<S>,
        log: Arc<dyn Log>,
        network: Arc<dyn Network>,
    ) -> Result<Slot<S>, StoreError> {
        let saved = store.saved()?;
        let (commands, commanded) = mpsc::unbounded_channel();
        let (messages, delivered) = mpsc::channel(MESSAGES_MAX);
        let board = Arc::<Board>::default();
        let shared = Arc::new(Shared {
            commands,
            messages,
            ids: AtomicU64::new(0),
            store: Arc::clone(&store),
            board: Arc::clone(&board),
        });
        let task = Task::new(
            options,
            (store, log, network),
            (commanded, delivered),
            board,
        );
        tokio::spawn(task.run(saved));
        Ok(Slot { shared })
    }

    /// Delivers a message of another replica. It is lost when too many are queued.
    pub fn deliver(&self, from: NodeId, message: Message) {
        let _ = self.shared.messages.try_send((from, message));
    }

    /// Proposes a request and waits until it is applied. The same request, identified by its
    /// gateway and counter, may be proposed again, here or elsewhere, and is applied once.
    ///
    /// # Errors
    /// The required number of copies was not reached; the error describes the known state.
    pub async fn propose(
        &self,
        request: Request,
        wait: Wait,
    ) -> Result<ProposalOutcome<S::Outcome>, ProposeError<S::Outcome>> {
        let encoded = request.encoded();
        drop(request);
        self.propose_encoded(encoded, wait).await
    }

    /// Proposes an encoded request.
    ///
    /// # Errors
    /// Errors of [`Slot::propose`].
    pub async fn propose_encoded(
        &self,
        request: EncodedRequest,
        wait: Wait,
    ) -> Result<ProposalOutcome<S::Outcome>, ProposeError<S::Outcome>> {
        let Wait { copies, deadline } = wait;
        let load = Load::Request(request);
        let settled = self.settled(load, copies, deadline).await?;
        let (outcome, copies) = (settled.outcome, settled.copies);
        Ok(ProposalOutcome {
            outcome: outcome.ok_or(ProposeError::Unknown)?,
            offset: settled.offset,
            copies,
        })
    }

    /// Appends a record of its own, such as [`Body::Await`] or [`Body::Barrier`], whose repetition
    /// has no effect. Returns its offset in the log, once it is stable.
    ///
    /// # Errors
    /// That did not happen in time; the error describes the known state.
    pub async fn append(&self, body: Body, deadline: Instant) -> Result<u64, ProposeError<()>> {
        match self.settled(Load::Body(body), None, deadline).await {
            Ok(settled) => Ok(settled.offset),
            Err(failure) => Err(match Option::from(failure) {
                Some(known) => known,
                None => ProposeError::Stopped,
            }),
        }
    }

    /// Changes the slot's replicas to `members`, which adds or removes one node. Returns when the
    /// change is stable.
    ///
    /// # Errors
    /// It is another kind of change, or did not happen in time.
    pub async fn change_replicas(
        &self,
        members: Vec<NodeId>,
        deadline: Instant,
    ) -> Result<(), ChangeError> {
        let settled = self.settled(Load::Members(members), None, deadline).await;
        match settled {
            Ok(_) => Ok(()),
            Err(Unsettled(Some(Failure::NotOne))) => Err(ChangeError::NotOne),
            Err(Unsettled(_)) => Err(ChangeError::NotNow(self.status().reason())),
        }
    }

    /// Sets the existing nodes: a new node may not reach any of the replicas that the log starts
    /// with.
    pub fn know(&self, nodes: Vec<NodeId>) {
        let _ = self.shared.commands.send(Command::Know(nodes));
    }

    /// Starts a new generation, on behalf of an operator, after the log lost what a majority has.
    pub fn reseed(&self) {
        let _ = self.shared.commands.send(Command::Reseed);
    }

    /// Reads everything that was acknowledged before, and nothing that may be lost. `read` is
    /// called again if its first result turned out to be stale.
    ///
    /// # Errors
    /// That cannot be ensured in time.
    pub async fn read<T>(
        &self,
        deadline: Instant,
        mut read: impl FnMut() -> T,
    ) -> Result<T, ReadError> {
        let mut reading = self.begin_read(deadline).await?;
        loop {
            let found = read();
            if reading.may_show().await? {
                return Ok(found);
            }
        }
    }

    /// Starts a read in steps: returns when the store may be read.
    ///
    /// # Errors
    /// That did not happen in time.
    pub async fn begin_read(&self, deadline: Instant) -> Result<ReadGuard<'_, S>, ReadError> {
        let id = self.next_id();
        let (now, may_read) = oneshot::channel();
        let reading = ReadGuard {
            slot: self,
            id,
            deadline,
        };
        self.command(Command::Read { id, now })
            .map_err(|()| ReadError::Stopped)?;
        reading.wait_for(may_read).await?;
        Ok(reading)
    }

    /// Returns a number that changes when the state here is replaced by another replica's: earlier
    /// results may be lost then, whatever is stable. `None` while it is being replaced.
    pub fn replaced(&self) -> Option<u64> {
        let replaced = self.shared.board.replaced.load(Ordering::Acquire);
        replaced.is_multiple_of(2).then_some(replaced)
    }

    /// Waits until everything that readers of the store see now is stable.
    ///
    /// # Errors
    /// That is not known in time, or what they saw was replaced.
    pub async fn settle(&self, deadline: Instant) -> Result<(), ReadError> {
        let before = self.replaced();
        self.reach(deadline).await?;
        match before.is_some() && self.replaced() == before {
            true => Ok(()),
            false => Err(ReadError::NotNow(
                "it was copied from another node meanwhile".into(),
            )),
        }
    }

    /// Waits until the local state is stable.
    async fn reach(&self, deadline: Instant) -> Result<(), ReadError> {
        let mut stable = self.watch();
        loop {
            let at = self.shared.store.position()?;
            let is_there = |stable: &StableOffset| {
                stable.generation > at.generation
                    || stable.generation == at.generation && stable.next_offset >= at.next_offset
            };
            let waited = timeout_at(deadline, stable.wait_for(is_there)).await;
            let reached = waited.map_err(|_| ReadError::NotNow(self.status().reason()))?;
            let reached = *reached.map_err(|_| ReadError::Stopped)?;
            if reached.generation == at.generation {
                return Ok(());
            }
            // Another generation has started meanwhile.
            tokio::task::yield_now().await;
        }
    }

    /// Returns the status.
    pub fn status(&self) -> SlotStatus {
        self.shared.board.status().clone()
    }

    /// Returns the stable position, and notifies of its changes.
    pub fn watch(&self) -> watch::Receiver<StableOffset> {
        self.shared.board.stable.subscribe()
    }

    /// Stops it, after the current writes. Waiting calls return errors.
    pub async fn stop(self) {
        let (stopped, ended) = oneshot::channel();
        if self.command(Command::Stop(stopped)).is_ok() {
            let _ = ended.await;
        }
    }

    fn next_id(&self) -> u64 {
        self.shared.ids.fetch_add(1, Ordering::Relaxed)
    }

    fn command(&self, command: Command<S::Outcome>) -> Result<(), ()> {
        self.shared.commands.send(command).map_err(|_| ())
    }

    /// Hands the task a load to append and waits for the result.
    async fn settled(
        &self,
        load: Load,
        copies: Option<usize>,
        deadline: Instant,
    ) -> Result<Settlement<S::Outcome>, Unsettled<S::Outcome>> {
        let id = self.next_id();
        let (answer, mut answered) = oneshot::channel();
        let propose = Command::Propose {
            id,
            load,
            copies,
            answer,
        };
        self.command(propose).map_err(|()| Unsettled(None))?;
        // Also when this future is dropped.
        let given_up = GiveUp { slot: self, id };
        let answer = match timeout_at(deadline, &mut answered).await {
            Ok(answer) => {
                std::mem::forget(given_up);
                answer
            }
            Err(_) => {
                drop(given_up);
                answered.await
            }
        };
        match answer {
            Ok(answer) => answer.map_err(|failure| Unsettled(Some(failure))),
            Err(_) => Err(Unsettled(None)),
        }
    }
}

/// Notifies the task that the caller no longer waits.
struct GiveUp<'a, S: SlotStore> {
    slot: &'a Slot<S>,
    id: u64,
}

impl<S: SlotStore> Drop for GiveUp<'_, S> {
    fn drop(&mut self) {
        let _ = self.slot.command(Command::GiveUp(self.id));
    }
}

/// The reason why something was not settled; `None`: the task has ended.
struct Unsettled<O>(Option<Failure<O>>);

impl<O> From<Unsettled<O>> for ProposeError<O> {
    fn from(unsettled: Unsettled<O>) -> ProposeError<O> {
        match unsettled.0 {
            None => ProposeError::Stopped,
            Some(Failure::NotNow(why)) => ProposeError::NotNow(why),
            Some(Failure::Full(why)) => ProposeError::Full(why),
            Some(Failure::Behind) => ProposeError::Behind,
            Some(Failure::TooFew {
                outcome: Some(outcome),
                copies,
            }) => ProposeError::TooFew { outcome, copies },
            Some(_) => ProposeError::Unknown,
        }
    }
}

impl<O> From<Unsettled<O>> for Option<ProposeError<()>> {
    fn from(unsettled: Unsettled<O>) -> Option<ProposeError<()>> {
        Some(match unsettled.0? {
            Failure::NotNow(why) => ProposeError::NotNow(why),
            Failure::Full(why) => ProposeError::Full(why),
            Failure::Behind => ProposeError::Behind,
            Failure::TooFew { copies, .. } => ProposeError::TooFew {
                outcome: (),
                copies,
            },
            Failure::NotOne | Failure::Unknown => ProposeError::Unknown,
        })
    }
}

/// A read in progress: the store has everything that it has to see. Dropping it leaves nothing
/// behind.
pub struct ReadGuard<'a, S: SlotStore> {
    slot: &'a Slot<S>,
    id: u64,
    deadline: Instant,
}

impl<S: SlotStore> ReadGuard<'_, S> {
    /// Must be called after the store was read: waits until it is known whether the result may be
    /// returned. If not, the store must be read again, and this called again.
    ///
    /// # Errors
    /// That is not known in time.
    pub async fn may_show(&mut self) -> Result<bool, ReadError> {
        let position = self.slot.shared.store.position()?;
        let (shown, answer) = oneshot::channel();
        let was_read = Command::WasRead {
            id: self.id,
            position,
            shown,
        };
        self.slot
            .command(was_read)
            .map_err(|()| ReadError::Stopped)?;
        Ok(self.wait_for(answer).await? == ReadCheck::Yes)
    }

    async fn wait_for<T>(&self, answer: oneshot::Receiver<T>) -> Result<T, ReadError> {
        match timeout_at(self.deadline, answer).await {
            Ok(answer) => answer.map_err(|_| ReadError::Stopped),
            Err(_) => Err(ReadError::NotNow(self.slot.status().reason())),
        }
    }
}

impl<S: SlotStore> Drop for ReadGuard<'_, S> {
    fn drop(&mut self) {
        let _ = self.slot.command(Command::GiveUp(self.id));
    }
}
