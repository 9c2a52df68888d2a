//! A store with shards of slots, and helpers to write to it.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use document::{DocId, Rev, RevHash, RevPath, body_term, revision_id};
use storage::{
    Change, Edit, Error, Generation, Limits, Position, Session, Shard, ShardEdit, ShardPurge,
    SlotNumber, SlotOutcome, SlotRequest, SlotWork, SlotWrite, Store, StoreOptions,
};

pub type Waiting = tokio::sync::oneshot::Receiver<Result<Vec<SlotOutcome>, Error>>;

pub fn done(waiting: Waiting) -> Result<Vec<SlotOutcome>, Error> {
    waiting.blocking_recv().unwrap()
}

pub fn options() -> StoreOptions {
    StoreOptions {
        block_cache_bytes: 8 << 20,
        ..StoreOptions::default()
    }
}

/// A store and the shards that its slots write to.
pub struct World {
    pub path: PathBuf,
    numbers: Vec<u32>,
    open: Option<(Arc<Store>, Vec<Arc<Shard>>)>,
}

impl World {
    /// Creates it with `shards` shards, whose numbers come after those of `others` other ones.
    pub fn new(path: &Path, others: u32, shards: u32) -> World {
        let store = Store::open(path, &options(), Box::new(|_| {})).unwrap();
        if others > 0 {
            let made = store.create_database("others", others, |_| b"{}".to_vec());
            made.blocking_recv().unwrap().unwrap();
        }
        let mut numbers = vec![];
        let made = store.create_database("db", shards, |given| {
            numbers = given.to_vec();
            b"{}".to_vec()
        });
        made.blocking_recv().unwrap().unwrap();
        World::of(path, store, numbers)
    }

    fn of(path: &Path, store: Store, numbers: Vec<u32>) -> World {
        let shards = numbers.iter().map(|&n| Arc::new(store.shard(n).unwrap()));
        let shards = shards.collect();
        World {
            path: path.into(),
            numbers,
            open: Some((Arc::new(store), shards)),
        }
    }

    /// Opens the store in `path` with these shards.
    pub fn open(path: &Path, numbers: &[u32], options: &StoreOptions) -> World {
        let store = Store::open(path, options, Box::new(|_| {})).unwrap();
        World::of(path, store, numbers.to_vec())
    }

    /// Creates a store whose commit thread blocks in its first commit of an edit until it is
    /// released.
    pub fn gated(path: &Path, shards: u32) -> (World, Sender<()>) {
        let (open_gate, gate): (_, Receiver<()>) = channel();
        let gate = Mutex::new(Some(gate));
        let wait = move |_: &storage::ShardCommit<'_>| {
            if let Some(gate) = gate.lock().unwrap().take() {
                gate.recv().unwrap();
            }
        };
        let store = Store::open(path, &options(), Box::new(wait)).unwrap();
        let numbers = (1..=shards).collect();
        (World::of(path, store, numbers), open_gate)
    }

    pub fn store(&self) -> &Arc<Store> {
        &self.open.as_ref().unwrap().0
    }

    pub fn shards(&self) -> &[Arc<Shard>] {
        &self.open.as_ref().unwrap().1
    }

    pub fn shard(&self, i: usize) -> &Arc<Shard> {
        &self.shards()[i]
    }

    /// Replaces a shard by the one with this number.
    pub fn replace(&mut self, i: usize, number: u32) {
        let shard = Arc::new(self.store().shard(number).unwrap());
        self.numbers[i] = number;
        self.open.as_mut().unwrap().1[i] = shard;
    }

    pub fn close(&mut self) {
        let (store, shards) = self.open.take().unwrap();
        drop(shards);
        store.close();
    }

    pub fn restart_with(&mut self, options: &StoreOptions) {
        self.close();
        *self = World::open(&self.path, &self.numbers, options);
    }

    pub fn restart(&mut self) {
        self.restart_with(&options());
    }

    pub fn compact(&self, i: usize) {
        let contents = self.store().contents(self.shard(0).clone());
        let committer = &self.store().committer;
        storage::compact(committer, self.shard(i), &contents, &|_, _| true).unwrap();
    }

    pub fn queue(&self, write: SlotWrite) -> Waiting {
        self.store().committer.apply_slot(write)
    }

    pub fn apply(&self, write: SlotWrite) -> Result<Vec<SlotOutcome>, Error> {
        done(self.queue(write))
    }

    /// Applies a write of one request that continues from the slot's position.
    pub fn apply_next(&self, slot: SlotNumber, request: SlotRequest) -> Result<SlotOutcome, Error> {
        let from = self.store().slot(slot).unwrap();
        let write = write(slot, from.map_or(0, |p| p.next_offset), 1, vec![request]);
        Ok(self.apply(write)?.remove(0))
    }
}

