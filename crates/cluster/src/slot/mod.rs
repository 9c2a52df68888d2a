//! One replica of one slot, driven: a [`Replica`](crate::replica::Replica) with a log, a store, a network and a clock.
//!
//! Each slot is one task that owns the state machine, so nothing is locked: records of the log, messages, what the store has written,
//! and what handles ask for come to it through channels, and what the state machine wants done is done in its order. Writing to the
//! store is pipelined; everything that takes long runs beside the task and is answered to it.

mod lag;
mod propose;
mod read;
mod task;
mod types;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, timeout_at};

pub use types::*;

use self::propose::{Failure, Load, Settled};
use self::read::Shown;
use self::task::{Command, Task};
use crate::log::Log;
use crate::position::NodeId;
use crate::record::{Body, Request};
use crate::replica::Message;

/// Messages that wait for the task; more are lost, and asked again.
const MESSAGES_MAX: usize = 1024;

/// A slot's replica on this node. Clones are the same one; it ends when [`Slot::stop`] is called, or the last of them is dropped.
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

/// What the task shows to handles.
#[derive(Default)]
struct Board {
    status: Mutex<SlotStatus>,
    stable: watch::Sender<Stable>,
    /// Counts beginnings and ends of the state's replacement by another replica's: odd while that happens.
    replaced: AtomicU64,
}

