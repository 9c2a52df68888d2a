//! Whose password is checked next. Checks take long; they wait for their turn without a thread, and those of one address
//! wait for each other first, so that a flood from one address leaves turns to others.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Turns for all addresses, and for each.
pub(crate) struct Turns {
    all: Arc<Semaphore>,
    of_each: usize,
    by_peer: Mutex<HashMap<IpAddr, Weak<Semaphore>>>,
}

/// The right to check a password, until dropped. The order of the fields is that in which they are given back.
pub(crate) struct Turn {
    _all: Option<OwnedSemaphorePermit>,
    _peer: Option<OwnedSemaphorePermit>,
}

impl Turns {
    /// As many as half of the processors; one address has half of them.
    pub(crate) fn new() -> Turns {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Turns::of(processors / 2)
    }

    fn of(all: usize) -> Turns {
        Turns {
            all: Arc::new(Semaphore::new(all.max(1))),
            of_each: (all / 2).max(1),
            by_peer: Mutex::default(),
        }
    }

    pub(crate) async fn wait(&self, peer: Option<IpAddr>) -> Turn {
        // The semaphores are never closed.
        let peer = match peer {
            Some(peer) => self.of_peer(peer).acquire_owned().await.ok(),
            None => None,
        };
        Turn {
            _all: self.all.clone().acquire_owned().await.ok(),
            _peer: peer,
        }
    }

    fn of_peer(&self, peer: IpAddr) -> Arc<Semaphore> {
        let mut by_peer = self.by_peer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turns) = by_peer.get(&peer).and_then(Weak::upgrade) {
            return turns;
        }
        // Whoever comes first after a pause pays for the rest: those whom nobody waits for go.
        by_peer.retain(|_, turns| turns.strong_count() > 0);
        let turns = Arc::new(Semaphore::new(self.of_each));
        by_peer.insert(peer, Arc::downgrade(&turns));
        turns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn is_ready<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => Some(done),
            Poll::Pending => None,
        }
    }

    #[test]
    fn one_address_leaves_turns_to_others_and_gives_them_back() {
        let turns = Turns::of(2);
        let (a, b) = (IpAddr::from([1, 1, 1, 1]), IpAddr::from([2, 2, 2, 2]));
        let first = is_ready(pin!(turns.wait(Some(a)))).expect("free");
        let mut second = pin!(turns.wait(Some(a)));
        assert!(
            is_ready(second.as_mut()).is_none(),
            "its own turns are taken"
        );
        let other = is_ready(pin!(turns.wait(Some(b)))).expect("another's turn");
        assert!(is_ready(pin!(turns.wait(None))).is_none(), "all are taken");
        drop(first);
        assert!(is_ready(second.as_mut()).is_some());
        drop(other);
        assert_eq!(turns.all.available_permits(), 2);
    }

    #[test]
    fn addresses_that_nobody_waits_for_are_forgotten() {
        let turns = Turns::of(4);
        for n in 0..100 {
            drop(is_ready(pin!(turns.wait(Some(IpAddr::from([n, 0, 0, 1]))))));
        }
        assert_eq!(turns.by_peer.lock().expect("lock").len(), 1);
    }
}
