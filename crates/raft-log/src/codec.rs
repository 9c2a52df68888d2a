//! The form of messages between nodes. It is our own: the library's protobuf would parse what
//! arrives from the network, and it copies the records.
//!
//! A bundle is a byte with the form's number, the number of the log, and then messages, each with its
//! length. Numbers are little-endian.

use bytes::{Buf, BufMut, Bytes};
use cluster::SlotNumber;

use crate::message::{
    AppendOutcome, AppendRequest, Asleep, FetchRequest, Fetched, FoundRecord, NodeMessage, Purpose,
};
use crate::raft_codec::{get_raft, put_raft};
use crate::wire::{DecodeError, Result, get_bytes, put_bytes, put_count};

/// Messages are sent together until a bundle has this size, in bytes; one message may exceed it.
pub const BUNDLE_BYTES_MAX: usize = 1 << 20;

/// The first byte of a bundle.
const FORM: u8 = 1;

/// Bytes of a length.
const LENGTH_BYTES: usize = 4;
/// Bytes before the first message.
const HEAD_BYTES: usize = 9;

const RAFT: u8 = 0;
const APPEND: u8 = 1;
const APPENDED: u8 = 2;
const FETCH: u8 = 3;
const FETCHED: u8 = 4;
const BEAT: u8 = 5;
const WAKE: u8 = 6;

