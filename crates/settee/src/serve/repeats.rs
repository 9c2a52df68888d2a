//! Warnings and errors that repeat another within a second are counted instead of written: a
//! failure of each request happens thousands of times a second, with the same text each time.
//!
//! Two are the same when they come from the same place in the code, are about the same user, peer, database and design document, and have the same
//! `error`, or without one the same message, digits aside. One cause may fail for thousands of databases, and an attacker tries thousands of
//! names: beyond [`DIFFERENT_MAX`] lines a second, all lines of one place in the code are the same.

use std::collections::HashMap;
use std::collections::hash_map::{DefaultHasher, Entry};
use std::fmt::{self, Write as _};
use std::hash::{Hash as _, Hasher as _};
use std::io::Write as _;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tracing::field::{Field, Visit};
use tracing::{Event, Level};

use super::lines::Lines;

/// Least time between two writes of the same line.
const EVERY: Duration = Duration::from_secs(1);
/// Different lines of one place in the code that are written within [`EVERY`].
const DIFFERENT_MAX: u32 = 16;
/// Lines that are remembered.
const REMEMBERED_MAX: usize = 1024;
/// Lines that are each about something else: a request that was slow.
const SINGLE: &str = "slow";

/// The recently written lines.
#[derive(Default)]
pub struct Repeats {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    recent: HashMap<u64, Recent>,
    /// How many different lines a place in the code has written, until when.
    places: HashMap<u64, (Instant, u32)>,
    is_over: bool,
}

/// A line that was written.
struct Recent {
    /// When the next one like it may be written.
    until: Instant,
    left_out: u64,
    /// The first suppressed line, without its time.
    line: String,
}

/// The treatment of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Write,
    /// It is counted. The first one since the last that was written, of which the text is wanted, has this key.
    LeaveOut(Option<u64>),
}

impl Repeats {
    /// Decides whether a line is written.
    pub fn judge(&self, event: &Event<'_>) -> Verdict {
        let about = event.metadata();
        if *about.level() > Level::WARN || about.target() == SINGLE {
            return Verdict::Write;
        }
        let mut text = Text::default();
        event.record(&mut text);
        let mut place = DefaultHasher::new();
        about.callsite().hash(&mut place);
        self.judge_at(place, &text, Instant::now())
    }

    fn judge_at(&self, place: DefaultHasher, text: &Text, now: Instant) -> Verdict {
        let mut state = self.state.lock();
        let mut key = place.clone();
        text.hash_into(&mut key);
        let mut key = key.finish();
        if state.recent.len() >= REMEMBERED_MAX && !state.recent.contains_key(&key) {
            let is_wanted = |recent: &Recent| recent.left_out > 0 || recent.until > now;
            state.recent.retain(|_, recent| is_wanted(recent));
            if state.recent.len() >= REMEMBERED_MAX {
                key = place.finish();
            }
        }
        let written = state.recent.get(&key);
        let is_new = written.is_none_or(|recent| recent.until <= now && recent.left_out == 0);
        if is_new && !state.may_differ(place.finish(), now) {
            key = place.finish();
        }
        let recent = match state.recent.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(Recent::begin(now));
                return Verdict::Write;
            }
            Entry::Occupied(entry) => entry.into_mut(),
        };
        if recent.until <= now && recent.left_out == 0 {
            *recent = Recent::begin(now);
            return Verdict::Write;
        }
        recent.left_out += 1;
        telemetry::LINES_LEFT_OUT.count();
        Verdict::LeaveOut((recent.left_out == 1).then_some(key))
    }

    /// Takes the text of a line that was left out. It ends with a line break, and begins with its time, of `time_len` bytes.
    pub fn describe(&self, key: u64, line: &str, time_len: usize) {
        let line = line.get(time_len..).unwrap_or_default().trim_end();
        let mut state = self.state.lock();
        if let Some(recent) = state.recent.get_mut(&key) {
            line.clone_into(&mut recent.line);
        }
        self.changed.notify_one();
    }

    /// Removes and returns the counts so far, as lines without their times. With `all` also those
    /// that are to be written later.
    fn due(state: &mut State, now: Instant, all: bool) -> Vec<String> {
        let mut lines = vec![];
        state.recent.retain(|_, recent| {
            if recent.until > now && !all {
                return true;
            }
            // Its text comes in a moment.
            if recent.left_out == 0 || recent.line.is_empty() && !all {
                return recent.left_out > 0;
            }
            let (n, line) = (recent.left_out, &recent.line);
            lines.push(format!("{line} ({n} more like this one)"));
            *recent = Recent::begin(now);
            true
        });
        lines
    }

    /// Writes the counts, every second if there are any, until the end.
    fn run(&self, mut to: Lines, time: fn() -> String) {
        let mut state = self.state.lock();
        loop {
            let is_over = state.is_over;
            let lines = Repeats::due(&mut state, Instant::now(), is_over);
            drop(state);
            for line in lines {
                // Lines take all, or count what they lose.
                let _ = to.write_all(format!("{}{line}\n", time()).as_bytes());
            }
            if is_over {
                return;
            }
            state = self.state.lock();
            if state.is_over {
                continue;
            }
            let counted = state.recent.values().filter(|recent| recent.left_out > 0);
            match counted.map(|recent| recent.until).min() {
                // Never immediately: the text of a due one may follow.
                Some(until) => {
                    let until = until.max(Instant::now() + Duration::from_millis(10));
                    self.changed.wait_until(&mut state, until);
                }
                None => self.changed.wait(&mut state),
            }
        }
    }
}

