//! The use of file descriptors by a server: one table that adds up.

use rustix::process::{Resource, getrlimit};

/// The assumed limit of a process without one.
const LIMIT_MAX: u64 = 1 << 20;
/// Files of rows that the store keeps open.
const STORE_FILES_MIN: u64 = 64;
const STORE_FILES_MAX: u64 = 1024;
/// Descriptors of the store's logs, its list of files, and of compactions and flushes.
const STORE_WORK: u64 = 64;
/// Updates of text indexes, workers and query servers (three pipes each), the log; a backup to a bucket, of which one runs at a time
/// with at most 20 requests, and the collector of traces, which is sent one request at a time.
const WORK_MIN: u64 = 64;
const WORK_MAX: u64 = 8192;
/// Connections that this server makes: of replications to other servers, and of a cluster's node to its own port.
const OUTGOING_MIN: u64 = 64;
const OUTGOING_MAX: u64 = 16_384;
/// Connections of other nodes: handshakes and joining nodes, as many as the nodes' port takes at a time, and those of the members and of the log.
const CLUSTER: u64 = 256 + 32 + 64;
/// The port for Prometheus.
const METRICS: u64 = 16;
/// Least number of client connections, also with a lower limit.
const CONNECTIONS_MIN: u64 = 16;
/// Of those, this part is for requests that other nodes of a cluster forward, each of which uses a
/// connection to the own port.
const FORWARDED_CLIENTS_PART: u64 = 4;
/// Each process has a pipe for its input, its output and its errors.
const DESCRIPTORS_PER_QUERY_SERVER: usize = 3;
/// A replication has two ends, each with a feed and a request at least.
const CONNECTIONS_PER_JOB: u64 = 4;

/// The number of descriptors for each part of a server. Together they are within the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorPlan {
    /// The limit of the process.
    pub limit: u64,
    /// Files of rows that the store keeps open.
    pub store_files: i32,
    /// Connections of replications to other servers.
    pub outgoing: usize,
    /// Requests of other nodes' clients that are answered at a time.
    pub forwarded_clients: usize,
    /// Text indexes, workers, query servers, backups.
    pub work: usize,
    /// Connections of clients, over all ports for them.
    pub connections: usize,
}

impl DescriptorPlan {
    /// A plan for the process's current limit. `is_member`: the server is a node of a cluster.
    pub fn new(is_member: bool) -> DescriptorPlan {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(LIMIT_MAX);
        DescriptorPlan::of(limit, is_member)
    }

    /// By a limit.
    pub(crate) fn of(limit: u64, is_member: bool) -> DescriptorPlan {
        let limit = limit.min(LIMIT_MAX);
        let store_files = (limit / 4).clamp(STORE_FILES_MIN, STORE_FILES_MAX);
        let work = (limit / 8).clamp(WORK_MIN, WORK_MAX);
        let outgoing = (limit / 8).clamp(OUTGOING_MIN, OUTGOING_MAX);
        let cluster = if is_member { CLUSTER } else { 0 };
        let others = store_files + STORE_WORK + work + outgoing + cluster + METRICS;
        let connections = limit.saturating_sub(others).max(CONNECTIONS_MIN);
        let forwarded_clients = if is_member {
            outgoing / FORWARDED_CLIENTS_PART
        } else {
            0
        };
        DescriptorPlan {
            limit,
            store_files: store_files as i32,
            outgoing: (outgoing - forwarded_clients) as usize,
            forwarded_clients: forwarded_clients as usize,
            work: work as usize,
            connections: connections as usize,
        }
    }

    /// Whether the least numbers exceed the limit.
    pub fn is_too_much(&self) -> bool {
        self.connections as u64 <= CONNECTIONS_MIN
    }

    /// Replications that may run at a time.
    pub fn jobs(&self) -> usize {
        self.outgoing / CONNECTIONS_PER_JOB as usize
    }

    /// Most processes of query servers that may run at a time, for each of `languages` languages:
    /// half of the descriptors for such work.
    pub fn query_servers(&self, languages: usize) -> usize {
        (self.work / 2 / DESCRIPTORS_PER_QUERY_SERVER / languages.max(1)).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_are_within_the_limit() {
        for is_member in [false, true] {
            let first = if is_member { 1024 } else { 512 };
            for limit in (first..5000).chain([65_536, 524_288, u64::MAX]) {
                let plan = DescriptorPlan::of(limit, is_member);
                let parts = plan.store_files as usize
                    + plan.outgoing
                    + plan.forwarded_clients
                    + plan.work
                    + plan.connections;
                assert!(parts as u64 + STORE_WORK < plan.limit, "{plan:?}");
                assert!(!plan.is_too_much(), "{plan:?}");
            }
        }
        let usual = DescriptorPlan::of(1024, false);
        assert_eq!((usual.store_files, usual.connections), (256, 432));
        assert_eq!((usual.query_servers(1), usual.query_servers(3)), (21, 7));
        assert_eq!(usual.query_servers(100), 1);
        assert_eq!(usual.forwarded_clients, 0);
        let member = DescriptorPlan::of(65_536, true);
        assert!(member.connections > 40_000);
        assert_eq!((member.outgoing, member.forwarded_clients), (6144, 2048));
        assert!(DescriptorPlan::of(200, false).is_too_much());
    }
}
