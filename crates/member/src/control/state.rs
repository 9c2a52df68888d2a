//! The cluster-wide state that entries produce. Pure: equal entries produce equal states.

use std::collections::{BTreeMap, BTreeSet};

use cluster::NodeId;
use database::DatabaseUuid;
use rustc_hash::FxHashMap;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::entry::{CataloguedDatabase, Entry, EntryOutcome, MemberInfo, PropertyChange};

/// A row of the slot: key and new value, or its removal.
pub type Row = (Vec<u8>, Option<Vec<u8>>);

const DATABASE: u8 = b'd';
const MEMBER: u8 = b'm';
const SETTING: u8 = b's';
const TOKEN: u8 = b't';
const GATEWAY: u8 = b'g';
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
    /// By section and key.
    pub settings: BTreeMap<(String, String), String>,
    /// Unused join tokens, by name.
    pub tokens: BTreeMap<String, String>,
    /// The last request of each gateway.
    gateways: FxHashMap<u64, LastRequest>,
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
pub struct Applied {
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
            _ if key == VERSION => self.version = json(value)?,
            _ => return None,
        }
        Some(())
    }

    /// Returns whether rows with this key belong to this state, not to the replica.
    pub fn owns(key: &[u8]) -> bool {
        matches!(
            key.first(),
            Some(&(DATABASE | MEMBER | SETTING | TOKEN | GATEWAY | b'v'))
        )
    }

    /// Applies an entry, given as JSON, once: a repeat gets the first outcome.
    pub fn apply(&mut self, gateway: u64, counter: u64, entry: &[u8]) -> Applied {
        if let Some(last) = self.gateways.get(&gateway)
            && counter <= last.counter
        {
            let outcome = EntryOutcome::of(last.outcome);
            return Applied {
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
        Applied {
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
            } => self.join(node, member, token),
            Entry::Leave { node } => match self.members.remove(&node) {
                Some(_) => Ok((vec![(member_key(node), None)], Effect::Members)),
                None => Err(EntryOutcome::Missing),
            },
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
        match change.clone() {
            PropertyChange::Security(json) => database.security = json,
            PropertyChange::RevsLimit(limit) => database.revs_limit = Some(limit),
            PropertyChange::PurgedInfosLimit(limit) => database.purged_infos_limit = Some(limit),
            PropertyChange::DeletedDocumentTtl(ttl) => database.deleted_document_ttl = ttl,
            PropertyChange::Expiry(expiry) => database.expiry = expiry,
        }
        let row = (named(DATABASE, &name), Some(text(&*database)));
        Ok((vec![row], Effect::Change { name, uuid, change }))
    }

    fn join(
        &mut self,
        node: NodeId,
        member: MemberInfo,
        token: Option<String>,
    ) -> Result<(Vec<Row>, Effect), EntryOutcome> {
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
        Ok((rows, Effect::Members))
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

fn text(value: &impl Serialize) -> Vec<u8> {
    // Strings and numbers always serialise.
    serde_json::to_vec(value).unwrap_or_default()
}

fn json<T: DeserializeOwned>(value: &[u8]) -> Option<T> {
    serde_json::from_slice(value).ok()
}
