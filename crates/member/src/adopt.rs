//! Turns the data directory of a single server into the first node of a cluster, without copying
//! its data: documents, indexes, attachments and numbers of changes stay where they are.
//!
//! **A crash leaves a single server or a node.** The store is prepared first, in one batch: a single
//! server can still use it then. Writing `cluster/member.json` makes the directory a node's. So an
//! interrupted adoption can be repeated, also after the server was used meanwhile.
//!
//! The state of the store becomes the base of a generation of every slot. Other nodes start in the
//! generation before it, so none of them applies a record to an empty store: it copies the slot.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cluster::record::RecordVersion;
use cluster::replica::{Cursor, GenerationStart, GenerationStartRecord};
use cluster::{CONTROL, Generation, NodeId, Position, SlotNumber};
use database::{AdoptionError, KnownSeqs, OwnDatabase, StoreOptions, own_databases};
use storage::{Adoption, ShardMeta, SlotRows, Snapshot, Store};

use crate::Error;
use crate::control::entry::{CataloguedDatabase, MemberInfo};
use crate::control::state::ControlState;
use crate::control::state_in;
use crate::error::named;
use crate::join::first_member;
use crate::membership::{Membership, folder, is_member, mark_of, random};
use crate::slot::{CURSOR, to_stored};
use crate::versions;

/// The number of the generation that starts from an adopted store.
const GENERATION: u64 = 1;
/// The folder of a former membership, which is not used any more.
const FORMER: &str = "cluster.lost";

/// The cluster to create.
#[derive(Clone, Debug)]
pub struct NewCluster {
    /// Its name.
    pub name: String,
    /// The number of its data slots.
    pub slots: SlotNumber,
    /// Its first node.
    pub member: MemberInfo,
}

/// The data that a node starts with.
#[derive(Clone, Debug, Default)]
pub struct AdoptedData {
    /// Names of the databases.
    pub databases: Vec<String>,
    /// Documents that are not deleted.
    pub documents: u64,
    /// The store was a node's: it may lack acknowledged writes, and update seqs start over.
    pub was_nodes: bool,
    /// The store was prepared for this before, by an adoption that was interrupted.
    pub was_prepared: bool,
}

/// The slots of a node as its store has them.
#[derive(Clone, Debug)]
pub struct LeftData {
    /// The node as it was.
    pub former: Membership,
    /// The other nodes of its cluster.
    pub others: Vec<MemberInfo>,
    /// Slots, each with its position: that of the first record that the node has not applied.
    pub slots: Vec<(SlotNumber, storage::Position)>,
    /// Its databases.
    pub data: AdoptedData,
    /// Names of databases that the cluster had deleted, or was deleting, and this node had not: they
    /// are not kept.
    pub deleted: Vec<String>,
    /// Names of databases that only other nodes had, all of them or parts.
    pub elsewhere: Vec<String>,
}

impl LeftData {
    /// Checks the name of the cluster that the node is to become the first one of.
    ///
    /// # Errors
    /// [`Error::SameName`].
    pub fn check_name(&self, new: &str) -> Result<(), Error> {
        match self.former.cluster.name == new {
            true => Err(Error::SameName(new.to_owned())),
            false => Ok(()),
        }
    }
}

/// Checks that a directory, whose store is at `path`, can become that of a new node: no server uses
/// it, and it has no databases. Those would be deleted.
///
/// # Errors
/// [`Error::AlreadyMember`], [`Error::StoreInUse`], [`Error::NodesStore`], [`Error::HasDatabases`],
/// and those of the store.
pub fn require_unused(data: &Path, path: &Path) -> Result<(), Error> {
    if is_member(data) {
        return Err(Error::AlreadyMember(folder(data)));
    }
    let idle = match IdleStore::open(data, path) {
        Err(Error::NoStore(_)) => return Ok(()),
        opened => opened?,
    };
    if mark_of(path)?.is_some() {
        return Err(Error::NodesStore(data.to_owned()));
    }
    let databases = idle.store.databases().map_err(store_error)?;
    let names: Vec<&str> = databases.iter().map(String::as_str).collect();
    match names.is_empty() {
        true => Ok(()),
        false => Err(Error::HasDatabases(data.to_owned(), named(&names))),
    }
}

