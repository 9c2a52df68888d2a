//! Clients that carry out operations for a stretch of time, and what each kind took.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::caller::Caller;
use super::kind::Kind;
use crate::error::BenchError;
use crate::slice::Slice;
use crate::target::Target;

/// A client whose operations fail so often in a row gives up.
const FAILURES_IN_A_ROW_MAX: u32 = 100;
/// An update that meets a newer revision so often is an error.
const TRIES_MAX: u32 = 100;

/// What an operation came to.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Done {
    /// How often a newer revision was met, so that the document was read and written again.
    pub(crate) conflicts: u64,
}

/// One client's way to choose and carry out operations.
pub(crate) trait Operator {
    fn choose(&mut self) -> Kind;

    async fn perform(&mut self, kind: Kind, caller: &mut Caller) -> Result<Done, BenchError>;
}

/// What all clients did in a stretch.
#[derive(Debug, Default)]
pub(crate) struct Ran {
    /// By kind; the unit is the operation.
    pub(crate) kinds: BTreeMap<Kind, Slice>,
    pub(crate) seconds: f64,
    pub(crate) conflicts: u64,
}

impl Ran {
    /// All kinds together.
    pub(crate) fn whole(&self) -> Slice {
        let mut whole = Slice::new();
        self.kinds
            .values()
            .for_each(|slice| whole.merge(slice.clone()));
        whole.seconds = self.seconds;
        whole
    }

    fn slice(&mut self, kind: Kind) -> &mut Slice {
        self.kinds.entry(kind).or_insert_with(Slice::new)
    }

    fn merge(&mut self, other: Self) {
        self.conflicts += other.conflicts;
        for (kind, slice) in other.kinds {
            self.slice(kind).merge(slice);
        }
    }
}

/// Lets `clients` clients run for `length`, each on a connection of its own.
pub(crate) async fn run<O: Operator + 'static>(
    target: &Rc<Target>,
    clients: usize,
    length: Duration,
    operator: impl Fn(usize) -> O,
) -> Result<Ran, BenchError> {
    let mut callers = Vec::with_capacity(clients);
    for _ in 0..clients {
        callers.push(Caller::connect(target).await?);
    }
    let start = Instant::now();
    let mut running = tokio::task::JoinSet::new();
    for (client, caller) in callers.into_iter().enumerate() {
        running.spawn_local(one(caller, operator(client), start + length));
    }
    let mut whole = Ran::default();
    while let Some(joined) = running.join_next().await {
        match joined {
            Ok(ran) => whole.merge(ran),
            Err(failed) => std::panic::resume_unwind(failed.into_panic()),
        }
    }
    whole.seconds = start.elapsed().as_secs_f64();
    for slice in whole.kinds.values_mut() {
        slice.seconds = whole.seconds;
    }
    Ok(whole)
}

async fn one(mut caller: Caller, mut operator: impl Operator, deadline: Instant) -> Ran {
    let mut ran = Ran::default();
    let mut failures_in_a_row = 0;
    while failures_in_a_row < FAILURES_IN_A_ROW_MAX {
        let kind = operator.choose();
        let start = Instant::now();
        match operator.perform(kind, &mut caller).await {
            Ok(done) => {
                failures_in_a_row = 0;
                ran.conflicts += done.conflicts;
                ran.slice(kind).record(1, start.elapsed());
            }
            Err(error) => {
                failures_in_a_row += 1;
                ran.slice(kind).errors.add(1, || error.to_string());
            }
        }
        if Instant::now() >= deadline {
            break;
        }
    }
    ran
}

/// Reads a document, has it changed, and writes it with the revision that was read; again when somebody was faster.
pub(crate) async fn update(
    caller: &mut Caller,
    path: &str,
    mut change: impl FnMut(&mut [u8]) -> bool,
) -> Result<Done, BenchError> {
    let mut done = Done::default();
    for _ in 0..TRIES_MAX {
        caller.require("GET", path, None).await?;
        // The text that was read has `_id` and `_rev`, which is how CouchDB wants an update.
        let mut document = std::mem::take(&mut caller.reply);
        if !change(&mut document) {
            let text = String::from_utf8_lossy(&document);
            let beginning: String = text.chars().take(200).collect();
            return Err(BenchError::Options(format!(
                "GET {path}: a document of this run was expected, not {beginning}"
            )));
        }
        match caller.send("PUT", path, Some(&document)).await? {
            200..300 => return Ok(done),
            409 => done.conflicts += 1,
            status => return Err(caller.refused("PUT", path, status)),
        }
    }
    Err(BenchError::Options(format!(
        "PUT {path}: {TRIES_MAX} conflicts in a row"
    )))
}

/// Overwrites what follows the first occurrence of `marker`. False when there is not enough of it.
pub(crate) fn overwrite(document: &mut [u8], marker: &[u8], bytes: &[u8]) -> bool {
    let Some(at) = memchr::memmem::find(document, marker) else {
        return false;
    };
    let start = at + marker.len();
    match document.get_mut(start..start + bytes.len()) {
        Some(place) => {
            place.copy_from_slice(bytes);
            true
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overwriting_keeps_the_length_and_what_is_around() {
        let mut text = br#"{"a":"1234","b":"1234"}"#.to_vec();
        assert!(overwrite(&mut text, br#""b":""#, b"zz"));
        assert_eq!(text, br#"{"a":"1234","b":"zz34"}"#);
        assert!(!overwrite(&mut text, br#""c":""#, b"zz"));
        assert!(!overwrite(&mut text, br#""b":""#, b"123456789"));
    }
}