impl State {
    /// Counts a line that differs from those before. Returns whether it may be written.
    fn may_differ(&mut self, place: u64, now: Instant) -> bool {
        let (until, count) = self.places.entry(place).or_insert((now, 0));
        if *until <= now {
            (*until, *count) = (now + EVERY, 0);
        }
        *count += 1;
        *count <= DIFFERENT_MAX
    }
}

impl Recent {
    fn begin(now: Instant) -> Recent {
        Recent {
            until: now + EVERY,
            left_out: 0,
            line: String::new(),
        }
    }
}

/// The thread that writes the numbers of suppressed lines. When dropped, it writes the remaining
/// ones, and ends.
pub struct RepeatCounter {
    repeats: Arc<Repeats>,
    thread: Option<JoinHandle<()>>,
}

impl RepeatCounter {
    /// Starts the thread. `time` is the beginning of a line.
    ///
    /// # Errors
    /// There can be no further thread.
    pub fn start(to: Lines, time: fn() -> String) -> std::io::Result<RepeatCounter> {
        let repeats = Arc::<Repeats>::default();
        let shared = repeats.clone();
        let thread = std::thread::Builder::new().name("log".into());
        let thread = thread.spawn(move || shared.run(to, time))?;
        Ok(RepeatCounter {
            repeats,
            thread: Some(thread),
        })
    }

    /// Returns the filter of repeated lines.
    pub fn repeats(&self) -> Arc<Repeats> {
        self.repeats.clone()
    }
}

impl Drop for RepeatCounter {
    fn drop(&mut self) {
        self.repeats.state.lock().is_over = true;
        self.repeats.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // One that panicked has nothing left to write.
            let _ = thread.join();
        }
    }
}

/// The text that distinguishes lines of one place in the code.
#[derive(Default)]
struct Text {
    error: Option<String>,
    message: String,
    /// The user, peer, database and design document.
    subject: String,
}

impl Text {
    fn hash_into(&self, hasher: &mut DefaultHasher) {
        let text = self.error.as_ref().unwrap_or(&self.message);
        let bytes = text.bytes().filter(|byte| !byte.is_ascii_digit());
        bytes.for_each(|byte| hasher.write_u8(byte));
        self.subject.hash(hasher);
    }
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "error" => self.error = Some(format!("{value:?}")),
            "message" => self.message = format!("{value:?}"),
            "user" | "peer" | "db" | "design" => {
                let _ = write!(self.subject, "{}={value:?} ", field.name());
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(error: Option<&str>, message: &str) -> Text {
        Text {
            error: error.map(str::to_owned),
            message: message.to_owned(),
            subject: String::new(),
        }
    }

    fn place(n: u8) -> DefaultHasher {
        let mut hasher = DefaultHasher::new();
        hasher.write_u8(n);
        hasher
    }

    #[test]
    fn the_same_error_is_written_once_a_second_and_counted() {
        let repeats = Repeats::default();
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        let full = |n: u32| text(Some(&format!("/store/{n:06}.log: no room")), "it failed");
        assert_eq!(repeats.judge_at(place(1), &full(1), at(0)), Verdict::Write);
        let Verdict::LeaveOut(Some(key)) = repeats.judge_at(place(1), &full(2), at(1)) else {
            panic!("it repeats the first");
        };
        repeats.describe(key, "12:00 ERROR it failed\n", 5);
        for ms in 2..1500 {
            let verdict = repeats.judge_at(place(1), &full(3), at(ms));
            assert_eq!(verdict, Verdict::LeaveOut(None), "{ms}");
        }
        // Another error, and another place.
        let other = text(Some("no memory"), "it failed");
        assert_eq!(repeats.judge_at(place(1), &other, at(3)), Verdict::Write);
        assert_eq!(repeats.judge_at(place(2), &full(1), at(3)), Verdict::Write);
        let due = |ms, all| Repeats::due(&mut repeats.state.lock(), at(ms), all);
        assert_eq!(due(900, false), [""; 0]);
        let counted = " ERROR it failed (1499 more like this one)".to_owned();
        assert_eq!(due(1501, false), [counted]);
        // That line was one of its own.
        let verdict = repeats.judge_at(place(1), &full(4), at(1600));
        assert_eq!(verdict, Verdict::LeaveOut(Some(key)));
        assert_eq!(due(1700, true).len(), 1);
        assert_eq!(
            repeats.judge_at(place(1), &full(5), at(2800)),
            Verdict::Write
        );
    }

    #[test]
    fn very_many_different_lines_are_told_apart_by_their_places_only() {
        let repeats = Repeats::default();
        let now = Instant::now();
        let mut written = 0;
        for n in 0..10 * REMEMBERED_MAX {
            let letters: String = n.to_string().bytes().map(|b| (b + 64) as char).collect();
            let verdict = repeats.judge_at(place(1), &text(None, &letters), now);
            written += usize::from(verdict == Verdict::Write);
        }
        assert_eq!(written, DIFFERENT_MAX as usize + 1);
        assert!(repeats.state.lock().recent.len() <= written);
    }

    #[test]
    fn noise_about_one_user_hides_no_other() {
        let repeats = Repeats::default();
        let now = Instant::now();
        let judge = |subject: &str| {
            let mut text = text(None, "wrong password");
            text.subject = subject.to_owned();
            repeats.judge_at(place(1), &text, now)
        };
        assert_eq!(judge("user=noise peer=127.0.0.2"), Verdict::Write);
        assert_ne!(judge("user=noise peer=127.0.0.2"), Verdict::Write);
        assert_eq!(judge("user=root peer=127.0.0.3"), Verdict::Write);
    }
}