/// A store that is open for this, and that no server uses.
pub struct IdleStore {
    data: PathBuf,
    path: PathBuf,
    store: Store,
}

impl IdleStore {
    /// Opens the store at `path` of a data directory.
    ///
    /// # Errors
    /// [`Error::NoStore`], [`Error::StoreInUse`], and those of the store.
    pub fn open(data: &Path, path: &Path) -> Result<IdleStore, Error> {
        // Opening would create one.
        if !path.join("CURRENT").exists() {
            return Err(Error::NoStore(data.to_owned()));
        }
        let store = Store::open(path, &StoreOptions::default(), Box::new(|_| {}));
        let store = store.map_err(|e| match e {
            storage::Error::InUse { .. } => Error::StoreInUse(data.to_owned()),
            e => Error::Membership(e.to_string()),
        })?;
        Ok(IdleStore {
            data: data.to_owned(),
            path: path.to_owned(),
            store,
        })
    }

    /// Returns what [`IdleStore::adopt`] would make the data of a cluster.
    ///
    /// # Errors
    /// Why it cannot: the directory belongs to a cluster, or its databases are too old.
    pub fn data(&self) -> Result<AdoptedData, Error> {
        if is_member(&self.data) {
            return Err(Error::AlreadyMember(folder(&self.data)));
        }
        if mark_of(&self.path)?.is_some() {
            return Err(Error::NodesStore(self.data.clone()));
        }
        let seqs = self.known_seqs()?;
        self.summary(&self.databases(seqs)?, seqs)
    }

    /// Makes the directory of a single server, or of one with a restored backup, the first node of a
    /// new cluster.
    ///
    /// # Errors
    /// Errors of [`IdleStore::data`], and those of writing: it can be repeated.
    pub fn adopt(self, new: &NewCluster) -> Result<(Membership, AdoptedData), Error> {
        self.data()?;
        let seqs = self.known_seqs()?;
        let databases = self.databases(seqs)?;
        self.become_node(new, databases, seqs)
    }

    /// Returns what is left of a node that lost its cluster, for a program that reads this record
    /// version.
    ///
    /// # Errors
    /// [`Error::NotMember`], [`Error::OldProgram`], and those of reading.
    pub fn left(&self, known: RecordVersion) -> Result<LeftData, Error> {
        let former = match is_member(&self.data) {
            true => Membership::read(&self.data)?.0,
            // An interrupted recovery had come this far.
            false => Membership::read_in(&self.data.join(FORMER))
                .map_err(|_| Error::NotMember(self.data.clone()))?,
        };
        let snapshot = self.store.snapshot();
        let control = snapshot.slot_state(CONTROL, &[]).map_err(store_error)?;
        let agreement = ControlState::agreement_in(&control).unwrap_or_default();
        versions::check(&agreement, known)?;
        let mut slots = vec![];
        for slot in snapshot.slots().map_err(store_error)? {
            let position = snapshot.slot(slot).map_err(store_error)?;
            slots.push((slot, position.unwrap_or_default()));
        }
        let (kept, deleted) = self.databases_left()?;
        Ok(LeftData {
            others: other_members(&former, &snapshot),
            elsewhere: databases_elsewhere(&former, &snapshot),
            former,
            slots,
            data: self.summary(&kept, KnownSeqs::Void)?,
            deleted,
        })
    }

