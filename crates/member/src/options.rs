//! The options of a member.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cluster::record::RecordVersion;

use crate::control::OnSetting;
use crate::membership::Membership;
use crate::open_log::{LogHome, LogPlace};

/// The options of a member.
pub struct MemberOptions {
    /// Where the cluster's log is to be.
    pub log: LogPlace,
    /// Settings for librdkafka.
    pub properties: BTreeMap<String, String>,
    /// The address for other nodes; `None` for the one that it joined with.
    pub address: Option<String>,
    /// Called with cluster-wide settings.
    pub on_setting: OnSetting,
    /// The directory of the store.
    pub store: PathBuf,
    /// The zone of this node.
    pub zone: Option<String>,
    /// The name of the database of accounts.
    pub users: String,
    /// Restarts the server: the log was replaced.
    pub restart: Arc<dyn Fn() + Send + Sync>,
    /// Ends the server, with the reason: this program cannot be a member any more.
    pub give_up: Box<dyn Fn(String) + Send + Sync>,
    /// The latest record version that this program reads: [`RecordVersion::LATEST`], except in
    /// tests of upgrades.
    pub record_version: RecordVersion,
}

impl MemberOptions {
    pub(crate) fn log_home(&self, home: &Membership, data: &Path) -> LogHome {
        LogHome::new(home, data, &self.log, &self.properties, &self.restart)
    }
}
