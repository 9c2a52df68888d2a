//! Clients that execute operations for a period, and the durations of each kind.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use super::super::saturated::alone;
use super::caller::Caller;
use super::kind::Kind;
use crate::error::BenchError;
use crate::pace::{OpenLoop, Pacing, Turns};
use crate::slice::Slice;
use crate::system::{Watch, WorkloadPart};
use crate::target::Target;

/// A client gives up after 100 failed operations in a row.
const FAILURES_IN_A_ROW_MAX: u32 = 100;
/// An update fails after meeting a newer revision 100 times.
const TRIES_MAX: u32 = 100;

/// The result of an operation.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct OperationResult {
    /// How often a newer revision was met, so that the document was read and written again.
    pub(crate) conflicts: u64,
}

/// One client's way to choose and carry out operations.
pub(crate) trait Operator {
    fn choose(&mut self) -> Kind;

    async fn perform(
        &mut self,
        kind: Kind,
        caller: &mut Caller,
    ) -> Result<OperationResult, BenchError>;
}

/// The results of all clients in a period.
#[derive(Debug, Default)]
pub(crate) struct PeriodResult {
    /// By kind; the unit is the operation.
    kinds: BTreeMap<Kind, Slice>,
    seconds: f64,
    conflicts: u64,
    /// With a rate: its outcome, and the time for which operations that were not started had been
    /// due. Their kinds were not chosen.
    unsent: Option<(OpenLoop, Vec<Duration>)>,
}

impl PeriodResult {
    /// The line of all operations, with their costs, and one for each kind.
    pub(crate) fn into_parts(
        self,
        name: &'static str,
        watch: Watch,
        line: impl Fn(Kind) -> &'static str,
    ) -> Vec<WorkloadPart> {
        let mut whole = Slice::new();
        for slice in self.kinds.values() {
            whole.merge(slice.clone());
        }
        whole.seconds = self.seconds;
        if let Some((open, waits)) = self.unsent {
            whole.take_unsent(open, waits);
        }
        let mut parts = vec![watch.part(name, "ops", whole)];
        parts.extend(self.kinds.into_iter().map(|(kind, slice)| WorkloadPart {
            unit: "ops",
            ..alone(line(kind), slice)
        }));
        parts
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

/// Updates of a workload, and how often one of them met a newer revision.
#[derive(Debug, Default)]
pub(crate) struct Updates {
    count: u64,
    conflicts: u64,
}

impl Updates {
    /// Adds the conflicts of a period.
    pub(crate) fn add(&mut self, ran: &PeriodResult) {
        self.conflicts += ran.conflicts;
        for kind in [Kind::Update, Kind::ReadModifyWrite] {
            self.count += ran.kinds.get(&kind).map_or(0, |slice| slice.count);
        }
    }

    /// A note on them; `None` when there were no conflicts.
    pub(crate) fn note(&self, workload: &str, server: &str) -> Option<String> {
        let (count, conflicts) = (self.count, self.conflicts);
        (count > 0).then(|| {
            format!(
                "{workload}: {conflicts} of {count} updates on {server} met a newer revision (409), and read and wrote again"
            )
        })
    }
}

/// Runs `clients` clients for `length`, or as the target's pace defines, each on a separate
/// connection.
pub(crate) async fn run<O: Operator + 'static>(
    target: &Rc<Target>,
    clients: usize,
    length: Duration,
    operator: impl Fn(usize) -> O,
) -> Result<PeriodResult, BenchError> {
    let mut callers = Vec::with_capacity(clients);
    for _ in 0..clients {
        callers.push(Caller::connect(target).await?);
    }
    let pacing = Pacing::start(target.pace(), Some(length), clients)?;
    let mut running = tokio::task::JoinSet::new();
    for (client, caller) in callers.into_iter().enumerate() {
        running.spawn_local(one(caller, operator(client), pacing.turns()));
    }
    let mut whole = PeriodResult::default();
    while let Some(joined) = running.join_next().await {
        match joined {
            Ok(ran) => whole.merge(ran),
            Err(failed) => std::panic::resume_unwind(failed.into_panic()),
        }
    }
    whole.seconds = pacing.seconds();
    whole.unsent = pacing.end();
    for slice in whole.kinds.values_mut() {
        slice.seconds = whole.seconds;
    }
    Ok(whole)
}

async fn one(mut caller: Caller, mut operator: impl Operator, mut turns: Turns) -> PeriodResult {
    let mut ran = PeriodResult::default();
    let mut failures_in_a_row = 0;
    while failures_in_a_row < FAILURES_IN_A_ROW_MAX
        && let Some(turn) = turns.next().await
    {
        let kind = operator.choose();
        let start = turn.start();
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
    }
    caller.leave();
    ran
}

/// Reads a document, changes it, and writes it with the revision that was read; again if another
/// client was faster.
pub(crate) async fn update(
    caller: &mut Caller,
    path: &str,
    mut change: impl FnMut(&mut [u8]) -> bool,
) -> Result<OperationResult, BenchError> {
    let mut done = OperationResult::default();
    for _ in 0..TRIES_MAX {
        caller.require("GET", path, None).await?;
        // The text that was read has `_id` and `_rev`, as CouchDB requires for an update.
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

/// Overwrites the bytes after the first occurrence of `marker`. Returns false when there are too
/// few.
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

    #[test]
    fn the_line_of_all_operations_has_those_that_were_not_started() {
        let mut ran = PeriodResult::default();
        for (kind, us) in [(Kind::Read, 10), (Kind::Read, 20), (Kind::Update, 30)] {
            ran.slice(kind).record(1, Duration::from_micros(us));
        }
        let open = OpenLoop {
            due: 5,
            unsent: 2,
            ..OpenLoop::default()
        };
        ran.unsent = Some((open, vec![Duration::from_millis(1); 2]));
        let mut updates = Updates::default();
        assert_eq!(updates.note("mix", "A"), None);
        updates.add(&ran);
        assert!(updates.note("mix", "A").unwrap().contains("0 of 1 updates"));
        let parts = ran.into_parts("mix", Watch::start(&[]), Kind::name);
        let counts: Vec<_> = parts
            .iter()
            .map(|part| (part.name, part.slice.count, part.slice.latencies_us.len()))
            .collect();
        assert_eq!(counts, [("mix", 3, 5), ("read", 2, 2), ("update", 1, 1)]);
        assert_eq!(parts[0].slice.open, Some(open));
    }
}
