//! Opens the cluster's log at the start of a node.
//!
//! The folder `cluster` has its keeper ([`LogKeeper`]), and the setting the place where it is to be.
//! They differ until `settee cluster reseed` moves the log.
//!
//! **Invariant: the groups of a log are created once, by one node,** which has them on disk before it
//! notes that, and before it listens: no other node knows that log earlier. A node whose log was lost
//! finds the note, and creates nothing.
//!
//! **Invariant: the id in the groups is that of the disk.** It is stored in the log itself, and nowhere
//! else on this node. A new disk has a new one.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cluster::Log;
use database::Databases;
use kafka_log::KafkaLog;
use raft_log::{EngineDisk, LogDisk as _, LogNode, RaftLog};

use crate::Error;
use crate::control::entry::{LogSeat, LogTable};
use crate::control::stored_state;
use crate::log_transport::LogTransport;
use crate::membership::{LogKeeper, Membership, OwnLog, folder, random};
use crate::newest_log::{NewestLog, log_of_control, newest_log};

/// The bytes that a log may occupy on a node before it is trimmed.
const LOG_BYTES_MAX: u64 = 2 << 30;
/// The folder of logs, in the folder `cluster`.
const LOGS: &str = "log";

/// Where the log of a cluster is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogPlace {
    /// In the nodes.
    Nodes,
    /// In Kafka, with these brokers, as `host:port,…`.
    Kafka(String),
}

/// The parameters with which a node opens its log, or another one.
pub(crate) struct LogHome {
    pub data: PathBuf,
    /// Where the log is to be.
    pub place: LogPlace,
    /// Options of Kafka's client, with the brokers of `place` if it is Kafka.
    pub kafka: kafka_log::Options,
    /// See [`crate::MemberOptions::restart`].
    pub restart: Arc<dyn Fn() + Send + Sync>,
}

impl LogHome {
    /// Creates it for a node.
    pub fn new(
        home: &Membership,
        data: &Path,
        place: &LogPlace,
        properties: &BTreeMap<String, String>,
        restart: &Arc<dyn Fn() + Send + Sync>,
    ) -> LogHome {
        LogHome {
            data: data.to_owned(),
            place: place.clone(),
            kafka: kafka_log::Options {
                brokers: match place {
                    LogPlace::Kafka(brokers) => brokers.clone(),
                    LogPlace::Nodes => String::new(),
                },
                cluster: home.cluster.name.clone(),
                slots: home.cluster.slots,
                log: home.cluster.log,
                properties: properties.clone(),
            },
            restart: restart.clone(),
        }
    }
}

/// A log that is open.
pub(crate) struct OpenLog {
    pub log: Arc<dyn Log>,
    /// Its keeper, as the node is to note it.
    pub keeper: LogKeeper,
    pub kind: LogKind,
}

/// The parts that only one kind of log has.
pub(crate) enum LogKind {
    Kafka(kafka_log::Options),
    Nodes {
        log: Arc<RaftLog>,
        transport: Arc<LogTransport>,
        /// The nodes that keep it, as this one knew them last.
        table: LogTable,
    },
}

impl OpenLog {
    /// Opens the log of a node. The first node creates the first one.
    ///
    /// # Errors
    /// The reason of the failure, in words for an administrator.
    pub async fn open(
        home: &Membership,
        at: &LogHome,
        databases: &Databases,
    ) -> Result<OpenLog, Error> {
        let first = home.cluster.log;
        match (home.keeper(), &at.place) {
            (LogKeeper::Undecided, LogPlace::Nodes) => {
                let own = OwnLog {
                    number: first,
                    creates: true,
                    nodes: vec![],
                };
                open_own(home, &at.data, in_control(databases)?, own)
            }
            (LogKeeper::Undecided, LogPlace::Kafka(brokers)) => {
                open_kafka(home, at, databases, (first, brokers.clone())).await
            }
            (LogKeeper::Nodes(own), place) => {
                if matches!(place, LogPlace::Kafka(_)) {
                    tracing::warn!(
                        "[cluster] log names Kafka, and the nodes keep the log of this cluster: `settee cluster reseed` moves it once all nodes have this setting"
                    );
                }
                open_own(home, &at.data, in_control(databases)?, own)
            }
            (LogKeeper::Kafka { number, .. }, LogPlace::Kafka(brokers)) => {
                open_kafka(home, at, databases, (number, brokers.clone())).await
            }
            (LogKeeper::Kafka { number, brokers }, LogPlace::Nodes) => {
                let unknown = || {
                    Error::NoLog("the log of this cluster is in Kafka, and this node does not know its brokers: set [cluster] log = kafka://HOST:PORT,HOST:PORT".into())
                };
                let brokers = brokers.ok_or_else(unknown)?;
                tracing::warn!(
                    brokers,
                    "[cluster] log names the nodes, and Kafka keeps the log of this cluster: `settee cluster reseed` moves it once all nodes have this setting"
                );
                open_kafka(home, at, databases, (number, brokers)).await
            }
        }
    }

    /// Returns its number.
    pub fn number(&self) -> u64 {
        match &self.kind {
            LogKind::Kafka(kafka) => kafka.log,
            LogKind::Nodes { table, .. } => table.log,
        }
    }
}

