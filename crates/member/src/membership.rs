//! The cluster membership of a node, stored in the folder `cluster` of its data directory.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use cluster::NodeId;
use cluster::record::{RecordVersions, Stamp};
use data_encoding::HEXLOWER;
use peers::{Authority, Identity};
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::control::entry::{LogSeat, MemberInfo};

const FILE: &str = "member.json";
/// A file in the store's directory that names the node it belongs to.
const MARK: &str = "cluster-node";
/// A file that requests a new generation after the next start.
const RESEED: &str = "reseed";

/// The constants of a cluster, the same on all nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    /// Its name, which is part of the topics' names.
    pub name: String,
    /// Its id, 32 hexadecimal digits.
    pub id: String,
    /// The secret of its records, 64 hexadecimal digits.
    pub record_key: String,
    /// The number of data slots.
    pub slots: u16,
    /// The number of its first log.
    pub log: u64,
    /// Its first node.
    pub first: NodeId,
}

/// The identity of a node and of its cluster, known before it reaches any other node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// Its cluster.
    pub cluster: Cluster,
    /// Its number.
    pub node: NodeId,
    /// Its name and address.
    pub member: MemberInfo,
    /// The addresses of other members when it joined.
    pub others: Vec<(NodeId, String)>,
    /// The mark of the store that it votes with.
    pub store: String,
    /// It has been started: its store has the mark.
    #[serde(default)]
    pub is_started: bool,
    /// It was a single server, and has not opened its log yet: its store has databases.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub brings_data: bool,
    /// The keeper of the cluster's log; absent in files of earlier programs. See [`Membership::keeper`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<LogKeeper>,
}

/// The keeper of a cluster's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kept_by", rename_all = "snake_case")]
pub enum LogKeeper {
    /// The cluster has no log yet: its first node has not been started.
    Undecided,
    /// Kafka.
    Kafka {
        /// The number of the log, or of an earlier one.
        number: u64,
        /// The brokers of the last start.
        #[serde(default)]
        brokers: Option<String>,
    },
    /// The nodes.
    Nodes(OwnLog),
}

/// A log that the nodes keep.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnLog {
    /// Its number.
    pub number: u64,
    /// This node creates its groups at the next start: they do not exist yet, on any node.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub creates: bool,
    /// The nodes that kept it when this one learned of it. Later the control slot has the table.
    pub nodes: Vec<LogSeat>,
}

impl Cluster {
    /// Creates a cluster.
    ///
    /// # Errors
    /// [`Error::Random`].
    pub fn create(name: &str, slots: u16, first: NodeId) -> Result<Cluster, Error> {
        Ok(Cluster {
            name: name.to_owned(),
            id: HEXLOWER.encode(&random::<16>()?),
            record_key: HEXLOWER.encode(&random::<32>()?),
            slots,
            log: 0,
            first,
        })
    }

    /// Returns the bytes of its id.
    ///
    /// # Errors
    /// [`Error::Membership`] when they are invalid.
    pub fn id_bytes(&self) -> Result<[u8; 16], Error> {
        bytes(&self.id)
    }

    /// Returns the stamp of records in a slot, for a program of these versions.
    ///
    /// # Errors
    /// [`Error::Membership`] when the id or the secret is invalid.
    pub fn stamp(&self, slot: u16, versions: &RecordVersions) -> Result<Stamp, Error> {
        Ok(Stamp {
            cluster: self.id_bytes()?,
            key: bytes(&self.record_key)?,
            slot,
            versions: versions.clone(),
        })
    }
}

fn bytes<const N: usize>(hex: &str) -> Result<[u8; N], Error> {
    let bytes = HEXLOWER.decode(hex.as_bytes()).ok();
    let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or_else(|| Error::Membership(format!("{hex} does not have {} digits", 2 * N)))
}

/// Returns random bytes.
///
/// # Errors
/// [`Error::Random`].
pub fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|e| Error::Random(e.to_string()))?;
    Ok(bytes)
}

/// Returns the cluster's folder in a data directory.
pub fn folder(data: &Path) -> PathBuf {
    data.join("cluster")
}

