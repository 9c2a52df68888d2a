//! The order of password checks. Checks are slow; they wait for their turn without a thread, and
//! those of one address queue among themselves first, so that a flood from one address leaves turns
//! to others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::origin::Origin;

/// Turns for all addresses, and for each.
pub(crate) struct Turns {
    all: Arc<Semaphore>,
    of_each: usize,
    by_origin: Mutex<HashMap<Origin, Weak<Semaphore>>>,
}

/// The right to check a password, until dropped. The fields are released in their order.
pub(crate) struct Turn {
    _all: Option<OwnedSemaphorePermit>,
    _origin: Option<OwnedSemaphorePermit>,
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
            by_origin: Mutex::default(),
        }
    }

    pub(crate) async fn wait(&self, origin: Option<&Origin>) -> Turn {
        // The semaphores are never closed.
        let origin = match origin {
            Some(origin) => self.of_origin(origin).acquire_owned().await.ok(),
            None => None,
        };
        Turn {
            _all: self.all.clone().acquire_owned().await.ok(),
            _origin: origin,
        }
    }

    fn of_origin(&self, origin: &Origin) -> Arc<Semaphore> {
        let mut by_origin = self
            .by_origin
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(turns) = by_origin.get(origin).and_then(Weak::upgrade) {
            return turns;
        }
        // The first check after a pause removes the queues without waiters.
        by_origin.retain(|_, turns| turns.strong_count() > 0);
        let turns = Arc::new(Semaphore::new(self.of_each));
        by_origin.insert(origin.clone(), Arc::downgrade(&turns));
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

    fn address(n: u8) -> Origin {
        std::net::IpAddr::from([n, 0, 0, 1]).into()
    }

    #[test]
    fn one_address_leaves_turns_to_others_and_gives_them_back() {
        let turns = Turns::of(2);
        let (a, b) = (address(1), address(2));
        let first = is_ready(pin!(turns.wait(Some(&a)))).expect("free");
        let mut second = pin!(turns.wait(Some(&a)));
        assert!(
            is_ready(second.as_mut()).is_none(),
            "its own turns are taken"
        );
        let other = is_ready(pin!(turns.wait(Some(&b)))).expect("another's turn");
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
            drop(is_ready(pin!(turns.wait(Some(&address(n))))));
        }
        assert_eq!(turns.by_origin.lock().expect("lock").len(), 1);
    }
}
