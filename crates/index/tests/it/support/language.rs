//! Map and reduce functions written in Rust, and a switch that makes something happen in the middle
//! of a build.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};

use functions::{
    Designs, Doc, EMITS_BYTES_MAX, Emit, Emits, Error, Languages, MEMORY_LIMIT, MapFailure,
    MapGroup, Mapper, NoLanguages, Place, ReduceRow, Reducer,
};
use parking_lot::Mutex;
use serde_json::{Value, json};

const ROWS_LIMIT: &str = "emit_rows_limit";
const TIME_LIMIT: &str = "time_limit_ms";
/// A document with this number of rows is mapped in this time, in milliseconds; others in none.
pub const SLOW_ROWS: u32 = 77;
pub const SLOW_MS: u64 = 1000;
/// The memory limit of functions, so that most calls of custom reduce functions get few rows.
const MEMORY_BYTES_MAX: u64 = 4 << 10;

type Event = Box<dyn FnMut() -> Result<(), Error> + Send>;

/// The language of the tests.
#[derive(Clone, Default)]
pub struct Native {
    /// Documents to be mapped until `event` happens.
    countdown: Arc<AtomicI64>,
    event: Arc<Mutex<Option<Event>>>,
    /// Maximum number of rows of a document, if there is one: others are left out.
    rows_max: Arc<AtomicU64>,
    /// The time limit of a document, if there is one.
    time_ms_max: Arc<AtomicU64>,
    /// Calls that took too much time.
    late: Arc<AtomicU64>,
    /// Maximum number of documents that are mapped in one call, if there is one.
    docs_max: Arc<AtomicU64>,
    /// The largest size of the rows of one call, in bytes.
    emitted_max: Arc<AtomicU64>,
}

impl fmt::Debug for Native {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Native")
    }
}

impl Native {
    /// Runs `event` once, before the document after this many is mapped.
    pub fn after(&self, documents: u32, event: impl FnMut() -> Result<(), Error> + Send + 'static) {
        *self.event.lock() = Some(Box::new(event));
        self.countdown.store(i64::from(documents) + 1, SeqCst);
    }

    pub fn fail_after(&self, documents: u32) {
        self.after(documents, || {
            Err(Error::Limit {
                limit: "test",
                value: "1".into(),
            })
        });
    }

    /// Sets the maximum number of rows of a document; 0 for none.
    pub fn limit_rows(&self, rows_max: u64) {
        self.rows_max.store(rows_max, SeqCst);
    }

    /// Sets the time limit of a document; 0 for none.
    pub fn limit_time(&self, ms_max: u64) {
        self.time_ms_max.store(ms_max, SeqCst);
    }

    /// Returns the number of calls that took too much time since it was last requested.
    pub fn take_late(&self) -> u64 {
        self.late.swap(0, SeqCst)
    }

    /// Sets the maximum number of documents that are mapped in one call; 0 for none.
    pub fn limit_docs(&self, docs_max: u64) {
        self.docs_max.store(docs_max, SeqCst);
    }

    /// Returns the largest size of the rows of one call, in bytes.
    pub fn emitted_max(&self) -> usize {
        self.emitted_max.load(SeqCst) as usize
    }

    fn check_time(&self, body: &Value) -> Result<(), Error> {
        let limit = self.time_ms_max.load(SeqCst);
        if body["rows"] != SLOW_ROWS || limit == 0 || limit >= SLOW_MS {
            return Ok(());
        }
        self.late.fetch_add(1, SeqCst);
        Err(Error::Limit {
            limit: TIME_LIMIT,
            value: limit.to_string(),
        })
    }

    /// Returns whether the event has run, or none was set.
    pub fn happened(&self) -> bool {
        self.event.lock().is_none()
    }

    /// Nothing is to happen any more.
    pub fn forget(&self) {
        *self.event.lock() = None;
    }
}

impl Languages for Native {
    fn mapper(&self, group: &MapGroup) -> Result<Box<dyn Mapper>, Error> {
        Ok(Box::new(NativeMapper {
            maps: group.maps.clone(),
            language: self.clone(),
        }))
    }
    fn limit(&self, _: &str, name: &str) -> Option<u64> {
        match name {
            ROWS_LIMIT => Some(self.rows_max.load(SeqCst)),
            TIME_LIMIT => Some(self.time_ms_max.load(SeqCst)),
            MEMORY_LIMIT => Some(MEMORY_BYTES_MAX),
            _ => None,
        }
    }
    fn reducer(
        &self,
        _: &Arc<str>,
        _: &str,
        source: &str,
        _: Option<&str>,
    ) -> Result<Box<dyn Reducer>, Error> {
        assert_eq!(source, "chain");
        Ok(Box::new(Digest))
    }
    fn designs(&self, place: &Place, language: &str) -> Result<Box<dyn Designs>, Error> {
        NoLanguages.designs(place, language)
    }
    fn check(&self, _: &Place, _: &str, _: &str, _: Option<&str>) -> Result<(), Error> {
        Ok(())
    }
}

struct NativeMapper {
    maps: Vec<String>,
    language: Native,
}

