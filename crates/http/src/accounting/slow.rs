//! The slow log: slow requests, and their work. It has no document, no credentials and no value of
//! a selector.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use database::FindReport;
use metrics::End;
use routes::Class;
use serde_json::{Map, Value};

use super::completion::RequestFacts;
use crate::reply::Timing;

/// Most fields of a selector that are logged, and bytes of each.
const TOLD_FIELDS_MAX: usize = 20;
const TOLD_FIELD_BYTES_MAX: usize = 64;

/// The path is cut after this many bytes, and names that a client chose after fewer: a line stays within 4 KiB.
const PATH_BYTES_MAX: usize = 1024;
const NAME_BYTES_MAX: usize = 256;

/// The index of a request, and the work done for it so far.
#[derive(Default)]
pub struct Detail {
    /// The query of `_find`.
    pub find: Option<FindReport>,
    /// Number of keys in the request.
    pub keys: Option<u64>,
    /// Work done so far.
    pub done: Done,
}

/// Work done for a response.
#[derive(Default)]
pub struct Done {
    rows: AtomicU64,
    documents: AtomicU64,
    entries: AtomicU64,
}

impl Done {
    /// Counts returned rows.
    pub fn note_rows(&self, rows: u64) {
        self.rows.store(rows, Relaxed);
    }

    /// Counts examined documents, and examined keys of an index.
    pub fn note_examined(&self, documents: u64, entries: u64) {
        self.documents.store(documents, Relaxed);
        self.entries.store(entries, Relaxed);
    }
}

impl Detail {
    /// The requested and the done amounts, without those of 0.
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

/// The phases of a request that happened, in milliseconds. `write` is the rest until the response's
/// head, for making the response. `body` is the time after that.
pub fn phases(timing: &Timing, head_us: u64, whole_us: u64) -> Map<String, Value> {
    happened(timing, head_us, whole_us)
        .map(|(name, us)| (name.to_owned(), milliseconds(us)))
        .collect()
}

/// The phases in microseconds, in the order in which they begin.
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
pub fn line(facts: &RequestFacts<'_>, end: End, bytes: u64, us: u64) -> Value {
    let numbers = &facts.numbers;
    let mut line = Map::new();
    let mut put = |name: &str, value: Value| {
        line.insert(name.to_owned(), value);
    };
    put("time", replicator::iso8601(SystemTime::now()).into());
    put("id", facts.id.to_str().unwrap_or_default().into());
    put("ms", milliseconds(us));
    put("route", numbers.route.name().into());
    put("method", facts.method.into());
    put("path", cut(facts.path, PATH_BYTES_MAX).into());
    put(
        "user",
        facts.user.map(|user| cut(user, NAME_BYTES_MAX)).into(),
    );
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
    if numbers.timing.socket_ms > 0 {
        put("socket_ms", numbers.timing.socket_ms.into());
    }
    if numbers.is_of_database {
        let name = facts.database().map(|name| cut(name, NAME_BYTES_MAX));
        put("database", name.into());
    }
    let view = || cut(&facts.view(), NAME_BYTES_MAX).to_owned();
    match numbers.route {
        Class::View => put("view", view().into()),
        route if route.is_of_index() => put("text_index", view().into()),
        _ => {}
    }
    if let Some(documents) = numbers.bulk_docs {
        put("documents", documents.into());
    }
    if let Some(traced) = numbers.traced {
        put("trace", traced.id().into());
    }
    if let Some(detail) = facts.detail {
        detail.write_to(&mut line);
    }
    line.into()
}

fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

/// A duration of the settings as a bound in microseconds; 0 for no bound.
pub fn bound_us(of: Duration) -> u64 {
    match of {
        Duration::ZERO => u64::MAX,
        of => u64::try_from(of.as_micros()).unwrap_or(u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;
    use serde_json::json;

    use super::*;
    use crate::accounting::completion::Numbers;

    #[test]
    fn a_name_is_cut_between_characters() {
        assert_eq!(cut("äbc", 1), "");
        assert_eq!(cut("äbc", 3), "äb");
    }

    #[test]
    fn the_wait_before_a_request_is_in_its_line_if_it_is_known() {
        let id = HeaderValue::from_static("abc");
        let line_of = |socket_ms: u32| {
            let numbers = Numbers {
                route: Class::DocumentRead,
                is_of_database: false,
                status: 200,
                slow_us: 1,
                timing: Timing {
                    socket_ms,
                    ..Timing::default()
                },
                head_us: 1_000,
                bytes_received: 0,
                document_reads: 0,
                bulk_docs: None,
                traced: None,
            };
            let facts = RequestFacts {
                id: &id,
                peer: None,
                user: None,
                method: "GET",
                path: "/db/a",
                segments: &[],
                numbers,
                detail: None,
            };
            line(&facts, End::Whole, 5, 2_000)
        };
        let known = line_of(266);
        assert_eq!(
            (&known["socket_ms"], &known["ms"]),
            (&json!(266), &json!(2.0))
        );
        assert!(line_of(0).get("socket_ms").is_none());
    }

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
