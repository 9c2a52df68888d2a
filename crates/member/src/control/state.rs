//! The cluster-wide state that entries produce. Pure: equal entries produce equal states.

use std::collections::{BTreeMap, BTreeSet};

use cluster::NodeId;
use cluster::record::{Agreement, Announced, Announcement, RecordVersion};
use database::DatabaseUuid;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::entry::{CataloguedDatabase, Entry, EntryOutcome, LogTable, MemberInfo, PropertyChange};
use super::placement_entry::PlacementChange;
use super::placement_state::PlacementState;
use super::replications::{KeptReplication, KeptReplications, NotKept};
use super::rows::{Row, json, text};

const DATABASE: u8 = b'd';
const MEMBER: u8 = b'm';
const SETTING: u8 = b's';
const TOKEN: u8 = b't';
const GATEWAY: u8 = b'g';
const REPLICATION: u8 = b'c';
const RUNNERS: &[u8] = b"r";
const AGREEMENT: &[u8] = b"f";
const LOG_TABLE: &[u8] = b"l";
const VERSION: &[u8] = b"v";

/// The control slot's state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ControlState {
    /// Counts the entries that had an effect.
    pub version: u64,
    /// By name.
    pub databases: BTreeMap<String, CataloguedDatabase>,
    /// Names by uuid.
    pub names: FxHashMap<DatabaseUuid, String>,
    /// Databases that will be dropped.
    pub going: BTreeSet<DatabaseUuid>,
    /// By number.
    pub members: BTreeMap<NodeId, MemberInfo>,
    /// Which nodes have which slots.
    pub placement: PlacementState,
    /// The members that run jobs.
    pub runners: Runners,
    /// The record versions that the members read, and the one in force.
    pub agreement: Agreement,
    /// The nodes that keep the log; without nodes until the first such entry.
    pub log_table: LogTable,
    /// By section and key.
    pub settings: BTreeMap<(String, String), String>,
    /// Unused join tokens, by name.
    pub tokens: BTreeMap<String, String>,
    /// Continuous replications of `_replicate`.
    pub replications: KeptReplications,
    /// The last request of each gateway.
    gateways: FxHashMap<u64, LastRequest>,
}

/// The members that run jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Runners {
    /// Their numbers.
    pub nodes: BTreeSet<NodeId>,
    /// Counts the changes: equal numbers are equal decisions.
    pub changes: u64,
}

/// The last request of a gateway. A gateway has one entry in flight at a time, so only its last one
/// may be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct LastRequest {
    counter: u64,
    outcome: u8,
    /// The catalogue version then: with too many gateways the oldest are forgotten.
    version: u64,
}

/// Maximum number of gateways kept.
const GATEWAYS_MAX: usize = 1024;

/// An action that an entry requires of a node, besides storing it.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Nothing.
    None,
    /// Create a database.
    Create {
        /// Its name.
        name: String,
        /// Its properties.
        database: CataloguedDatabase,
    },
    /// Delete a database.
    Drop {
        /// Its name.
        name: String,
        /// Its uuid.
        uuid: DatabaseUuid,
    },
    /// Change a database.
    Change {
        /// Its name.
        name: String,
        /// Its uuid.
        uuid: DatabaseUuid,
        /// The property.
        change: PropertyChange,
    },
    /// Apply a setting.
    Setting {
        /// Its section.
        section: String,
        /// Its key.
        key: String,
        /// Its value; `None` removes it.
        value: Option<String>,
    },
    /// The members changed.
    Members,
}

/// The result of an entry.
#[derive(Clone, Debug, PartialEq)]
pub struct EntryResult {
    /// The outcome for its proposer.
    pub outcome: EntryOutcome,
    /// Rows to store.
    pub rows: Vec<Row>,
    /// The action to take.
    pub effect: Effect,
}