async fn open_kafka(
    home: &Membership,
    at: &LogHome,
    databases: &Databases,
    (number, brokers): (u64, String),
) -> Result<OpenLog, Error> {
    let first = kafka_log::Options {
        brokers: brokers.clone(),
        log: number,
        ..at.kafka.clone()
    };
    let NewestLog { kafka, exists } = newest_log(home, databases, first).await?;
    if exists && kafka.log < number {
        return Err(Error::NoLog(format!(
            "the brokers {brokers} have older topics of the cluster {} than its log, whose number is {number}: they are others than those of the other nodes",
            kafka.cluster
        )));
    }
    let log = Arc::new(KafkaLog::open_unchecked(kafka.clone()).await?);
    if exists && log_of_control(databases)? == Some(kafka.log) {
        remove_others(&folder(&at.data).join(LOGS), kafka.log);
    }
    Ok(OpenLog {
        log,
        keeper: match exists {
            true => LogKeeper::Kafka {
                number: kafka.log,
                brokers: Some(brokers),
            },
            // They may be wrong ones.
            false => home.keeper(),
        },
        kind: LogKind::Kafka(kafka),
    })
}

/// Returns the table of log nodes in the control slot, as this node has it.
fn in_control(databases: &Databases) -> Result<LogTable, Error> {
    Ok(stored_state(databases)?.log_table)
}

/// Opens a log that the nodes keep.
pub(crate) fn open_own(
    home: &Membership,
    data: &Path,
    in_control: LogTable,
    own: OwnLog,
) -> Result<OpenLog, Error> {
    let logs = folder(data).join(LOGS);
    let directory = logs.join(own.number.to_string());
    create(&directory)?;
    let disk = Arc::new(EngineDisk::open(&directory, LOG_BYTES_MAX)?);
    let me = LogNode {
        raft: disk.raft_id()?,
        node: home.node,
    };
    let is_known = in_control.log == own.number && !in_control.nodes.is_empty();
    let table = match is_known {
        true => in_control,
        false => first_table(&own, me),
    };
    let options = raft_log::Options {
        me,
        log: own.number,
        origin: u64::from_be_bytes(random()?),
        slots: home.cluster.slots,
        disk_bytes_max: LOG_BYTES_MAX,
    };
    let transport = Arc::<LogTransport>::default();
    let nodes = log_nodes(&table.nodes);
    let log = RaftLog::start(options, disk, transport.clone(), nodes, own.creates)?;
    let log = Arc::new(log);
    sync(&folder(data))?;
    if is_known {
        remove_others(&logs, own.number);
    }
    let noted = OwnLog {
        number: own.number,
        creates: false,
        nodes: table.nodes.clone(),
    };
    Ok(OpenLog {
        log: log.clone(),
        keeper: LogKeeper::Nodes(noted),
        kind: LogKind::Nodes {
            log,
            transport,
            table,
        },
    })
}

/// Returns the table of a log whose table the control slot does not have yet, or not here.
fn first_table(own: &OwnLog, me: LogNode) -> LogTable {
    let mine = LogSeat {
        node: me.node,
        disk: me.raft,
    };
    LogTable {
        log: own.number,
        nodes: match own.creates {
            true => vec![mine],
            false => own.nodes.clone(),
        },
        ..LogTable::default()
    }
}

/// Returns seats as the log names them.
pub(crate) fn log_nodes(seats: &[LogSeat]) -> Vec<LogNode> {
    let seats = seats.iter().map(|seat| LogNode {
        raft: seat.disk,
        node: seat.node,
    });
    seats.collect()
}

fn create(directory: &Path) -> Result<(), Error> {
    let mut builder = DirBuilder::new();
    let created = builder.recursive(true).mode(0o700).create(directory);
    created.map_err(|e| failure(directory, &e))
}

/// Makes the names in a directory durable; the log does that in its own, and in the one above.
fn sync(directory: &Path) -> Result<(), Error> {
    let synced = File::open(directory).and_then(|opened| opened.sync_all());
    synced.map_err(|e| failure(directory, &e))
}

fn failure(path: &Path, e: &std::io::Error) -> Error {
    Error::Membership(format!("{}: {e}", path.display()))
}

/// Removes earlier logs, also those that were set aside: the control slot continues in this one.
fn remove_others(logs: &Path, number: u64) {
    let entries = std::fs::read_dir(logs).into_iter().flatten().flatten();
    let is_other = |name: &std::ffi::OsStr| {
        let name = name.to_str().unwrap_or_default();
        let name = name.strip_suffix(raft_log::DAMAGED).unwrap_or(name);
        name.parse::<u64>().is_ok_and(|other| other < number)
    };
    for entry in entries.filter(|entry| is_other(&entry.file_name())) {
        if let Err(e) = std::fs::remove_dir_all(entry.path()) {
            tracing::warn!(error = %e, path = %entry.path().display(), "an earlier log was not removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_creates_a_log_is_in_its_first_table() {
        let me = LogNode { raft: 70, node: 7 };
        let mut own = OwnLog {
            number: 3,
            creates: true,
            nodes: vec![],
        };
        let mine = LogSeat { node: 7, disk: 70 };
        assert_eq!(first_table(&own, me).nodes, [mine]);
        let other = LogSeat { node: 8, disk: 80 };
        own.creates = false;
        own.nodes = vec![other];
        let table = first_table(&own, me);
        assert_eq!((table.log, table.changes), (3, 0));
        assert_eq!(table.nodes, [other]);
    }

    #[test]
    fn earlier_logs_are_removed_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let names = ["1", "2", "3", "other", "1.damaged", "2.damaged"];
        for name in names {
            create(&dir.path().join(name)).unwrap();
        }
        remove_others(dir.path(), 2);
        let left = |name: &str| dir.path().join(name).exists();
        assert_eq!(names.map(left), [false, true, true, true, false, true]);
    }
}
