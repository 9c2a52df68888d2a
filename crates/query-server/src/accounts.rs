//! The processes that run users' functions: their processor time and memory, by language.
//!
//! Each process is counted for its own language, together with the processes that it has started.
//! Figures are read from `/proc` when they are requested, and when a process ends.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

/// The language of the workers of the built-in engine.
const JAVASCRIPT: &str = "javascript";
/// Processes that one query server has started, of which at most this number is counted.
const FAMILY_MAX: usize = 1_000;

static ACCOUNTS: Mutex<Accounts> = Mutex::new(Accounts {
    running: BTreeMap::new(),
    ended_ticks: BTreeMap::new(),
});

struct Accounts {
    running: BTreeMap<u32, Account>,
    /// Processor time of the processes that have ended, by language.
    ended_ticks: BTreeMap<Arc<str>, u64>,
}

/// A running process.
struct Account {
    language: Arc<str>,
    /// It may have started others. Workers can start none.
    is_query_server: bool,
    /// Most processor time that was found: no sum falls when the time of a process that it has
    /// started cannot be read any more.
    ticks_max: u64,
}

impl Account {
    /// The process, and those that it has started.
    fn family(&self, process: u32) -> Vec<u32> {
        match self.is_query_server {
            true => with_descendants(process),
            false => vec![process],
        }
    }

    /// Processor time of a family so far.
    fn ticks(&mut self, family: &[u32]) -> u64 {
        let of = |process: &u32| {
            let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
            ticks(&stat)
        };
        let found = family.iter().filter_map(of).sum();
        self.ticks_max = self.ticks_max.max(found);
        self.ticks_max
    }
}

/// A process of a language, which counts for it until this is dropped. That must be before the
/// process is waited for: then its number may be another's.
pub struct TrackedProcess(u32);

impl TrackedProcess {
    /// A query server of a language.
    pub fn query_server(process: u32, language: &Arc<str>) -> TrackedProcess {
        Self::of(process, language.clone(), true)
    }

    /// A worker of the built-in JavaScript engine.
    pub fn worker(process: u32) -> TrackedProcess {
        Self::of(process, JAVASCRIPT.into(), false)
    }

    fn of(process: u32, language: Arc<str>, is_query_server: bool) -> TrackedProcess {
        let account = Account {
            language,
            is_query_server,
            ticks_max: 0,
        };
        ACCOUNTS.lock().running.insert(process, account);
        TrackedProcess(process)
    }
}

impl Drop for TrackedProcess {
    fn drop(&mut self) {
        let mut accounts = ACCOUNTS.lock();
        let Some(mut account) = accounts.running.remove(&self.0) else {
            return;
        };
        let family = account.family(self.0);
        let ticks = account.ticks(&family);
        *accounts.ended_ticks.entry(account.language).or_default() += ticks;
    }
}

/// The processes of a language, and their resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LanguageUsage {
    /// The language's name.
    pub language: Arc<str>,
    /// The numbers of its running processes, without those that they have started.
    pub process_ids: Vec<u32>,
    /// Memory that these and those that they have started share with no other process, in bytes.
    pub private_bytes: u64,
    /// Processor time of all its processes, also of those that have ended. It never falls.
    pub cpu: Duration,
}

/// Returns the usage of each language that had a process since the start.
pub fn usage_by_language() -> Vec<LanguageUsage> {
    let mut accounts = ACCOUNTS.lock();
    let Accounts {
        running,
        ended_ticks,
    } = &mut *accounts;
    let mut all: BTreeMap<Arc<str>, LanguageUsage> = BTreeMap::new();
    let mut of_language = |language: &Arc<str>, process: Option<u32>, bytes: u64, ticks: u64| {
        let usage = all
            .entry(language.clone())
            .or_insert_with(|| LanguageUsage {
                language: language.clone(),
                process_ids: vec![],
                private_bytes: 0,
                cpu: Duration::ZERO,
            });
        usage.process_ids.extend(process);
        usage.private_bytes += bytes;
        usage.cpu += duration(ticks);
    };
    for (language, ticks) in ended_ticks.iter() {
        of_language(language, None, 0, *ticks);
    }
    for (process, account) in running.iter_mut() {
        let family = account.family(*process);
        let bytes = family.iter().map(|member| private_bytes(*member)).sum();
        let ticks = account.ticks(&family);
        of_language(&account.language, Some(*process), bytes, ticks);
    }
    all.into_values().collect()
}

