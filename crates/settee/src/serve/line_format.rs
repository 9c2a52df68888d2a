//! How a line of the log is written.
//!
//! Nearly all lines are those of requests, whose fields are known: they are formatted here, with
//! the output of the library. By the library they were 8 % of the server's work for a GET, most of
//! that for styles and nested formats.
//!
//! Every event is one line of bounded length, whatever its fields contain: clients choose names of
//! documents and databases, and a line break in one of them would begin a line that looks like one
//! of the server, or like a section of an ini file.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{Format, FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::{FmtContext, format};
use tracing_subscriber::registry::LookupSpan;

use super::repeats::{Repeats, Verdict};

/// The target of events of requests.
pub const REQUEST: &str = "request";
/// Fields that are written without quotes: they have no spaces or control characters, which no
/// client can send in them.
const BARE: [&str; 2] = ["method", "path"];

/// A line is cut after this many bytes.
const LINE_BYTES_MAX: usize = 4096;
/// The path of a request is cut after this many bytes, and each of its other fields after fewer: a line has at most 4 KiB.
const PATH_BYTES_MAX: usize = 3072;
const FIELD_BYTES_MAX: usize = 256;
/// Longer paths are written beyond this length while those of a second have no more bytes together than this: clients that send only
/// long ones do not fill a disk faster than others.
const SHORT_PATH_BYTES: usize = 256;
const LONG_PATHS_BYTES_PER_S: u64 = 256 << 10;

/// The library's format; that of requests is written without it.
#[derive(Default)]
pub struct LineFormat {
    library: Format<format::Full>,
    /// Suppresses lines that repeat another one.
    repeats: Option<Arc<Repeats>>,
    long_paths: LongPaths,
}

impl LineFormat {
    /// Leaves out lines that repeat another.
    pub fn without(repeats: Arc<Repeats>) -> LineFormat {
        LineFormat {
            repeats: Some(repeats),
            ..LineFormat::default()
        }
    }
}

/// How long a line's time is, in bytes.
const TIME_LEN: usize = "2026-11-26T10:51:00.123456Z".len();

impl<S, N> FormatEvent<S, N> for LineFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let about = event.metadata();
        if about.target() != REQUEST || *about.level() != Level::INFO {
            let verdict = match &self.repeats {
                Some(repeats) => repeats.judge(event),
                None => Verdict::Write,
            };
            if let Verdict::LeaveOut(None) = verdict {
                return Ok(());
            }
            let mut line = String::new();
            self.library
                .format_event(context, Writer::new(&mut line), event)?;
            let line = escaped(line.trim_end_matches('\n'));
            let line = cut(&line, LINE_BYTES_MAX);
            if let (Verdict::LeaveOut(Some(key)), Some(repeats)) = (verdict, &self.repeats) {
                repeats.describe(key, &line, TIME_LEN);
                return Ok(());
            }
            writer.write_str(&line)?;
            return writer.write_char('\n');
        }
        write_time(&mut writer)?;
        writer.write_str("  INFO request:")?;
        let mut fields = Fields {
            writer,
            written: Ok(()),
            long_paths: &self.long_paths,
        };
        event.record(&mut fields);
        let Fields {
            mut writer,
            written,
            ..
        } = fields;
        written?;
        writer.write_char('\n')
    }
}

/// The time now, as a line begins with it.
pub fn time_text() -> String {
    let mut text = String::with_capacity(TIME_LEN);
    // A string takes all.
    let _ = write_time(&mut Writer::new(&mut text));
    text
}

/// A text whose characters that end a line, move a terminal's cursor or reverse text are written as
/// Rust's escapes.
fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_unsafe(c) {
            safe.extend(c.escape_default());
        } else {
            safe.push(c);
        }
    }
    Cow::Owned(safe)
}

/// Control characters, and Unicode's separators of lines and overrides of direction.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A text up to `bytes_max`, followed by how much is missing.
fn cut(text: &str, bytes_max: usize) -> Cow<'_, str> {
    if text.len() <= bytes_max {
        return Cow::Borrowed(text);
    }
    let end = text.floor_char_boundary(bytes_max);
    Cow::Owned(format!(
        "{}… ({} bytes cut)",
        &text[..end],
        text.len() - end
    ))
}

