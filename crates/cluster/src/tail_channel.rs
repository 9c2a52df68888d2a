//! The channel from a log to the replica that follows it.

use std::collections::VecDeque;

use tokio::sync::mpsc;

use crate::log::Tail;

/// Items in a channel.
const ITEMS_MAX: usize = 256;
/// Bytes in a channel, unless a single record has more.
const BYTES_MAX: usize = 1 << 20;

/// Sends items of a followed partition. The channel has a limited size in bytes: a replica that applies
/// records slower than the log delivers them would otherwise hold all of them in memory.
#[derive(Debug)]
pub struct TailSender {
    sender: mpsc::Sender<Tail>,
    /// Sizes of the items in the channel, the latest last.
    sizes: VecDeque<usize>,
}

/// Creates a channel for one follower.
pub fn tail_channel() -> (TailSender, mpsc::Receiver<Tail>) {
    let (sender, receiver) = mpsc::channel(ITEMS_MAX);
    let sizes = VecDeque::new();
    (TailSender { sender, sizes }, receiver)
}

impl TailSender {
    /// Waits until there is room; `false` when the receiver is gone.
    pub async fn send(&mut self, tail: Tail) -> bool {
        let size = match &tail {
            Tail::Record(record) => record.bytes.len(),
            Tail::NoRecord { .. } | Tail::Trouble(_) => 0,
        };
        let room = ITEMS_MAX - self.fitting(size);
        let Ok(mut permits) = self.sender.reserve_many(room.max(1)).await else {
            return false;
        };
        let Some(permit) = permits.next() else {
            return false;
        };
        permit.send(tail);
        drop(permits);
        self.sizes.push_back(size);
        let held = ITEMS_MAX - self.sender.capacity();
        while self.sizes.len() > held {
            self.sizes.pop_front();
        }
        true
    }

    /// Returns whether the receiver is gone.
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Waits until the receiver is gone.
    pub async fn closed(&self) {
        self.sender.closed().await;
    }

    /// Returns the number of recently sent items that may still be in the channel together with one
    /// of this size.
    fn fitting(&self, size: usize) -> usize {
        let mut bytes = size;
        let latest = self.sizes.iter().rev();
        let fits = latest.take_while(|size| {
            bytes += **size;
            bytes <= BYTES_MAX
        });
        match fits.count() {
            // All of them: the channel's length is the limit.
            count if count == self.sizes.len() => ITEMS_MAX - 1,
            count => count,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::log::RawRecord;

    fn record(size: usize) -> Tail {
        Tail::Record(RawRecord {
            log: 1,
            offset: 0,
            epoch: 0,
            bytes: vec![0; size],
        })
    }

    async fn count(channel: &mut TailSender, size: usize) -> usize {
        let mut count = 0;
        let wait = Duration::from_millis(50);
        while let Ok(true) = tokio::time::timeout(wait, channel.send(record(size))).await {
            count += 1;
        }
        count
    }

    #[tokio::test]
    async fn a_channel_holds_one_megabyte_and_goes_on_when_there_is_room() {
        let (mut channel, mut receiver) = tail_channel();
        assert_eq!(count(&mut channel, 256 << 10).await, 4);
        receiver.recv().await.unwrap();
        assert_eq!(count(&mut channel, 256 << 10).await, 1);
        for _ in 0..4 {
            receiver.recv().await.unwrap();
        }
        assert_eq!(count(&mut channel, 2 << 20).await, 1);
    }

    #[tokio::test]
    async fn small_records_fill_a_channel_by_their_number() {
        let (mut channel, _receiver) = tail_channel();
        assert_eq!(count(&mut channel, 10).await, ITEMS_MAX);
    }

    #[tokio::test]
    async fn nobody_receives_any_more() {
        let (mut channel, receiver) = tail_channel();
        assert!(!channel.is_closed());
        drop(receiver);
        assert!(channel.is_closed());
        assert!(!channel.send(record(1)).await);
    }
}
