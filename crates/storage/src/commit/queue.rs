//! The queue of the writer.
//!
//! Short operations are written in order of arrival. Long ones wait in lanes, one for each database
//! (strictly, for its shards): after the short ones of a batch the lanes alternate. So a bulk of
//! many edits is written in pieces, and other writes wait for at most one piece of it. A short edit
//! of a document with a long record counts as long once the writer has read such a record.

use std::collections::VecDeque;

use super::op::Op;
use crate::keys::ShardNumber;

/// Maximum size of a batch, in bytes: writing also occupies the thread.
pub(super) const BATCH_BYTES_MAX: usize = 4 << 20;

#[derive(Default)]
pub(super) struct Queue {
    short: VecDeque<Op>,
    /// The first one is next.
    lanes: VecDeque<Lane>,
    pub closed: bool,
    /// Another thread than the writer's left unflushed writes.
    pub is_unflushed: bool,
}

/// Long operations, by the shard of their first document.
struct Lane {
    shard: ShardNumber,
    ops: VecDeque<Op>,
}

/// Operations of a batch that it had no time for.
#[derive(Default)]
pub(super) struct Leftovers {
    /// Partly written.
    pub begun: Vec<Op>,
    /// Not started.
    pub untouched: Vec<Op>,
}

impl Queue {
    pub fn is_empty(&self) -> bool {
        self.short.is_empty() && self.lanes.is_empty()
    }

    /// Returns the number of waiting operations.
    pub fn len(&self) -> usize {
        let long = self.lanes.iter().map(|lane| lane.ops.len());
        self.short.len() + long.sum::<usize>()
    }

    pub fn push(&mut self, op: Op) {
        match op.lane() {
            None => self.short.push_back(op),
            Some(shard) => {
                let lane = self.take_lane(shard);
                let (i, mut lane) = lane.unwrap_or_else(|| (self.lanes.len(), Lane::new(shard)));
                lane.ops.push_back(op);
                self.lanes.insert(i, lane);
            }
        }
    }

    /// Returns operations for the next batch: short ones, then long ones, lane by lane.
    pub fn take(&mut self) -> Vec<Op> {
        let (mut taken, mut bytes) = (vec![], 0);
        while let Some(op) = self.short.front() {
            bytes += op.bytes();
            if !taken.is_empty() && bytes > BATCH_BYTES_MAX {
                break;
            }
            taken.extend(self.short.pop_front());
        }
        let mut is_first = true;
        while let Some(lane) = self.lanes.front() {
            let op_bytes = lane.ops.front().map_or(0, Op::bytes);
            bytes += op_bytes;
            if !is_first && bytes > BATCH_BYTES_MAX {
                break;
            }
            is_first = false;
            if let Some(mut lane) = self.lanes.pop_front() {
                taken.extend(lane.ops.pop_front());
                if !lane.ops.is_empty() {
                    self.lanes.push_back(lane);
                }
            }
        }
        taken
    }

    /// Takes back the operations that a batch had no time for: those not started go first again,
    /// lanes that had their turn go last.
    pub fn give_back(&mut self, left: Leftovers) {
        for op in left.untouched.into_iter().rev() {
            match op.lane() {
                None => self.short.push_front(op),
                Some(shard) => {
                    let lane = self.take_lane(shard);
                    let (_, mut lane) = lane.unwrap_or_else(|| (0, Lane::new(shard)));
                    lane.ops.push_front(op);
                    self.lanes.push_front(lane);
                }
            }
        }
        for op in left.begun {
            let shard = op.lane().unwrap_or_default();
            let lane = self.take_lane(shard);
            let (_, mut lane) = lane.unwrap_or_else(|| (0, Lane::new(shard)));
            lane.ops.push_front(op);
            self.lanes.push_back(lane);
        }
    }

    /// Returns all waiting operations.
    pub fn take_all(&mut self) -> Vec<Op> {
        let lanes = std::mem::take(&mut self.lanes);
        let long = lanes.into_iter().flat_map(|lane| lane.ops);
        std::mem::take(&mut self.short)
            .into_iter()
            .chain(long)
            .collect()
    }

    fn take_lane(&mut self, shard: ShardNumber) -> Option<(usize, Lane)> {
        let i = self.lanes.iter().position(|lane| lane.shard == shard)?;
        Some((i, self.lanes.remove(i)?))
    }
}

impl Lane {
    fn new(shard: ShardNumber) -> Lane {
        Lane {
            shard,
            ops: VecDeque::new(),
        }
    }
}
