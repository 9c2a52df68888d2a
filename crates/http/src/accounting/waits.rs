//! Wall-clock time of requests, by route and phase, while a client records it.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use parking_lot::Mutex;
use routes::Class;

use super::completion::Numbers;
use super::slow;

static IS_WANTED: AtomicBool = AtomicBool::new(false);
/// Microseconds by route and phase.
static SPENT: Mutex<BTreeMap<(&'static str, &'static str), u64>> = Mutex::new(BTreeMap::new());

/// Sums up requests that end, until it is dropped. There is one at a time.
pub struct Waits(());

impl Waits {
    /// Begins; `None` while there is another.
    pub fn start() -> Option<Waits> {
        let is_first = !IS_WANTED.swap(true, Acquire);
        is_first.then(|| {
            SPENT.lock().clear();
            Waits(())
        })
    }

    /// Microseconds by route and phase, so far.
    pub fn spent(&self) -> BTreeMap<(&'static str, &'static str), u64> {
        SPENT.lock().clone()
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        IS_WANTED.store(false, Release);
    }
}

/// Counts an ended request. Costs one load while nothing is recorded.
#[inline]
pub fn note(numbers: &Numbers, us: u64) {
    if IS_WANTED.load(Relaxed) && !numbers.route.has_its_own_pace() {
        add(numbers, us);
    }
}

#[cold]
fn add(numbers: &Numbers, us: u64) {
    let route: Class = numbers.route;
    let mut spent = SPENT.lock();
    for (phase, us) in slow::happened(&numbers.timing, numbers.head_us, us) {
        *spent.entry((route.name(), meaning(phase))).or_default() += us;
    }
}

/// The meaning of a phase, next to others.
fn meaning(phase: &'static str) -> &'static str {
    match phase {
        "auth" => "recognise the user",
        "receive" => "receive the body from the client",
        "parse" => "read the JSON",
        "wait" => "wait for its turn",
        "commit" => "wait for the commit",
        "read" => "read documents",
        "write" => "make the answer",
        "body" => "send the body to the client",
        other => other,
    }
}
