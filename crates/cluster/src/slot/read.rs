//! Waiting reads.

use std::collections::HashMap;

use tokio::sync::oneshot;

use crate::position::Position;
use crate::replica::{Input, Replica};

/// Whether a read result may be returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadCheck {
    /// It may be returned.
    Yes,
    /// It may be lost, or stale: read again.
    Again,
}

/// The state of a read.
enum State {
    /// Waiting for the signal to read.
    Waiting(oneshot::Sender<()>),
    /// Reading. If the result became stale meanwhile, it reads again.
    Reading { is_old: bool },
    /// Has read, and waits until the result may be returned.
    Read(oneshot::Sender<ReadCheck>),
}

/// All reads, by the numbers that the slot's handles assign.
#[derive(Default)]
pub(super) struct Readers {
    reads: HashMap<u64, State>,
    given_up: Vec<u64>,
}

impl Readers {
    pub fn len(&self) -> usize {
        self.reads.len()
    }

    pub fn add(&mut self, id: u64, now: oneshot::Sender<()>) -> Input {
        self.reads.insert(id, State::Waiting(now));
        Input::Read(id)
    }

    /// Signals a read to start.
    pub fn read_now(&mut self, id: u64) {
        let Some(state) = self.reads.get_mut(&id) else {
            return;
        };
        let is_old = matches!(state, State::Reading { .. });
        match std::mem::replace(state, State::Reading { is_old }) {
            State::Waiting(now) => _ = now.send(()),
            State::Read(shown) => _ = shown.send(ReadCheck::Again),
            State::Reading { .. } => {}
        }
    }

    /// Records that a read has read the local store.
    pub fn was_read(
        &mut self,
        id: u64,
        position: &Position,
        shown: oneshot::Sender<ReadCheck>,
    ) -> Option<Input> {
        let state = self.reads.get_mut(&id)?;
        if let State::Reading { is_old: true } = state {
            *state = State::Reading { is_old: false };
            let _ = shown.send(ReadCheck::Again);
            return None;
        }
        *state = State::Read(shown);
        Some(Input::WasRead {
            read: id,
            generation: position.generation,
            next_offset: position.next_offset,
        })
    }

    /// Records that a result may be returned.
    pub fn done(&mut self, id: u64) {
        if let Some(State::Read(shown)) = self.reads.remove(&id) {
            let _ = shown.send(ReadCheck::Yes);
        }
    }

    /// Gives a read up.
    pub fn give_up(&mut self, id: u64) {
        if self.reads.remove(&id).is_some() {
            self.given_up.push(id);
        }
    }

    /// Returns the reads that the replica has to forget.
    pub fn given_up(&mut self) -> Option<Input> {
        let mut given_up = std::mem::take(&mut self.given_up);
        given_up.sort_unstable();
        (!given_up.is_empty()).then_some(Input::GivenUp(given_up))
    }

    /// Starts all reads over, at a replica that knows none.
    pub fn renew(&mut self, replica: &mut Replica) -> Vec<crate::replica::Output> {
        self.given_up.clear();
        let mut ids: Vec<u64> = self.reads.keys().copied().collect();
        ids.sort_unstable();
        let out = ids.into_iter().map(|id| replica.handle(Input::Read(id)));
        out.flatten().collect()
    }
}
