//! Another node's state of a slot, taken over.
//!
//! `give.rs` makes frames of a slot as it is in one snapshot of this node's store, `take.rs` takes those of another node in beside what is here,
//! and puts them in its place. Shards are named by their database's uuid and their index in it, since each store has numbers of its own.
//!
//! ```text
//! copy  = catalogue (u64, big endian)  ( length (u32, big endian)  frame )*
//! ```
//!
//! `catalogue` is the version of the catalogue that the snapshot has. **Who asks says which one he has, and gets no older one; who takes a
//! copy in waits until he has the copy's, or a later one.** So a database whose shards do not come is gone, or was made after the copy and
//! nothing has been written to it here; and a database that is not in the catalogue here is gone.

mod give;
mod take;

use cluster::{Later, NodeId, SlotNumber};
use database::DatabaseUuid;
use peers::Body;

pub use give::Giver;
pub use take::{Copied, Copier};

/// A length before a frame.
const LENGTH_BYTES: usize = size_of::<u32>();
/// No frame is longer, in bytes.
const FRAME_BYTES_MAX: usize = 4 << 20;
/// What a copy begins with.
const HEAD_BYTES: usize = size_of::<u64>();

/// Where copies come from.
pub trait Source: Send + Sync + 'static {
    /// A slot's copy from another node, which has this version of the catalogue or a later one.
    fn open(
        &self,
        from: NodeId,
        slot: SlotNumber,
        catalogue: u64,
    ) -> Later<'static, Result<Body, String>>;
}

/// How a copy names the shard with this index of a database.
fn tag(uuid: DatabaseUuid, shard: usize) -> Vec<u8> {
    // There are at most 256.
    let index = u32::try_from(shard).unwrap_or(u32::MAX).to_be_bytes();
    [&uuid.as_bytes()[..], &index].concat()
}

/// Reads a shard's name.
fn read_tag(tag: &[u8]) -> Option<(DatabaseUuid, usize)> {
    let (uuid, index) = tag.split_first_chunk::<{ DatabaseUuid::LEN }>()?;
    let index = u32::from_be_bytes(index.try_into().ok()?);
    Some((DatabaseUuid::new(*uuid), index as usize))
}
