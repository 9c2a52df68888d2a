//! The order of password checks. Checks are slow; they wait for their turn without a thread.
//!
//! Addresses that gave right passwords come first, those with recent wrong ones last. Among equals,
//! successive turns are given by different orders ([`Order`]): to the name, the address or the network
//! that has waited longest for one, or to the newest. A flood with one name, from one network, or one that
//! has ended, delays others by about one round of the orders. The number of waiting checks is
//! bounded: beyond that, the newest checks of the name or network with the most of them are refused.
//!
//! No order depends on whether an account exists: the clock would reveal it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::crowd::{Claimant, Crowds, Grouping, LastTurn};
use crate::origin::Origin;
use crate::reputation::{Rank, Reputations};

/// At most this number of checks of one address, network or name wait: clients behind a proxy have
/// one address, and a client with many connections has as many checks of the same password. Those of a
/// name are of any number of networks, and one of them must not keep the name's owner out.
const WAITING_OF_EACH_MAX: usize = 4096;
/// At most this number of checks wait.
const WAITING_MAX: usize = 16_384;
/// This number of queues is searched for a check to refuse. Keys of the map are hashed with a random
/// key, so any part of it is a sample of all.
const SAMPLED_QUEUES: usize = 64;

/// Turns for all claimants, and for each address.
pub(crate) struct Turns {
    queues: Arc<Queues>,
}

struct Queues {
    of_each: usize,
    state: Mutex<State>,
}

struct State {
    free: usize,
    waiting: usize,
    /// Number of turns that began, the time by which turns are shared.
    began: u64,
    /// Number of checks that came.
    came: u64,
    /// The order of the next turn.
    order: Order,
    /// Checks that wait, in the order in which they came. No queue is empty.
    queues: HashMap<Claimant, VecDeque<WaitingCheck>>,
    crowds: Crowds,
    reputations: Reputations,
    /// The number of times that all queues were searched for the next check.
    #[cfg(test)]
    searches: u64,
}

/// Whose check is refused when there are too many: the greatest. The number is of checks that wait.
type Crowd = (Rank, usize);

/// The choice of the next turn among those of the best rank. Each order separates some kind of flood from
/// others.
#[derive(Debug, Clone, Copy)]
enum Order {
    /// The group of this kind that has waited longest for a turn.
    Share(Grouping),
    /// The claimant that came last.
    Newest,
}

impl Order {
    fn next(self) -> Order {
        match self {
            Order::Newest => Order::Share(Grouping::Site),
            Order::Share(Grouping::Site) => Order::Share(Grouping::Name),
            Order::Share(Grouping::Name) => Order::Share(Grouping::Network),
            Order::Share(Grouping::Network) => Order::Share(Grouping::Address),
            Order::Share(Grouping::Address) => Order::Newest,
        }
    }
}

/// The place of a claimant for the next turn; the least comes first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Precedence {
    rank: Rank,
    last: LastTurn,
    /// The number of its first check that waits, or how far it is from the highest number.
    number: u64,
}

/// A check that waits, by the number of its arrival.
struct WaitingCheck {
    number: u64,
    sender: oneshot::Sender<Turn>,
}

/// Removes a check from its queue when its client has gone. Otherwise new checks would have to search all
/// that wait for those whose clients have gone.
struct Entry {
    queues: Arc<Queues>,
    claimant: Claimant,
    number: u64,
    is_over: bool,
}

impl Drop for Entry {
    fn drop(&mut self) {
        if !self.is_over {
            self.queues.lock().forget(&self.claimant, self.number);
        }
    }
}

/// The right to check a password, until dropped.
pub(crate) struct Turn {
    claimant: Claimant,
    /// `None` once it has ended.
    queues: Option<Arc<Queues>>,
}

impl Turns {
    /// As many as half of the processors; one address has half of them.
    pub(crate) fn new() -> Turns {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Turns::of(processors / 2)
    }

