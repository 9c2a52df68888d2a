//! Times of users' map functions, by view.

use std::sync::LazyLock;
use std::time::Instant;

use parking_lot::Mutex;
use query_server::language::Owner;
use telemetry::{UsageByName, Use};

static TIMES: LazyLock<(Instant, Mutex<UsageByName>)> =
    LazyLock::new(|| (Instant::now(), Mutex::default()));

/// Starts to count. Times reported from now on count.
pub(crate) fn begin() {
    LazyLock::force(&TIMES);
}

/// Counts the nanoseconds that each function of a design document took for some documents.
pub(crate) fn note(owner: &Owner, spent: &[u64]) {
    let (began, used) = &*TIMES;
    let since_start = began.elapsed();
    for (view, ns) in spent.iter().enumerate().filter(|(_, ns)| **ns > 0) {
        let of = Use {
            us: ns / 1000,
            ..Use::default()
        };
        let name = owner.view(view);
        used.lock().count(&name, &of, since_start);
    }
}

/// Returns the counts by database, design document and view; those with the lowest times may be
/// missing.
pub fn told() -> UsageByName {
    TIMES.1.lock().clone()
}