/// The time now, as RFC 3339 has it, to the microsecond.
fn write_time(writer: &mut Writer<'_>) -> fmt::Result {
    thread_local! {
        static SECOND: RefCell<(u64, String)> = const { RefCell::new((u64::MAX, String::new())) };
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.unwrap_or(Duration::ZERO);
    SECOND.with_borrow_mut(|(second, text)| {
        if *second != now.as_secs() {
            *second = now.as_secs();
            *text = second_text(*second);
        }
        writer.write_str(text)
    })?;
    write!(writer, ".{:06}Z", now.subsec_micros())
}

fn second_text(unix_s: u64) -> String {
    let time = i64::try_from(unix_s).ok();
    let time = time.and_then(|unix_s| chrono::DateTime::from_timestamp(unix_s, 0));
    time.unwrap_or_default()
        .format("%Y-%m-%dT%H:%M:%S")
        .to_string()
}

/// How many bytes of long paths were written in the last second that had one.
#[derive(Default)]
struct LongPaths {
    unix_s: AtomicU64,
    bytes: AtomicU64,
}

impl LongPaths {
    /// How many bytes of a path of this length are written now.
    fn bytes_max(&self, len: usize) -> usize {
        if len <= SHORT_PATH_BYTES {
            return len;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        self.bytes_max_at(len, now.unwrap_or_default().as_secs())
    }

    fn bytes_max_at(&self, len: usize, unix_s: u64) -> usize {
        // Two threads at the turn of a second may both begin to count: that is some bytes more.
        if self.unix_s.swap(unix_s, Relaxed) != unix_s {
            self.bytes.store(0, Relaxed);
        }
        let bytes = len.min(PATH_BYTES_MAX);
        let before = self.bytes.fetch_add(bytes as u64, Relaxed);
        match before + bytes as u64 <= LONG_PATHS_BYTES_PER_S {
            true => bytes,
            false => SHORT_PATH_BYTES,
        }
    }
}

struct Fields<'a, 'w> {
    writer: Writer<'w>,
    written: fmt::Result,
    long_paths: &'a LongPaths,
}

impl Fields<'_, '_> {
    fn put(&mut self, field: &Field, value: impl FnOnce(&mut Writer<'_>) -> fmt::Result) {
        if self.written.is_ok() {
            let writer = &mut self.writer;
            self.written = [" ", field.name(), "="]
                .into_iter()
                .try_for_each(|part| writer.write_str(part))
                .and_then(|()| value(writer));
        }
    }
}

impl Visit for Fields<'_, '_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        let is_plain = |b: u8| matches!(b, b' '..=b'~') && !matches!(b, b'"' | b'\\');
        let long_paths = self.long_paths;
        self.put(field, |writer| {
            if BARE.contains(&field.name()) {
                return writer.write_str(&cut(value, long_paths.bytes_max(value.len())));
            }
            if !value.bytes().all(is_plain) {
                let quoted = format!("{value:?}");
                return writer.write_str(&cut(&escaped(&quoted), FIELD_BYTES_MAX));
            }
            writer.write_char('"')?;
            writer.write_str(&cut(value, FIELD_BYTES_MAX))?;
            writer.write_char('"')
        });
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, |writer| write!(writer, "{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, |writer| write!(writer, "{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Mutex;

    use tracing_subscriber::fmt::MakeWriter;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.0.lock().map_err(|_| io::ErrorKind::Other)?.write(line)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Written {
        type Writer = Written;

        fn make_writer(&'a self) -> Written {
            self.clone()
        }
    }

    /// The lines of `events` by this format and by the library's, without their times.
    fn lines(events: impl Fn()) -> (String, String) {
        let (ours, library) = (Written::default(), Written::default());
        let subscriber = tracing_subscriber::registry()
            .with(
                tracing_subscriber::fmt::layer()
                    .with_ansi(false)
                    .with_writer(ours.clone())
                    .event_format(LineFormat::default()),
            )
            .with(
                tracing_subscriber::fmt::layer()
                    .with_ansi(false)
                    .with_writer(library.clone()),
            );
        tracing::subscriber::with_default(subscriber, events);
        (without_times(&ours), without_times(&library))
    }

    /// The lines of `events` by this format alone, without their times.
    fn own_lines(events: impl Fn()) -> String {
        let ours = Written::default();
        let layer = tracing_subscriber::fmt::layer()
            .with_ansi(false)
            .with_writer(ours.clone())
            .event_format(LineFormat::default());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), events);
        without_times(&ours)
    }

    fn without_times(written: &Written) -> String {
        let bytes = std::mem::take(&mut *written.0.lock().unwrap());
        let text = String::from_utf8(bytes).unwrap();
        let ends = text.lines().map(|line| {
            let (time, end) = line.split_at(TIME_LEN);
            assert!(chrono::DateTime::parse_from_rfc3339(time).is_ok(), "{line}");
            format!("{end}\n")
        });
        ends.collect()
    }

    #[test]
    fn lines_are_what_the_library_writes() {
        let (ours, library) = lines(|| {
            for user in [
                "alice",
                "a \"quoted\" one",
                "über",
                "two\nlines",
                "back\\slash",
                "",
            ] {
                tracing::info!(
                    target: "request",
                    id = "0123456789",
                    peer = Some(tracing::field::display(std::net::IpAddr::from([127, 0, 0, 1]))),
                    user,
                    status = Some(200_u16),
                    bytes = u64::MAX,
                    us = 0_u64,
                    end = None::<&str>,
                    trace = Some(tracing::field::display("4bf9")),
                );
            }
            tracing::info!(target: "request", status = None::<u16>, end = Some("cut"));
            tracing::warn!(target: "request", a = 1, "with a message");
            tracing::info!(error = %"it failed", "of something else");
        });
        assert_eq!(ours, library);
        assert_eq!(ours.lines().count(), 9);
    }

    #[test]
    fn an_event_is_one_line_whatever_is_in_it() {
        let evil = "x\n[query_servers]\r\nevil = /bin/sh\u{1b}[2J\u{85}\u{2028}\u{202e}";
        let ours = own_lines(|| {
            tracing::warn!(design = evil, "a build of {evil} failed");
            tracing::error!(error = %evil, value = ?Some(evil));
            tracing::info!(target: "request", user = evil, path = "/a");
            tracing::warn!(target: "slow", "{evil}");
        });
        assert_eq!(ours.lines().count(), 4, "{ours}");
        assert!(!ours.chars().any(|c| c != '\n' && is_unsafe(c)), "{ours}");
        assert_eq!(ours.matches("[query_servers]").count(), 6);
        assert!(ours.contains("x\\n[query_servers]\\r\\nevil"), "{ours}");
    }

    #[test]
    fn a_line_is_cut() {
        let long = "ü".repeat(LINE_BYTES_MAX);
        let ours = own_lines(|| {
            tracing::warn!("{long}");
            tracing::info!(target: "request", path = long.as_str(), user = long.as_str(), agent = "a");
        });
        let lengths: Vec<usize> = ours.lines().map(str::len).collect();
        assert!(lengths[0] < LINE_BYTES_MAX + 64, "{lengths:?}");
        assert!(lengths[1] < LINE_BYTES_MAX, "{lengths:?}");
        assert!(ours.lines().all(|line| line.contains("bytes cut)")));
        assert!(ours.ends_with("agent=\"a\"\n"));
    }

    #[test]
    fn long_paths_are_cut_shorter_when_there_are_many() {
        let paths = LongPaths::default();
        let written = |unix_s, len| -> usize {
            let lines = (0..1000).map(|_| paths.bytes_max_at(len, unix_s));
            lines.sum()
        };
        let few = 1000 * SHORT_PATH_BYTES + LONG_PATHS_BYTES_PER_S as usize;
        assert!(written(1, 6000) <= few);
        assert!(
            (few / 2..=few).contains(&written(2, 6000)),
            "another second"
        );
        assert_eq!(paths.bytes_max_at(6000, 3), PATH_BYTES_MAX);
        assert_eq!(paths.bytes_max(100), 100);
    }

    #[test]
    fn methods_and_paths_are_bare() {
        let (ours, _) =
            lines(|| tracing::info!(target: "request", method = "GET", path = "/a/b?c=%22d%22"));
        assert_eq!(ours, "  INFO request: method=GET path=/a/b?c=%22d%22\n");
    }

    #[test]
    fn seconds_are_written_as_the_calendar_has_them() {
        assert_eq!(second_text(0), "1970-01-01T00:00:00");
        assert_eq!(second_text(1_709_210_096), "2024-02-29T12:34:56");
    }
}
