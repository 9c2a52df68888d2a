//! Processes of functions: those that a server has started, sampled while it works.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::error::BenchError;
use crate::procfs;
use crate::system::System;

const INTERVAL: Duration = Duration::from_millis(100);
/// A process that used less of a processor than this was idle.
const BUSY_SHARE: f64 = 0.02;

/// Resources of some processes together, each with those that it has started.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Usage {
    /// Most of them at a time.
    pub(crate) processes_max: usize,
    /// Highest sum of the memory that they share with no other process.
    pub(crate) private_bytes_peak: u64,
    /// CPU time that they took while they were watched, up to the last sample of each.
    pub(crate) cpu_seconds: f64,
}

impl Usage {
    /// The combined usage of two consecutive watches.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            processes_max: self.processes_max.max(other.processes_max),
            private_bytes_peak: self.private_bytes_peak.max(other.private_bytes_peak),
            cpu_seconds: self.cpu_seconds + other.cpu_seconds,
        }
    }
}

/// The processes of a local server that run the functions of a language; `None` where the server
/// does not report them.
pub(crate) async fn of_language(
    system: &System,
    language: &str,
) -> Result<Option<BTreeSet<u32>>, BenchError> {
    if system.pid.is_none() {
        return Ok(None);
    }
    let (status, reply) = system.call("GET", "/_settee/top", None).await?;
    let told: Value = serde_json::from_slice(&reply).unwrap_or_default();
    let Some(languages) = told["languages"].as_array().filter(|_| status == 200) else {
        return Ok(None);
    };
    let of_language = languages.iter().filter(|of| of["language"] == language);
    let ids = of_language.filter_map(|of| of["process_ids"].as_array());
    let ids = ids.flatten().filter_map(Value::as_u64);
    Ok(Some(ids.filter_map(|id| u32::try_from(id).ok()).collect()))
}

/// A thread that samples the children of a process until it is stopped.
pub(crate) struct Sampler {
    stop: Sender<()>,
    thread: JoinHandle<Samples>,
}

impl Sampler {
    /// None without a process, or without a thread to spare.
    pub(crate) fn start(pid: Option<u32>) -> Option<Self> {
        let pid = pid?;
        let (stop, stopped) = channel();
        let watch = move || {
            let mut samples = Samples::default();
            let start = Instant::now();
            loop {
                let ends =
                    stopped.recv_timeout(samples.interval()) != Err(RecvTimeoutError::Timeout);
                samples.take(pid);
                samples.seconds = start.elapsed().as_secs_f64();
                if ends {
                    return samples;
                }
            }
        };
        let thread = std::thread::Builder::new().name("bench-sampler".to_owned());
        let thread = thread.spawn(watch).ok()?;
        Some(Self { stop, thread })
    }

    pub(crate) fn stop(self) -> Samples {
        drop(self.stop);
        self.thread.join().unwrap_or_default()
    }
}

/// Samples of the children of a process. A child stands for all that it has started.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    /// The memory of each child in each sample.
    private_bytes: Vec<BTreeMap<u32, u64>>,
    /// CPU time of each child at the start, 0 if it was started later, and at its last sample.
    cpu: HashMap<u32, (f64, f64)>,
    /// The watched time.
    seconds: f64,
}

impl Samples {
    /// The first sample is taken immediately.
    fn interval(&self) -> Duration {
        match self.private_bytes.is_empty() {
            true => Duration::ZERO,
            false => INTERVAL,
        }
    }

    fn take(&mut self, pid: u32) {
        let is_first = self.private_bytes.is_empty();
        let mut sample = BTreeMap::new();
        for (child, below) in procfs::families(pid) {
            let family = || std::iter::once(child).chain(below.iter().copied());
            let bytes: u64 = family().filter_map(procfs::private_bytes).sum();
            sample.insert(child, bytes);
            let seconds: f64 = family().filter_map(procfs::cpu_seconds_with_children).sum();
            let before = if is_first { seconds } else { 0.0 };
            let (_, last) = self.cpu.entry(child).or_insert((before, seconds));
            // The time of one that has ended may be readable nowhere.
            *last = last.max(seconds);
        }
        self.private_bytes.push(sample);
    }

    /// The usage of some of the children.
    pub(crate) fn of(&self, children: &BTreeSet<u32>) -> Usage {
        let none = (0_usize, 0_u64);
        let samples = self.private_bytes.iter().map(|sample| {
            let wanted = sample.iter().filter(|(child, _)| children.contains(*child));
            wanted.fold(none, |(count, sum), (_, bytes)| (count + 1, sum + *bytes))
        });
        let (processes_max, private_bytes_peak) =
            samples.fold(none, |most, one| (most.0.max(one.0), most.1.max(one.1)));
        let cpu = self.cpu.iter();
        let cpu = cpu.filter(|(child, _)| children.contains(*child));
        Usage {
            processes_max,
            private_bytes_peak,
            cpu_seconds: cpu.map(|(_, (first, last))| last - first).sum(),
        }
    }

    /// The children that worked while they were watched.
    pub(crate) fn busy(&self) -> BTreeSet<u32> {
        let least = (self.seconds * BUSY_SHARE).max(f64::EPSILON);
        let busy = self.cpu.iter();
        busy.filter(|(_, (first, last))| last - first >= least)
            .map(|(child, _)| *child)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// A shell that runs a script, and has printed a line.
    fn shell(script: &str) -> Child {
        let mut child = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = child.stdout.as_mut().unwrap();
        BufReader::new(out).read_line(&mut String::new()).unwrap();
        child
    }

    #[test]
    fn only_the_wanted_children_are_counted() {
        let own = std::process::id();
        let mut idle = shell("echo started; read line");
        let mut samples = Samples::default();
        samples.take(own);
        // It is started while the others are watched, and has worked when it says so. The shell that
        // works is not the child, but started by it.
        let mut busy = shell(
            "exec 3<&0; (i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; echo done; read line <&3) & wait",
        );
        samples.take(own);
        for child in [&mut idle, &mut busy] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let of = |children: &[u32]| samples.of(&children.iter().copied().collect());
        let (one, other) = (of(&[idle.id()]), of(&[busy.id()]));
        let both = of(&[idle.id(), busy.id()]);
        assert_eq!((one.processes_max, other.processes_max), (1, 1));
        assert_eq!(both.processes_max, 2);
        assert!(one.private_bytes_peak > 0 && both.private_bytes_peak > one.private_bytes_peak);
        assert!(other.cpu_seconds > one.cpu_seconds, "{other:?} {one:?}");
        assert_eq!(both.cpu_seconds, one.cpu_seconds + other.cpu_seconds);
        let found = samples.busy();
        assert!(found.contains(&busy.id()) && !found.contains(&idle.id()));
        assert_eq!(of(&[]), Usage::default());
    }

    #[test]
    fn a_sampler_sees_the_children_that_there_are() {
        let mut child = shell("echo started; read line");
        let sampler = Sampler::start(Some(std::process::id())).unwrap();
        let usage = sampler.stop().of(&BTreeSet::from([child.id()]));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(usage.processes_max, 1);
    }

    #[test]
    fn without_a_process_there_is_nothing_to_watch() {
        assert!(Sampler::start(None).is_none());
    }
}
