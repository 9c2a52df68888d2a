//! How long one piece of an answer may keep the thread that makes it: a few documents can take as long as many others do, as
//! those with very wide revision trees.

use std::time::{Duration, Instant};

/// A piece ends after this time, whatever its length is.
pub const TURN_TIME: Duration = Duration::from_millis(20);

/// Rows without documents between two checks of the clock.
const ROWS_BETWEEN: u32 = 64;

/// Stored bytes of rows between two checks of the clock: a row may be as long as a document.
const BYTES_BETWEEN: usize = 256 << 10;

/// The time that a piece takes.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    began: Instant,
    rows: u32,
    /// Bytes of rows since the last check of the clock.
    bytes: usize,
}

impl Turn {
    /// Begins a piece.
    pub fn begin() -> Turn {
        Turn {
            began: Instant::now(),
            rows: 0,
            bytes: 0,
        }
    }

    /// Begins a piece whose time is over.
    #[cfg(test)]
    pub fn over() -> Turn {
        Turn {
            began: Instant::now() - TURN_TIME,
            ..Turn::begin()
        }
    }

    /// Notes the length of a stored row that was read, in bytes, before [`Turn::is_over`].
    pub fn note(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    /// Returns whether the time is over, after a row. The clock is read for each row with a
    /// document, and for others once in 64 rows or in 256 KiB of rows.
    pub fn is_over(&mut self, with_document: bool) -> bool {
        self.rows += 1;
        let is_due = self.rows.is_multiple_of(ROWS_BETWEEN) || self.bytes >= BYTES_BETWEEN;
        if !with_document && !is_due {
            return false;
        }
        self.bytes = 0;
        self.began.elapsed() >= TURN_TIME
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_ends_by_the_clock() {
        assert!(Turn::over().is_over(true));
        assert!(!Turn::over().is_over(false), "the clock was not read");
        let mut turn = Turn::over();
        assert_eq!((0..ROWS_BETWEEN).filter(|_| turn.is_over(false)).count(), 1);
    }

    #[test]
    fn the_clock_is_read_after_long_rows() {
        let mut turn = Turn::over();
        let mut is_over_after = |bytes| {
            turn.note(bytes);
            turn.is_over(false)
        };
        assert!(is_over_after(8 << 20));
        let of_quarters: Vec<bool> = (0..8).map(|_| is_over_after(BYTES_BETWEEN / 4)).collect();
        let (wait, read) = (false, true);
        assert_eq!(
            of_quarters,
            [wait, wait, wait, read, wait, wait, wait, read]
        );
    }
}
