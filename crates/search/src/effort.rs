//! How long a search may take, and how much memory. Who may read a database may ask for anything.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::Error;

/// The clock is looked at once in so many steps.
const STEPS: u32 = 1024;

/// What one search may cost, over all shards.
#[derive(Debug)]
pub struct Effort {
    until: Option<Instant>,
    bytes_max: usize,
    bytes: Cell<usize>,
    steps: Cell<u32>,
    is_over: Cell<bool>,
    is_too_much: Cell<bool>,
}

impl Default for Effort {
    /// Without limits.
    fn default() -> Effort {
        Effort {
            until: None,
            bytes_max: usize::MAX,
            bytes: Cell::new(0),
            steps: Cell::new(0),
            is_over: Cell::new(false),
            is_too_much: Cell::new(false),
        }
    }
}

impl Effort {
    /// So long from now, and so many bytes at a time.
    pub fn new(time: Duration, bytes_max: usize) -> Effort {
        Effort {
            until: Some(Instant::now() + time),
            bytes_max,
            ..Effort::default()
        }
    }

    /// Counts a step. Answers whether there is time for more.
    pub(crate) fn go_on(&self) -> bool {
        self.spend(1)
    }

    /// Counts so many steps. Answers whether there is time for more.
    pub fn spend(&self, steps: usize) -> bool {
        let steps = (self.steps.get() as usize).saturating_add(steps);
        self.steps.set(steps as u32 % STEPS);
        if steps >= STEPS as usize && self.until.is_some_and(|until| Instant::now() >= until) {
            self.is_over.set(true);
        }
        !self.is_over.get()
    }

    /// Counts a step.
    ///
    /// # Errors
    /// [`Error::TooLong`], and [`Error::TooMuch`] of a cursor.
    pub fn step(&self) -> Result<(), Error> {
        match self.go_on() {
            true => Ok(()),
            false if self.is_too_much.get() => Err(Error::TooMuch {
                max: self.bytes_max,
            }),
            false => Err(Error::TooLong),
        }
    }

    /// Takes memory for a cursor, which has no errors. Answers whether there is so much; when there is not, all ends.
    pub(crate) fn hold(&self, bytes: usize) -> bool {
        let held = self.take(bytes).is_ok();
        if !held {
            self.is_over.set(true);
            self.is_too_much.set(true);
        }
        held
    }

    /// Takes memory.
    ///
    /// # Errors
    /// [`Error::TooMuch`]
    pub(crate) fn take(&self, bytes: usize) -> Result<(), Error> {
        let taken = self.bytes.get().saturating_add(bytes);
        if taken > self.bytes_max {
            return Err(Error::TooMuch {
                max: self.bytes_max,
            });
        }
        self.bytes.set(taken);
        Ok(())
    }

    /// How much is taken now.
    pub(crate) fn taken(&self) -> usize {
        self.bytes.get()
    }

    /// Gives all back that was taken since so much was.
    pub(crate) fn give_back_to(&self, taken: usize) {
        self.bytes.set(taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_and_memory_come_to_an_end() {
        let effort = Effort::new(Duration::ZERO, 100);
        let steps = (0..2 * STEPS).take_while(|_| effort.go_on()).count();
        assert_eq!(steps as u32, STEPS - 1);
        assert!(matches!(effort.step(), Err(Error::TooLong)));
        effort.take(60).unwrap();
        let taken = effort.taken();
        effort.take(40).unwrap();
        assert!(matches!(effort.take(1), Err(Error::TooMuch { max: 100 })));
        effort.give_back_to(taken);
        effort.take(40).unwrap();
        let effort = Effort::new(Duration::from_secs(600), 100);
        assert!(effort.hold(100) && effort.go_on());
        assert!(!effort.hold(1) && !effort.go_on());
        assert!(matches!(effort.step(), Err(Error::TooMuch { max: 100 })));
    }
}
