//! The process's use of its machine, from `/proc`: memory, files, processors, connections that wait.

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use parking_lot::Mutex;
use procfs::net::TcpState;
use procfs::process::{LimitValue, Process};

/// Memory that the process has, in bytes.
pub fn resident_bytes() -> u64 {
    let statm = Process::myself().and_then(|me| me.statm());
    statm.map_or(0, |statm| statm.resident * procfs::page_size())
}

/// File descriptors that are open.
pub fn open_files() -> u64 {
    let count = Process::myself().and_then(|me| me.fd_count());
    count.map_or(0, |n| n as u64)
}

/// Limit of file descriptors; `None` without a limit.
pub fn open_files_max() -> Option<u64> {
    match Process::myself()
        .ok()?
        .limits()
        .ok()?
        .max_open_files
        .soft_limit
    {
        LimitValue::Value(n) => Some(n),
        LimitValue::Unlimited => None,
    }
}

/// Connections to these ports that the kernel has made and the server has not accepted yet.
pub fn waiting_connections(ports: &[u16]) -> u64 {
    let tables = [procfs::net::tcp(), procfs::net::tcp6()];
    let entries = tables.into_iter().flatten().flatten();
    let ours =
        entries.filter(|e| e.state == TcpState::Listen && ports.contains(&e.local_address.port()));
    ours.map(|e| u64::from(e.rx_queue)).sum()
}

/// CPU time in seconds.
pub struct CpuTimes {
    /// Times of this process's threads, by their names.
    pub threads: Vec<(String, f64)>,
    /// Times of child processes: workers and query servers, also those that have ended.
    pub workers: f64,
}

/// The last figures of threads and processes, so that no reported sum ever falls: the time of those
/// that end is no longer readable.
#[derive(Default)]
struct Seen {
    /// Name and ticks of each thread, when it was seen last. Whole numbers, whose sums do not depend on their order.
    threads: HashMap<i32, (String, u64)>,
    /// Ticks of threads that have ended, by name.
    ended: BTreeMap<String, u64>,
    /// The largest reported sum of workers, in ticks.
    workers: u64,
}

impl Seen {
    /// Updates the times of the present threads; returns the sums of all threads so far, by name.
    fn threads(&mut self, now: HashMap<i32, (String, u64)>) -> Vec<(String, u64)> {
        for (tid, (name, ticks)) in self.threads.drain() {
            // The kernel gives numbers again: a thread that has less than before is another one.
            let is_same = |(known, new): &(String, u64)| *known == name && *new >= ticks;
            if !now.get(&tid).is_some_and(is_same) {
                *self.ended.entry(name).or_default() += ticks;
            }
        }
        self.threads = now;
        let mut sums = self.ended.clone();
        for (name, ticks) in self.threads.values() {
            *sums.entry(name.clone()).or_default() += ticks;
        }
        sums.into_iter().collect()
    }
}

/// Processor times of the process and of its child processes so far; `None` when `/proc` is not
/// readable. A thread that ends between two calls is counted up to the first.
pub fn cpu_times() -> Option<CpuTimes> {
    static SEEN: LazyLock<Mutex<Seen>> = LazyLock::new(Mutex::default);
    let me = Process::myself().ok()?;
    let second = procfs::ticks_per_second() as f64;
    let mut seen = SEEN.lock();
    let mut threads = HashMap::new();
    let mut children = vec![];
    for task in me.tasks().ok()?.flatten() {
        children.extend(task.children().unwrap_or_default());
        let Ok(stat) = task.stat() else { continue };
        // Names like rocksdb:low0 are of one pool.
        let name = stat.comm.trim_end_matches(|c: char| c.is_ascii_digit());
        threads.insert(task.tid, (name.to_owned(), stat.utime + stat.stime));
    }
    let stat = me.stat().ok()?;
    let ended = u64::try_from(stat.cutime + stat.cstime).unwrap_or(0);
    let stats = children.iter().filter_map(|pid| {
        let stat = Process::new(i32::try_from(*pid).ok()?).ok()?.stat().ok()?;
        Some(stat.utime + stat.stime)
    });
    // One that ends just now may be in neither.
    seen.workers = seen.workers.max(ended + stats.sum::<u64>());
    Some(CpuTimes {
        threads: seen
            .threads(threads)
            .into_iter()
            .map(|(name, ticks)| (name, ticks as f64 / second))
            .collect(),
        workers: seen.workers as f64 / second,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_threads_that_ended_stay() {
        let mut seen = Seen::default();
        let of = |all: &[(i32, &str, u64)]| -> HashMap<i32, (String, u64)> {
            let all = all.iter();
            all.map(|(tid, name, s)| (*tid, ((*name).to_owned(), *s)))
                .collect()
        };
        seen.threads(of(&[(1, "serve", 50), (2, "serve", 30)]));
        assert_eq!(
            seen.threads(of(&[(1, "serve", 60)])),
            [("serve".to_owned(), 90)]
        );
        // Its number is another thread's now.
        let told = seen.threads(of(&[(1, "index", 10), (2, "serve", 5)]));
        assert_eq!(told, [("index".to_owned(), 10), ("serve".to_owned(), 95)]);
        let told = seen.threads(of(&[(2, "serve", 1)]));
        assert_eq!(told, [("index".to_owned(), 10), ("serve".to_owned(), 96)]);
    }
}
