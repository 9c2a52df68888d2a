//! The use of memory by a server: one table that adds up.

use std::path::{Path, PathBuf};

use config::Settings;
use rustix::process::{Resource, getrlimit};

const MIB: u64 = 1 << 20;

/// The memory of each part of a server, in bytes. Together they are less than the limit: the rest
/// is for the program itself, for threads, connections and responses in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    /// The limit of the server's memory.
    pub limit: u64,
    /// The source of the limit.
    pub said_by: LimitSource,
    /// Blocks of the store that were read.
    pub block_cache: usize,
    /// Recently read documents, whole.
    pub documents: usize,
    /// Writes before they are in files: from half of it on they are written to them.
    pub write_buffers: usize,
    /// Bodies of requests that are read and worked on.
    pub bodies: usize,
    /// Databases and indexes that are open.
    pub open_databases: usize,
    /// Rows of index builds.
    pub index_builds: usize,
    /// Rows of indexes that are read often.
    pub index_rows: usize,
    /// Worker processes for JavaScript, together.
    pub workers: usize,
    /// Parameters of responses in progress, and long pieces of them.
    pub answers: usize,
    /// Groups of aggregates.
    pub aggregates: usize,
    /// Searches in text indexes.
    pub searches: usize,
    /// Ids, selectors and batches of replications.
    pub replications: usize,
}

/// Where a limit of memory comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitSource {
    /// `[memory] limit`.
    Setting,
    /// The control group that the server runs in.
    ControlGroup,
    /// `ulimit -v`.
    AddressSpace,
    /// The machine's memory.
    Machine,
}

impl LimitSource {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            LimitSource::Setting => "setting",
            LimitSource::ControlGroup => "control group",
            LimitSource::AddressSpace => "address space",
            LimitSource::Machine => "machine",
        }
    }
}

/// A part's share of the limit, its least and its largest size, unless a setting defines it.
struct Share {
    of_limit: u64,
    least: u64,
    most: u64,
}

const BLOCK_CACHE: Share = share(8, 8, 256);
const DOCUMENTS: Share = share(24, 2, 128);
const WRITE_BUFFERS: Share = share(8, 16, 512);
const BODIES: Share = share(10, 12, 384);
const OPEN_DATABASES: Share = share(16, 8, 96);
const INDEX_BUILDS: Share = share(12, 8, 256);
const INDEX_ROWS: Share = share(32, 2, 64);
const WORKERS: Share = share(12, 8, 1024);
const ANSWERS: Share = share(24, 4, 256);
const AGGREGATES: Share = share(32, 4, 256);
const SEARCHES: Share = share(16, 4, 512);
const REPLICATIONS: Share = share(48, 2, 128);

const fn share(of_limit: u64, least_mib: u64, most_mib: u64) -> Share {
    Share {
        of_limit,
        least: least_mib * MIB,
        most: most_mib * MIB,
    }
}

impl Share {
    fn bytes(&self, limit: u64, setting: usize) -> usize {
        if setting > 0 {
            return setting;
        }
        let bytes = (limit / self.of_limit).clamp(self.least, self.most);
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }
}

impl MemoryPlan {
    /// The plan for this process on this machine.
    pub fn new(settings: &Settings) -> MemoryPlan {
        let (limit, said_by) = match settings.memory.limit {
            0 => found(),
            bytes => (bytes as u64, LimitSource::Setting),
        };
        MemoryPlan::within(limit, said_by, settings)
    }

    /// The plan for a limit in bytes.
    pub fn within(limit: u64, said_by: LimitSource, settings: &Settings) -> MemoryPlan {
        let (rocksdb, memory) = (&settings.rocksdb, &settings.memory);
        MemoryPlan {
            limit,
            said_by,
            block_cache: BLOCK_CACHE.bytes(limit, rocksdb.block_cache_size),
            documents: DOCUMENTS.bytes(limit, memory.documents),
            write_buffers: WRITE_BUFFERS.bytes(limit, 2 * rocksdb.write_buffer_size),
            bodies: BODIES.bytes(limit, memory.bodies),
            open_databases: OPEN_DATABASES.bytes(limit, memory.open_databases),
            index_builds: INDEX_BUILDS.bytes(limit, memory.index_builds),
            index_rows: INDEX_ROWS.bytes(limit, memory.index_rows),
            workers: WORKERS.bytes(limit, memory.workers),
            answers: ANSWERS.bytes(limit, memory.answers),
            aggregates: AGGREGATES.bytes(limit, memory.aggregates),
            searches: SEARCHES.bytes(limit, memory.searches),
            replications: REPLICATIONS.bytes(limit, memory.replications),
        }
    }

