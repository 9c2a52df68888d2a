//! The machine: files, connections, disk, memory.

use serde_json::json;

use crate::check::{Area, Check};
use crate::finding::{Finding, Severity, bytes, counted, curl, percent, quoted};

const FILES_PERCENT: u64 = 80;
const FILES_PERCENT_ERROR: u64 = 95;
/// A store of some size has a thousand files open, and each connection is one.
const FILES_LIMIT_MIN: u64 = 4096;

pub const OPEN_FILES: Check = Check {
    id: "open-files",
    area: Area::Machine,
    title: "limit of open files",
    looks_at: "open files and sockets of the process, and their limit",
    finds: || {
        format!(
            "warning from {FILES_PERCENT} % of the limit, error from {FILES_PERCENT_ERROR} %; note of a limit below {FILES_LIMIT_MIN}"
        )
    },
    why: "at the limit, connections are not accepted and the store cannot open its files",
    look: |facts| {
        let machine = &facts.machine;
        let Some(max) = machine.open_files_max else {
            return Ok(vec![]);
        };
        let open = machine.open_files;
        let used = percent(open, max);
        let severity = match used {
            FILES_PERCENT_ERROR.. => Severity::Error,
            FILES_PERCENT.. => Severity::Warning,
            _ if max < FILES_LIMIT_MIN => Severity::Note,
            _ => return Ok(vec![]),
        };
        let says = format!("{open} files of {max} are open ({used} %)");
        let wanted = (max * 4).max(65_536);
        Ok(vec![
            Finding::new(severity, "the process", says)
                .evidence(json!({"open": open, "limit": max}))
                .act(format!("# under systemd: systemctl edit settee, with the lines [Service] and LimitNOFILE={wanted}"))
                .act(format!("ulimit -n {wanted}   # in the shell that starts it")),
        ])
    },
};

pub const ACCEPT_BACKLOG: Check = Check {
    id: "accept-backlog",
    area: Area::Machine,
    title: "connections dropped before they were accepted",
    looks_at: "connections that the kernel dropped since the start; `[chttpd] backlog` and `net.core.somaxconn`",
    finds: || {
        "warning of any connection that was dropped; note when `somaxconn` is less than the backlog"
            .to_owned()
    },
    why: "a client whose connection is dropped waits for a second or more, and retries",
    look: |facts| {
        let machine = &facts.machine;
        let (backlog, max) = (machine.backlog, machine.backlog_max);
        let mut found = vec![];
        let dropped = machine.connections_dropped;
        let evidence = json!({"dropped": dropped, "backlog": backlog, "somaxconn": max});
        if dropped.is_some_and(|n| n > 0) {
            let n = dropped.unwrap_or(0);
            let says = format!(
                "the kernel dropped connections {} since the start: more than {backlog} waited",
                counted(n, "times")
            );
            let wanted = (backlog * 4).min(65_535);
            found.push(
                Finding::new(Severity::Warning, "the HTTP port", says)
                    .evidence(evidence.clone())
                    .act(format!(
                        "# in local.ini, then restart: [chttpd] backlog = {wanted}"
                    ))
                    .act(format!("sysctl -w net.core.somaxconn={wanted}")),
            );
        }
        if let Some(max) = max.filter(|max| *max < backlog) {
            let says = format!("[chttpd] backlog is {backlog}, of which the kernel grants {max}");
            found.push(
                Finding::new(Severity::Note, "net.core.somaxconn", says)
                    .evidence(evidence)
                    .act(format!(
                        "sysctl -w net.core.somaxconn={backlog}   # and restart the server"
                    )),
            );
        }
        match dropped {
            None if found.is_empty() => {
                Err("the kernel does not report dropped connections".to_owned())
            }
            _ => Ok(found),
        }
    },
};

const DISK_PERCENT: u64 = 10;
const DISK_PERCENT_ERROR: u64 = 2;
const GIB: u64 = 1 << 30;
const DISK_ENOUGH: u64 = 20 * GIB;

