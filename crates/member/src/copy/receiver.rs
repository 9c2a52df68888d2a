//! Imports slots from other nodes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use cluster::replica::Cursor;
use cluster::slot::{StagedCopy, StoreError};
use cluster::{BoxFuture, CONTROL, NodeId, SlotNumber};
use database::{DatabaseUuid, Databases, NewShards};
use peers::Body;
use storage::{Install, SlotImport};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

use super::{FRAME_BYTES_MAX, HEAD_BYTES, LENGTH_BYTES, Source, read_tag};
use crate::control::Catalogue;
use crate::counters::{COPIES_INSTALLED, COPY_BYTES, COPY_FAILURES};
use crate::slot::{CURSOR, PROMISES, failed, from_stored, open_error};

/// Maximum number of data slots imported at a time.
const AT_ONCE_MAX: usize = 4;
/// Frames buffered for the import.
const FRAMES_MAX: usize = 4;
/// Time limit to wait for a copy's catalogue version.
const CATALOGUE_TIME_MAX: Duration = Duration::from_secs(30);

/// A copy that sends nothing for this time has failed.
const SILENT_TIME_MAX: Duration = Duration::from_mins(1);

type Result<T> = std::result::Result<T, StoreError>;

/// Fetches copies.
pub struct Copier {
    databases: Arc<Databases>,
    catalogue: Arc<Catalogue>,
    slots: SlotNumber,
    source: Arc<dyn Source>,
    room: Semaphore,
}

/// An action to take after a copy was installed.
pub type AfterInstall = Box<dyn FnOnce() -> BoxFuture<'static, Result<()>> + Send>;

/// A fetched copy.
pub struct FetchedCopy {
    copier: Arc<Copier>,
    slot: SlotNumber,
    cursor: Cursor,
    /// The catalogue version that it was made with.
    catalogue: u64,
    import: SlotImport,
    then: AfterInstall,
}

impl Copier {
    /// `slots` is the number of data slots of the cluster.
    pub fn new(
        databases: &Arc<Databases>,
        catalogue: &Arc<Catalogue>,
        slots: SlotNumber,
        source: Arc<dyn Source>,
    ) -> Copier {
        Copier {
            databases: databases.clone(),
            catalogue: catalogue.clone(),
            slots,
            source,
            room: Semaphore::new(AT_ONCE_MAX),
        }
    }

    /// Fetches a slot's state from another node. `then` runs after its installation.
    ///
    /// # Errors
    /// The other node does not send it, or it cannot be imported.
    pub async fn fetch(
        self: Arc<Self>,
        slot: SlotNumber,
        from: NodeId,
        then: AfterInstall,
    ) -> Result<FetchedCopy> {
        let fetched = self.fetch_from(slot, from, then).await;
        fetched.inspect_err(|_| COPY_FAILURES.count())
    }

    async fn fetch_from(
        self: Arc<Self>,
        slot: SlotNumber,
        from: NodeId,
        then: AfterInstall,
    ) -> Result<FetchedCopy> {
        let closed = |_| StoreError::Failed("the server is shutting down".into());
        let _room = match slot {
            // The others wait for it.
            CONTROL => None,
            _ => Some(self.room.acquire().await.map_err(closed)?),
        };
        if !self.may_copy_from(slot, from)? {
            let why = format!("node {from:x} is no replica of the slot any more");
            return Err(StoreError::Failed(why));
        }
        let known = self.catalogue.version();
        let body = self.source.open(from, slot, known).await;
        let body = body.map_err(|e| StoreError::Failed(format!("node {from:x}: {e}")))?;
        let mut frames = Frames::new(body);
        let catalogue = frames.head().await?;
        if slot != CONTROL {
            self.wait_for(catalogue).await?;
        }
        let import = SlotImport::new(self.databases.store().clone(), slot);
        let import = take_in(import, frames).await?;
        let cursor = import.state(CURSOR).and_then(Cursor::decode);
        let position = import.position().map(|at| from_stored(&at));
        let cursor = cursor.filter(|cursor| Some(cursor.position) == position);
        let odd = || StoreError::Failed("the copy does not say where it is".into());
        Ok(FetchedCopy {
            cursor: cursor.ok_or_else(odd)?,
            copier: self.clone(),
            slot,
            catalogue,
            import,
            then,
        })
    }

    /// Returns whether a slot may be copied from a node. One without data of the slot may have had
    /// it before, and would be taken for a replica again by a node that was away since then.
    fn may_copy_from(&self, slot: SlotNumber, from: NodeId) -> Result<bool> {
        let counts = self.catalogue.with(|state| {
            let placement = &state.placement;
            let decided = placement.copies.and_then(|_| placement.slots.get(&slot));
            decided.is_none_or(|of| of.replicas.contains(&from))
        });
        if counts || slot == CONTROL {
            return Ok(true);
        }
        let at = self.databases.store().slot(slot).map_err(failed)?;
        Ok(at.is_some_and(|at| from_stored(&at) != cluster::Position::start()))
    }

    /// Waits until the local catalogue has this version.
    async fn wait_for(&self, catalogue: u64) -> Result<()> {
        let here = self.catalogue.wait_for(catalogue);
        let late = |_| StoreError::Failed("the catalogue here is behind that of the copy".into());
        timeout(CATALOGUE_TIME_MAX, here).await.map_err(late)?
    }