/// Requests a new generation at the next start.
///
/// # Errors
/// The file cannot be written.
pub fn ask_for_reseed(data: &Path) -> Result<(), Error> {
    let path = folder(data).join(RESEED);
    fs::write(&path, "").map_err(|e| Error::Membership(format!("{}: {e}", path.display())))
}

/// Returns whether a new generation was requested for this start; true once.
pub fn take_reseed(data: &Path) -> bool {
    fs::remove_file(folder(data).join(RESEED)).is_ok()
}

/// Returns whether a data directory belongs to a member of a cluster.
pub fn is_member(data: &Path) -> bool {
    folder(data).join(FILE).exists()
}

impl Membership {
    /// Stores it and the node's identity in a data directory that belongs to no cluster yet.
    ///
    /// # Errors
    /// [`Error::AlreadyMember`], and those of writing.
    pub fn keep(&self, data: &Path, authority: Authority) -> Result<(), Error> {
        if is_member(data) {
            return Err(Error::AlreadyMember(folder(data)));
        }
        let folder = folder(data);
        let failed = |e: std::io::Error| Error::Membership(format!("{}: {e}", folder.display()));
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)
            .map_err(failed)?;
        Identity::create(&folder, authority, self.node, SystemTime::now())?;
        self.write(&folder)
    }

    /// Changes the address that other nodes use, if there is another one.
    pub fn set_address(&mut self, address: Option<&str>) {
        if let Some(address) = address {
            address.clone_into(&mut self.member.address);
        }
    }

    fn write(&self, folder: &Path) -> Result<(), Error> {
        let failed = |e: std::io::Error| Error::Membership(format!("{}: {e}", folder.display()));
        let text = serde_json::to_vec_pretty(self).map_err(|e| Error::Membership(e.to_string()))?;
        let unfinished = folder.join("member.new");
        let mut file = fs::OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(true)
            .mode(0o600)
            .open(&unfinished)
            .map_err(failed)?;
        file.write_all(&text).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        fs::rename(&unfinished, folder.join(FILE)).map_err(failed)?;
        let synced = fs::File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(failed)
    }

    /// Refuses a store other than the one that this node has voted with: its promises and
    /// acknowledgements would be forgotten. Marks the store at the first start.
    ///
    /// # Errors
    /// [`Error::OtherStore`], and those of reading.
    pub fn claim(&mut self, data: &Path, store: &Path) -> Result<(), Error> {
        let path = store.join(MARK);
        let failed = |e: std::io::Error| Error::Membership(format!("{}: {e}", path.display()));
        match mark_of(store)? {
            Some(mark) if mark == self.store => {}
            None if !self.is_started => {
                let mut file = fs::File::create(&path).map_err(failed)?;
                writeln!(file, "{}", self.store).map_err(failed)?;
                file.sync_all().map_err(failed)?;
                let synced = fs::File::open(store).and_then(|store| store.sync_all());
                synced.map_err(failed)?;
            }
            _ => return Err(Error::OtherStore(store.to_owned())),
        }
        if !self.is_started {
            // It follows from `is_started` in files of earlier programs.
            self.log = Some(self.keeper());
            self.is_started = true;
            self.write(&folder(data))?;
        }
        Ok(())
    }

    /// Returns the keeper of the cluster's log. Earlier programs supported Kafka only, and did not note it.
    pub fn keeper(&self) -> LogKeeper {
        let is_old = self.is_started || self.node != self.cluster.first;
        match &self.log {
            Some(keeper) => keeper.clone(),
            None if is_old => LogKeeper::Kafka {
                number: self.cluster.log,
                brokers: None,
            },
            None => LogKeeper::Undecided,
        }
    }

    /// Records that it has opened this log: the log's records follow the data that it brought.
    ///
    /// # Errors
    /// Errors of writing.
    pub fn note_log(&mut self, data: &Path, log: LogKeeper) -> Result<(), Error> {
        let log = Some(log);
        if self.brings_data || self.log != log {
            self.brings_data = false;
            self.log = log;
            self.write(&folder(data))?;
        }
        Ok(())
    }

    /// Reads the membership of a data directory.
    ///
    /// # Errors
    /// Errors of reading.
    pub fn read(data: &Path) -> Result<(Membership, Arc<Identity>), Error> {
        let folder = folder(data);
        let home = Membership::read_in(&folder)?;
        Ok((home, Identity::open(&folder)?))
    }

    /// Reads the membership in a folder, without the identity.
    ///
    /// # Errors
    /// Errors of reading.
    pub fn read_in(folder: &Path) -> Result<Membership, Error> {
        let path = folder.join(FILE);
        let failed = |e: String| Error::Membership(format!("{}: {e}", path.display()));
        let text = fs::read(&path).map_err(|e| failed(e.to_string()))?;
        serde_json::from_slice(&text).map_err(|e| failed(e.to_string()))
    }
}

