//! Figures of the servers' processes and the machine during a run, sampled by a separate thread.

use std::cell::RefCell;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::machine::Account;
use crate::procfs;

const INTERVAL: Duration = Duration::from_millis(250);
/// With more samples than this, neighbours are merged, and the interval is doubled.
const SAMPLES_MAX: usize = 1_200;
/// Processes that a server has started are searched at every 4th sample: that reads all of `/proc`.
const DESCENDANTS_EVERY: u32 = 4;

/// Something that happened during a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Seconds from the beginning of the run.
    pub at_s: f64,
    /// What, for people.
    pub text: String,
    /// Something that was done to the server, like killing it; other events are workloads that begin.
    pub is_fault: bool,
}

/// Events so far, and the clock of the run.
#[derive(Debug)]
pub(crate) struct Events {
    began: Instant,
    list: RefCell<Vec<Event>>,
}

impl Events {
    pub(crate) fn new() -> Self {
        Self {
            began: Instant::now(),
            list: RefCell::default(),
        }
    }

    /// Seconds since the run began.
    pub(crate) fn now_s(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Notes that something begins now.
    pub(crate) fn begin(&self, text: String) {
        self.add(text, false);
    }

    /// Notes that something is done to a server now.
    pub(crate) fn fault(&self, text: String) {
        self.add(text, true);
    }

    fn add(&self, text: String, is_fault: bool) {
        self.list.borrow_mut().push(Event {
            at_s: self.now_s(),
            text,
            is_fault,
        });
    }

    pub(crate) fn list(&self) -> Vec<Event> {
        self.list.borrow().clone()
    }
}

/// The processes of one server between two samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Time of the sample's end, in seconds from the start of the run.
    pub at_s: f64,
    /// Processors used.
    pub cpu: f64,
    /// Resident memory in bytes.
    pub resident_bytes: f64,
    /// Bytes read from disks a second.
    pub read_bytes_s: f64,
    /// Bytes written to disks a second.
    pub written_bytes_s: f64,
    /// Threads.
    pub threads: f64,
}

/// The machine between two samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct MachineSample {
    /// Time of the sample's end, in seconds from the start of the run.
    pub at_s: f64,
    /// Processors that processes used which do not belong to the run.
    pub others_cpu: f64,
    /// Share of time in which processors waited for disks.
    pub wait_share: f64,
    /// Share of time that the hypervisor kept back.
    pub steal_share: f64,
}

/// Samples of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// Samples of each server; empty for one on another machine.
    pub servers: Vec<Vec<Sample>>,
    /// Samples of the client's machine.
    pub machine: Vec<MachineSample>,
}

/// The thread that samples. It ends when this is stopped or dropped.
pub(crate) struct Sampler {
    stop: Sender<()>,
    thread: JoinHandle<Timeline>,
}

impl Sampler {
    /// Starts sampling the processes of each server, and the machine without the processes of the
    /// run, `ours`. `None` if no thread can be started.
    pub(crate) fn start(began: &Events, servers: Vec<Vec<u32>>, ours: Vec<u32>) -> Option<Self> {
        let began = began.began;
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new().name("bench-timeline".to_owned());
        let thread = thread.spawn(move || {
            let mut looks = Looks::start(began, servers, ours);
            while stopped.recv_timeout(looks.interval) == Err(RecvTimeoutError::Timeout) {
                looks.look();
            }
            looks.look();
            looks.timeline
        });
        let thread = thread.ok()?;
        Some(Self { stop, thread })
    }

    pub(crate) fn stop(self) -> Timeline {
        drop(self.stop);
        self.thread.join().unwrap_or_default()
    }
}

/// Counters of one server's processes.
#[derive(Debug, Clone, Copy, Default)]
struct Counted {
    cpu_seconds: f64,
    read_bytes: f64,
    written_bytes: f64,
}

struct Server {
    pids: Vec<u32>,
    /// Its processes and those that they have started.
    all: Vec<u32>,
    before: Counted,
}

/// The processes that belong to a run.
struct Ours {
    pids: Vec<u32>,
    /// With those that they have started.
    all: Vec<u32>,
}

struct Looks {
    began: Instant,
    interval: Duration,
    at: Instant,
    number: u32,
    servers: Vec<Server>,
    ours: Ours,
    machine: Option<Account>,
    timeline: Timeline,
}

impl Looks {
    fn start(began: Instant, servers: Vec<Vec<u32>>, ours: Vec<u32>) -> Self {
        let server = |pids: Vec<u32>| {
            let all = with_descendants(&pids);
            let (before, _) = counted(&all);
            Server { pids, all, before }
        };
        let servers: Vec<Server> = servers.into_iter().map(server).collect();
        let ours = Ours {
            all: with_descendants(&ours),
            pids: ours,
        };
        let machine = Account::now(&ours.all);
        Self {
            began,
            interval: INTERVAL,
            at: Instant::now(),
            number: 0,
            timeline: Timeline {
                servers: vec![Vec::new(); servers.len()],
                machine: Vec::new(),
            },
            servers,
            ours,
            machine,
        }
    }