    fn of(all: usize) -> Turns {
        Turns {
            queues: Arc::new(Queues {
                of_each: (all / 2).max(1),
                state: Mutex::new(State {
                    free: all.max(1),
                    waiting: 0,
                    began: 0,
                    came: 0,
                    order: Order::Newest,
                    queues: HashMap::new(),
                    crowds: Crowds::default(),
                    reputations: Reputations::default(),
                    #[cfg(test)]
                    searches: 0,
                }),
            }),
        }
    }

    /// Waits for a turn to check a password for this name; `None` when too many checks wait.
    pub(crate) async fn wait(&self, origin: Option<&Origin>, name: &str) -> Option<Turn> {
        let mut entry = Entry {
            queues: self.queues.clone(),
            claimant: Claimant::new(origin, name),
            number: 0,
            is_over: true,
        };
        let turn = {
            let mut state = self.queues.lock();
            let (number, turn) = state.enter(&entry.claimant)?;
            entry.number = number;
            entry.is_over = false;
            // Any other check that may run has its turn already: thousands that may not are not searched.
            if state.may_run(&entry.claimant, self.queues.of_each) {
                self.queues.start_next(state);
            }
            turn
        };
        let turn = turn.await;
        entry.is_over = true;
        turn.ok()
    }

    /// Notes whether a password of this address was right.
    pub(crate) fn note(&self, origin: Option<&Origin>, is_right: bool) {
        if let Some(origin) = origin {
            self.queues.lock().reputations.note(origin, is_right);
        }
    }
}

impl State {
    /// Appends a check to the queue of its claimant; returns its number.
    fn enter(&mut self, claimant: &Claimant) -> Option<(u64, oneshot::Receiver<Turn>)> {
        if !self.has_room(claimant) {
            return None;
        }
        self.came += 1;
        let (number, (sender, receiver)) = (self.came, oneshot::channel());
        let queue = self.queues.entry(claimant.clone()).or_default();
        queue.push_back(WaitingCheck { number, sender });
        self.crowds.enter(claimant, self.began);
        self.waiting += 1;
        Some((number, receiver))
    }

    /// Returns whether another check may wait; refuses another one for it if need be.
    fn has_room(&mut self, claimant: &Claimant) -> bool {
        let (rank, waiting) = self.crowd_of_origin(claimant);
        if waiting >= WAITING_OF_EACH_MAX {
            return false;
        }
        let of_name = self.waiting_of_name(rank, claimant);
        if of_name >= WAITING_OF_EACH_MAX {
            // Of the name's checks, one of the network that has most.
            return self.refuse_one((rank, waiting + 1), |state, other| {
                let has_name = other.has_name_of(claimant);
                has_name.then(|| state.crowd_of_origin(other))
            });
        }
        self.waiting < WAITING_MAX
            || self.refuse_one((rank, waiting.max(of_name) + 1), |state, other| {
                let (rank, waiting) = state.crowd_of_origin(other);
                Some((rank, waiting.max(state.waiting_of_name(rank, other))))
            })
    }

    /// Returns the rank of a claimant, and the number of checks that wait in its largest group by address.
    /// For a known address only its own checks count.
    fn crowd_of_origin(&self, claimant: &Claimant) -> Crowd {
        let rank = self.reputations.rank(claimant.origin());
        let waiting = match rank {
            Rank::Known => self.crowds.waiting(claimant, Grouping::Address),
            Rank::Unknown | Rank::Failed => self.crowds.waiting_of_origin(claimant),
        };
        (rank, waiting)
    }

    /// Returns the number of checks that wait for the name of a claimant of this rank; none for a known
    /// address: clients elsewhere cannot fill its queue by claiming the names of its users.
    fn waiting_of_name(&self, rank: Rank, claimant: &Claimant) -> usize {
        match rank {
            Rank::Known => 0,
            Rank::Unknown | Rank::Failed => self.crowds.waiting(claimant, Grouping::Name),
        }
    }

