//! Progress of a migration: a bar on a terminal, regular lines elsewhere. All of it on stderr.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;

/// Interval of lines when the output is not a terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

pub struct Progress {
    state: Mutex<State>,
    bar: Option<ProgressBar>,
}

struct State {
    began: Instant,
    last_line: Instant,
    phase: &'static str,
    databases: usize,
    finished: usize,
    /// Documents, deleted ones included, to copy and copied, of each database.
    documents: BTreeMap<String, (u64, u64)>,
}

/// Documents copied, of how many, and the databases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    pub done: u64,
    pub total: u64,
    pub finished: usize,
    pub databases: usize,
}

impl Progress {
    pub fn new() -> Progress {
        let now = Instant::now();
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
            let template =
                "{bar:30} {human_pos} of {human_len} documents, {per_sec}, {eta} left, {msg}";
            // The template is a constant, and right.
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar
        });
        Progress {
            state: Mutex::new(State {
                began: now,
                last_line: now,
                phase: "copying",
                databases: 0,
                finished: 0,
                documents: BTreeMap::new(),
            }),
            bar,
        }
    }

    /// Prints a permanent line.
    pub fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("{text}")),
            None => eprintln!("{text}"),
        }
    }

    pub fn expect(&self, db: &str, documents: u64) {
        let mut state = self.state.lock();
        state.databases += 1;
        state.documents.insert(db.to_owned(), (documents, 0));
    }

    /// A database has `pending` changes left; more may have come than were expected.
    pub fn pending(&self, db: &str, pending: u64) {
        if let Some((total, done)) = self.state.lock().documents.get_mut(db) {
            *done = total.saturating_sub(pending).max(*done);
        }
    }

    pub fn copied(&self, db: &str) {
        if let Some((total, done)) = self.state.lock().documents.get_mut(db) {
            *done = *total;
        }
    }

    pub fn finish(&self) {
        self.state.lock().finished += 1;
    }

    pub fn phase(&self, phase: &'static str) {
        self.state.lock().phase = phase;
    }

    pub fn count(&self) -> Count {
        let state = self.state.lock();
        let sum = |f: fn(&(u64, u64)) -> u64| state.documents.values().map(f).sum();
        Count {
            done: sum(|d| d.1),
            total: sum(|d| d.0),
            finished: state.finished,
            databases: state.databases,
        }
    }

    /// Shows how far it is, when that is due.
    pub fn show(&self) {
        let count = self.count();
        let mut state = self.state.lock();
        let databases = format!(
            "{} of {} databases, {}",
            count.finished, count.databases, state.phase
        );
        if let Some(bar) = &self.bar {
            bar.set_length(count.total);
            bar.set_position(count.done);
            bar.set_message(databases);
            return;
        }
        if state.last_line.elapsed() < LINE_EVERY {
            return;
        }
        state.last_line = Instant::now();
        eprintln!("{}, {databases}", line(count, state.began.elapsed()));
    }

    /// Removes the bar.
    pub fn end(&self) -> Duration {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        self.state.lock().began.elapsed()
    }
}

/// Documents with rate and time left, which is a guess from the rate so far.
fn line(count: Count, elapsed: Duration) -> String {
    let rate = count.done as f64 / elapsed.as_secs_f64().max(0.001);
    let left = match count.done {
        0 => "unknown time".to_owned(),
        _ => {
            let seconds = count.total.saturating_sub(count.done) as f64 / rate;
            duration(Duration::from_secs_f64(seconds.min(1e9)))
        }
    };
    format!(
        "{} of {} documents, {rate:.0}/s, {left} left",
        count.done, count.total
    )
}

/// As `2h 5m` or `7s`.
pub fn duration(d: Duration) -> String {
    let s = d.as_secs();
    match s {
        0..60 => format!("{s}s"),
        60..3600 => format!("{}m {}s", s / 60, s % 60),
        _ => format!("{}h {}m", s / 3600, s / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_rate_and_time_left() {
        let count = Count {
            done: 1000,
            total: 4000,
            finished: 1,
            databases: 3,
        };
        assert_eq!(
            line(count, Duration::from_secs(10)),
            "1000 of 4000 documents, 100/s, 30s left"
        );
    }

    #[test]
    fn times_are_short() {
        let shown = |s| duration(Duration::from_secs(s));
        assert_eq!([shown(7), shown(65), shown(7505)], ["7s", "1m 5s", "2h 5m"]);
    }
}
