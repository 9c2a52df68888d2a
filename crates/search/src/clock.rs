//! How long a search may still take.

use std::cell::Cell;
use std::time::Instant;

use crate::Error;

/// So many steps are gone without looking at the time.
const STEPS: u32 = 1024;

/// Counts steps, and looks at the time now and then.
pub(crate) struct Clock {
    until: Option<Instant>,
    steps: Cell<u32>,
}

impl Clock {
    /// `None`: there is no end.
    pub fn new(until: Option<Instant>) -> Clock {
        Clock {
            until,
            steps: Cell::new(0),
        }
    }

    /// One of many short steps.
    #[inline]
    pub fn step(&self) -> Result<(), Error> {
        let steps = self.steps.get() + 1;
        self.steps.set(steps);
        match steps.is_multiple_of(STEPS) {
            true => self.look(),
            false => Ok(()),
        }
    }

    /// Before something that may take long.
    pub fn look(&self) -> Result<(), Error> {
        match self.until {
            Some(until) if Instant::now() > until => Err(Error::TooSlow),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_over_after_it() {
        assert!(Clock::new(None).look().is_ok());
        let past = Clock::new(Some(Instant::now()));
        while Instant::now() <= past.until.unwrap() {}
        assert!(matches!(past.look(), Err(Error::TooSlow)));
        assert!((0..STEPS).any(|_| past.step().is_err()));
    }
}
