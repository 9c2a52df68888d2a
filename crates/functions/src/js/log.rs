//! What users' code has to say, in the log, but never so much that it drowns the rest.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use query_server::language::one_line;

/// Lines that one heap may log in each [`WINDOW`].
const LINES: u32 = 10;
const WINDOW: Duration = Duration::from_secs(10);
const LONGEST: usize = 2000;

/// One line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub warning: bool,
    /// Whose functions said it: database and design document.
    pub label: String,
    pub text: String,
}

/// Lines of a worker process, which wait to be sent to the process that has the log.
static QUEUE: OnceLock<Mutex<Vec<Line>>> = OnceLock::new();

/// From now on lines are kept for [`take_queued`] instead of being logged.
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

/// A rate limit of log lines.
#[derive(Debug, Default)]
pub(super) struct Log {
    label: String,
    window: Option<Instant>,
    lines: u32,
    dropped: u64,
}

impl Log {
    /// `label` says whose functions say it.
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

    /// A function called `log`.
    pub fn said(&mut self, text: &str) {
        if self.admit() {
            self.line(false, cut(text).to_owned());
        }
    }

    /// A function failed for a document: of views, by its number, or of a text index.
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
