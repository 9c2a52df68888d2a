//! A limited number of places, shared fairly by users, and then by databases.
//!
//! A [`Queue`] has a number of places. A free place goes to the waiting user that holds the fewest;
//! among equals, to whose database has the fewest; then to the least recently served one. So a
//! user's long work delays another user by at most one piece of it, in however many databases it
//! is. [`Limits`] keep one user, one database, or a few together, from holding all places; and one
//! user from holding all that its database may have, so that its other users have some too. The
//! number of waiting callers is limited too: when it is exceeded, the user with the most waiting
//! callers loses its newest one.
//!
//! Users are those who requested the work: users, addresses, and the background ([`Requester`]). A
//! thread that works for one knows it ([`Cause`]).
//! A queue that is shared by one kind of owner names it alone ([`Share::from`]).
//!
//! Waiting takes no thread (an [`Admission`] is a future), unless the caller has one anyway
//! ([`Admission::wait`]).

mod admission;
mod share;
mod state;
#[cfg(test)]
mod tests;

pub use admission::{Admission, Place};
pub use share::{Cause, Entered, Requester, Share};

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use state::{State, Wanted};

/// Too many callers wait already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many wait for their turn: at most {waiting_max} may")]
pub struct Busy {
    /// Maximum number of waiting callers.
    pub waiting_max: usize,
}

/// The limits of a queue.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Places.
    pub places: usize,
    /// Places of one user at most.
    pub of_user: usize,
    /// Places of one database at most: more than `of_user`, for its other users.
    pub of_database: usize,
    /// A user gets another place only while it holds less than this percentage of the free places.
    /// The more of them hold places, the fewer each can have, and some stay free for one without
    /// any, which gets what it requests if that is free. `None`: only `of_user` counts.
    pub user_percent: Option<usize>,
    /// A database gets another place only while it holds less than this percentage of the free
    /// places: for its other users at least twice as much as `user_percent`, and more than 100.
    /// `None`: only `of_database` counts.
    pub database_percent: Option<usize>,
    /// Callers that may wait, besides the patient ones.
    pub waiting_max: usize,
    /// A user that held a place for this time is slow for a while, and so is the database. All slow
    /// ones together leave one place to others.
    pub slow_after: Option<Duration>,
    /// Time after which a place should be released if a caller waits for one.
    pub slice: Duration,
}

impl Limits {
    /// This number of places, without any other limit.
    pub fn new(places: usize) -> Limits {
        Limits {
            places,
            of_user: usize::MAX,
            of_database: usize::MAX,
            user_percent: None,
            database_percent: None,
            waiting_max: usize::MAX,
            slow_after: None,
            slice: Duration::MAX,
        }
    }
}

/// Places, and who waits for one.
#[derive(Debug)]
pub struct Queue {
    limits: Limits,
    state: Mutex<State>,
}

impl Queue {
    /// Returns a queue whose places are all free.
    pub fn new(limits: Limits) -> Arc<Queue> {
        Arc::new(Queue {
            limits,
            state: Mutex::new(State::new(&limits)),
        })
    }

    /// Requests a place.
    pub fn admission(self: &Arc<Self>, share: &Share) -> Admission {
        Admission::new(self.clone(), share.clone())
    }

    /// Takes a place, unless that would have to wait.
    pub fn try_place(self: &Arc<Self>, share: &Share) -> Option<Place> {
        let taken = self.state.lock().try_take(share, Wanted::ONE);
        taken.then(|| Place::new(self.clone(), share.clone()))
    }

    /// Changes the number of places. Those that are held beyond it stay with their holders.
    pub fn set_places(&self, places: usize) {
        let mut state = self.state.lock();
        if state.places != places {
            state.places = places;
            state.serve();
        }
    }

    /// Returns the number of places held.
    pub fn used(&self) -> usize {
        self.state.lock().used
    }
}
