//! Memory that all aggregates of a server hold together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A budget that all aggregates of a server share.
#[derive(Debug)]
pub struct AggregateMemory {
    budget_bytes: usize,
    used_bytes: AtomicUsize,
    peak_bytes: AtomicUsize,
}

impl AggregateMemory {
    /// A budget of so many bytes.
    pub fn new(budget_bytes: usize) -> Arc<AggregateMemory> {
        Arc::new(AggregateMemory {
            budget_bytes,
            used_bytes: AtomicUsize::new(0),
            peak_bytes: AtomicUsize::new(0),
        })
    }

    /// The budget in bytes.
    pub fn budget_bytes(&self) -> usize {
        self.budget_bytes
    }

    /// What aggregates hold now, and the most that they held, in bytes.
    pub fn used_bytes(&self) -> (usize, usize) {
        let used = self.used_bytes.load(Relaxed);
        (used, self.peak_bytes.load(Relaxed))
    }

    /// Whether aggregates hold more than the budget.
    pub(super) fn is_exceeded(&self) -> bool {
        self.used_bytes.load(Relaxed) > self.budget_bytes
    }
}

/// What one part of an aggregate holds of the memory, until it is dropped.
#[derive(Debug)]
pub(super) struct Share {
    memory: Option<Arc<AggregateMemory>>,
    bytes: usize,
}

impl Share {
    pub fn of(memory: Option<Arc<AggregateMemory>>) -> Share {
        Share { memory, bytes: 0 }
    }

    /// A share of the same memory, of nothing yet.
    pub fn another(&self) -> Share {
        Share::of(self.memory.clone())
    }

    pub fn memory(&self) -> Option<&AggregateMemory> {
        self.memory.as_deref()
    }

    pub fn add(&mut self, bytes: usize) {
        let Some(memory) = &self.memory else {
            return;
        };
        self.bytes += bytes;
        let used = memory.used_bytes.fetch_add(bytes, Relaxed) + bytes;
        memory.peak_bytes.fetch_max(used, Relaxed);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if let Some(memory) = &self.memory {
            memory.used_bytes.fetch_sub(self.bytes, Relaxed);
        }
    }
}
