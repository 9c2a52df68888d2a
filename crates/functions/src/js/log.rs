//! What users' code has to say, in the log, but never so much that it drowns the rest.

use std::time::{Duration, Instant};

/// Lines that one function group may log in each [`WINDOW`].
const LINES: u32 = 10;
const WINDOW: Duration = Duration::from_secs(10);
const LONGEST: usize = 2000;

/// A rate limit of log lines.
#[derive(Debug, Default)]
pub(super) struct Log {
    pub label: String,
    window: Option<Instant>,
    lines: u32,
    dropped: u64,
}

impl Log {
    fn admit(&mut self) -> bool {
        let now = Instant::now();
        if self.window.is_none_or(|start| now - start >= WINDOW) {
            if self.dropped > 0 {
                tracing::warn!(functions = %self.label, dropped = self.dropped, "log lines of functions were dropped");
            }
            self.window = Some(now);
            self.lines = 0;
            self.dropped = 0;
        }
        if self.lines == LINES {
            self.dropped += 1;
            return false;
        }
        self.lines += 1;
        true
    }

    /// A function called `log`.
    pub fn said(&mut self, text: &str) {
        if self.admit() {
            tracing::info!(functions = %self.label, "{}", cut(text));
        }
    }

    /// A map function failed for a document.
    pub fn threw(&mut self, view: usize, id: &str, what: impl FnOnce() -> String) {
        if self.admit() {
            let what = what();
            tracing::warn!(functions = %self.label, view, id = cut(id), "a map function threw: {}", cut(&what));
        }
    }
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST)]
}
