//! Rate-limited logging for users' code.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use query_server::language::one_line;

/// Maximum number of lines of one heap in each [`WINDOW`].
const LINES: u32 = 10;
const WINDOW: Duration = Duration::from_secs(10);
const LONGEST: usize = 2000;

/// A log line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub warning: bool,
    /// The functions' owner: database and design document.
    pub label: String,
    pub text: String,
}

/// Lines of a worker process, waiting to be sent to the process with the log.
static QUEUE: OnceLock<Mutex<Vec<Line>>> = OnceLock::new();

/// Collects lines for [`take_queued`] from now on, instead of logging them.
pub(super) fn queue() {
    QUEUE.get_or_init(Mutex::default);
}

pub(super) fn take_queued() -> Vec<Line> {
    let lines = QUEUE.get().map(Mutex::lock);
    let lines = lines.map(|lines| lines.unwrap_or_else(PoisonError::into_inner));
    lines.map_or_else(Vec::new, |mut lines| std::mem::take(&mut *lines))
}

impl Line {
    pub fn log(self) {
        match QUEUE.get() {
            Some(queue) => queue
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(self),
            None if self.warning => tracing::warn!(functions = %self.label, "{}", self.text),
            None => tracing::info!(functions = %self.label, "{}", self.text),
        }
    }
}

/// A rate-limited log.
#[derive(Debug, Default)]
pub(super) struct Log {
    label: String,
    window: Option<Instant>,
    lines: u32,
    dropped: u64,
}

impl Log {
    /// `label` identifies the functions' owner.
    pub fn new(label: String) -> Log {
        Log {
            label,
            ..Log::default()
        }
    }

    fn line(&self, warning: bool, text: String) {
        Line {
            warning,
            label: one_line(&self.label),
            text: one_line(&text),
        }
        .log();
    }

    fn admit(&mut self) -> bool {
        let now = Instant::now();
        if self.window.is_none_or(|start| now - start >= WINDOW) {
            if self.dropped > 0 {
                self.line(true, format!("{} more lines were not logged", self.dropped));
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

    /// Logs a call of `log`.
    pub fn said(&mut self, text: &str) {
        if self.admit() {
            self.line(false, cut(text).to_owned());
        }
    }

    /// Logs the failure of a function for a document: of a view, by its number, or of a text index.
    pub fn threw(&mut self, view: Option<usize>, id: &str, what: &str) {
        if self.admit() {
            let function = match view {
                Some(view) => format!("map function {view}"),
                None => "index function".to_owned(),
            };
            let text = format!("{function} failed for document {}: {}", cut(id), cut(what));
            self.line(true, text);
        }
    }
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST)]
}
