//! Which part of something divided is whose.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Returns a number below `parts` that is permanently this thread's. Consecutive threads have
/// different ones.
#[inline]
pub fn part_of(parts: usize) -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static MINE: Cell<Option<usize>> = const { Cell::new(None) });
    let mine = MINE.get().unwrap_or_else(|| {
        let mine = NEXT.fetch_add(1, Relaxed);
        MINE.set(Some(mine));
        mine
    });
    mine % parts
}