    /// Returns the shards that those of a copy replace.
    fn new_shards(
        &self,
        slot: SlotNumber,
        catalogue: u64,
        import: &SlotImport,
    ) -> Result<Vec<NewShards>> {
        let mut all: BTreeMap<DatabaseUuid, NewShards> = BTreeMap::new();
        for (tag, number) in import.shards() {
            let slot_of = |uuid, i| self.catalogue.shard_slots(uuid, self.slots).of(i);
            let tag = read_tag(tag).filter(|(uuid, i)| slot_of(*uuid, *i) == slot);
            let odd = || StoreError::Failed("the copy has a shard of another slot".into());
            let (uuid, i) = tag.ok_or_else(odd)?;
            let name = || {
                let name = |state: &crate::control::state::ControlState| {
                    state.names.get(&uuid).map(|name| name.as_str().into())
                };
                self.catalogue.with(name)
            };
            let new = all.entry(uuid).or_insert_with(|| NewShards {
                name: name(),
                uuid,
                shards: vec![],
            });
            new.shards.push((i, number));
        }
        self.check_all_came(slot, catalogue, &all)?;
        Ok(all.into_values().collect())
    }

    /// Checks that the copy contains all expected shards of a database.
    fn check_all_came(
        &self,
        slot: SlotNumber,
        catalogue: u64,
        all: &BTreeMap<DatabaseUuid, NewShards>,
    ) -> Result<()> {
        self.catalogue.with(|state| {
            for (name, database) in &state.databases {
                let came = all.get(&database.uuid).map_or(0, |new| new.shards.len());
                let of_shard = database.shard_slots(self.slots);
                let of_slot = |i: &usize| of_shard.of(*i) == slot;
                let has = (0..database.q as usize).filter(of_slot).count();
                if database.since <= catalogue && came != has && !database.is_going {
                    let why = format!("the copy lacks shards of {name}");
                    return Err(StoreError::Failed(why));
                }
            }
            Ok(())
        })
    }
}

impl StagedCopy for FetchedCopy {
    fn cursor(&self) -> &Cursor {
        &self.cursor
    }

    fn install(self) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move {
            // In a task of its own, since it must not stop half-way when the caller is dropped.
            let done = tokio::spawn(self.install_now()).await;
            let done =
                done.map_err(|_| StoreError::Failed("the server is shutting down".into()))?;
            match done.is_ok() {
                true => COPIES_INSTALLED.count(),
                false => COPY_FAILURES.count(),
            }
            done
        })
    }
}

impl FetchedCopy {
    async fn install_now(self) -> Result<()> {
        let FetchedCopy {
            copier,
            slot,
            catalogue,
            import,
            then,
            ..
        } = self;
        let databases = &copier.databases;
        let new = match slot {
            CONTROL => vec![],
            slot => copier.new_shards(slot, catalogue, &import)?,
        };
        let from = databases.store().slot(slot).map_err(failed)?;
        let done = databases.replace_shards(new, move |replacement| {
            import.install(Install {
                from,
                keep: vec![PROMISES.to_vec()],
                state: vec![],
                puts: replacement.puts,
                replaced: replacement.replaced,
                unwanted: replacement.unwanted,
            })
        });
        done.await.map_err(open_error)?;
        tracing::info!(slot, "the slot was copied from another node");
        then().await
    }
}

/// Imports all frames, on a thread of its own.
async fn take_in(mut import: SlotImport, mut frames: Frames) -> Result<SlotImport> {
    let (to, mut taken) = mpsc::channel::<BytesMut>(FRAMES_MAX);
    let work = tokio::task::spawn_blocking(move || {
        while let Some(frame) = taken.blocking_recv() {
            import.frame(&frame).map_err(failed)?;
        }
        Ok(import)
    });
    let mut cut = None;
    loop {
        match frames.next().await {
            Ok(Some(frame)) => {
                // The thread reports what is wrong with a frame.
                if to.send(frame).await.is_err() {
                    break;
                }
            }
            Ok(None) => break,
            Err(e) => {
                cut = Some(e);
                break;
            }
        }
    }
    drop(to);
    let stopped = |_| StoreError::Failed("the server is shutting down".into());
    let import: SlotImport = work.await.map_err(stopped)??;
    match cut {
        Some(e) => Err(e),
        None if !import.is_complete() => Err(StoreError::Failed("the copy was cut short".into())),
        None => Ok(import),
    }
}

/// The bytes from another node, split into frames.
struct Frames {
    body: Body,
    at_hand: BytesMut,
}

impl Frames {
    fn new(body: Body) -> Frames {
        let at_hand = BytesMut::new();
        Frames { body, at_hand }
    }

    async fn head(&mut self) -> Result<u64> {
        let odd = || StoreError::Failed("the copy was cut short".into());
        match self.fill(HEAD_BYTES).await? {
            true => Ok(self.at_hand.get_u64()),
            false => Err(odd()),
        }
    }

    async fn next(&mut self) -> Result<Option<BytesMut>> {
        if !self.fill(LENGTH_BYTES).await? {
            return match self.at_hand.is_empty() {
                true => Ok(None),
                false => Err(StoreError::Failed("the copy was cut short".into())),
            };
        }
        let length = self.at_hand.get_u32() as usize;
        if length > FRAME_BYTES_MAX {
            return Err(StoreError::Failed("the copy has a frame too long".into()));
        }
        match self.fill(length).await? {
            true => Ok(Some(self.at_hand.split_to(length))),
            false => Err(StoreError::Failed("the copy was cut short".into())),
        }
    }

    /// Reads until this many bytes are buffered; returns false at the end.
    async fn fill(&mut self, bytes: usize) -> Result<bool> {
        while self.at_hand.len() < bytes {
            let silent = |_| StoreError::Failed("the copy stalled".into());
            let next = timeout(SILENT_TIME_MAX, self.body.next());
            match next.await.map_err(silent)? {
                Some(Ok(piece)) => {
                    COPY_BYTES.add(piece.len() as u64);
                    self.at_hand.extend_from_slice(&piece);
                }
                Some(Err(e)) => return Err(StoreError::Failed(e.to_string())),
                None => return Ok(false),
            }
        }
        Ok(true)
    }
}