impl Board {
    fn status(&self) -> MutexGuard<'_, SlotStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SlotStatus {
    /// Why nothing goes on, as far as can be said.
    pub fn reason(&self) -> String {
        match (self.halted, &self.error) {
            (Some(reason), _) => reason.to_string(),
            (None, Some(error)) => error.clone(),
            (None, None) if self.sealed => "a new generation of its log is to begin".into(),
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
    /// Starts the replica, on the runtime that this is called on.
    ///
    /// # Errors
    /// When the store cannot say what it has.
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

    /// A message of another replica. When too many wait, it is lost.
    pub fn deliver(&self, from: NodeId, message: Message) {
        let _ = self.shared.messages.try_send((from, message));
    }

    /// Has a request applied. The same request, known by its gateway and counter, may be proposed again, here or elsewhere, and is
    /// applied once.
    ///
    /// # Errors
    /// When that did not come to what was waited for, with what is known.
    pub async fn propose(
        &self,
        request: Request,
        wait: Wait,
    ) -> Result<Proposed<S::Outcome>, ProposeError<S::Outcome>> {
        let key = (request.gateway, request.counter);
        let bytes = request.to_bytes().into();
        drop(request);
        self.propose_encoded(key, bytes, wait).await
    }

    /// The same of a request's bytes, `key` being its gateway and counter.
    ///
    /// # Errors
    /// The same.
    pub async fn propose_encoded(
        &self,
        key: (u64, u64),
        bytes: Bytes,
        wait: Wait,
    ) -> Result<Proposed<S::Outcome>, ProposeError<S::Outcome>> {
        let Wait { copies, deadline } = wait;
        let load = Load::Request { key, bytes };
        let settled = self.settled(load, copies, deadline).await?;
        let (outcome, copies) = (settled.outcome, settled.copies);
        Ok(Proposed {
            outcome: outcome.ok_or(ProposeError::Unknown)?,
            offset: settled.offset,
            copies,
        })
    }

    /// Has a record of its own applied, such as [`Body::Await`] or [`Body::Barrier`], whose repetition changes nothing.
    /// Answers where it is in the log, once it is there to stay.
    ///
    /// # Errors
    /// When that did not happen in time, with what is known.
    pub async fn append(&self, body: Body, deadline: Instant) -> Result<u64, ProposeError<()>> {
        match self.settled(Load::Body(body), None, deadline).await {
            Ok(settled) => Ok(settled.offset),
            Err(failure) => Err(match Option::from(failure) {
                Some(known) => known,
                None => ProposeError::Stopped,
            }),
        }
    }

    /// Changes the slot's replicas to these, which is one more or one less. Ready when the change is there to stay.
    ///
    /// # Errors
    /// When it is another kind of change, or did not happen in time.
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

    /// Says which nodes there are: one that is new may find none of the replicas that the log begins with.
    pub fn know(&self, nodes: Vec<NodeId>) {
        let _ = self.shared.commands.send(Command::Know(nodes));
    }

    /// Begins a new generation: for an operator, when the log lost what a majority has.
    pub fn reseed(&self) {
        let _ = self.shared.commands.send(Command::Reseed);
    }

    /// Reads so that everything is seen that was acknowledged before, and nothing that may be lost. `read` is called again when its
    /// first result turned out to be old.
    ///
    /// # Errors
    /// When that cannot be made sure of in time.
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

    /// The same in steps: ready when the store may be read.
    ///
    /// # Errors
    /// When that is not in time.
    pub async fn begin_read(&self, deadline: Instant) -> Result<Reading<'_, S>, ReadError> {
        let id = self.next_id();
        let (now, may_read) = oneshot::channel();
        let reading = Reading {
            slot: self,
            id,
            deadline,
        };
        self.command(Command::Read { id, now })
            .map_err(|()| ReadError::Stopped)?;
        reading.wait_for(may_read).await?;
        Ok(reading)
    }

    /// A number that is another one when the state here was replaced by another replica's: what was read before may be lost then, whatever
    /// is stable. `None` while that happens.
    pub fn replaced(&self) -> Option<u64> {
        let replaced = self.shared.board.replaced.load(Ordering::Acquire);
        replaced.is_multiple_of(2).then_some(replaced)
    }

    /// Ready when everything that readers of the store see now is there to stay.
    ///
    /// # Errors
    /// When that is not known in time, or what they saw was replaced.
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

    /// Ready when what is here is stable.
    async fn reach(&self, deadline: Instant) -> Result<(), ReadError> {
        let mut stable = self.watch();
        loop {
            let at = self.shared.store.position()?;
            let is_there = |stable: &Stable| {
                stable.generation > at.generation
                    || stable.generation == at.generation && stable.next_offset >= at.next_offset
            };
            let waited = timeout_at(deadline, stable.wait_for(is_there)).await;
            let reached = waited.map_err(|_| ReadError::NotNow(self.status().reason()))?;
            let reached = *reached.map_err(|_| ReadError::Stopped)?;
            if reached.generation == at.generation {
                return Ok(());
            }
            // Another generation has begun meanwhile.
            tokio::task::yield_now().await;
        }
    }

    /// How it is.
    pub fn status(&self) -> SlotStatus {
        self.shared.board.status().clone()
    }

    /// Up to where everything is there to stay; tells when that moves.
    pub fn watch(&self) -> watch::Receiver<Stable> {
        self.shared.board.stable.subscribe()
    }

    /// Ends it, when what is being written is written. Who waits is told.
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

    /// Gives the task something to append and waits for what becomes of it.
    async fn settled(
        &self,
        load: Load,
        copies: Option<usize>,
        deadline: Instant,
    ) -> Result<Settled<S::Outcome>, Unsettled<S::Outcome>> {
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

/// Tells the task that nobody waits any more.
struct GiveUp<'a, S: SlotStore> {
    slot: &'a Slot<S>,
    id: u64,
}

impl<S: SlotStore> Drop for GiveUp<'_, S> {
    fn drop(&mut self) {
        let _ = self.slot.command(Command::GiveUp(self.id));
    }
}

/// Why something was not settled; `None`: the task is gone.
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

/// A read under way: the store has what it has to see. Dropped, it leaves nothing behind.
pub struct Reading<'a, S: SlotStore> {
    slot: &'a Slot<S>,
    id: u64,
    deadline: Instant,
}

impl<S: SlotStore> Reading<'_, S> {
    /// To be asked when the store was read: ready when it is known whether what was found may be shown. If not, it is to be read again, and
    /// asked again.
    ///
    /// # Errors
    /// When that is not known in time.
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
        Ok(self.wait_for(answer).await? == Shown::Yes)
    }

    async fn wait_for<T>(&self, answer: oneshot::Receiver<T>) -> Result<T, ReadError> {
        match timeout_at(self.deadline, answer).await {
            Ok(answer) => answer.map_err(|_| ReadError::Stopped),
            Err(_) => Err(ReadError::NotNow(self.slot.status().reason())),
        }
    }
}

impl<S: SlotStore> Drop for Reading<'_, S> {
    fn drop(&mut self) {
        let _ = self.slot.command(Command::GiveUp(self.id));
    }
}