pub const DISK_SPACE: Check = Check {
    id: "disk-space",
    area: Area::Machine,
    title: "disk filling",
    looks_at: "free space of the data's file system",
    finds: || {
        format!(
            "warning below {DISK_PERCENT} % that are also less than {} and the store's own size, whichever is more; error below {DISK_PERCENT_ERROR} % in the same way",
            bytes(DISK_ENOUGH)
        )
    },
    why: "before the disk is full the server refuses all writes; compactions need space for the files that they write",
    look: |facts| {
        let machine = &facts.machine;
        let (free, size) = machine
            .disk
            .ok_or("the file system does not report its size")?;
        let is_below = |share: u64| u128::from(free) * 100 < u128::from(size) * u128::from(share);
        let is_enough = free >= DISK_ENOUGH.max(machine.store_bytes);
        let severity = match () {
            () if is_enough || !is_below(DISK_PERCENT) => return Ok(vec![]),
            () if is_below(DISK_PERCENT_ERROR) => Severity::Error,
            () => Severity::Warning,
        };
        let store = machine.store_bytes;
        let says = format!(
            "{} of {} are free ({} %); the store has {}",
            bytes(free),
            bytes(size),
            percent(free, size),
            bytes(store)
        );
        Ok(vec![
            Finding::new(severity, "the data's file system", says)
                .evidence(json!({"free": free, "size": size, "store": store}))
                .act(format!(
                    "{}   # reclaims the space of superseded revisions, for each large DB",
                    curl("POST", &["DB", "_compact"], None).replace("DB", "$DB")
                ))
                .act(format!(
                    "{}   # removes indexes that no design document uses",
                    curl("POST", &["DB", "_view_cleanup"], None).replace("DB", "$DB")
                ))
                .act("# or enlarge the file system"),
        ])
    },
};

const SYNCS_MIN: u64 = 100;
const SYNC_MS_NOTE: u64 = 10;
const SYNC_MS: u64 = 50;

pub const SLOW_SYNCS: Check = Check {
    id: "slow-syncs",
    area: Area::Machine,
    title: "slow fdatasync",
    looks_at: "how long writes waited for the disk since the start",
    finds: || {
        format!(
            "of {SYNCS_MIN} and more: warning when half took {SYNC_MS} ms, note at {SYNC_MS_NOTE} ms"
        )
    },
    why: "a write is acknowledged when it is on disk, so a sync is its least latency. A solid-state disk takes 1 ms or less",
    look: |facts| {
        let machine = &facts.machine;
        if machine.syncs < SYNCS_MIN {
            return Err(format!(
                "waited for the disk so far: {}",
                counted(machine.syncs, "writes")
            ));
        }
        let (p50, p99) = (machine.sync_p50_us, machine.sync_p99_us);
        let severity = match p50 / 1000 {
            SYNC_MS.. => Severity::Warning,
            SYNC_MS_NOTE.. => Severity::Note,
            _ => return Ok(vec![]),
        };
        let ms = |us: u64| us as f64 / 1000.0;
        let says = format!(
            "half of {} syncs took {:.1} ms or more, one of a hundred {:.0} ms",
            machine.syncs,
            ms(p50),
            ms(p99)
        );
        Ok(vec![
            Finding::new(severity, "the data's disk", says)
                .evidence(json!({"syncs": machine.syncs, "p50_ms": ms(p50), "p99_ms": ms(p99)}))
                .act("# put the data on a local solid-state disk; `iostat -x 1` shows the load of this one")
                .act("# concurrent clients, and _bulk_docs, share one sync among many documents"),
        ])
    },
};

const READS_MIN: u64 = 500;
const FOUND_PERCENT: u64 = 50;
const FOUND_PERCENT_NOTE: u64 = 80;
const FULL_PERCENT: u64 = 90;