    /// All parts together, in bytes.
    pub fn planned(&self) -> u64 {
        let parts = [
            self.block_cache,
            self.documents,
            self.write_buffers,
            self.bodies,
            self.open_databases,
            self.index_builds,
            self.index_rows,
            self.workers,
            self.answers,
            self.aggregates,
            self.searches,
            self.replications,
        ];
        parts.iter().map(|&part| part as u64).sum()
    }
}

/// The smallest limit of all sources.
fn found() -> (u64, LimitSource) {
    let machine = std::fs::read_to_string("/proc/meminfo").ok();
    let machine = machine
        .and_then(|text| mem_total(&text))
        .unwrap_or(u64::MAX);
    // Reserved addresses need no memory.
    let space = getrlimit(Resource::As).current.map(|bytes| bytes / 2);
    let of_group = std::fs::read_to_string("/proc/self/cgroup").ok();
    let group = of_group.and_then(|text| group_limit(&text, Path::new("/sys/fs/cgroup")));
    let all = [
        (Some(machine), LimitSource::Machine),
        (group, LimitSource::ControlGroup),
        (space, LimitSource::AddressSpace),
    ];
    let known = all.into_iter().filter_map(|(limit, by)| Some((limit?, by)));
    known
        .min_by_key(|(limit, _)| *limit)
        .unwrap_or((u64::MAX, LimitSource::Machine))
}

/// `MemTotal` of `/proc/meminfo`, in bytes.
fn mem_total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// The least limit of the control groups that `/proc/self/cgroup` names, and of those above them,
/// mounted at `root`. Both versions of control groups are read.
fn group_limit(of_process: &str, root: &Path) -> Option<u64> {
    let mut limits = vec![];
    for line in of_process.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let (mount, files) = match controllers {
            "" => (root.to_owned(), &["memory.max", "memory.high"][..]),
            c if c.split(',').any(|c| c == "memory") => {
                (root.join("memory"), &["memory.limit_in_bytes"][..])
            }
            _ => continue,
        };
        let own = mount.join(path.trim_start_matches('/'));
        // Within a container the path may be the host's: what is mounted is the container's own group then.
        let groups = own
            .ancestors()
            .take_while(|group| group.starts_with(&mount));
        limits.extend(groups.flat_map(|group| {
            let limit = |file: &&str| limit_in(&group.join(file));
            files.iter().filter_map(limit).collect::<Vec<_>>()
        }));
    }
    limits.into_iter().min()
}

fn limit_in(file: &PathBuf) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    // `max`, or a number near the maximum, means "no limit".
    text.trim()
        .parse()
        .ok()
        .filter(|&bytes: &u64| bytes < 1 << 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_add_up_to_less_than_the_limit() {
        let settings = Settings::default();
        for mib in [128, 256, 512, 1024, 4096, 65536] {
            let plan = MemoryPlan::within(mib * MIB, LimitSource::Machine, &settings);
            assert!(plan.planned() * 6 <= plan.limit * 5, "{mib} MiB: {plan:?}");
        }
    }

    #[test]
    fn what_a_setting_says_is_so() {
        let mut settings = Settings::default();
        settings.memory.bodies = 5 << 20;
        settings.rocksdb.block_cache_size = 1 << 30;
        let plan = MemoryPlan::within(512 * MIB, LimitSource::Machine, &settings);
        assert_eq!((plan.bodies, plan.block_cache), (5 << 20, 1 << 30));
        settings.memory.limit = 99 << 20;
        let plan = MemoryPlan::new(&settings);
        assert_eq!((plan.limit, plan.said_by), (99 * MIB, LimitSource::Setting));
    }

    #[test]
    fn limits_are_found_where_the_system_has_them() {
        assert_eq!(
            mem_total("MemFree: 1 kB\nMemTotal:       24 kB\n"),
            Some(24 << 10)
        );
        let root = tempfile::tempdir().expect("a directory");
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            std::fs::write(path, text).expect("written");
        };
        let limit = |of_process: &str| group_limit(of_process, root.path());
        assert_eq!(limit("0::/a/b\n"), None);
        write("memory.max", "max\n");
        write("a/memory.max", "1000\n");
        write("a/b/memory.max", "2000\n");
        assert_eq!(limit("0::/a/b\n"), Some(1000));
        write("a/b/memory.high", "900\n");
        assert_eq!(limit("0::/a/b\n"), Some(900));
        assert_eq!(limit("0::/\n"), None);
        write("memory/memory.limit_in_bytes", "9223372036854771712\n");
        write("memory/x/memory.limit_in_bytes", "700\n");
        assert_eq!(limit("4:memory:/x\n0::/a\n"), Some(700));
        assert_eq!(limit("4:cpu,memory:/gone\n"), None);
        assert_eq!(limit("5:cpu:/x\nnonsense\n"), None);
    }
}