/// Has the next start of a node open another log.
///
/// # Errors
/// Errors of reading and writing.
pub(crate) fn move_log(data: &Path, log: LogKeeper) -> Result<(), Error> {
    let folder = folder(data);
    let mut home = Membership::read_in(&folder)?;
    home.log = Some(log);
    home.write(&folder)
}

/// Returns the mark of a store; `None` for a store that no node has voted with.
///
/// # Errors
/// Errors of reading.
pub(crate) fn mark_of(store: &Path) -> Result<Option<String>, Error> {
    let path = store.join(MARK);
    match fs::read_to_string(&path) {
        Ok(mark) => Ok(Some(mark.trim().to_owned())),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::Membership(format!("{}: {e}", path.display()))),
    }
}

/// Removes the mark of a store.
///
/// # Errors
/// Errors of removing.
pub(crate) fn remove_mark(store: &Path) -> Result<(), Error> {
    let path = store.join(MARK);
    match fs::remove_file(&path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            return Err(Error::Membership(format!("{}: {e}", path.display())));
        }
        _ => {}
    }
    let synced = fs::File::open(store).and_then(|store| store.sync_all());
    synced.map_err(|e| Error::Membership(format!("{}: {e}", store.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As earlier programs wrote it.
    fn old(node: NodeId, is_started: bool) -> Membership {
        let text = format!(
            r#"{{"cluster": {{"name": "shop", "id": "00", "record_key": "00", "slots": 4, "log": 0, "first": 1}},
                "node": {node}, "name": "", "member": {{"name": "a@b", "address": "b:1"}}, "others": [],
                "store": "00", "is_started": {is_started}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn clusters_of_earlier_programs_stay_on_kafka() {
        let kafka = LogKeeper::Kafka {
            number: 0,
            brokers: None,
        };
        assert_eq!(old(1, true).keeper(), kafka);
        assert_eq!(old(2, false).keeper(), kafka);
        assert_eq!(old(1, false).keeper(), LogKeeper::Undecided);
    }

    #[test]
    fn a_first_node_that_an_earlier_program_created_decides_at_its_first_start() {
        let dir = tempfile::tempdir().unwrap();
        let (data, store) = (dir.path(), dir.path().join("store"));
        fs::create_dir_all(folder(data)).unwrap();
        fs::create_dir(&store).unwrap();
        let mut home = old(1, false);
        home.claim(data, &store).unwrap();
        assert_eq!(home.keeper(), LogKeeper::Undecided);
        let read = Membership::read_in(&folder(data)).unwrap();
        assert_eq!(read.keeper(), LogKeeper::Undecided);
    }

    #[test]
    fn who_keeps_the_log_is_read_back() {
        let mut home = old(1, true);
        let own = OwnLog {
            number: 7,
            creates: true,
            nodes: vec![LogSeat {
                node: 1,
                disk: u64::MAX,
            }],
        };
        home.log = Some(LogKeeper::Nodes(own));
        let text = serde_json::to_string(&home).unwrap();
        let read: Membership = serde_json::from_str(&text).unwrap();
        assert_eq!(read, home);
        assert_eq!(Some(read.keeper()), home.log);
    }
}