impl Mapper for NativeMapper {
    fn map(&mut self, docs: &[Doc<'_>], out: &mut Emits) -> Result<(), Error> {
        for (n, doc) in docs.iter().enumerate() {
            if self.language.countdown.fetch_sub(1, SeqCst) == 1
                && let Some(mut event) = self.language.event.lock().take()
            {
                event()?;
            }
            let text = [b"{", doc.members, b"}"].concat();
            let members: Value = serde_json::from_slice(&text).unwrap();
            let body: Value = serde_json::from_slice(doc.body).unwrap();
            self.language.check_time(&body)?;
            let rows_max = self.language.rows_max.load(SeqCst);
            let is_beyond = rows_max > 0 && body["rows"].as_u64() > Some(rows_max);
            for (view, map) in self.maps.iter().enumerate() {
                if is_beyond {
                    let error = Error::Limit {
                        limit: ROWS_LIMIT,
                        value: rows_max.to_string(),
                    };
                    out.thrown
                        .push(MapFailure::new(n as u32, view as u32, error, None));
                    continue;
                }
                for (key, value) in emitted(map, &members, &body) {
                    let mut put = |v: Value| {
                        let start = out.bytes.len() as u32;
                        out.bytes.extend(v.to_string().into_bytes());
                        (start, out.bytes.len() as u32)
                    };
                    let (key, value) = (put(key), put(value));
                    out.rows.push(Emit {
                        doc: n as u32,
                        view: view as u32,
                        key,
                        value,
                    });
                }
            }
            let size = out.size() as u64;
            self.language.emitted_max.fetch_max(size, SeqCst);
        }
        Ok(())
    }

    fn map_some(&mut self, docs: &[Doc<'_>], out: &mut Emits) -> Result<usize, Error> {
        let docs_max = match self.language.docs_max.load(SeqCst) {
            0 => docs.len(),
            docs_max => docs.len().min(docs_max as usize),
        };
        let start = out.size();
        for (n, doc) in docs[..docs_max].iter().enumerate() {
            let mark = out.mark();
            self.map(std::slice::from_ref(doc), out)?;
            out.renumber(mark, n);
            if out.size() - start >= EMITS_BYTES_MAX {
                return Ok(n + 1);
            }
        }
        Ok(docs_max)
    }
}

/// Returns the rows that a map function emits for a document.
pub fn emitted(map: &str, members: &Value, body: &Value) -> Vec<(Value, Value)> {
    let (Some(k), Some(rows)) = (body["k"].as_u64(), body["rows"].as_u64()) else {
        return vec![];
    };
    let v = &body["v"];
    match map {
        "tags" => (0..rows)
            .map(|i| {
                (
                    key_of((k + i * i) % 211),
                    json!(v.as_i64().unwrap() + i as i64),
                )
            })
            .collect(),
        "pairs" => (0..rows / 2)
            .map(|i| {
                let (a, b) = (k % 7, (k + i) % 50);
                let key = match (k + i) % 5 {
                    0 => json!([a]),
                    1 => json!(a),
                    2 => json!([a, b, i % 3]),
                    _ => json!([a, b]),
                };
                (key, json!([i, v]))
            })
            .collect(),
        "revs" => vec![(members["_rev"].clone(), members["_conflicts"].clone())],
        "seqs" => vec![(members["_local_seq"].clone(), members["_id"].clone())],
        // Sums of these grow with their rows.
        "members" => vec![(json!(k), json!({ format!("{k:0>40}"): 1 }))],
        // Long values.
        "long" => (0..rows)
            .map(|i| {
                (
                    json!((k + i) % 97),
                    json!("x".repeat(v.as_u64().unwrap_or(0) as usize * 1000)),
                )
            })
            .collect(),
        // Long keys.
        "long keys" => (0..rows)
            .map(|i| {
                let length = v.as_u64().unwrap_or(0) as usize * 1000;
                (json!("x".repeat(length) + &(k + i).to_string()), json!(1))
            })
            .collect(),
        // Repeated keys, with values that come in another order than they are stored in.
        "same" => (0..k % 5)
            .map(|i| (json!(k % 2 == 0), json!((i * 7 + k) % 4)))
            .collect(),
        _ => unreachable!("no such map function"),
    }
}

/// A key of some type.
fn key_of(n: u64) -> Value {
    match n % 6 {
        0 => json!(n),
        1 => json!(format!("key{n}")),
        2 => json!(format!("KEY{}", n / 2)),
        3 => json!([n % 10, format!("\u{0}x{n}")]),
        4 => json!({ "n": n % 20 }),
        _ => [Value::Null, json!(false), json!(true)][n as usize % 3].clone(),
    }
}

/// A reduce function whose result depends on all rows, in whichever order and however they are grouped.
pub struct Digest;

const MODULUS: u64 = (1 << 31) - 1;

impl Reducer for Digest {
    fn reduce(&mut self, rows: &[ReduceRow<'_>]) -> Result<Vec<u8>, Error> {
        let mut hash = 0;
        for r in rows {
            let text = [r.key, r.id, r.value].concat();
            let one = text
                .iter()
                .fold(7, |h, b| (h * 31 + u64::from(*b)) % MODULUS);
            hash = (hash + one) % MODULUS;
        }
        Ok(json!([rows.len(), hash]).to_string().into_bytes())
    }

    fn rereduce(&mut self, values: &[&[u8]]) -> Result<Vec<u8>, Error> {
        let (mut n, mut hash) = (0, 0);
        for v in values {
            let [more, of_them]: [u64; 2] = serde_json::from_slice(v).unwrap();
            hash = (hash + of_them) % MODULUS;
            n += more;
        }
        Ok(json!([n, hash]).to_string().into_bytes())
    }
}