    fn look(&mut self) {
        let now = Instant::now();
        let seconds = (now - self.at).as_secs_f64().max(0.001);
        let at_s = (now - self.began).as_secs_f64();
        self.number += 1;
        for (server, samples) in self.servers.iter_mut().zip(&mut self.timeline.servers) {
            if server.pids.is_empty() {
                continue;
            }
            if self.number.is_multiple_of(DESCENDANTS_EVERY) {
                server.all = with_descendants(&server.pids);
            }
            let (after, held) = counted(&server.all);
            let a_second = |after: f64, before: f64| ((after - before) / seconds).max(0.0);
            samples.push(Sample {
                at_s,
                cpu: a_second(after.cpu_seconds, server.before.cpu_seconds),
                read_bytes_s: a_second(after.read_bytes, server.before.read_bytes),
                written_bytes_s: a_second(after.written_bytes, server.before.written_bytes),
                ..held
            });
            server.before = after;
        }
        if self.number.is_multiple_of(DESCENDANTS_EVERY) {
            self.ours.all = with_descendants(&self.ours.pids);
        }
        let machine = Account::now(&self.ours.all);
        if let Some(busy) = machine
            .zip(self.machine)
            .and_then(|(now, then)| now.since(&then))
        {
            self.timeline.machine.push(MachineSample {
                at_s,
                others_cpu: busy.others_cpu,
                wait_share: busy.wait_share,
                steal_share: busy.steal_share,
            });
        }
        self.machine = machine;
        self.at = now;
        if self.number as usize > SAMPLES_MAX {
            self.number /= 2;
            self.interval *= 2;
            self.timeline.thin_out();
        }
    }
}

/// Processes and those that they have started.
pub(crate) fn with_descendants(pids: &[u32]) -> Vec<u32> {
    let mut all = pids.to_vec();
    all.extend(pids.iter().flat_map(|pid| procfs::descendants(*pid)));
    all
}

/// The counters, and the current state of processes: memory and threads.
fn counted(pids: &[u32]) -> (Counted, Sample) {
    let (mut counted, mut held) = (Counted::default(), Sample::default());
    for pid in pids {
        counted.cpu_seconds += procfs::cpu_seconds_with_children(*pid).unwrap_or(0.0);
        let (read, written) = procfs::disk_bytes(*pid).unwrap_or_default();
        counted.read_bytes += read as f64;
        counted.written_bytes += written as f64;
        held.resident_bytes += procfs::resident_bytes(*pid).unwrap_or(0) as f64;
        held.threads += procfs::threads(*pid).unwrap_or(0) as f64;
    }
    (counted, held)
}

impl Timeline {
    /// Makes one sample of two neighbours, throughout.
    fn thin_out(&mut self) {
        for samples in &mut self.servers {
            *samples = samples.chunks(2).map(Sample::average).collect();
        }
        self.machine = self.machine.chunks(2).map(MachineSample::average).collect();
    }
}

impl Sample {
    fn average(of: &[Self]) -> Self {
        let mean = |value: fn(&Self) -> f64| of.iter().map(value).sum::<f64>() / of.len() as f64;
        Self {
            at_s: of.last().map_or(0.0, |last| last.at_s),
            cpu: mean(|sample| sample.cpu),
            resident_bytes: mean(|sample| sample.resident_bytes),
            read_bytes_s: mean(|sample| sample.read_bytes_s),
            written_bytes_s: mean(|sample| sample.written_bytes_s),
            threads: mean(|sample| sample.threads),
        }
    }
}

impl MachineSample {
    fn average(of: &[Self]) -> Self {
        let mean = |value: fn(&Self) -> f64| of.iter().map(value).sum::<f64>() / of.len() as f64;
        Self {
            at_s: of.last().map_or(0.0, |last| last.at_s),
            others_cpu: mean(|sample| sample.others_cpu),
            wait_share: mean(|sample| sample.wait_share),
            steal_share: mean(|sample| sample.steal_share),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_process_is_seen_with_its_memory_and_threads() {
        let events = Events::new();
        let sampler = Sampler::start(&events, vec![vec![std::process::id()], vec![]], vec![]);
        let sampler = sampler.unwrap();
        let start = Instant::now();
        let mut sum = 0_u64;
        while start.elapsed() < INTERVAL * 3 {
            sum = sum.wrapping_add(fastrand::u64(..));
        }
        assert_ne!(sum, 1);
        let timeline = sampler.stop();
        let samples = &timeline.servers[0];
        assert!(samples.len() >= 2 && timeline.servers[1].is_empty());
        assert!(samples.iter().any(|sample| sample.cpu > 0.1), "{samples:?}");
        assert!(
            samples
                .iter()
                .all(|sample| sample.resident_bytes > 1e6 && sample.threads >= 1.0)
        );
        assert!(samples.windows(2).all(|pair| pair[0].at_s < pair[1].at_s));
        assert!(!timeline.machine.is_empty());
    }

    #[test]
    fn a_long_run_keeps_a_bounded_number_of_samples() {
        let mut looks = Looks::start(Instant::now(), vec![vec![std::process::id()]], vec![]);
        for _ in 0..SAMPLES_MAX * 2 {
            looks.look();
        }
        assert!(looks.timeline.servers[0].len() <= SAMPLES_MAX + 1);
        assert!(looks.timeline.servers[0].len() >= SAMPLES_MAX / 2);
        assert!(looks.interval > INTERVAL);
    }

    #[test]
    fn a_process_that_is_gone_is_no_error() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let events = Events::new();
        let sampler = Sampler::start(&events, vec![vec![child.id()]], vec![child.id()]).unwrap();
        child.wait().unwrap();
        let timeline = sampler.stop();
        assert!(
            timeline.servers[0]
                .iter()
                .all(|sample| sample.cpu.is_finite())
        );
    }
}
