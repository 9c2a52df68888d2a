//! Messages between nodes.

use bytes::Bytes;
use cluster::{NodeId, SlotNumber};
use raft::eraftpb::{Message, MessageType};

/// A message to another node.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeMessage {
    /// A message of Raft.
    Raft {
        /// The group.
        slot: SlotNumber,
        /// The message.
        message: Box<Message>,
    },
    /// A record to append, to the group's leader.
    Append(AppendRequest),
    /// The answer to an append.
    Appended {
        /// The process that sent the record.
        origin: u64,
        /// The number of the append.
        sequence: u64,
        /// Its outcome.
        outcome: AppendOutcome,
    },
    /// A request for records.
    Fetch {
        /// The number of the request.
        number: u64,
        /// The request.
        request: FetchRequest,
    },
    /// The answer to a request for records.
    Fetched {
        /// The number of the request.
        number: u64,
        /// The answer.
        fetched: Fetched,
    },
    /// The sender is alive. It leads these groups, which are idle.
    Beat(Vec<Asleep>),
    /// The receiver leads this group, which must not sleep: a follower lacks something.
    Wake(SlotNumber),
}

impl NodeMessage {
    /// Returns whether it is short, and keeps or elects a leader: it must not wait for records, or
    /// elections would follow from large writes. It may overtake other messages, as Raft permits.
    pub(crate) fn is_urgent(&self) -> bool {
        use MessageType::{
            MsgHeartbeat, MsgHeartbeatResponse, MsgRequestPreVote, MsgRequestPreVoteResponse,
            MsgRequestVote, MsgRequestVoteResponse,
        };
        match self {
            NodeMessage::Beat(_) | NodeMessage::Wake(_) => true,
            NodeMessage::Raft { message, .. } => matches!(
                message.get_msg_type(),
                MsgHeartbeat
                    | MsgHeartbeatResponse
                    | MsgRequestPreVote
                    | MsgRequestPreVoteResponse
                    | MsgRequestVote
                    | MsgRequestVoteResponse
            ),
            _ => false,
        }
    }
}

/// A record to append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppendRequest {
    /// The group.
    pub slot: SlotNumber,
    /// The process that appends.
    pub origin: u64,
    /// Its number of the append: later appends of a process to a slot have higher ones.
    pub sequence: u64,
    /// The record.
    pub record: Bytes,
}

/// The outcome of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendOutcome {
    /// It is in the log at this offset.
    Stored(u64),
    /// It is not in the log and never will be.
    Refused,
    /// It may be in the log, now or later.
    Unknown,
    /// It was not proposed: the receiver does not lead the group. Another node may, if it is known.
    NotLeader(Option<NodeId>),
}

/// A request for records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchRequest {
    /// The group.
    pub slot: SlotNumber,
    /// The offset of the first record.
    pub from: u64,
    /// Its purpose.
    pub purpose: Purpose,
}

/// The purpose of a request for records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To follow the log: the answer waits for a record.
    Follow,
    /// To read one record again, from a leader of this epoch or a later one if it is not found.
    ReadBack {
        /// The epoch.
        epoch: u64,
    },
}

/// The answer to a request for records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fetched {
    /// The log holds offsets from `start` to `end` (exclusive), among them these records.
    Found {
        /// Its first offset.
        start: u64,
        /// The offset of the next record.
        end: u64,
        /// Records from the requested offset on, without gaps. Empty at the end and outside.
        records: Vec<FoundRecord>,
    },
    /// The node cannot answer now.
    Unavailable,
}

/// A record of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundRecord {
    /// Its offset.
    pub offset: u64,
    /// Raft's term in which it was proposed.
    pub epoch: u64,
    /// Its bytes.
    pub bytes: Bytes,
}

/// A group that its leader lets sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asleep {
    /// The group.
    pub slot: SlotNumber,
    /// Its leader's id.
    pub leader: u64,
    /// Its leader's term.
    pub term: u64,
    /// The index of its last entry, which all members have.
    pub last: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heartbeats_and_votes_do_not_wait_for_records() {
        let raft = |kind| {
            let mut message = Message::default();
            message.set_msg_type(kind);
            let message = Box::new(message);
            NodeMessage::Raft { slot: 1, message }
        };
        assert!(raft(MessageType::MsgHeartbeat).is_urgent());
        assert!(raft(MessageType::MsgRequestPreVoteResponse).is_urgent());
        assert!(NodeMessage::Beat(vec![]).is_urgent());
        assert!(!raft(MessageType::MsgAppend).is_urgent());
        assert!(!raft(MessageType::MsgSnapshot).is_urgent());
    }
}
