//! Slots on this node's store: the store's commit thread applies the records of the log, together
//! with the slot's position.

mod chunks;
mod data;
mod queue;
mod translate;

#[cfg(test)]
pub(crate) use chunks::PART;
pub(crate) use chunks::{Assembly, Chunk};
pub use data::{DataSlot, NO_DATABASE, OLD_DESIGNS, stored_in_force};
pub(crate) use queue::{
    CURSOR, PROMISES, Prepare, PreparedRecord, Queue, failed, from_stored, open_error, to_stored,
};
pub use translate::{edit_record, named_record, purge_record};
