//! Figures, on a real disk: `TMPDIR=… cargo test --release -p raft-log -- --ignored --nocapture`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::{Log, SlotNumber};

use super::threads::start_logs;
use crate::{EngineDisk, RaftLog};

const RECORD_BYTES: usize = 1024;
const TIME: Duration = Duration::from_secs(5);
/// Clock ticks of the kernel in a second.
const KERNEL_HZ: f64 = 100.0;

struct Logs {
    logs: Vec<RaftLog>,
    _directories: Vec<tempfile::TempDir>,
}

fn start(slots: SlotNumber) -> Logs {
    let directories: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let open = |it: &tempfile::TempDir| EngineDisk::open(it.path(), 2 << 30).unwrap();
    let disks = directories.iter().map(|it| Arc::new(open(it)));
    Logs {
        logs: start_logs(slots, disks.collect()),
        _directories: directories,
    }
}

fn record() -> Vec<u8> {
    (0..RECORD_BYTES).map(|_| fastrand::u8(..)).collect()
}

/// Appends for a while, and returns how long each append took, in milliseconds.
async fn write(log: &RaftLog, slot: SlotNumber, time: Duration) -> Vec<f64> {
    let start = Instant::now();
    let mut took = vec![];
    while start.elapsed() < time {
        let begin = Instant::now();
        log.append(slot, record()).await.unwrap();
        took.push(begin.elapsed().as_secs_f64() * 1e3);
    }
    took
}

/// Waits until all slots take records.
async fn settle(logs: &Logs, slots: SlotNumber) {
    for slot in 0..slots {
        while logs.logs[0].append(slot, record()).await.is_err() {}
    }
    tokio::time::sleep(Duration::from_secs(4)).await;
}

fn report(name: &str, mut took: Vec<f64>) {
    took.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
    let rate = took.len() as f64 / TIME.as_secs_f64();
    println!(
        "{name}: {rate:.0}/s, p50 {:.2} ms, p99 {:.2} ms",
        at(0.5),
        at(0.99)
    );
}

/// Returns the processor time that this process used, in seconds.
fn processor_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .unwrap()
        .1
        .split_whitespace()
        .collect();
    let ticks: f64 = [11, 12]
        .map(|at| fields[at].parse::<f64>().unwrap())
        .iter()
        .sum();
    ticks / KERNEL_HZ
}

/// Returns the memory that this process uses, in MB.
fn memory_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let number = line.unwrap().split_whitespace().nth(1).unwrap();
    number.parse::<f64>().unwrap() / 1024.0
}

async fn measure(slots: SlotNumber, writers: u16) {
    let logs = Arc::new(start(slots));
    settle(&logs, slots).await;
    for (node, log) in logs.logs.iter().enumerate() {
        let took = write(log, 0, TIME).await;
        report(&format!("{slots} slots, one writer on node {node}"), took);
    }
    let used = processor_s();
    let all = (0..writers).map(|writer| {
        let logs = logs.clone();
        tokio::spawn(async move {
            let log = &logs.logs[usize::from(writer % 3)];
            write(log, writer % slots, TIME).await
        })
    });
    let mut took = vec![];
    for one in all.collect::<Vec<_>>() {
        took.extend(one.await.unwrap());
    }
    let used = processor_s() - used;
    report(
        &format!("{slots} slots, {writers} writers, {used:.1} s of processors"),
        took,
    );
}

#[ignore = "measures"]
#[tokio::test(flavor = "multi_thread")]
async fn appends() {
    measure(1, 32).await;
    measure(16, 32).await;
    measure(128, 32).await;
}

#[ignore = "measures"]
#[tokio::test(flavor = "multi_thread")]
async fn idle_groups() {
    let before = memory_mb();
    let logs = start(128);
    settle(&logs, 128).await;
    let share = async || {
        let used = processor_s();
        tokio::time::sleep(2 * TIME).await;
        (processor_s() - used) / (2.0 * TIME.as_secs_f64()) * 100.0
    };
    println!(
        "three nodes of 128 idle groups: {:.2} % of a processor",
        share().await
    );
    println!("and {:.0} MB", memory_mb() - before);
    let tails: Vec<_> = logs
        .logs
        .iter()
        .flat_map(|log| (0..128).map(|slot| log.follow(slot, 1)))
        .collect();
    println!("with {} followers: {:.2} %", tails.len(), share().await);
}
