//! Processor time of query servers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

/// Processes that run, with their languages.
static RUNNING: Mutex<BTreeMap<u32, Arc<str>>> = Mutex::new(BTreeMap::new());

/// A process whose processor time is reported, until this is dropped.
pub(crate) struct TrackedProcess(u32);

impl TrackedProcess {
    pub fn new(process: u32, language: &Arc<str>) -> TrackedProcess {
        RUNNING.lock().insert(process, language.clone());
        TrackedProcess(process)
    }
}

impl Drop for TrackedProcess {
    fn drop(&mut self) {
        RUNNING.lock().remove(&self.0);
    }
}

/// Returns for each running query server its process, its language, and the processor time that it
/// and its ended children took so far.
pub fn cpu_times() -> Vec<(u32, Arc<str>, Duration)> {
    let running = RUNNING.lock().clone();
    let of = |(process, language)| Some((process, language, cpu_time(process)?));
    running.into_iter().filter_map(of).collect()
}

fn cpu_time(process: u32) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let ticks = ticks(&stat)?;
    let hz = rustix::param::clock_ticks_per_second();
    Some(Duration::from_secs_f64(ticks as f64 / hz as f64))
}

/// Returns the sum of `utime`, `stime`, `cutime` and `cstime`, which are fields 14 to 17. The
/// second is a name, which may have anything in it.
fn ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    fields
        .get(11..15)?
        .iter()
        .map(|f| f.parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_processes_may_have_anything_in_them() {
        let stat = "77 (a) b (c) S 1 77 77 0 -1 4194304 9 8 7 6 10 20 30 40 20 0 1 0 5";
        assert_eq!(ticks(stat), Some(100));
        assert_eq!(ticks("77 (a) S 1"), None);
    }

    #[test]
    fn a_process_is_told_while_it_runs() {
        let own = std::process::id();
        let told = TrackedProcess::new(own, &"cobol".into());
        let mine = |(process, language, _): &(u32, Arc<str>, Duration)| {
            *process == own && &**language == "cobol"
        };
        assert!(cpu_times().iter().any(mine));
        drop(told);
        assert!(!cpu_times().iter().any(mine));
    }
}
