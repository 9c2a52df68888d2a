//! When a piece of an answer checks the clock.

/// The clock is checked once per 16 rows that are not documents, or once per 16 KiB of their keys.
const ROWS_BETWEEN: u32 = 16;
const KEY_BYTES_BETWEEN: usize = 16 << 10;

/// Rows since the clock was checked: those that hold everything are read faster than the clock, so
/// it is not read for each.
#[derive(Default)]
pub(super) struct ClockLooks {
    rows: u32,
    key_bytes: usize,
}

impl ClockLooks {
    /// Returns whether the clock is to be read, after a row with a key of this length.
    pub fn is_due(&mut self, key_bytes: usize) -> bool {
        self.rows += 1;
        self.key_bytes += key_bytes;
        let is_due = self.rows >= ROWS_BETWEEN || self.key_bytes >= KEY_BYTES_BETWEEN;
        if is_due {
            *self = ClockLooks::default();
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_is_read_after_many_rows_or_long_keys() {
        let mut clock = ClockLooks::default();
        let mut looks = |key_bytes: usize| (0..64).filter(|_| clock.is_due(key_bytes)).count();
        assert_eq!(looks(10), 4);
        assert_eq!(looks(KEY_BYTES_BETWEEN / 4), 16);
        assert_eq!(looks(8 << 20), 64);
    }
}
