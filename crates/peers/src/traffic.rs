//! Figures of the messages between this node and another one.

/// Messages, and their bytes, since this process started. Calls are not among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Messages that wait to be sent.
    pub waiting: u64,
    /// Their bytes.
    pub waiting_bytes: u64,
    /// Messages that were passed to a connection.
    pub sent: u64,
    /// Their bytes, with their lengths.
    pub sent_bytes: u64,
    /// Messages that were dropped or refused because too many waited.
    pub dropped: u64,
    /// Messages of the other node.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
}

impl Traffic {
    pub(crate) fn sum(all: impl Iterator<Item = Traffic>) -> Traffic {
        all.fold(Traffic::default(), |sum, one| Traffic {
            waiting: sum.waiting + one.waiting,
            waiting_bytes: sum.waiting_bytes + one.waiting_bytes,
            sent: sum.sent + one.sent,
            sent_bytes: sum.sent_bytes + one.sent_bytes,
            dropped: sum.dropped + one.dropped,
            received: sum.received + one.received,
            received_bytes: sum.received_bytes + one.received_bytes,
        })
    }
}