    /// Makes a node the first one of a new cluster, which has the data of this node: for a cluster
    /// that lost a majority of its nodes permanently. Writes that only those had are lost, and feeds
    /// start over.
    ///
    /// # Errors
    /// [`Error::SameName`], errors of [`IdleStore::left`], and those of writing: it can be repeated.
    pub fn recover(
        self,
        new: &NewCluster,
        known: RecordVersion,
    ) -> Result<(Membership, AdoptedData), Error> {
        self.left(known)?.check_name(&new.name)?;
        let (databases, _) = self.databases_left()?;
        // From here on the directory is that of a single server.
        let failed = |e: std::io::Error| Error::Membership(format!("{}: {e}", self.data.display()));
        if is_member(&self.data) {
            let former = self.data.join(FORMER);
            if former.exists() {
                std::fs::remove_dir_all(&former).map_err(failed)?;
            }
            std::fs::rename(folder(&self.data), &former).map_err(failed)?;
            let synced = std::fs::File::open(&self.data).and_then(|data| data.sync_all());
            synced.map_err(failed)?;
        }
        crate::membership::remove_mark(&self.path)?;
        self.become_node(new, databases, KnownSeqs::Void)
    }

    /// Returns whether update seqs that clients know stay valid. They do not if a node has applied
    /// records to the store, as in its backup: others may have been acknowledged since. An adoption
    /// that was interrupted has applied none.
    pub(crate) fn known_seqs(&self) -> Result<KnownSeqs, Error> {
        let snapshot = self.store.snapshot();
        for slot in snapshot.slots().map_err(store_error)? {
            let position = snapshot.slot(slot).map_err(store_error)?;
            if position.is_some_and(|position| position.next_offset > 0) {
                return Ok(KnownSeqs::Void);
            }
        }
        Ok(KnownSeqs::Valid)
    }

    fn databases(&self, seqs: KnownSeqs) -> Result<Vec<OwnDatabase>, Error> {
        own_databases(&self.store, seqs).map_err(|e| match e {
            AdoptionError::Store(e) => Error::Membership(e.to_string()),
            old @ (AdoptionError::OldAttachments(_) | AdoptionError::Access(_)) => {
                Error::OldDatabase(old.to_string())
            }
        })
    }

    /// Returns the databases that a node's cluster had, and the names of others that the store has
    /// still: a deletion that is on disk, or only its announcement, may have been acknowledged,
    /// though the node has not carried it out. Any node finishes an announced one.
    fn databases_left(&self) -> Result<(Vec<OwnDatabase>, Vec<String>), Error> {
        let all = self.databases(KnownSeqs::Void)?;
        let snapshot = self.store.snapshot();
        let has_control = snapshot.slot(CONTROL).map_err(store_error)?.is_some();
        // A state that cannot be read says nothing about deletions.
        let state = state_in(&snapshot).ok().filter(|_| has_control);
        let Some(state) = state else {
            return Ok((all, vec![]));
        };
        let (mut kept, mut deleted) = (vec![], vec![]);
        for mut own in all {
            let listed = state.databases.get(&own.name);
            let is_gone = |uuid| listed.is_none_or(|known| known.uuid != uuid || known.is_going);
            if own.former.is_some_and(is_gone) {
                deleted.push(own.name);
                continue;
            }
            // Its own record does not say what was requested.
            own.new.n = listed.and_then(|known| known.n);
            kept.push(own);
        }
        Ok((kept, deleted))
    }

    fn summary(&self, databases: &[OwnDatabase], seqs: KnownSeqs) -> Result<AdoptedData, Error> {
        let has_slots = !self.store.slots().map_err(store_error)?.is_empty();
        let mut data = AdoptedData {
            was_nodes: seqs == KnownSeqs::Void,
            was_prepared: has_slots && seqs == KnownSeqs::Valid,
            ..AdoptedData::default()
        };
        for database in databases {
            data.databases.push(database.name.clone());
            for shard in &database.shards {
                let counters: ShardMeta = self.store.counters(*shard).map_err(store_error)?;
                data.documents += counters.doc_count;
            }
        }
        Ok(data)
    }

