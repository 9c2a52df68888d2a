//! Copies of a slot's state between nodes.
//!
//! `sender.rs` makes frames of a slot from one snapshot of this node's store, `receiver.rs` imports those
//! of another node next to the existing state, and then replaces it. Shards are named by their
//! database's uuid and their index in it, since each store has numbers of its own.
//!
//! ```text
//! copy  = catalogue (u64, big endian)  ( length (u32, big endian)  frame )*
//! ```
//!
//! `catalogue` is the version of the catalogue in the snapshot. **The receiver sends its own
//! version, and gets no older one; before it installs a copy it waits until it has the copy's
//! version, or a later one.** So a database whose shards are not in the copy was dropped, or was
//! created after the copy and nothing has been written to it here; and a database that is not in
//! the catalogue here was dropped.

mod receiver;
mod sender;

use cluster::{BoxFuture, NodeId, SlotNumber};
use database::DatabaseUuid;
use peers::Body;

pub use receiver::{Copier, FetchedCopy};
pub use sender::CopySender;

/// The length field before a frame.
const LENGTH_BYTES: usize = size_of::<u32>();
/// Maximum length of a frame, in bytes.
const FRAME_BYTES_MAX: usize = 4 << 20;
/// Length of the header of a copy.
const HEAD_BYTES: usize = size_of::<u64>();

/// A source of copies.
pub trait Source: Send + Sync + 'static {
    /// Opens a copy of a slot from another node, with at least this version of the catalogue.
    fn open(
        &self,
        from: NodeId,
        slot: SlotNumber,
        catalogue: u64,
    ) -> BoxFuture<'static, Result<Body, String>>;
}

/// Returns the name in a copy of a database's shard.
fn tag(uuid: DatabaseUuid, shard: usize) -> Vec<u8> {
    // There are at most 256.
    let index = u32::try_from(shard).unwrap_or(u32::MAX).to_be_bytes();
    [&uuid.as_bytes()[..], &index].concat()
}

/// Decodes a shard's name.
fn read_tag(tag: &[u8]) -> Option<(DatabaseUuid, usize)> {
    let (uuid, index) = tag.split_first_chunk::<{ DatabaseUuid::LEN }>()?;
    let index = u32::from_be_bytes(index.try_into().ok()?);
    Some((DatabaseUuid::new(*uuid), index as usize))
}
