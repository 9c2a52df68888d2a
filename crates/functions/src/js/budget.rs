//! The memory budget of all worker processes.
//!
//! Each heap has a limit of its own, and idle heaps are limited in each worker. Their sum is
//! measured ten times a second while a worker runs a function: above the budget, idle workers are
//! ended, the oldest first, and then the largest one at work. A worker that is alone at work is
//! limited only by its heap, and a small one is left alone.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use query_server::language::Error;
use rustix::process::{Pid, Signal, kill_process};

use super::process::Processes;

/// Interval of measurements while functions run.
const INTERVAL: Duration = Duration::from_millis(100);
/// Interval of measurements while all workers are idle.
const IDLE_INTERVAL: Duration = Duration::from_secs(1);
/// Memory that a worker at work may always take, in bytes. With a small heap it takes about a third
/// of this.
const SMALL_BYTES: u64 = 32 << 20;

/// The budget of all workers, and their memory.
pub(super) struct Budget {
    bytes_max: usize,
    processes: Weak<Processes>,
    state: Mutex<State>,
    used: AtomicU64,
    peak: AtomicU64,
}

#[derive(Default)]
struct State {
    workers: HashMap<u32, Arc<Shared>>,
    /// A thread measures them.
    is_watched: bool,
}

/// The state of a worker.
struct Shared {
    /// The process's `statm`, opened while it could be found.
    statm: Option<File>,
    works: AtomicBool,
    is_evicted: AtomicBool,
}

impl Shared {
    /// Returns the resident memory that the process shares with no other, in bytes; 0 of one that has ended.
    fn private_bytes(&self) -> u64 {
        // Seven numbers of pages: the second is the resident ones, the third those of them that are shared.
        let mut text = [0; 128];
        let read = self
            .statm
            .as_ref()
            .and_then(|statm| statm.read_at(&mut text, 0).ok());
        let text = std::str::from_utf8(&text[..read.unwrap_or(0)]).unwrap_or_default();
        let mut numbers = text
            .split_ascii_whitespace()
            .skip(1)
            .map(|n| n.parse().unwrap_or(0));
        let mut next = || numbers.next().unwrap_or(0u64);
        let (resident, shared) = (next(), next());
        resident.saturating_sub(shared) * procfs::page_size()
    }
}

/// A worker's part of the memory, for the lifetime of its process.
pub(super) struct Share {
    budget: Arc<Budget>,
    pid: u32,
    shared: Arc<Shared>,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.state.lock().workers.remove(&self.pid);
    }
}

impl Share {
    /// Records whether the worker runs a function.
    pub fn works(&self, works: bool) {
        self.shared.works.store(works, Ordering::Relaxed);
    }

    /// Returns whether the worker was ended because all together exceeded the budget.
    pub fn is_evicted(&self) -> bool {
        self.shared.is_evicted.load(Ordering::Acquire)
    }
}

impl Budget {
    pub fn new(bytes_max: usize, processes: Weak<Processes>) -> Arc<Budget> {
        Arc::new(Budget {
            bytes_max,
            processes,
            state: Mutex::default(),
            used: AtomicU64::new(0),
            peak: AtomicU64::new(0),
        })
    }

    /// Counts the memory of a process that was just started, a child of this one that is not waited for before the share is
    /// dropped. The process may not hide its memory before.
    pub fn share(self: &Arc<Self>, pid: u32) -> Share {
        let statm = File::open(format!("/proc/{pid}/statm"));
        if let Err(error) = &statm {
            tracing::warn!(%error, "the memory of a worker is not measured, and [memory] workers does not bound it");
        }
        let shared = Arc::new(Shared {
            statm: statm.ok(),
            works: AtomicBool::new(false),
            is_evicted: AtomicBool::new(false),
        });
        let mut state = self.state.lock();
        state.workers.insert(pid, shared.clone());
        let starts = !std::mem::replace(&mut state.is_watched, true);
        drop(state);
        if starts {
            self.watch();
        }
        Share {
            budget: self.clone(),
            pid,
            shared,
        }
    }

    /// Returns the memory of all workers as last measured, and its maximum so far, in bytes.
    pub fn used_bytes(&self) -> (u64, u64) {
        let load = |n: &AtomicU64| n.load(Ordering::Relaxed);
        (load(&self.used), load(&self.peak))
    }

    /// Returns the error for the caller of a function whose worker was ended.
    pub fn error(&self) -> Error {
        Error::Limit {
            limit: "[memory] workers",
            value: self.bytes_max.to_string(),
        }
    }

    fn watch(self: &Arc<Self>) {
        let budget = Arc::downgrade(self);
        let watch = move || {
            while let Some(interval) = budget.upgrade().and_then(|budget| budget.keep()) {
                std::thread::sleep(interval);
            }
        };
        let thread = std::thread::Builder::new().name("worker-memory".into());
        if let Err(error) = thread.stack_size(256 << 10).spawn(watch) {
            tracing::warn!(%error, "the memory of workers cannot be measured");
            self.state.lock().is_watched = false;
        }
    }

    /// Enforces the budget. Returns when to repeat it; `None` when there are no workers.
    fn keep(&self) -> Option<Duration> {
        loop {
            let used = self.measure()?;
            if used <= self.bytes_max as u64 {
                break;
            }
            let ended = self.processes.upgrade().is_some_and(|all| all.end_oldest());
            if !ended {
                self.evict(used);
                break;
            }
        }
        let state = self.state.lock();
        let any_works = state
            .workers
            .values()
            .any(|shared| shared.works.load(Ordering::Relaxed));
        Some(if any_works { INTERVAL } else { IDLE_INTERVAL })
    }

    /// Returns the memory of all workers in bytes; `None` without workers, and the thread ends.
    fn measure(&self) -> Option<u64> {
        let mut state = self.state.lock();
        let used = state
            .workers
            .values()
            .map(|shared| shared.private_bytes())
            .sum();
        self.used.store(used, Ordering::Relaxed);
        self.peak.fetch_max(used, Ordering::Relaxed);
        if state.workers.is_empty() {
            state.is_watched = false;
            return None;
        }
        Some(used)
    }

    /// Ends the largest worker at work, unless it is the only one.
    fn evict(&self, used: u64) {
        // While this is locked no listed process is waited for: each number is a worker's.
        let state = self.state.lock();
        let at_work = state
            .workers
            .iter()
            .filter(|(_, shared)| shared.works.load(Ordering::Relaxed));
        if at_work.clone().count() < 2 {
            return;
        }
        let largest = at_work
            .map(|(pid, shared)| (shared.private_bytes(), *pid, shared))
            .max_by_key(|(taken, ..)| *taken)
            .filter(|(taken, ..)| *taken > SMALL_BYTES);
        let Some((taken, pid, shared)) = largest else {
            return;
        };
        let Some(process) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
            return;
        };
        shared.is_evicted.store(true, Ordering::Release);
        // Fails only for a process that has ended.
        let _ = kill_process(process, Signal::KILL);
        drop(state);
        tracing::warn!(
            used,
            taken,
            limit = self.bytes_max,
            "ended the largest worker of functions: together they exceeded [memory] workers"
        );
    }
}
