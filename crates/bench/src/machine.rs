//! The machine of a run: its properties, and its other load.

use std::fs;

use serde::{Deserialize, Serialize};

use crate::procfs;

/// Others may take this share of all processors before the machine counts as not quiet.
const OTHERS_SHARE_MAX: f64 = 0.05;
/// Share of time that the hypervisor may keep back.
const STEAL_SHARE_MAX: f64 = 0.01;
/// Share of time that processors may wait for disks before anything is measured.
const WAIT_SHARE_MAX: f64 = 0.05;

/// Properties of the machine that affect figures.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The processors' name.
    pub processor: String,
    /// How many there are for this process.
    pub processors: usize,
    /// Main memory in bytes.
    pub memory_bytes: u64,
    /// Kernel and its version.
    pub kernel: String,
    /// The distribution.
    pub system: String,
    /// The frequency governor of the processors, if the kernel reports it.
    pub governor: Option<String>,
}

impl Machine {
    /// The machine of this process.
    pub(crate) fn here() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let uname = rustix::system::uname();
        let governor = read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
        Self {
            processor: processor(&read("/proc/cpuinfo")),
            processors: std::thread::available_parallelism().map_or(0, usize::from),
            memory_bytes: procfs::memory_bytes().unwrap_or(0),
            kernel: format!(
                "{} {}",
                uname.sysname().to_string_lossy(),
                uname.release().to_string_lossy()
            ),
            system: value(&read("/etc/os-release"), "PRETTY_NAME", '=')
                .map(|name| name.trim_matches('"').to_owned())
                .unwrap_or_default(),
            governor: Some(governor.trim().to_owned()).filter(|text| !text.is_empty()),
        }
    }

    /// How it differs from another one, for people; empty when it does not.
    pub(crate) fn differences(&self, other: &Self) -> Vec<String> {
        let gibibytes = |bytes: u64| format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30));
        let none = || "unknown".to_owned();
        [
            ("processor", self.processor.clone(), other.processor.clone()),
            (
                "processors",
                self.processors.to_string(),
                other.processors.to_string(),
            ),
            (
                "memory",
                gibibytes(self.memory_bytes),
                gibibytes(other.memory_bytes),
            ),
            ("kernel", self.kernel.clone(), other.kernel.clone()),
            ("system", self.system.clone(), other.system.clone()),
            (
                "governor",
                self.governor.clone().unwrap_or_else(none),
                other.governor.clone().unwrap_or_else(none),
            ),
        ]
        .into_iter()
        .filter(|(_, now, then)| now != then)
        .map(|(what, now, then)| format!("{what}: {now} now, {then} then"))
        .collect()
    }
}

/// Returns the name of the processors. Kernels for ARM report numbers instead, of the implementer
/// and of its product.
fn processor(cpuinfo: &str) -> String {
    let of = |name| value(cpuinfo, name, ':');
    let numbers = || {
        let (implementer, part) = of("CPU implementer").zip(of("CPU part"))?;
        Some(format!("ARM, implementer {implementer}, part {part}"))
    };
    of("model name").or_else(numbers).unwrap_or_default()
}

fn value(text: &str, name: &str, separator: char) -> Option<String> {
    let lines = text.lines().filter_map(|line| line.split_once(separator));
    let mut of_name = lines.filter(|(key, _)| key.trim() == name);
    of_name.next().map(|(_, value)| value.trim().to_owned())
}

/// Other work of the machine during a period.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Busy {
    /// Processors that other processes used, on average.
    pub others_cpu: f64,
    /// Share of time in which processors waited for disks.
    pub wait_share: f64,
    /// Share of time that the hypervisor kept back.
    pub steal_share: f64,
    /// Load average of the last minute.
    pub load: f64,
    /// The stretch.
    pub seconds: f64,
}

/// Processor time of the machine and of the processes of the run, until now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Account {
    machine: procfs::Processors,
    ours_seconds: f64,
    at: std::time::Instant,
}

impl Account {
    /// `pids` are the known processes of the run and their children. This process is included.
    pub(crate) fn now(pids: &[u32]) -> Option<Self> {
        let mut ours = pids.to_vec();
        ours.push(std::process::id());
        ours.sort_unstable();
        ours.dedup();
        // One may have ended by now: its parent has its time then, as this process has that of servers which it has killed.
        let seconds = ours
            .into_iter()
            .filter_map(procfs::cpu_seconds_with_children);
        Some(Self {
            ours_seconds: seconds.sum(),
            machine: procfs::processors()?,
            at: std::time::Instant::now(),
        })
    }

    pub(crate) fn since(&self, earlier: &Self) -> Option<Busy> {
        let seconds = (self.at - earlier.at).as_secs_f64();
        let spent = self.machine.since(earlier.machine);
        let total = spent.busy + spent.idle + spent.wait + spent.steal;
        if seconds <= 0.0 || total <= 0.0 {
            return None;
        }
        let ours = self.ours_seconds - earlier.ours_seconds;
        Some(Busy {
            others_cpu: ((spent.busy - ours) / seconds).max(0.0),
            wait_share: spent.wait / total,
            steal_share: spent.steal / total,
            load: procfs::load_average().unwrap_or(0.0),
            seconds,
        })
    }
}