/// Returns the slot's position before the record at `offset`; `None` at its beginning.
pub fn position(slot: SlotNumber, offset: u64) -> Option<Position> {
    let chain = u128::from(offset).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    let at = Position {
        generation: Generation {
            number: 1,
            by: u64::MAX - u64::from(slot),
        },
        next_offset: offset,
        leader_epoch: (offset / 7) as i32 - 1,
        chain: chain.to_be_bytes(),
    };
    (offset > 0).then_some(at)
}

/// Returns records from `offset` on.
pub fn write(slot: SlotNumber, offset: u64, records: u64, requests: Vec<SlotRequest>) -> SlotWrite {
    SlotWrite {
        slot,
        from: position(slot, offset),
        to: position(slot, offset + records).unwrap(),
        state: vec![],
        requests,
    }
}

pub fn request(gateway: u64, counter: u64, edits: Vec<ShardEdit>) -> SlotRequest {
    let limits = Limits::default();
    SlotRequest {
        session: Session { gateway, counter },
        work: vec![SlotWork::Edits { edits, limits }],
    }
}

fn edit(shard: &Arc<Shard>, id: &str, body: &str, deleted: bool, change: Change) -> ShardEdit {
    ShardEdit {
        shard: shard.clone(),
        edit: Edit {
            id: DocId::new(id).unwrap(),
            deleted,
            body: body.into(),
            files: vec![],
            home: shard.number,
            access: None,
            change,
        },
    }
}

pub fn interactive(
    shard: &Arc<Shard>,
    id: &str,
    parent: Option<Rev>,
    body: &str,
    deleted: bool,
) -> ShardEdit {
    let term = body_term(body.as_bytes()).unwrap();
    let change = Change::Interactive {
        rev: revision_id(deleted, parent.as_ref(), &term, &[]),
        parent,
        body_term: None,
    };
    edit(shard, id, body, deleted, change)
}

/// A new document.
pub fn new_doc(shard: &Arc<Shard>, id: &str) -> ShardEdit {
    interactive(shard, id, None, r#"{"a":1}"#, false)
}

/// A revision with its ancestors, newest first.
pub fn replicated(
    shard: &Arc<Shard>,
    id: &str,
    (start, ids): (u64, Vec<RevHash>),
    body: &str,
    deleted: bool,
) -> ShardEdit {
    let path = RevPath { start, ids };
    edit(shard, id, body, deleted, Change::Replicated { path })
}

pub fn local(shard: &Arc<Shard>, id: &str, rev: Option<u64>, body: &str) -> ShardEdit {
    let id = format!("_local/{id}");
    edit(shard, &id, body, false, Change::Local { rev })
}

pub fn purge(shard: &Arc<Shard>, id: &str, revs: Vec<Rev>, uuid: u128) -> ShardPurge {
    ShardPurge {
        shard: shard.clone(),
        id: DocId::new(id).unwrap(),
        revs,
        uuid: uuid.to_be_bytes(),
    }
}
