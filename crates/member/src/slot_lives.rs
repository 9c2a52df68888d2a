//! Replicas that start and end while others refer to them.

use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

/// The replicas that a node has had of a slot, one after the other; the last one may be running.
/// Readers take no lock. One that ended is kept until the server ends, since readers may use it:
/// a slot rarely returns to a node.
pub(crate) struct Lives<T>(OnceLock<Box<Life<T>>>);

struct Life<T> {
    replica: T,
    is_over: AtomicBool,
    next: Lives<T>,
}

impl<T> Default for Lives<T> {
    fn default() -> Lives<T> {
        Lives(OnceLock::new())
    }
}

impl<T> Lives<T> {
    /// Creates one that has this replica.
    pub fn of(replica: T) -> Lives<T> {
        Lives(OnceLock::from(Box::new(Life {
            replica,
            is_over: AtomicBool::new(false),
            next: Lives::default(),
        })))
    }

    /// Returns the replica that is running.
    pub fn running(&self) -> Option<&T> {
        let life = self.last()?;
        (!life.is_over.load(Acquire)).then_some(&life.replica)
    }

    /// Adds a replica. Returns whether it is the running one now: another one may be.
    pub fn add(&self, replica: T) -> bool {
        match self.last() {
            Some(life) if !life.is_over.load(Acquire) => false,
            Some(life) => life.next.set(replica),
            None => self.set(replica),
        }
    }

    /// Ends the running replica: from now on it is not returned any more. Returns it, once.
    pub fn end(&self) -> Option<&T> {
        let life = self.last()?;
        (!life.is_over.swap(true, AcqRel)).then_some(&life.replica)
    }

    fn last(&self) -> Option<&Life<T>> {
        let mut life = self.0.get()?;
        while let Some(next) = life.next.0.get() {
            life = next;
        }
        Some(life)
    }

    /// Sets the first replica, unless another caller has done so at the same time.
    fn set(&self, replica: T) -> bool {
        let Lives(life) = Lives::of(replica);
        life.into_inner()
            .is_some_and(|life| self.0.set(life).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_one_replica_runs_and_those_that_ended_stay_readable() {
        let lives: Lives<&str> = Lives::default();
        assert_eq!(lives.running(), None);
        assert_eq!(lives.end(), None);
        assert!(lives.add("first"));
        assert!(!lives.add("second"));
        let first = lives.running();
        assert_eq!(lives.end(), Some(&"first"));
        assert_eq!((lives.end(), lives.running()), (None, None));
        assert!(lives.add("third"));
        assert!(!lives.add("fourth"));
        assert_eq!((first, lives.running()), (Some(&"first"), Some(&"third")));
        assert_eq!(lives.end(), Some(&"third"));
        assert!(lives.add("fifth"));
        assert_eq!(lives.running(), Some(&"fifth"));
    }
}