    /// Refuses the last check of a claimant in the largest crowd of the worst rank; returns whether
    /// there is one that is worse than the `newcomer`. Claimants without a crowd are not considered.
    fn refuse_one(
        &mut self,
        newcomer: Crowd,
        crowd: impl Fn(&State, &Claimant) -> Option<Crowd>,
    ) -> bool {
        let state: &State = self;
        let claimants = state.queues.keys();
        let worst = claimants
            .filter_map(|claimant| Some((crowd(state, claimant)?, claimant)))
            .take(SAMPLED_QUEUES)
            .max_by_key(|(crowd, _)| *crowd)
            .filter(|(crowd, _)| *crowd > newcomer);
        let Some((_, claimant)) = worst else {
            return false;
        };
        let claimant = claimant.clone();
        let refused = self.take(&claimant, VecDeque::pop_back);
        if refused.is_some() {
            self.crowds.leave(&claimant);
        }
        refused.is_some()
    }

    /// Removes a check that still waits.
    fn forget(&mut self, claimant: &Claimant, number: u64) {
        let forgotten = self.take(claimant, |queue| {
            let at = queue.binary_search_by_key(&number, |check| check.number);
            queue.remove(at.ok()?)
        });
        if forgotten.is_some() {
            self.crowds.leave(claimant);
        }
    }

    /// Removes the chosen check from the queue of a claimant.
    fn take(
        &mut self,
        claimant: &Claimant,
        choose: impl FnOnce(&mut VecDeque<WaitingCheck>) -> Option<WaitingCheck>,
    ) -> Option<WaitingCheck> {
        let queue = self.queues.get_mut(claimant)?;
        let taken = choose(queue)?;
        if queue.is_empty() {
            self.queues.remove(claimant);
        }
        self.waiting -= 1;
        Some(taken)
    }

    /// Takes the next check, by the order of this turn.
    fn next(&mut self, of_each: usize) -> Option<(Claimant, oneshot::Sender<Turn>)> {
        if self.free == 0 {
            return None;
        }
        #[cfg(test)]
        {
            self.searches += 1;
        }
        let first = self
            .queues
            .iter()
            .filter(|(claimant, _)| self.may_run(claimant, of_each))
            .min_by_key(|(claimant, queue)| self.precedence(claimant, queue))
            .map(|(claimant, _)| claimant.clone())?;
        let check = self.take(&first, VecDeque::pop_front)?;
        self.began += 1;
        self.order = self.order.next();
        self.crowds.begin(&first, self.began);
        self.free -= 1;
        Some((first, check.sender))
    }

    /// Returns whether a turn is free for a claimant.
    fn may_run(&self, claimant: &Claimant, of_each: usize) -> bool {
        self.free > 0 && (claimant.origin().is_none() || self.crowds.running(claimant) < of_each)
    }

    fn precedence(&self, claimant: &Claimant, queue: &VecDeque<WaitingCheck>) -> Precedence {
        let number = queue.front().map_or(0, |check| check.number);
        let (last, number) = match self.order {
            Order::Share(grouping) => (self.crowds.last_turn(claimant, grouping), number),
            Order::Newest => (LastTurn::default(), u64::MAX - number),
        };
        Precedence {
            rank: self.reputations.rank(claimant.origin()),
            last,
            number,
        }
    }

    /// Ends a turn of a claimant.
    fn end(&mut self, claimant: &Claimant) {
        self.free += 1;
        self.crowds.end(claimant);
    }
}

impl Queues {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins as many turns as are free.
    fn start_next<'q>(self: &'q Arc<Self>, mut state: MutexGuard<'q, State>) {
        loop {
            let mut started = vec![];
            while let Some((claimant, sender)) = state.next(self.of_each) {
                let queues = Some(self.clone());
                started.push((sender, Turn { claimant, queues }));
            }
            drop(state);
            // Turns of clients that have gone end here. Dropping one would begin the next by a call
            // within this one: thousands of clients may go at once, and the stack would overflow.
            let sent = started.into_iter().map(|(sender, turn)| sender.send(turn));
            let mut unwanted: Vec<Turn> = sent.filter_map(Result::err).collect();
            if unwanted.is_empty() {
                return;
            }
            state = self.lock();
            for turn in &mut unwanted {
                turn.queues = None;
                state.end(&turn.claimant);
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(queues) = self.queues.take() else {
            return;
        };
        let mut state = queues.lock();
        state.end(&self.claimant);
        queues.start_next(state);
    }
}

#[cfg(test)]
#[path = "turns_tests.rs"]
mod tests;