/// Returns messages of a log as bundles, in order.
pub(crate) fn encode<'a>(log: u64, messages: impl Iterator<Item = &'a NodeMessage>) -> Vec<Bytes> {
    let mut bundles = vec![];
    let mut bundle = head(log);
    for message in messages {
        let start = bundle.len();
        put_count(0, &mut bundle);
        if !put_message(message, &mut bundle) {
            bundle.truncate(start);
            continue;
        }
        let length = (bundle.len() - start - LENGTH_BYTES) as u32;
        bundle[start..start + LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
        if bundle.len() > BUNDLE_BYTES_MAX && start > HEAD_BYTES {
            let last = bundle.split_off(start);
            bundles.push(Bytes::from(std::mem::replace(&mut bundle, head(log))));
            bundle.extend_from_slice(&last);
        }
    }
    if bundle.len() > HEAD_BYTES {
        bundles.push(Bytes::from(bundle));
    }
    bundles
}

fn head(log: u64) -> Vec<u8> {
    let mut head = vec![FORM];
    head.put_u64_le(log);
    head
}

/// Reads a bundle. One of another log has no messages: a node that does not use the newer log yet
/// must not append to it.
///
/// # Errors
/// [`DecodeError`]: nothing of it is used.
pub(crate) fn decode(log: u64, mut bundle: Bytes) -> Result<Vec<NodeMessage>> {
    if bundle.try_get_u8()? != FORM {
        return Err(DecodeError::Form);
    }
    if bundle.try_get_u64_le()? != log {
        return Ok(vec![]);
    }
    let mut messages = vec![];
    while bundle.has_remaining() {
        let mut one = get_bytes(&mut bundle)?;
        messages.push(get_message(&mut one)?);
        if one.has_remaining() {
            return Err(DecodeError::Form);
        }
    }
    Ok(messages)
}

/// Appends a message. Returns whether it is one that nodes send to each other.
fn put_message(message: &NodeMessage, out: &mut Vec<u8>) -> bool {
    match message {
        NodeMessage::Raft { slot, message } => {
            out.put_u8(RAFT);
            out.put_u16_le(*slot);
            return put_raft(message, out);
        }
        NodeMessage::Append(request) => {
            out.put_u8(APPEND);
            out.put_u16_le(request.slot);
            out.put_u64_le(request.origin);
            out.put_u64_le(request.sequence);
            put_bytes(&request.record, out);
        }
        NodeMessage::Appended {
            origin,
            sequence,
            outcome,
        } => {
            out.put_u8(APPENDED);
            out.put_u64_le(*origin);
            out.put_u64_le(*sequence);
            put_outcome(outcome, out);
        }
        NodeMessage::Fetch { number, request } => {
            out.put_u8(FETCH);
            out.put_u64_le(*number);
            put_fetch(request, out);
        }
        NodeMessage::Fetched { number, fetched } => {
            out.put_u8(FETCHED);
            out.put_u64_le(*number);
            put_fetched(fetched, out);
        }
        NodeMessage::Beat(groups) => {
            out.put_u8(BEAT);
            put_groups(groups, out);
        }
        NodeMessage::Wake(slot) => {
            out.put_u8(WAKE);
            out.put_u16_le(*slot);
        }
    }
    true
}

fn get_message(bytes: &mut Bytes) -> Result<NodeMessage> {
    Ok(match bytes.try_get_u8()? {
        RAFT => NodeMessage::Raft {
            slot: bytes.try_get_u16_le()?,
            message: Box::new(get_raft(bytes)?),
        },
        APPEND => NodeMessage::Append(AppendRequest {
            slot: bytes.try_get_u16_le()?,
            origin: bytes.try_get_u64_le()?,
            sequence: bytes.try_get_u64_le()?,
            record: get_bytes(bytes)?,
        }),
        APPENDED => NodeMessage::Appended {
            origin: bytes.try_get_u64_le()?,
            sequence: bytes.try_get_u64_le()?,
            outcome: get_outcome(bytes)?,
        },
        FETCH => NodeMessage::Fetch {
            number: bytes.try_get_u64_le()?,
            request: get_fetch(bytes)?,
        },
        FETCHED => NodeMessage::Fetched {
            number: bytes.try_get_u64_le()?,
            fetched: get_fetched(bytes)?,
        },
        BEAT => NodeMessage::Beat(get_groups(bytes)?),
        WAKE => NodeMessage::Wake(bytes.try_get_u16_le()?),
        _ => return Err(DecodeError::Form),
    })
}

fn put_outcome(outcome: &AppendOutcome, out: &mut Vec<u8>) {
    let (kind, number) = match outcome {
        AppendOutcome::Stored(offset) => (0, *offset),
        AppendOutcome::Refused => (1, 0),
        AppendOutcome::Unknown => (2, 0),
        AppendOutcome::NotLeader(None) => (3, 0),
        AppendOutcome::NotLeader(Some(leader)) => (4, *leader),
    };
    out.put_u8(kind);
    out.put_u64_le(number);
}

fn get_outcome(bytes: &mut Bytes) -> Result<AppendOutcome> {
    let (kind, number) = (bytes.try_get_u8()?, bytes.try_get_u64_le()?);
    Ok(match kind {
        0 => AppendOutcome::Stored(number),
        1 => AppendOutcome::Refused,
        2 => AppendOutcome::Unknown,
        3 => AppendOutcome::NotLeader(None),
        4 => AppendOutcome::NotLeader(Some(number)),
        _ => return Err(DecodeError::Form),
    })
}

fn put_fetch(request: &FetchRequest, out: &mut Vec<u8>) {
    out.put_u16_le(request.slot);
    out.put_u64_le(request.from);
    match request.purpose {
        Purpose::Follow => out.put_u8(0),
        Purpose::ReadBack { epoch } => {
            out.put_u8(1);
            out.put_u64_le(epoch);
        }
    }
}

fn get_fetch(bytes: &mut Bytes) -> Result<FetchRequest> {
    Ok(FetchRequest {
        slot: bytes.try_get_u16_le()?,
        from: bytes.try_get_u64_le()?,
        purpose: match bytes.try_get_u8()? {
            0 => Purpose::Follow,
            1 => Purpose::ReadBack {
                epoch: bytes.try_get_u64_le()?,
            },
            _ => return Err(DecodeError::Form),
        },
    })
}

fn put_fetched(fetched: &Fetched, out: &mut Vec<u8>) {
    match fetched {
        Fetched::Unavailable => out.put_u8(0),
        Fetched::Found {
            start,
            end,
            records,
        } => {
            out.put_u8(1);
            out.put_u64_le(*start);
            out.put_u64_le(*end);
            put_count(records.len(), out);
            for record in records {
                out.put_u64_le(record.offset);
                out.put_u64_le(record.epoch);
                put_bytes(&record.bytes, out);
            }
        }
    }
}

fn get_fetched(bytes: &mut Bytes) -> Result<Fetched> {
    match bytes.try_get_u8()? {
        0 => return Ok(Fetched::Unavailable),
        1 => {}
        _ => return Err(DecodeError::Form),
    }
    let (start, end) = (bytes.try_get_u64_le()?, bytes.try_get_u64_le()?);
    let mut records = vec![];
    for _ in 0..bytes.try_get_u32_le()? {
        records.push(FoundRecord {
            offset: bytes.try_get_u64_le()?,
            epoch: bytes.try_get_u64_le()?,
            bytes: get_bytes(bytes)?,
        });
    }
    Ok(Fetched::Found {
        start,
        end,
        records,
    })
}

fn put_groups(groups: &[Asleep], out: &mut Vec<u8>) {
    put_count(groups.len(), out);
    for group in groups {
        out.put_u16_le(group.slot);
        out.put_u64_le(group.leader);
        out.put_u64_le(group.term);
        out.put_u64_le(group.last);
    }
}

fn get_groups(bytes: &mut Bytes) -> Result<Vec<Asleep>> {
    let mut groups = vec![];
    for _ in 0..bytes.try_get_u32_le()? {
        let slot: SlotNumber = bytes.try_get_u16_le()?;
        groups.push(Asleep {
            slot,
            leader: bytes.try_get_u64_le()?,
            term: bytes.try_get_u64_le()?,
            last: bytes.try_get_u64_le()?,
        });
    }
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use raft::eraftpb::{Entry, EntryType, Message, MessageType, Snapshot};

    use super::*;

    fn raft_sample() -> Message {
        let mut raft = Message::default();
        raft.set_msg_type(MessageType::MsgAppend);
        raft.set_to(1);
        raft.set_from(2);
        raft.set_term(3);
        raft.set_reject(true);
        let mut entry = Entry::default();
        entry.set_entry_type(EntryType::EntryConfChangeV2);
        entry.set_index(9);
        entry.set_term(3);
        entry.set_data(Bytes::from_static(b"data"));
        raft.set_entries(vec![entry.clone(), entry].into());
        let mut snapshot = Snapshot::default();
        snapshot.mut_metadata().set_index(7);
        snapshot
            .mut_metadata()
            .mut_conf_state()
            .set_voters(vec![1, 2]);
        snapshot.set_data(Bytes::from_static(b"base"));
        raft.set_snapshot(snapshot);
        raft
    }

    fn samples() -> Vec<NodeMessage> {
        let request = FetchRequest {
            slot: 3,
            from: 8,
            purpose: Purpose::ReadBack { epoch: 5 },
        };
        let asleep = Asleep {
            slot: 4,
            leader: 5,
            term: 6,
            last: 7,
        };
        vec![
            NodeMessage::Raft {
                slot: 5,
                message: Box::new(raft_sample()),
            },
            NodeMessage::Append(AppendRequest {
                slot: 1,
                origin: 2,
                sequence: 3,
                record: Bytes::from_static(b"record"),
            }),
            NodeMessage::Appended {
                origin: 1,
                sequence: 2,
                outcome: AppendOutcome::NotLeader(Some(3)),
            },
            NodeMessage::Fetch { number: 1, request },
            NodeMessage::Fetched {
                number: 1,
                fetched: Fetched::Found {
                    start: 1,
                    end: 3,
                    records: vec![FoundRecord {
                        offset: 2,
                        epoch: 9,
                        bytes: Bytes::from_static(b"record"),
                    }],
                },
            },
            NodeMessage::Beat(vec![asleep]),
            NodeMessage::Wake(4),
        ]
    }

    #[test]
    fn messages_are_read_back() {
        let messages = samples();
        let bundles = encode(7, messages.iter());
        assert_eq!(bundles.len(), 1);
        assert_eq!(decode(7, bundles[0].clone()), Ok(messages));
        assert_eq!(decode(8, bundles[0].clone()), Ok(vec![]));
    }

    #[test]
    fn what_was_cut_off_or_changed_is_no_message_or_another() {
        let bundle = encode(7, samples().iter()).remove(0);
        for end in 0..bundle.len() {
            // A bundle that ends between two messages is a shorter one.
            let read = decode(7, bundle.slice(..end));
            assert_ne!(read, Ok(samples()), "{end}");
        }
        for at in 0..bundle.len() {
            let mut changed = bundle.to_vec();
            changed[at] ^= 0xff;
            // It must only return.
            let _ = decode(7, changed.into());
        }
    }

    #[test]
    fn large_messages_are_sent_apart() {
        let append = |length| {
            NodeMessage::Append(AppendRequest {
                slot: 1,
                origin: 2,
                sequence: 3,
                record: Bytes::from(vec![0; length]),
            })
        };
        let messages = [append(700 << 10), append(700 << 10), append(10)];
        let bundles = encode(7, messages.iter());
        let lengths: Vec<usize> = bundles.iter().map(Bytes::len).collect();
        assert_eq!(bundles.len(), 2, "{lengths:?}");
    }

    #[test]
    fn a_local_message_is_not_sent() {
        let mut raft = Message::default();
        raft.set_msg_type(MessageType::MsgPropose);
        let message = NodeMessage::Raft {
            slot: 1,
            message: Box::new(raft),
        };
        assert!(encode(7, [message].iter()).is_empty());
    }
}
