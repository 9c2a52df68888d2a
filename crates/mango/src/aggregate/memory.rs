//! Memory of all aggregates of a server.

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
    /// Creates a budget.
    pub fn new(budget_bytes: usize) -> Arc<AggregateMemory> {
        Arc::new(AggregateMemory {
            budget_bytes,
            used_bytes: AtomicUsize::new(0),
            peak_bytes: AtomicUsize::new(0),
        })
    }

    /// Returns the budget in bytes.
    pub fn budget_bytes(&self) -> usize {
        self.budget_bytes
    }

    /// Returns the memory that aggregates hold now, and its maximum so far, in bytes.
    pub fn used_bytes(&self) -> (usize, usize) {
        let used = self.used_bytes.load(Relaxed);
        (used, self.peak_bytes.load(Relaxed))
    }

    /// Returns whether aggregates exceed the budget.
    pub(super) fn is_exceeded(&self) -> bool {
        self.used_bytes.load(Relaxed) > self.budget_bytes
    }
}

/// The memory of one part of an aggregate, until it is dropped.
#[derive(Debug)]
pub(super) struct Share {
    memory: Option<Arc<AggregateMemory>>,
    bytes: usize,
}

impl Share {
    pub fn of(memory: Option<Arc<AggregateMemory>>) -> Share {
        Share { memory, bytes: 0 }
    }

    /// Creates an empty share of the same memory.
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
