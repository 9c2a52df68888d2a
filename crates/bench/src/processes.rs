//! Query servers: the processes that a server has started, sampled while it works.

use std::collections::HashMap;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::procfs;

const INTERVAL: Duration = Duration::from_millis(100);

/// Resources of all descendants of a process together.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Usage {
    /// Most of them at a time.
    pub(crate) processes_max: usize,
    /// Highest sum of their resident memory.
    pub(crate) resident_bytes_peak: u64,
    /// CPU time that they took while they were watched, up to the last sample of each.
    pub(crate) cpu_seconds: f64,
}

impl Usage {
    /// The combined usage of two consecutive watches.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            processes_max: self.processes_max.max(other.processes_max),
            resident_bytes_peak: self.resident_bytes_peak.max(other.resident_bytes_peak),
            cpu_seconds: self.cpu_seconds + other.cpu_seconds,
        }
    }
}

/// A thread that samples the descendants of a process until it is stopped.
pub(crate) struct Sampler {
    stop: Sender<()>,
    thread: JoinHandle<Usage>,
}

impl Sampler {
    /// None without a process, or without a thread to spare.
    pub(crate) fn start(pid: Option<u32>) -> Option<Self> {
        let pid = pid?;
        let (stop, stopped) = channel();
        let watch = move || {
            let mut samples = Samples::default();
            loop {
                samples.take(pid);
                if stopped.recv_timeout(INTERVAL) != Err(RecvTimeoutError::Timeout) {
                    samples.take(pid);
                    return samples.usage();
                }
            }
        };
        let thread = std::thread::Builder::new().name("bench-sampler".to_owned());
        let thread = thread.spawn(watch).ok()?;
        Some(Self { stop, thread })
    }

    pub(crate) fn stop(self) -> Usage {
        drop(self.stop);
        self.thread.join().unwrap_or_default()
    }
}

#[derive(Default)]
struct Samples {
    usage: Usage,
    /// CPU time at the first and at the last sample of each process.
    cpu: HashMap<u32, (f64, f64)>,
}

impl Samples {
    fn take(&mut self, pid: u32) {
        let processes = procfs::descendants(pid);
        let resident = processes
            .iter()
            .filter_map(|pid| procfs::resident_bytes(*pid));
        self.usage.resident_bytes_peak = self.usage.resident_bytes_peak.max(resident.sum());
        self.usage.processes_max = self.usage.processes_max.max(processes.len());
        for pid in processes {
            if let Some(seconds) = procfs::cpu_seconds(pid) {
                self.cpu.entry(pid).or_insert((seconds, seconds)).1 = seconds;
            }
        }
    }

    fn usage(self) -> Usage {
        Usage {
            cpu_seconds: self.cpu.values().map(|(first, last)| last - first).sum(),
            ..self.usage
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_counted_with_their_memory() {
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let usage = Sampler::start(Some(std::process::id())).unwrap().stop();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(
            usage.processes_max >= 1 && usage.resident_bytes_peak > 0,
            "{usage:?}"
        );
    }

    #[test]
    fn without_a_process_there_is_nothing_to_watch() {
        assert!(Sampler::start(None).is_none());
    }
}