/// Why the machine was not quiet; empty when it was. Waiting for disks during the run may be the server's own.
pub(crate) fn unquiet(
    before: Option<Busy>,
    during: Option<Busy>,
    processors: usize,
) -> Vec<String> {
    let mut found = Vec::new();
    let moments = [("before", before), ("during", during)];
    for (when, busy) in moments
        .into_iter()
        .filter_map(|(when, busy)| Some((when, busy?)))
    {
        let share = busy.others_cpu / processors.max(1) as f64;
        if share > OTHERS_SHARE_MAX {
            found.push(format!(
                "other processes used {:.2} of {processors} processors {when} the run",
                busy.others_cpu
            ));
        }
        if busy.steal_share > STEAL_SHARE_MAX {
            let steal = busy.steal_share * 100.0;
            found.push(format!(
                "the hypervisor kept back {steal:.1} % of the time {when} the run"
            ));
        }
        if when == "before" && busy.wait_share > WAIT_SHARE_MAX {
            let wait = busy.wait_share * 100.0;
            found.push(format!(
                "processors waited for disks {wait:.0} % of the time before the run"
            ));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::with_descendants;
    use std::time::{Duration, Instant};

    const QUIET: Busy = Busy {
        others_cpu: 0.01,
        wait_share: 0.01,
        steal_share: 0.0,
        load: 0.1,
        seconds: 1.0,
    };

    #[test]
    fn processors_have_names_on_all_architectures() {
        let x86 = "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC\n";
        assert_eq!(processor(x86), "AMD EPYC");
        let arm =
            "processor\t: 0\nCPU implementer\t: 0x41\nCPU variant\t: 0x3\nCPU part\t: 0xd0c\n";
        assert_eq!(processor(arm), "ARM, implementer 0x41, part 0xd0c");
        assert_eq!(processor(""), "");
    }

    #[test]
    fn a_quiet_machine_gets_no_warning_and_each_disturbance_one() {
        assert!(unquiet(Some(QUIET), Some(QUIET), 2).is_empty());
        let others = Busy {
            others_cpu: 0.5,
            ..QUIET
        };
        let steal = Busy {
            steal_share: 0.04,
            ..QUIET
        };
        let disk = Busy {
            wait_share: 0.3,
            ..QUIET
        };
        for (busy, word) in [
            (others, "other processes"),
            (steal, "hypervisor"),
            (disk, "disks"),
        ] {
            let found = unquiet(Some(busy), Some(QUIET), 2);
            assert!(found.len() == 1 && found[0].contains(word), "{found:?}");
        }
        // The server's own writes wait for disks, too.
        assert!(unquiet(Some(QUIET), Some(disk), 2).is_empty());
    }

    /// Other tests start processes, too.
    fn account() -> Account {
        Account::now(&with_descendants(&[std::process::id()])).unwrap()
    }

    #[test]
    fn what_this_process_spends_is_not_the_others() {
        let cpu = || procfs::cpu_seconds(std::process::id()).unwrap();
        let before = account();
        let (start, cpu_before) = (Instant::now(), cpu());
        let mut sum = 0_u64;
        while start.elapsed() < Duration::from_millis(300) {
            sum = sum.wrapping_add(fastrand::u64(..));
        }
        assert_ne!(sum, 1);
        let own = cpu() - cpu_before;
        let after = account();
        let busy = after.since(&before).unwrap();
        let all = after.machine.since(before.machine).busy / busy.seconds;
        let others_max = (all - own / busy.seconds).max(0.0);
        // Ticks of 10 ms are all that the kernel counts.
        assert!(busy.others_cpu <= others_max + 0.15, "{busy:?} {own} {all}");
    }

    #[test]
    fn what_a_server_spends_that_the_run_starts_and_kills_is_not_the_others() {
        const SPENT: f64 = 0.2;
        let before = account();
        let mut server = std::process::Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .spawn()
            .unwrap();
        while procfs::cpu_seconds(server.id()).unwrap() < SPENT {
            std::thread::sleep(Duration::from_millis(10));
        }
        let running = account();
        server.kill().unwrap();
        server.wait().unwrap();
        for after in [running, account()] {
            let ours = after.ours_seconds - before.ours_seconds;
            // Ticks of 10 ms are all that the kernel counts.
            assert!(ours >= SPENT - 0.05, "{ours}");
        }
    }

    #[test]
    fn the_same_machine_does_not_differ_and_another_one_is_described() {
        let here = Machine::here();
        assert!(here.processors > 0 && here.memory_bytes > 0 && !here.kernel.is_empty());
        assert!(here.differences(&here).is_empty());
        let other = Machine {
            processors: here.processors + 2,
            ..here.clone()
        };
        let told = here.differences(&other);
        assert!(
            told.len() == 1 && told[0].starts_with("processors: "),
            "{told:?}"
        );
    }
}
