//! Facts about a local server from `/proc`: its process, CPU time and memory.

use std::fs;
use std::path::Path;

/// State of a listening socket in `/proc/net/tcp` (`TCP_LISTEN` in the kernel's headers).
const LISTEN: &str = "0A";

/// The process that listens on a port of this machine, when `/proc` shows it to us.
pub(crate) fn listener(port: u16) -> Option<u32> {
    let inode = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok())
        .find_map(|table| listening_inode(&table, port))?;
    let link = format!("socket:[{inode}]");
    fs::read_dir("/proc")
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
        .find(|pid| holds(*pid, &link))
}

fn listening_inode(table: &str, port: u16) -> Option<u64> {
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let local_port = u16::from_str_radix(fields.get(1)?.rsplit(':').next()?, 16).ok()?;
        (*fields.get(3)? == LISTEN && local_port == port).then_some(())?;
        fields.get(9)?.parse().ok()
    })
}

fn holds(pid: u32, link: &str) -> bool {
    let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return false;
    };
    files
        .flatten()
        .any(|file| fs::read_link(file.path()).is_ok_and(|path| path == Path::new(link)))
}

/// Processes that ran or wanted to, on average over the last minute.
pub(crate) fn load_average() -> Option<f64> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    text.split_ascii_whitespace().next()?.parse().ok()
}

/// User and system CPU time of a process since it started, in seconds.
pub(crate) fn cpu_seconds(pid: u32) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let ticks = cpu_ticks(&stat)?;
    Some(ticks as f64 / ticks_per_second())
}

fn cpu_ticks(stat: &str) -> Option<u64> {
    // utime and stime are fields 14 and 15 (proc(5)).
    let times: Vec<u64> = stat_fields(stat, 11)?.take(2).collect();
    (times.len() == 2).then(|| times.iter().sum())
}

/// Numbers of `/proc/PID/stat` from one on, counted behind the command's name, which is in parentheses and may hold spaces.
fn stat_fields(stat: &str, from: usize) -> Option<impl Iterator<Item = u64>> {
    let after_name = stat.rsplit_once(')')?.1;
    let fields = after_name.split_ascii_whitespace().skip(from);
    Some(fields.map_while(|field| field.parse().ok()))
}

/// [`cpu_seconds`], with the time of its children that have ended and were waited for.
pub(crate) fn cpu_seconds_with_children(pid: u32) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // cutime and cstime are fields 16 and 17 (proc(5)).
    let children: u64 = stat_fields(&stat, 13)?.take(2).sum();
    Some((cpu_ticks(&stat)? + children) as f64 / ticks_per_second())
}

fn ticks_per_second() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}

/// Time that all processors have spent, in seconds, since the machine started.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Processors {
    pub(crate) busy: f64,
    pub(crate) idle: f64,
    /// Idle, and something waited for a disk.
    pub(crate) wait: f64,
    /// Kept back by the hypervisor.
    pub(crate) steal: f64,
}

impl Processors {
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            busy: self.busy - earlier.busy,
            idle: self.idle - earlier.idle,
            // According to the kernel's documentation this value may fall.
            wait: (self.wait - earlier.wait).max(0.0),
            steal: self.steal - earlier.steal,
        }
    }
}

/// The first line of `/proc/stat`.
pub(crate) fn processors() -> Option<Processors> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    processors_of(text.lines().next()?)
}

fn processors_of(line: &str) -> Option<Processors> {
    let ticks: Vec<f64> = line
        .strip_prefix("cpu ")?
        .split_ascii_whitespace()
        .map_while(|field| field.parse().ok())
        .collect();
    // user, nice, system, idle, iowait, irq, softirq, steal; guests are in user and nice (proc(5)).
    let at = |field: usize| ticks.get(field).copied().unwrap_or(0.0) / ticks_per_second();
    (ticks.len() >= 4).then(|| Processors {
        busy: at(0) + at(1) + at(2) + at(5) + at(6),
        idle: at(3),
        wait: at(4),
        steal: at(7),
    })
}

/// Main memory of this machine, in bytes.
pub(crate) fn memory_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    status_field_bytes(&text, "MemTotal:")
}

/// Bytes that a process has had read from and written to disks. Needs the process's own user.
pub(crate) fn disk_bytes(pid: u32) -> Option<(u64, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse().ok()
    };
    Some((value("read_bytes:")?, value("write_bytes:")?))
}

/// How many threads a process has.
pub(crate) fn threads(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Threads:"))?;
    line.trim().parse().ok()
}

/// All processes that a process has started, and those that they have started.
pub(crate) fn descendants(pid: u32) -> Vec<u32> {
    below(&parents(), pid)
}

/// The processes that a process has started, each with its own descendants.
pub(crate) fn families(pid: u32) -> Vec<(u32, Vec<u32>)> {
    let parents = parents();
    let children = parents.iter().filter(|(_, parent)| *parent == pid);
    children
        .map(|(child, _)| (*child, below(&parents, *child)))
        .collect()
}

/// All processes with their parents.
fn parents() -> Vec<(u32, u32)> {
    let entries = fs::read_dir("/proc").into_iter().flatten();
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|child| Some((child, parent(child)?)))
        .collect()
}

fn below(parents: &[(u32, u32)], pid: u32) -> Vec<u32> {
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(of) = found.get(next).copied() {
        let children = parents.iter().filter(|(_, parent)| *parent == of);
        found.extend(children.map(|(child, _)| *child));
        next += 1;
    }
    found.split_off(1)
}

fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the command's name come the state and the parent (proc(5)).
    let after_name = stat.rsplit_once(')')?.1;
    after_name.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Bytes that the files below a folder occupy on disk.
pub(crate) fn folder_bytes(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => folder_bytes(&entry.path()),
            // Blocks are of 512 bytes whatever the file system's are (stat(2)).
            Ok(metadata) => metadata.blocks() * 512,
            // A file that is gone by now occupies nothing.
            Err(_) => 0,
        })
        .sum()
}

/// The argument after `name` on a process's command line.
pub(crate) fn argument(pid: u32, name: &str) -> Option<String> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let mut arguments = line.split(|byte| *byte == 0);
    arguments.find(|argument| *argument == name.as_bytes())?;
    String::from_utf8(arguments.next()?.to_vec()).ok()
}

/// Working directory of a process.
pub(crate) fn working_directory(pid: u32) -> Option<std::path::PathBuf> {
    fs::read_link(format!("/proc/{pid}/cwd")).ok()
}

/// Resident memory of a process now that it shares with no other, in bytes.
pub(crate) fn private_bytes(pid: u32) -> Option<u64> {
    status_bytes(pid, "RssAnon:")
}

/// Resident memory of a process now, in bytes.
pub(crate) fn resident_bytes(pid: u32) -> Option<u64> {
    status_bytes(pid, "VmRSS:")
}

/// The highest resident memory since [`reset_peak`], or since the process started when that was not allowed.
pub(crate) fn peak_resident_bytes(pid: u32) -> Option<u64> {
    status_bytes(pid, "VmHWM:")
}

/// Makes the peak count from now on (proc(5), `clear_refs`, value 5). Needs the process's own user.
pub(crate) fn reset_peak(pid: u32) -> bool {
    fs::write(format!("/proc/{pid}/clear_refs"), "5").is_ok()
}

fn status_bytes(pid: u32, name: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status_field_bytes(&status, name)
}

fn status_field_bytes(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find(|line| line.starts_with(name))?;
    let kibibytes: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_listener_of_a_port_is_found_among_connections_to_it() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
             0: 0100007F:1760 0100007F:9C40 01 00000000:00000000 00:00000000 00000000  1000        0 111 1\n\
             1: 0100007F:1760 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 222 1\n";
        assert_eq!(listening_inode(table, 5984), Some(222));
        assert_eq!(listening_inode(table, 5985), None);
    }

    #[test]
    fn this_process_is_found_by_its_own_port() {
        let listener_socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener_socket.local_addr().unwrap().port();
        assert_eq!(listener(port), Some(std::process::id()));
    }

    #[test]
    fn cpu_time_is_read_behind_a_name_with_spaces_and_parentheses() {
        let stat = "7 (a b) c)) S 1 7 7 0 -1 4194560 1 0 0 0 30 12 0 0 20 0 1 0 5 1 1";
        assert_eq!(cpu_ticks(stat), Some(42));
    }

    #[test]
    fn processors_are_read_with_guests_counted_once() {
        let line = "cpu  100 10 50 800 20 3 7 40 60 5";
        let ticks = ticks_per_second();
        let read = processors_of(line).unwrap();
        assert_eq!((read.busy * ticks).round(), 170.0);
        assert_eq!((read.idle * ticks).round(), 800.0);
        assert_eq!((read.wait * ticks).round(), 20.0);
        assert_eq!((read.steal * ticks).round(), 40.0);
        assert_eq!(processors_of("cpu0 1 2 3 4"), None);
        assert!(processors().is_some() && memory_bytes().is_some());
    }

    #[test]
    fn a_process_has_threads_and_the_time_of_its_children() {
        let own = std::process::id();
        assert!(threads(own).unwrap() >= 1 && disk_bytes(own).is_some());
        assert!(cpu_seconds_with_children(own).unwrap() >= cpu_seconds(own).unwrap() - 0.5);
    }

    #[test]
    fn children_of_children_are_descendants() {
        let mut shell = std::process::Command::new("sh")
            .args(["-c", "sleep 30 & echo started; wait"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = [0; 8];
        std::io::Read::read_exact(shell.stdout.as_mut().unwrap(), &mut line).unwrap();
        let found = descendants(std::process::id());
        let grandchildren = descendants(shell.id());
        let families = families(std::process::id());
        for pid in &grandchildren {
            let pid = rustix::process::Pid::from_raw(*pid as i32).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        }
        shell.wait().unwrap();
        assert_eq!(grandchildren.len(), 1);
        assert!(found.contains(&shell.id()) && found.contains(&grandchildren[0]));
        assert!(families.contains(&(shell.id(), grandchildren)));
    }

    #[test]
    fn a_folder_is_as_large_as_the_files_below_it() {
        let dir = tempfile::tempdir().unwrap();
        let empty = folder_bytes(dir.path());
        fs::create_dir(dir.path().join("below")).unwrap();
        fs::write(dir.path().join("below/file"), vec![7; 100_000]).unwrap();
        assert!(folder_bytes(dir.path()) >= empty + 100_000);
        assert_eq!(folder_bytes(&dir.path().join("none")), 0);
    }

    #[test]
    fn the_peak_is_at_least_what_is_resident() {
        let pid = std::process::id();
        let resident = resident_bytes(pid).unwrap();
        assert!(peak_resident_bytes(pid).unwrap() >= resident / 2);
        assert!(cpu_seconds(pid).is_some());
        assert_eq!(
            status_field_bytes("VmRSS:\t  12 kB\n", "VmRSS:"),
            Some(12_288)
        );
    }
}