/// Returns for each running query server its process, its language, and the processor time that it
/// and the processes that it has started took so far.
pub fn cpu_times() -> Vec<(u32, Arc<str>, Duration)> {
    let mut accounts = ACCOUNTS.lock();
    let running = accounts.running.iter_mut();
    running
        .filter(|(_, account)| account.is_query_server)
        .map(|(process, account)| {
            let family = account.family(*process);
            let time = duration(account.ticks(&family));
            (*process, account.language.clone(), time)
        })
        .collect()
}

/// A process and those that it has started, those that they have started, and so on.
fn with_descendants(process: u32) -> Vec<u32> {
    let mut found = vec![process];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied()
        && found.len() <= FAMILY_MAX
    {
        next += 1;
        let threads = fs::read_dir(format!("/proc/{parent}/task"));
        for thread in threads.into_iter().flatten().flatten() {
            let children = fs::read_to_string(thread.path().join("children"));
            let children = children.unwrap_or_default();
            let children = children.split_whitespace();
            found.extend(children.filter_map(|child| child.parse::<u32>().ok()));
        }
    }
    found
}

/// Resident memory of a process without the part that it shares with others; 0 of one that has
/// ended.
fn private_bytes(process: u32) -> u64 {
    // Seven numbers of pages: the second is the resident ones, the third those of them that are shared.
    let statm = fs::read_to_string(format!("/proc/{process}/statm")).unwrap_or_default();
    let mut pages = statm
        .split_whitespace()
        .skip(1)
        .map(|pages| pages.parse::<u64>().unwrap_or(0));
    let (resident, shared) = (pages.next().unwrap_or(0), pages.next().unwrap_or(0));
    resident.saturating_sub(shared) * rustix::param::page_size() as u64
}

fn duration(ticks: u64) -> Duration {
    let hz = rustix::param::clock_ticks_per_second();
    Duration::from_secs_f64(ticks as f64 / hz as f64)
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
    use std::io::{BufRead as _, BufReader};
    use std::process::{Child, Command, Stdio};

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
        let told = TrackedProcess::query_server(own, &"cobol".into());
        let mine = |(process, language, _): &(u32, Arc<str>, Duration)| {
            *process == own && &**language == "cobol"
        };
        assert!(cpu_times().iter().any(mine));
        drop(told);
        assert!(!cpu_times().iter().any(mine));
    }

    /// A shell that runs a script, which prints a line when it has done its work, and then waits.
    fn shell(script: &str) -> Child {
        let mut child = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let out = child.stdout.as_mut().unwrap();
        BufReader::new(out).read_line(&mut line).unwrap();
        assert_eq!(line, "done\n");
        child
    }

    fn of(language: &str) -> LanguageUsage {
        let all = usage_by_language().into_iter();
        let mut found = all.filter(|usage| &*usage.language == language);
        found.next().unwrap()
    }

    #[test]
    fn each_language_has_its_own_processes_and_those_that_these_have_started() {
        const BUSY: &str = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        // The work is done by a child of the query server, which still runs.
        let mut busy = shell(&format!(
            "exec 3<&0; ({BUSY}; echo done; read line <&3) & wait"
        ));
        let mut idle = shell("echo done; read line");
        let mut other = shell("echo done; read line");
        let tracked = TrackedProcess::query_server(busy.id(), &"busy".into());
        let tracked_others =
            [&idle, &other].map(|child| TrackedProcess::query_server(child.id(), &"idle".into()));
        let (one, two) = (of("busy"), of("idle"));
        assert_eq!(one.process_ids, [busy.id()]);
        let mut both = vec![idle.id(), other.id()];
        both.sort_unstable();
        assert_eq!(two.process_ids, both);
        // A loop of 200,000 turns takes some hundredths of a second; echo and read take none.
        assert!(one.cpu > two.cpu, "{one:?} {two:?}");
        assert!(one.private_bytes > 0 && two.private_bytes > 0);
        assert_eq!(with_descendants(busy.id()).len(), 2);
        // The time of a process that has ended stays, and is its language's.
        drop(tracked);
        drop(tracked_others);
        for child in [&mut busy, &mut idle, &mut other] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let ended = of("busy");
        assert!(ended.cpu >= one.cpu && ended.process_ids.is_empty());
        assert_eq!(ended.private_bytes, 0);
        assert!(of("idle").cpu < ended.cpu);
    }

    #[test]
    fn workers_count_for_javascript_and_are_no_query_servers() {
        let mut child = shell("echo done; read line");
        let tracked = TrackedProcess::worker(child.id());
        assert!(of("javascript").process_ids.contains(&child.id()));
        assert!(
            cpu_times()
                .iter()
                .all(|(process, ..)| *process != child.id())
        );
        drop(tracked);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
