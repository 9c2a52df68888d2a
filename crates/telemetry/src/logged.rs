//! Lines of the log by level.

use crate::Counter;

static ERRORS: Counter = Counter::new();
static WARNINGS: Counter = Counter::new();
static INFOS: Counter = Counter::new();
static DEBUGS: Counter = Counter::new();

/// Lines that were logged, by CouchDB's names of the levels.
pub static LOGGED: [(&str, &Counter); 4] = [
    ("error", &ERRORS),
    ("warning", &WARNINGS),
    ("info", &INFOS),
    ("debug", &DEBUGS),
];

/// Warnings and errors that repeated another, and were counted instead of written.
pub static LINES_LEFT_OUT: Counter = Counter::new();