    fn become_node(
        self,
        new: &NewCluster,
        databases: Vec<OwnDatabase>,
        seqs: KnownSeqs,
    ) -> Result<(Membership, AdoptedData), Error> {
        let (mut home, authority) = first_member(&new.name, new.slots, new.member.clone())?;
        home.brings_data = true;
        let data = self.summary(&databases, seqs)?;
        let adoption = adoption(home.node, new.slots, databases)?;
        self.store.adopt(adoption).map_err(store_error)?;
        home.keep(&self.data, authority)?;
        Ok((home, data))
    }
}

impl Drop for IdleStore {
    fn drop(&mut self) {
        self.store.close();
    }
}

/// Returns the first state of all slots of a cluster with these databases.
pub(crate) fn adoption(
    node: NodeId,
    slots: SlotNumber,
    databases: Vec<OwnDatabase>,
) -> Result<Adoption, Error> {
    let mut adoption = Adoption::default();
    let mut catalogue = vec![];
    for own in databases {
        adoption.shards.extend(own.shards);
        adoption.puts.push(own.put);
        let mut database = CataloguedDatabase::new(own.new);
        for property in own.properties {
            database.set(property.into());
        }
        catalogue.push((own.name, database));
    }
    for slot in (0..slots).chain([CONTROL]) {
        let cursor = first_cursor(node)?;
        let mut rows: SlotRows = vec![(CURSOR.to_vec(), cursor.encode())];
        if slot == CONTROL {
            rows.extend(ControlState::rows_with(std::mem::take(&mut catalogue)));
        }
        let position = to_stored(&cursor.position);
        adoption.slots.push((slot, position, rows));
    }
    Ok(adoption)
}

/// Returns the cursor of a slot that starts with data. No other replica has its chain, which is
/// random, and nodes that start empty are in an earlier generation: so they take a copy.
fn first_cursor(node: NodeId) -> Result<Cursor, Error> {
    let generation = Generation {
        number: GENERATION,
        by: node,
    };
    let chain = random()?;
    let position = Position {
        generation,
        chain,
        ..Position::start()
    };
    let base = Position {
        chain,
        ..Position::start()
    };
    let members = vec![node];
    // It says to other nodes that this generation started from a state that they do not have. No
    // record of the log started it.
    let begun = GenerationStartRecord {
        begin: GenerationStart {
            generation,
            base,
            members: members.clone(),
        },
        log: 0,
        offset: 0,
        epoch: -1,
        hash: chain,
    };
    Ok(Cursor {
        position,
        begun: Some(Arc::new(begun)),
        ..Cursor::start(members)
    })
}

/// Returns the other members of a node's cluster, as its store has them, or as they were when it
/// joined.
fn other_members(home: &Membership, snapshot: &Snapshot) -> Vec<MemberInfo> {
    let members = state_in(snapshot).map(|state| state.members);
    let members = members.unwrap_or_default();
    if members.is_empty() {
        let others = home.others.iter().map(|(node, address)| MemberInfo {
            name: format!("node {node:x}"),
            address: address.clone(),
        });
        return others.collect();
    }
    let others = members.into_iter().filter(|(node, _)| *node != home.node);
    others.map(|(_, member)| member).collect()
}

/// Returns the names of databases with slots that only other nodes had.
fn databases_elsewhere(home: &Membership, snapshot: &Snapshot) -> Vec<String> {
    // A state that cannot be read names none.
    let Ok(ControlState {
        databases,
        placement,
        ..
    }) = state_in(snapshot)
    else {
        return vec![];
    };
    let lacks = |slot: &SlotNumber| {
        let decided = placement.copies.and_then(|_| placement.slots.get(slot));
        decided.is_some_and(|of| !of.replicas.contains(&home.node))
    };
    let is_elsewhere = |database: &CataloguedDatabase| {
        let slots = database.shard_slots(home.cluster.slots);
        slots.all(database.q as usize).iter().any(lacks)
    };
    let elsewhere = databases.into_iter();
    let elsewhere = elsewhere.filter(|(_, database)| is_elsewhere(database));
    elsewhere.map(|(name, _)| name).collect()
}

fn store_error(e: storage::Error) -> Error {
    Error::Membership(e.to_string())
}
