//! How long one piece of an answer may keep the thread that makes it: a few documents can take as long as many others do, as
//! those with very wide revision trees.

use std::time::{Duration, Instant};

/// A piece ends after this time, whatever its length is.
pub const TURN_TIME: Duration = Duration::from_millis(20);

/// Rows without documents between two checks of the clock.
const ROWS_BETWEEN: u32 = 64;

/// The time that a piece takes.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    began: Instant,
    rows: u32,
}

impl Turn {
    /// Begins a piece.
    pub fn begin() -> Turn {
        Turn {
            began: Instant::now(),
            rows: 0,
        }
    }

    /// A piece whose time is over.
    #[cfg(test)]
    pub fn ended() -> Turn {
        Turn {
            began: Instant::now() - TURN_TIME,
            rows: 0,
        }
    }

    /// Returns whether the time is over, after a row. The clock is read for each row with a
    /// document, and once in 64 rows for others.
    pub fn is_over(&mut self, with_document: bool) -> bool {
        self.rows += 1;
        let looks = with_document || self.rows.is_multiple_of(ROWS_BETWEEN);
        looks && self.began.elapsed() >= TURN_TIME
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_ends_by_the_clock() {
        assert!(Turn::ended().is_over(true));
        assert!(!Turn::ended().is_over(false), "the clock was not read");
        let mut turn = Turn::ended();
        assert_eq!((0..ROWS_BETWEEN).filter(|_| turn.is_over(false)).count(), 1);
    }
}
