//! Places in a long text where a reader may stop.

/// Bytes of a text between two checks: some milliseconds, at the worst.
const BYTES_BETWEEN_CHECKS: usize = 16 << 10;

/// Asks at regular distances whether a text is read further.
pub(crate) struct Checkpoints<'a> {
    go_on: &'a dyn Fn() -> bool,
    /// Bytes that were read since the last check.
    unchecked: usize,
    is_over: bool,
}

impl<'a> Checkpoints<'a> {
    pub(crate) fn new(go_on: &'a dyn Fn() -> bool) -> Self {
        Self {
            go_on,
            unchecked: 0,
            is_over: false,
        }
    }

    /// Counts bytes that were read. Returns whether to read further.
    #[inline]
    pub(crate) fn pass(&mut self, bytes: usize) -> bool {
        self.unchecked += bytes;
        if self.unchecked >= BYTES_BETWEEN_CHECKS {
            self.unchecked = 0;
            self.is_over = self.is_over || !(self.go_on)();
        }
        !self.is_over
    }

    /// Returns whether the text was left before its end.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }
}
