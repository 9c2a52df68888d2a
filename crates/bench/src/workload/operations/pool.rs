//! The documents that the clients of a workload choose from, and add to.

use std::cell::RefCell;
use std::rc::Rc;

use super::caller::Caller;
use super::distribution::{Chooser, Keys};
use super::sequence::Sequence;
use crate::error::BenchError;

/// Numbers of documents, shared by all clients.
#[derive(Clone)]
pub(super) struct Pool {
    chooser: Rc<RefCell<Chooser>>,
    sequence: Rc<RefCell<Sequence>>,
}

impl Pool {
    /// A pool of `count` existing documents, to which some may be added.
    pub(super) fn new(keys: Keys, count: u64, grows: bool) -> Self {
        // The number of inserts of a run of some seconds is unknown: leave room for a quarter more.
        let growth = if grows { count / 4 } else { 0 };
        Self {
            chooser: Rc::new(RefCell::new(Chooser::new(keys, count, growth))),
            sequence: Rc::new(RefCell::new(Sequence::after(count))),
        }
    }

    /// Chooses one of the existing documents.
    pub(super) fn any(&self, rng: &mut fastrand::Rng) -> u64 {
        let count = self.sequence.borrow().count();
        self.chooser.borrow_mut().choose(count, rng)
    }

    /// Writes a new document, which `document` gives a path and a body for its number.
    pub(super) async fn insert(
        &self,
        caller: &mut Caller,
        document: impl FnOnce(u64) -> (String, Vec<u8>),
    ) -> Result<(), BenchError> {
        let number = self.sequence.borrow_mut().take();
        let (path, body) = document(number);
        let done = match caller.send("PUT", &path, Some(&body)).await {
            // 409 is of an earlier try whose answer was lost.
            Ok(200..300 | 409) => Ok(()),
            Ok(status) => Err(caller.refused("PUT", &path, status)),
            Err(error) => Err(error),
        };
        let mut sequence = self.sequence.borrow_mut();
        match done {
            Ok(()) => sequence.acknowledge(number),
            Err(_) => sequence.fail(number),
        }
        done
    }
}