impl ControlState {
    /// Decodes it from its rows; `None` for an invalid row.
    pub fn from_rows<'a>(
        rows: impl IntoIterator<Item = &'a (Vec<u8>, Vec<u8>)>,
    ) -> Option<ControlState> {
        let mut state = ControlState::default();
        for (key, value) in rows {
            state.load(key, value)?;
        }
        Some(state)
    }

    fn load(&mut self, key: &[u8], value: &[u8]) -> Option<()> {
        let (&kind, rest) = key.split_first()?;
        let text = std::str::from_utf8(rest).ok();
        match kind {
            DATABASE => {
                let database: CataloguedDatabase = json(value)?;
                let name = text?.to_owned();
                if database.is_going {
                    self.going.insert(database.uuid);
                }
                self.names.insert(database.uuid, name.clone());
                self.databases.insert(name, database);
            }
            MEMBER => {
                let node = NodeId::from_be_bytes(rest.try_into().ok()?);
                self.members.insert(node, json(value)?);
            }
            SETTING => {
                let (section, key) = text?.split_once('/')?;
                let value = String::from_utf8(value.to_vec()).ok()?;
                self.settings.insert((section.into(), key.into()), value);
            }
            TOKEN => {
                let value = String::from_utf8(value.to_vec()).ok()?;
                self.tokens.insert(text?.into(), value);
            }
            GATEWAY => {
                let gateway = u64::from_be_bytes(rest.try_into().ok()?);
                self.gateways.insert(gateway, json(value)?);
            }
            REPLICATION => self.replications.insert(text?, json(value)?),
            _ if key == RUNNERS => self.runners = json(value)?,
            _ if key == AGREEMENT => self.agreement = json(value)?,
            _ if key == LOG_TABLE => self.log_table = json(value)?,
            _ if key == VERSION => self.version = json(value)?,
            _ if PlacementState::owns(key) => self.placement.load(key, value)?,
            _ => return None,
        }
        Some(())
    }

    /// Returns the rows of the state of a new cluster that has these databases from its beginning.
    pub fn rows_with(
        databases: impl IntoIterator<Item = (String, CataloguedDatabase)>,
    ) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut version = 0u64;
        let mut rows = vec![];
        for (name, mut database) in databases {
            version += 1;
            database.since = version;
            rows.push((named(DATABASE, &name), text(&database)));
        }
        rows.push((VERSION.to_vec(), text(&version)));
        rows
    }

    /// Returns whether rows with this key belong to this state, not to the replica.
    pub fn owns(key: &[u8]) -> bool {
        let is_own = matches!(
            key.first(),
            Some(
                &(DATABASE
                    | MEMBER
                    | SETTING
                    | TOKEN
                    | GATEWAY
                    | REPLICATION
                    | b'r'
                    | b'f'
                    | b'l'
                    | b'v')
            )
        );
        is_own || PlacementState::owns(key)
    }

    /// Decodes the record versions from the rows of a state, of which a later program may have
    /// written the others; `None` if they are invalid.
    pub fn agreement_in(rows: &[(Vec<u8>, Vec<u8>)]) -> Option<Agreement> {
        match rows.iter().find(|(key, _)| key == AGREEMENT) {
            Some((_, value)) => json(value),
            None => Some(Agreement::default()),
        }
    }

    /// Applies an entry, given as JSON, once: a repeat gets the first outcome.
    pub fn apply(&mut self, gateway: u64, counter: u64, entry: &[u8]) -> EntryResult {
        if let Some(last) = self.gateways.get(&gateway)
            && counter <= last.counter
        {
            let outcome = EntryOutcome::of(last.outcome);
            return EntryResult {
                outcome,
                rows: vec![],
                effect: Effect::None,
            };
        }
        let (outcome, mut rows, effect) = match serde_json::from_slice(entry) {
            Ok(entry) => self.change(entry),
            Err(_) => (EntryOutcome::Refused, vec![], Effect::None),
        };
        if outcome == EntryOutcome::Done {
            rows.push((VERSION.to_vec(), Some(text(&self.version))));
        }
        self.remember(gateway, counter, outcome, &mut rows);
        EntryResult {
            outcome,
            rows,
            effect,
        }
    }

    fn remember(&mut self, gateway: u64, counter: u64, outcome: EntryOutcome, rows: &mut Vec<Row>) {
        let last = LastRequest {
            counter,
            outcome: outcome as u8,
            version: self.version,
        };
        self.gateways.insert(gateway, last);
        rows.push((gateway_key(gateway), Some(text(&last))));
        if self.gateways.len() > GATEWAYS_MAX {
            let oldest = self.gateways.iter();
            let oldest = oldest.min_by_key(|(id, last)| (last.version, **id));
            if let Some(oldest) = oldest.map(|(id, _)| *id) {
                self.gateways.remove(&oldest);
                rows.push((gateway_key(oldest), None));
            }
        }
    }

    fn change(&mut self, entry: Entry) -> (EntryOutcome, Vec<Row>, Effect) {
        let changed = match entry {
            Entry::CreateDatabase { name, database } => self.create(name, database),
            Entry::AnnounceDrop { uuid } => self.announce_drop(uuid),
            Entry::DropDatabase { uuid } => self.drop_database(uuid),
            Entry::Change { uuid, change } => self.change_database(uuid, change),
            Entry::Join {
                node,
                member,
                token,
                version,
            } => self.join(node, member, token, version),
            Entry::Leave { node } => self.leave(node),
            Entry::Runs { nodes, changes } => return self.run_jobs(nodes, changes),
            Entry::Announce { node, announcement } => return self.announce(node, announcement),
            Entry::Raise { version } => return self.raise(version),
            Entry::LogTable(table) => self.set_log_table(table),
            Entry::Token { id, record } => {
                let row = (named(TOKEN, &id), Some(record.clone().into_bytes()));
                self.tokens.insert(id, record);
                Ok((vec![row], Effect::None))
            }
            Entry::Setting {
                section,
                key,
                value,
            } => self.set(section, key, value),
            Entry::KeepReplication { id, replication } => self.keep_replication(&id, replication),
            Entry::EndReplication { id } => self.end_replication(&id),
            Entry::Placement { change } => self.place(change),
        };
        match changed {
            Ok((rows, effect)) => {
                self.version += 1;
                (EntryOutcome::Done, rows, effect)
            }
            Err(outcome) => (outcome, vec![], Effect::None),
        }
    }

    fn create(
        &mut self,
        name: String,
        mut database: CataloguedDatabase,
    ) -> Result<(Vec<Row>, Effect), EntryOutcome> {
        if self.databases.contains_key(&name) || self.names.contains_key(&database.uuid) {
            return Err(EntryOutcome::Exists);
        }
        if !database.has_valid_slots() {
            return Err(EntryOutcome::Refused);
        }
        database.since = self.version + 1;
        self.names.insert(database.uuid, name.clone());
        self.databases.insert(name.clone(), database.clone());
        let row = (named(DATABASE, &name), Some(text(&database)));
        Ok((vec![row], Effect::Create { name, database }))
    }

    fn known(
        &mut self,
        uuid: DatabaseUuid,
    ) -> Result<(String, &mut CataloguedDatabase), EntryOutcome> {
        let name = self.names.get(&uuid).ok_or(EntryOutcome::Missing)?;
        let database = self.databases.get_mut(name);
        Ok((name.clone(), database.ok_or(EntryOutcome::Missing)?))
    }

    fn announce_drop(&mut self, uuid: DatabaseUuid) -> Result<(Vec<Row>, Effect), EntryOutcome> {
        let (name, database) = self.known(uuid)?;
        database.is_going = true;
        let row = (named(DATABASE, &name), Some(text(&*database)));
        self.going.insert(uuid);
        Ok((vec![row], Effect::None))
    }

    fn drop_database(&mut self, uuid: DatabaseUuid) -> Result<(Vec<Row>, Effect), EntryOutcome> {
        let (name, database) = self.known(uuid)?;
        if !database.is_going {
            return Err(EntryOutcome::Refused);
        }
        self.going.remove(&uuid);
        self.names.remove(&uuid);
        self.databases.remove(&name);
        let row = (named(DATABASE, &name), None);
        Ok((vec![row], Effect::Drop { name, uuid }))
    }

    fn change_database(
        &mut self,
        uuid: DatabaseUuid,
        change: PropertyChange,
    ) -> Result<(Vec<Row>, Effect), EntryOutcome> {
        let (name, database) = self.known(uuid)?;
        database.set(change.clone());
        let row = (named(DATABASE, &name), Some(text(&*database)));
        Ok((vec![row], Effect::Change { name, uuid, change }))
    }

    fn join(
        &mut self,
        node: NodeId,
        member: MemberInfo,
        token: Option<String>,
        version: Option<RecordVersion>,
    ) -> Result<(Vec<Row>, Effect), EntryOutcome> {
        if version.unwrap_or(RecordVersion::V1) < self.agreement.in_force() {
            return Err(EntryOutcome::Refused);
        }
        let is_taken =
            |(id, other): (&NodeId, &MemberInfo)| *id == node || other.name == member.name;
        if self.members.iter().any(is_taken) {
            return Err(EntryOutcome::Exists);
        }
        let mut rows = vec![(member_key(node), Some(text(&member)))];
        if let Some(token) = token {
            self.tokens.remove(&token).ok_or(EntryOutcome::Missing)?;
            rows.push((named(TOKEN, &token), None));
        }
        self.members.insert(node, member);
        if let Some(version) = version {
            let first = self.agreement.next_announcement(node, version);
            self.agreement.announce(node, first);
            rows.push(self.agreement_row());
        }
        Ok((rows, Effect::Members))
    }

    fn leave(&mut self, node: NodeId) -> Result<(Vec<Row>, Effect), EntryOutcome> {
        self.members.remove(&node).ok_or(EntryOutcome::Missing)?;
        let mut rows = vec![(member_key(node), None)];
        if self.runners.nodes.remove(&node) {
            self.runners.changes += 1;
            rows.push(self.runners_row());
        }
        if self.agreement.forget(node) {
            rows.push(self.agreement_row());
        }
        rows.extend(self.placement.forget(node));
        Ok((rows, Effect::Members))
    }

    /// Returns the number of slots without a majority of their replicas if a node leaves now. A node
    /// that has left does not count, even if it is live and still among the replicas of slots.
    pub(crate) fn slots_that_need(&self, node: NodeId, is_live: impl Fn(NodeId) -> bool) -> usize {
        let stays = |other: NodeId| self.members.contains_key(&other) && is_live(other);
        self.placement.slots_that_need(node, stays)
    }

    fn place(&mut self, change: PlacementChange) -> Result<(Vec<Row>, Effect), EntryOutcome> {
        let members: Vec<NodeId> = self.members.keys().copied().collect();
        let rows = self.placement.change(change, &members)?;
        Ok((rows, Effect::None))
    }

    /// Does not count as a new version of the catalogue: programs of version 1 from before this
    /// entry refuse it, and would never reach that version. Logs have it, so it stays so.
    fn run_jobs(
        &mut self,
        mut nodes: BTreeSet<NodeId>,
        changes: u64,
    ) -> (EntryOutcome, Vec<Row>, Effect) {
        if changes <= self.runners.changes {
            return (EntryOutcome::Exists, vec![], Effect::None);
        }
        nodes.retain(|node| self.members.contains_key(node));
        self.runners = Runners { nodes, changes };
        (EntryOutcome::Done, vec![self.runners_row()], Effect::None)
    }

    fn runners_row(&self) -> Row {
        (RUNNERS.to_vec(), Some(text(&self.runners)))
    }

    /// Nothing in the catalogue changes, so this does not count as a new version of it; nor does
    /// [`ControlState::raise`].
    fn announce(
        &mut self,
        node: NodeId,
        announcement: Announcement,
    ) -> (EntryOutcome, Vec<Row>, Effect) {
        if !self.members.contains_key(&node) {
            return self.agreed(EntryOutcome::Missing);
        }
        let announced = self.agreement.announce(node, announcement);
        self.agreed(match announced {
            Announced::Recorded => EntryOutcome::Done,
            Announced::Late => EntryOutcome::Exists,
            Announced::TooOld => EntryOutcome::Refused,
        })
    }

    fn raise(&mut self, version: RecordVersion) -> (EntryOutcome, Vec<Row>, Effect) {
        let members = self.members.keys().copied();
        let outcome = match version <= self.agreement.in_force() {
            true => EntryOutcome::Exists,
            false if self.agreement.raise(version, members) => EntryOutcome::Done,
            false => EntryOutcome::Refused,
        };
        self.agreed(outcome)
    }

    fn set_log_table(&mut self, table: LogTable) -> Result<(Vec<Row>, Effect), EntryOutcome> {
        if !table.follows(&self.log_table) {
            return Err(EntryOutcome::Exists);
        }
        let is_member = |node: &NodeId| self.members.contains_key(node);
        if table.nodes.is_empty() || !table.nodes.iter().all(|of| is_member(&of.node)) {
            return Err(EntryOutcome::Refused);
        }
        let row = (LOG_TABLE.to_vec(), Some(text(&table)));
        self.log_table = table;
        Ok((vec![row], Effect::None))
    }

    fn agreed(&self, outcome: EntryOutcome) -> (EntryOutcome, Vec<Row>, Effect) {
        let rows = match outcome {
            EntryOutcome::Done => vec![self.agreement_row()],
            _ => vec![],
        };
        (outcome, rows, Effect::None)
    }

    fn agreement_row(&self) -> Row {
        (AGREEMENT.to_vec(), Some(text(&self.agreement)))
    }

    fn set(
        &mut self,
        section: String,
        key: String,
        value: Option<String>,
    ) -> Result<(Vec<Row>, Effect), EntryOutcome> {
        if section.contains('/') {
            return Err(EntryOutcome::Refused);
        }
        let name = (section.clone(), key.clone());
        let row = (
            named(SETTING, &format!("{section}/{key}")),
            value.clone().map(String::into_bytes),
        );
        match value.clone() {
            Some(value) => drop(self.settings.insert(name, value)),
            None => drop(self.settings.remove(&name)),
        }
        let effect = Effect::Setting {
            section,
            key,
            value,
        };
        Ok((vec![row], effect))
    }

    fn keep_replication(
        &mut self,
        id: &str,
        replication: KeptReplication,
    ) -> Result<(Vec<Row>, Effect), EntryOutcome> {
        let checked = self.replications.check(id, &replication);
        checked.map_err(|why| match why {
            NotKept::Exists => EntryOutcome::Exists,
            NotKept::NoRoom => EntryOutcome::Refused,
        })?;
        let row = (named(REPLICATION, id), Some(text(&replication)));
        self.replications.insert(id, replication);
        Ok((vec![row], Effect::None))
    }

    fn end_replication(&mut self, id: &str) -> Result<(Vec<Row>, Effect), EntryOutcome> {
        self.replications.remove(id).ok_or(EntryOutcome::Missing)?;
        Ok((vec![(named(REPLICATION, id), None)], Effect::None))
    }
}

fn named(kind: u8, name: &str) -> Vec<u8> {
    [&[kind], name.as_bytes()].concat()
}

fn member_key(node: NodeId) -> Vec<u8> {
    [&[MEMBER][..], &node.to_be_bytes()].concat()
}

fn gateway_key(gateway: u64) -> Vec<u8> {
    [&[GATEWAY][..], &gateway.to_be_bytes()].concat()
}
