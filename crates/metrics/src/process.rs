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

/// Processor times.
pub struct CpuTimes {
    /// Sums of this process's threads by their names, including threads that have ended.
    pub threads: Vec<ThreadsUse>,
    /// The threads that run now.
    pub each: Vec<ThreadUse>,
    /// CPU seconds of child processes: workers and query servers, also those that have ended.
    pub workers: f64,
}

/// The times of the threads of a name, in seconds.
#[derive(Debug, PartialEq)]
pub struct ThreadsUse {
    /// Their name.
    pub name: String,
    /// CPU time.
    pub cpu_seconds: f64,
    /// Time in which they could have run, and waited for a processor; 0 if the kernel does not
    /// count it.
    pub run_queue_seconds: f64,
}

/// The time of one thread.
pub struct ThreadUse {
    /// Its number.
    pub id: i32,
    /// Its name.
    pub name: String,
    /// Its CPU time so far, in seconds.
    pub cpu_seconds: f64,
}

/// The time of a thread. Whole numbers, whose sums do not depend on their order.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Spent {
    cpu_ticks: u64,
    run_queue_ns: u64,
}

impl Spent {
    fn add(&mut self, other: Spent) {
        self.cpu_ticks += other.cpu_ticks;
        self.run_queue_ns += other.run_queue_ns;
    }
}

/// The last figures of threads and processes, so that no reported sum ever falls: the time of those
/// that end is no longer readable.
#[derive(Default)]
struct Seen {
    /// Name and time of each thread, when it was seen last.
    threads: HashMap<i32, (String, Spent)>,
    /// Time of threads that have ended, by name.
    ended: BTreeMap<String, Spent>,
    /// The largest reported sum of workers, in ticks.
    workers: u64,
}

impl Seen {
    /// Updates the times of the present threads; returns the sums of all threads so far, by name.
    fn threads(&mut self, now: HashMap<i32, (String, Spent)>) -> Vec<(String, Spent)> {
        for (tid, (name, spent)) in self.threads.drain() {
            // The kernel gives numbers again: a thread that has less than before is another one.
            let is_same = |(known, new): &(String, Spent)| {
                let has_more = new.cpu_ticks >= spent.cpu_ticks;
                *known == name && has_more && new.run_queue_ns >= spent.run_queue_ns
            };
            if !now.get(&tid).is_some_and(is_same) {
                self.ended.entry(name).or_default().add(spent);
            }
        }
        self.threads = now;
        let mut sums = self.ended.clone();
        for (name, spent) in self.threads.values() {
            sums.entry(name.clone()).or_default().add(*spent);
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
        let spent = Spent {
            cpu_ticks: stat.utime + stat.stime,
            // A kernel may not count it.
            run_queue_ns: task.schedstat().map_or(0, |of| of.run_delay),
        };
        threads.insert(task.tid, (name.to_owned(), spent));
    }
    let stat = me.stat().ok()?;
    let ended = u64::try_from(stat.cutime + stat.cstime).unwrap_or(0);
    let stats = children.iter().filter_map(|pid| {
        let stat = Process::new(i32::try_from(*pid).ok()?).ok()?.stat().ok()?;
        Some(stat.utime + stat.stime)
    });
    // One that ends just now may be in neither.
    seen.workers = seen.workers.max(ended + stats.sum::<u64>());
    let sums = seen.threads(threads).into_iter();
    let sums = sums.map(|(name, spent)| ThreadsUse {
        name,
        cpu_seconds: spent.cpu_ticks as f64 / second,
        run_queue_seconds: spent.run_queue_ns as f64 * 1e-9,
    });
    let threads = sums.collect();
    let each = seen.threads.iter().map(|(id, (name, spent))| ThreadUse {
        id: *id,
        name: name.clone(),
        cpu_seconds: spent.cpu_ticks as f64 / second,
    });
    Some(CpuTimes {
        threads,
        each: each.collect(),
        workers: seen.workers as f64 / second,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_threads_that_ended_stay() {
        let mut seen = Seen::default();
        let spent = |ticks: u64| Spent {
            cpu_ticks: ticks,
            run_queue_ns: 3 * ticks,
        };
        let of = |all: &[(i32, &str, u64)]| -> HashMap<i32, (String, Spent)> {
            let all = all.iter();
            all.map(|(tid, name, ticks)| (*tid, ((*name).to_owned(), spent(*ticks))))
                .collect()
        };
        let sums = |all: &[(&str, u64)]| -> Vec<(String, Spent)> {
            let all = all.iter();
            all.map(|(name, ticks)| ((*name).to_owned(), spent(*ticks)))
                .collect()
        };
        seen.threads(of(&[(1, "serve", 50), (2, "serve", 30)]));
        let told = seen.threads(of(&[(1, "serve", 60)]));
        assert_eq!(told, sums(&[("serve", 90)]));
        // Its number is another thread's now.
        let told = seen.threads(of(&[(1, "index", 10), (2, "serve", 5)]));
        assert_eq!(told, sums(&[("index", 10), ("serve", 95)]));
        let told = seen.threads(of(&[(2, "serve", 1)]));
        assert_eq!(told, sums(&[("index", 10), ("serve", 96)]));
    }

    #[test]
    fn a_busy_thread_is_found_among_its_namesakes() {
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let named = || std::thread::Builder::new().name("namesake".into());
        let idle = named().spawn(move || stopped.recv()).unwrap();
        let busy_seconds = |times: &CpuTimes| -> Vec<f64> {
            let namesakes = times.each.iter().filter(|of| of.name == "namesake");
            let mut all: Vec<f64> = namesakes.map(|of| of.cpu_seconds).collect();
            all.sort_by(f64::total_cmp);
            all
        };
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let busy = || {
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            };
            named().spawn_scoped(scope, busy).unwrap();
            loop {
                let seconds = busy_seconds(&cpu_times().unwrap());
                if matches!(seconds[..], [idle, busy] if busy > idle + 0.05) {
                    break;
                }
                std::thread::yield_now();
            }
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        drop(stop);
        assert!(idle.join().unwrap().is_err());
    }
}