pub const BLOCK_CACHE: Check = Check {
    id: "block-cache",
    area: Area::Machine,
    title: "low cache hits",
    looks_at: "one in 256 reads of single documents, of those that read files: whether the block cache had all their blocks",
    finds: || {
        format!(
            "of {READS_MIN} and more such reads, once the cache is {FULL_PERCENT} % full: warning when less than {FOUND_PERCENT} % found all, note below {FOUND_PERCENT_NOTE} %"
        )
    },
    why: "each block that is not in the cache is read from a file and decompressed",
    look: |facts| {
        let machine = &facts.machine;
        let reads = machine.reads_cached + machine.reads_uncached;
        if reads < READS_MIN {
            return Err(format!(
                "too few reads from files so far: fewer than {READS_MIN} of the sampled reads. Recent writes are read from memory"
            ));
        }
        let (cache, max) = (machine.cache_bytes, machine.cache_bytes_max);
        if percent(cache, max) < FULL_PERCENT {
            return Ok(vec![]);
        }
        let found = percent(machine.reads_cached, reads);
        let severity = match () {
            () if found < FOUND_PERCENT => Severity::Warning,
            () if found < FOUND_PERCENT_NOTE => Severity::Note,
            () => return Ok(vec![]),
        };
        let says = format!(
            "{found} % of reads found all their blocks in the cache, whose {} are full",
            bytes(max)
        );
        Ok(vec![
            Finding::new(severity, "the block cache", says)
                .evidence(json!({"cached": machine.reads_cached, "uncached": machine.reads_uncached, "cache": cache, "cache_max": max}))
                .act(format!("# in local.ini, then restart: [rocksdb] block_cache_size = {}", max * 4))
                .act("# and [memory] limit, or the machine's memory, if that is more than it has"),
        ])
    },
};

const MEMORY_PERCENT: u64 = 90;

pub const MEMORY: Check = Check {
    id: "memory",
    area: Area::Machine,
    title: "memory use",
    looks_at: "memory of the process, and its limit",
    finds: || format!("warning from {MEMORY_PERCENT} % of the limit"),
    why: "the kernel kills a process that exceeds its limit",
    look: |facts| {
        let machine = &facts.machine;
        let (resident, limit) = (machine.resident_bytes, machine.memory_limit_bytes);
        let used = percent(resident, limit);
        if used < MEMORY_PERCENT {
            return Ok(vec![]);
        }
        let says = format!(
            "the process uses {} of {} ({used} %)",
            bytes(resident),
            bytes(limit)
        );
        Ok(vec![
            Finding::new(Severity::Warning, "the process", says)
                .evidence(json!({"resident": resident, "limit": limit}))
                .act(format!(
                    "{}   # memory.budgets lists the users of memory",
                    curl("GET", &["_node", "_local", "_system"], None)
                ))
                .act(
                    "# give the server more memory, or reduce its caches: [memory] and [rocksdb] in local.ini",
                ),
        ])
    },
};

const WAITING_COMMITS: u64 = 1_000;

pub const QUEUES: Check = Check {
    id: "queues",
    area: Area::Machine,
    title: "work that waits",
    looks_at: "connections that wait to be accepted and writes that wait to be committed: the smaller of two samples",
    finds: || {
        format!(
            "warning when half the backlog waits to be accepted, or {WAITING_COMMITS} requests to be committed"
        )
    },
    why: "requests arrive faster than they are served: all clients wait, longer and longer",
    look: |facts| {
        let machine = &facts.machine;
        let mut found = vec![];
        let connections = machine.waiting_connections;
        if machine.backlog > 0 && connections >= machine.backlog.div_ceil(2) {
            let says = format!(
                "{connections} connections wait to be accepted, at most {} can",
                machine.backlog
            );
            found.push(
                Finding::new(Severity::Warning, "the HTTP port", says)
                    .evidence(json!({"waiting": connections, "backlog": machine.backlog}))
                    .act("settee top $S   # the busy threads, and their work"),
            );
        }
        let commits = machine.waiting_commits;
        if commits >= WAITING_COMMITS {
            let says = format!("{commits} requests wait to be committed");
            found.push(
                Finding::new(Severity::Warning, "the commit queue", says)
                    .evidence(json!({"waiting": commits}))
                    .act("settee top $S   # which databases are written, and how long syncs take")
                    .act("# let clients write with _bulk_docs"),
            );
        }
        Ok(found)
    },
};

