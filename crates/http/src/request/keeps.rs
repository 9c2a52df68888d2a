//! Memory that outlives a request's handler.

use std::sync::Arc;

use crate::reply::answers::Held;
use crate::request::room::Room;

/// Memory that an answer has until it ends.
pub struct Keeps {
    _held: Vec<Arc<Held>>,
    _room: Option<Room>,
}

impl Keeps {
    /// Keeps memory of the answer, and the memory of the body if the answer needs it.
    pub fn new(held: Vec<Arc<Held>>, room: Option<Room>) -> Keeps {
        Keeps {
            _held: held,
            _room: room,
        }
    }
}
