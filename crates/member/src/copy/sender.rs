//! Sends copies of this node's slots to other nodes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cluster::slot::StoreError;
use cluster::{CONTROL, SlotNumber};
use database::Databases;
use peers::{Body, BodyError};
use storage::{ShardNumber, SlotCopy, Snapshot};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::tag;
use crate::control::state::ControlState;
use crate::control::{Catalogue, state_in};
use crate::counters::COPIES_SENT;
use crate::slot::{failed, open_error};

/// Maximum number of concurrent copies: each has a thread, and a snapshot of the store.
const AT_ONCE_MAX: usize = 8;
/// Frames buffered for sending.
const FRAMES_MAX: usize = 4;
/// Time limit to wait for the receiver's catalogue version.
const CATALOGUE_TIME_MAX: Duration = Duration::from_secs(10);

/// Shards with their names in a copy.
type NamedShards = Vec<(Vec<u8>, ShardNumber)>;

/// Sends copies of this node's slots.
pub struct CopySender {
    databases: Arc<Databases>,
    catalogue: Arc<Catalogue>,
    slots: SlotNumber,
    room: Arc<Semaphore>,
}

impl CopySender {
    /// `slots` is the number of data slots of the cluster.
    pub fn new(
        databases: &Arc<Databases>,
        catalogue: &Arc<Catalogue>,
        slots: SlotNumber,
    ) -> CopySender {
        CopySender {
            databases: databases.clone(),
            catalogue: catalogue.clone(),
            slots,
            room: Arc::new(Semaphore::new(AT_ONCE_MAX)),
        }
    }

    /// Returns a copy of a slot, with at least this version of the catalogue. Frames are produced
    /// as fast as they are consumed.
    ///
    /// # Errors
    /// The reason why none can be made now.
    pub async fn send(&self, slot: SlotNumber, catalogue: u64) -> Result<Body, String> {
        let mut room = None;
        // All others wait for the control slot.
        if slot != CONTROL {
            let free = self.room.clone().try_acquire_owned();
            room = Some(free.map_err(|_| "it gives copies to others now")?);
            let here = self.catalogue.wait_for(catalogue);
            let waited = tokio::time::timeout(CATALOGUE_TIME_MAX, here).await;
            let waited = waited.map_err(|_| "its catalogue is behind".to_owned())?;
            waited.map_err(|e| e.to_string())?;
        }
        let (begun, beginning) = oneshot::channel();
        let (frames, mut all) = mpsc::channel(FRAMES_MAX);
        let (databases, slots) = (self.databases.clone(), self.slots);
        tokio::task::spawn_blocking(move || {
            let opened = open(&databases, slot, slots);
            let opened = opened.map_err(|e| e.to_string());
            drop(databases);
            match opened {
                Ok((version, copy)) => {
                    if begun.send(Ok(version)).is_ok() {
                        COPIES_SENT.count();
                        send(copy, room, &frames);
                    }
                }
                Err(e) => drop(begun.send(Err(e))),
            }
        });
        let version: u64 = beginning
            .await
            .map_err(|_| "the server is shutting down")??;
        let mut head = Some(Bytes::copy_from_slice(&version.to_be_bytes()));
        let pieces = futures_util::stream::poll_fn(move |cx| match head.take() {
            Some(head) => std::task::Poll::Ready(Some(Ok(head))),
            None => all.poll_recv(cx),
        });
        Ok(Body::stream(pieces))
    }
}

/// Starts a copy, on one snapshot. Also returns the catalogue's version.
fn open(
    databases: &Databases,
    slot: SlotNumber,
    slots: SlotNumber,
) -> Result<(u64, SlotCopy), StoreError> {
    let snapshot = Arc::new(databases.store().snapshot());
    let (version, shards) = match slot {
        CONTROL => (0, vec![]),
        slot => {
            let state = state_in(&snapshot)?;
            (state.version, shards_of(&state, &snapshot, slot, slots)?)
        }
    };
    let copy = SlotCopy::of(snapshot, slot, shards).map_err(failed)?;
    Ok((version, copy))
}

/// Returns the shards of a slot, over all databases of the catalogue.
fn shards_of(
    state: &ControlState,
    snapshot: &Snapshot,
    slot: SlotNumber,
    slots: SlotNumber,
) -> Result<NamedShards, StoreError> {
    let mut all = vec![];
    for (name, database) in &state.databases {
        let uuid = database.uuid;
        let of_shard = database.shard_slots(slots);
        let mine = (0..database.q as usize).filter(|i| of_shard.of(*i) == slot);
        let mine: Vec<usize> = mine.collect();
        if mine.is_empty() {
            continue;
        }
        let shards = Databases::shards_in(snapshot, name, uuid).map_err(open_error)?;
        if shards.is_none() && database.is_going {
            continue;
        }
        // It is gone, and the catalogue does not show that yet.
        let going = || StoreError::Failed(format!("{name} is being deleted there"));
        let shards = shards.ok_or_else(going)?;
        for i in mine {
            all.push((tag(uuid, i), *shards.get(i).ok_or_else(going)?));
        }
    }
    Ok(all)
}

/// Produces frames until the receiver is gone.
fn send(
    mut copy: SlotCopy,
    room: Option<OwnedSemaphorePermit>,
    frames: &mpsc::Sender<Result<Bytes, BodyError>>,
) {
    loop {
        let next = match copy.next_frame() {
            Ok(None) => break,
            Ok(Some(frame)) => {
                // A frame is about 256 KiB long.
                let length = u32::try_from(frame.len()).unwrap_or(u32::MAX).to_be_bytes();
                Ok([&length[..], &frame].concat().into())
            }
            Err(e) => {
                tracing::warn!(error = %e, "a copy of a slot for another node was interrupted");
                Err(BodyError::Source(Box::new(e)))
            }
        };
        let is_last = next.is_err();
        if frames.blocking_send(next).is_err() || is_last {
            break;
        }
    }
    drop(room);
}
