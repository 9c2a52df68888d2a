//! The slow log: what took long, and what it did. No document, no credentials and no value of a selector is in it.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use database::AskedFind;
use routes::Class;
use serde_json::{Map, Value};

use super::ending::{End, Told};
use crate::reply::Timing;

/// Fields of a selector that are told, and bytes of each.
const TOLD_FIELDS_MAX: usize = 20;
const TOLD_FIELD_BYTES_MAX: usize = 64;

/// The path is cut after this many bytes.
const PATH_BYTES_MAX: usize = 3072;

/// What a request asks of an index, and what was done for it so far.
#[derive(Default)]
pub struct Detail {
    /// The query of `_find`.
    pub find: Option<AskedFind>,
    /// Keys that were asked for one by one.
    pub keys: Option<u64>,
    /// What was done for it so far.
    pub done: Done,
}

/// What was done for an answer.
#[derive(Default)]
pub struct Done {
    rows: AtomicU64,
    documents: AtomicU64,
    entries: AtomicU64,
}

impl Done {
    /// So many rows were given.
    pub fn note_rows(&self, rows: u64) {
        self.rows.store(rows, Relaxed);
    }

    /// So many documents and keys of an index were looked at.
    pub fn note_examined(&self, documents: u64, entries: u64) {
        self.documents.store(documents, Relaxed);
        self.entries.store(entries, Relaxed);
    }
}

impl Detail {
    /// What was asked for and done, what is 0 aside.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = [
            ("keys", self.keys.unwrap_or(0)),
            ("rows", self.done.rows.load(Relaxed)),
            ("docs_examined", self.done.documents.load(Relaxed)),
            ("keys_examined", self.done.entries.load(Relaxed)),
        ];
        counts.into_iter().filter(|(_, n)| *n > 0)
    }

    fn write_to(&self, line: &mut Map<String, Value>) {
        if let Some(find) = &self.find {
            line.insert("index".into(), find.index_name().into());
            let fields = find.selector_fields(TOLD_FIELDS_MAX, TOLD_FIELD_BYTES_MAX);
            if !fields.is_empty() {
                line.insert("selector_fields".into(), fields.into());
            }
        }
        for (name, n) in self.counts() {
            line.insert(name.into(), n.into());
        }
    }
}

/// The phases of a request that happened, in milliseconds. `write` is making the answer: what is left until its head. `body` is
/// what came after.
pub fn phases(timing: &Timing, head_us: u64, whole_us: u64) -> Map<String, Value> {
    happened(timing, head_us, whole_us)
        .map(|(name, us)| (name.to_owned(), milliseconds(us)))
        .collect()
}

/// The same in microseconds, in the order in which they begin.
pub fn happened(
    timing: &Timing,
    head_us: u64,
    whole_us: u64,
) -> impl Iterator<Item = (&'static str, u64)> {
    let known = timing.phases();
    let before: u64 = known.iter().map(|(_, us)| us).sum();
    let rest = [
        ("write", head_us.saturating_sub(before)),
        ("body", whole_us.saturating_sub(head_us)),
    ];
    known.into_iter().chain(rest).filter(|(_, us)| *us > 0)
}

fn milliseconds(us: u64) -> Value {
    (us as f64 / 1000.0).into()
}

/// The line of a request.
pub fn line(told: &Told<'_>, end: End, bytes: u64, us: u64) -> Value {
    let numbers = &told.numbers;
    let mut line = Map::new();
    let mut put = |name: &str, value: Value| {
        line.insert(name.to_owned(), value);
    };
    put("time", replicator::iso8601(SystemTime::now()).into());
    put("id", told.id.to_str().unwrap_or_default().into());
    put("ms", milliseconds(us));
    put("route", numbers.route.name().into());
    put("method", told.method.into());
    let cut = told.path.floor_char_boundary(PATH_BYTES_MAX);
    put("path", told.path[..cut].into());
    put("user", told.user.into());
    put(
        "status",
        (numbers.status > 0).then_some(numbers.status).into(),
    );
    put("end", end.name().into());
    put("bytes_sent", bytes.into());
    put("bytes_received", numbers.bytes_received.into());
    put(
        "phases",
        phases(&numbers.timing, numbers.head_us, us).into(),
    );
    if numbers.is_of_database {
        put("database", told.database().into());
    }
    match numbers.route {
        Class::View => put("view", told.view().into()),
        route if route.is_of_index() => put("text_index", told.view().into()),
        _ => {}
    }
    if let Some(documents) = numbers.bulk_docs {
        put("documents", documents.into());
    }
    if let Some(traced) = numbers.traced {
        put("trace", traced.id().into());
    }
    if let Some(detail) = told.detail {
        detail.write_to(&mut line);
    }
    line.into()
}

/// Where the lines go.
pub type Writer = Box<dyn Write + Send>;

/// Writes a line to the slow log, or to the log.
pub fn write(to: Option<&mut Writer>, line: &Value) {
    let Some(to) = to else {
        tracing::warn!(target: "slow", "{line}");
        return;
    };
    let written = to.write_all(format!("{line}\n").as_bytes());
    if let Err(e) = written.and_then(|()| to.flush()) {
        tracing::error!(error = %e, "the slow log cannot be written");
    }
}

/// A duration of the settings as a bound in microseconds; 0 is none.
pub fn bound_us(of: Duration) -> u64 {
    match of {
        Duration::ZERO => u64::MAX,
        of => u64::try_from(of.as_micros()).unwrap_or(u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn phases_sum_up_to_the_whole() {
        let timing = Timing {
            auth_us: 100,
            commit_us: 2_000,
            ..Timing::default()
        };
        let phases = phases(&timing, 3_000, 10_000);
        let sum: f64 = phases.values().filter_map(Value::as_f64).sum();
        assert!((sum - 10.0).abs() < 1e-9, "{phases:?}");
        assert_eq!(phases["write"], json!(0.9));
        assert_eq!(phases["body"], json!(7.0));
    }
}