pub const PERMISSIONS: Check = Check {
    id: "permissions",
    area: Area::Machine,
    title: "files open to other users",
    looks_at: "permissions of the store's directory, of configuration files with secrets, and of the certificate's key",
    finds: || "warning when other users of the machine have access".to_owned(),
    why: "they hold documents, password hashes and the secret that sessions are signed with",
    look: |facts| {
        let open = facts.machine.open_to_others.iter().map(|(path, mode)| {
            let path = path.display().to_string();
            Finding::new(
                Severity::Warning,
                path.clone(),
                "other users of this machine have access",
            )
            .evidence(json!({"mode_wanted": mode}))
            .act(format!("chmod {mode} {}", quoted(&path)))
        });
        Ok(open.collect())
    },
};

pub const CONFINEMENT: Check = Check {
    id: "confinement",
    area: Area::Machine,
    title: "workers that are not confined",
    looks_at: "whether the kernel and the container support the sandbox of JavaScript workers: Landlock and seccomp",
    finds: || "warning without seccomp; note without Landlock".to_owned(),
    why: "a function that exploits a defect of the engine would have the rights of the server's user: files, networks, processes",
    look: |facts| {
        let confinement = facts.machine.confinement;
        let confinement = confinement.ok_or("functions run in the server's own process")?;
        let Some(missing) = confinement.missing() else {
            return Ok(vec![]);
        };
        let severity = match confinement.calls {
            true => Severity::Note,
            false => Severity::Warning,
        };
        let found = Finding::new(
            severity,
            "workers of JavaScript functions",
            format!("they run without {missing}"),
        );
        Ok(vec![
            found
                .evidence(json!({"landlock": confinement.files, "seccomp": confinement.calls}))
                .act("# use Linux 5.13 or newer, with `landlock` among its security modules (lsm=), and with seccomp")
                .act("# allow the container the system calls landlock_create_ruleset, landlock_restrict_self and seccomp"),
        ])
    },
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::planted::severities;
    use crate::facts::Machine;
    use confine::Confinement;

    #[test]
    fn a_limit_of_open_files_that_comes_near_is_found() {
        let of = |open_files, max| {
            severities(
                &OPEN_FILES,
                Machine {
                    open_files,
                    open_files_max: Some(max),
                    ..Machine::default()
                },
            )
        };
        assert_eq!(of(400, 524_288), []);
        assert_eq!(of(100, 1024), [Severity::Note]);
        assert_eq!(of(820, 1024), [Severity::Warning]);
        assert_eq!(of(1020, 1024), [Severity::Error]);
    }

    #[test]
    fn dropped_connections_are_found_and_a_short_backlog_is_noted() {
        let of = |dropped, max| {
            let machine = Machine {
                connections_dropped: dropped,
                backlog: 512,
                backlog_max: Some(max),
                ..Machine::default()
            };
            ACCEPT_BACKLOG
                .run(&machine.into())
                .map(|found| found.iter().map(|f| f.severity).collect::<Vec<_>>())
        };
        assert_eq!(of(Some(0), 4096), Ok(vec![]));
        assert_eq!(of(Some(3), 4096), Ok(vec![Severity::Warning]));
        assert_eq!(of(Some(0), 128), Ok(vec![Severity::Note]));
        assert!(of(None, 4096).is_err());
    }

    #[test]
    fn a_large_disk_may_be_fuller_than_a_small_one() {
        let of = |free, size, store_bytes| {
            severities(
                &DISK_SPACE,
                Machine {
                    disk: Some((free, size)),
                    store_bytes,
                    ..Machine::default()
                },
            )
        };
        assert_eq!(of(5 * GIB, 100 * GIB, GIB), [Severity::Warning]);
        assert_eq!(of(GIB, 100 * GIB, GIB), [Severity::Error]);
        assert_eq!(of(500 * GIB, 10_000 * GIB, 100 * GIB), []);
        assert_eq!(
            of(500 * GIB, 10_000 * GIB, 9_000 * GIB),
            [Severity::Warning]
        );
        assert_eq!(of(15 * GIB, 100 * GIB, GIB), []);
    }

    #[test]
    fn slow_syncs_are_found_once_there_were_some() {
        let of = |syncs, p50| Machine {
            syncs,
            sync_p50_us: p50,
            sync_p99_us: p50 * 2,
            ..Machine::default()
        };
        assert!(SLOW_SYNCS.run(&of(99, 90_000).into()).is_err());
        assert_eq!(severities(&SLOW_SYNCS, of(100, 900)), []);
        assert_eq!(severities(&SLOW_SYNCS, of(100, 12_000)), [Severity::Note]);
        assert_eq!(
            severities(&SLOW_SYNCS, of(100, 60_000)),
            [Severity::Warning]
        );
    }

    #[test]
    fn a_cold_cache_is_no_small_one() {
        let of = |found, read, cache_bytes| Machine {
            reads_cached: found,
            reads_uncached: read,
            cache_bytes,
            cache_bytes_max: 1000,
            ..Machine::default()
        };
        for few in [of(0, 0, 1000), of(10, 100, 1000)] {
            let why = BLOCK_CACHE.run(&few.into()).unwrap_err();
            assert!(why.starts_with("too few reads from files so far"));
        }
        assert_eq!(severities(&BLOCK_CACHE, of(1000, 9000, 400)), []);
        assert_eq!(
            severities(&BLOCK_CACHE, of(1000, 9000, 990)),
            [Severity::Warning]
        );
        assert_eq!(
            severities(&BLOCK_CACHE, of(6000, 4000, 990)),
            [Severity::Note]
        );
        assert_eq!(severities(&BLOCK_CACHE, of(9000, 1000, 990)), []);
    }

    #[test]
    fn memory_queues_and_modes_are_found() {
        let memory = |resident| Machine {
            resident_bytes: resident,
            memory_limit_bytes: 1000,
            ..Machine::default()
        };
        assert_eq!(severities(&MEMORY, memory(700)), []);
        assert_eq!(severities(&MEMORY, memory(950)), [Severity::Warning]);
        let queues = |connections, commits| Machine {
            backlog: 512,
            waiting_connections: connections,
            waiting_commits: commits,
            ..Machine::default()
        };
        assert_eq!(severities(&QUEUES, queues(3, 64)), []);
        assert_eq!(
            severities(&QUEUES, queues(300, 2000)),
            [Severity::Warning; 2]
        );
        let open = Machine {
            open_to_others: vec![("/data".into(), "700")],
            ..Machine::default()
        };
        let found = PERMISSIONS.run(&open.into()).unwrap();
        assert_eq!(found[0].act, ["chmod 700 '/data'"]);
    }

    #[test]
    fn workers_that_the_kernel_does_not_confine_are_found() {
        let of = |files, calls| {
            let confinement = Some(Confinement { files, calls });
            severities(
                &CONFINEMENT,
                Machine {
                    confinement,
                    ..Machine::default()
                },
            )
        };
        assert_eq!(of(true, true), []);
        assert_eq!(of(false, true), [Severity::Note]);
        assert_eq!(of(true, false), [Severity::Warning]);
        assert_eq!(of(false, false), [Severity::Warning]);
        assert!(CONFINEMENT.run(&Machine::default().into()).is_err());
    }
}
