//! The form of Raft's messages.

use bytes::{Buf, BufMut, Bytes};
use raft::eraftpb::{Entry, EntryType, Message, MessageType, Snapshot};

use crate::state::{get_members, put_members};
use crate::wire::{DecodeError, Result, get_bytes, put_bytes, put_count};

/// Messages of Raft that nodes may send; their positions are their numbers. Proposals are not among
/// them: they have a message of their own.
const RAFT_TYPES: [MessageType; 11] = [
    MessageType::MsgAppend,
    MessageType::MsgAppendResponse,
    MessageType::MsgRequestVote,
    MessageType::MsgRequestVoteResponse,
    MessageType::MsgSnapshot,
    MessageType::MsgHeartbeat,
    MessageType::MsgHeartbeatResponse,
    MessageType::MsgTimeoutNow,
    MessageType::MsgRequestPreVote,
    MessageType::MsgRequestPreVoteResponse,
    MessageType::MsgTransferLeader,
];

/// Kinds of entries; their positions are their numbers.
const ENTRY_TYPES: [EntryType; 3] = [
    EntryType::EntryNormal,
    EntryType::EntryConfChange,
    EntryType::EntryConfChangeV2,
];

/// Appends a message of Raft. Returns whether it is one that nodes send to each other.
pub(crate) fn put_raft(message: &Message, out: &mut Vec<u8>) -> bool {
    let kind = message.get_msg_type();
    let Some(kind) = RAFT_TYPES.iter().position(|known| *known == kind) else {
        return false;
    };
    out.put_u8(kind as u8);
    for number in [
        message.get_to(),
        message.get_from(),
        message.get_term(),
        message.get_log_term(),
        message.get_index(),
        message.get_commit(),
        message.get_commit_term(),
        message.get_request_snapshot(),
        message.get_reject_hint(),
    ] {
        out.put_u64_le(number);
    }
    out.put_u8(u8::from(message.get_reject()));
    out.put_i64_le(message.get_priority());
    put_bytes(message.get_context(), out);
    put_count(message.get_entries().len(), out);
    for entry in message.get_entries() {
        put_entry(entry, out);
    }
    match message.get_snapshot().is_empty() {
        true => out.put_u8(0),
        false => {
            out.put_u8(1);
            put_snapshot(message.get_snapshot(), out);
        }
    }
    true
}

/// Reads a message of Raft.
pub(crate) fn get_raft(bytes: &mut Bytes) -> Result<Message> {
    let mut message = Message::default();
    let kind = usize::from(bytes.try_get_u8()?);
    message.set_msg_type(*RAFT_TYPES.get(kind).ok_or(DecodeError::Form)?);
    message.set_to(bytes.try_get_u64_le()?);
    message.set_from(bytes.try_get_u64_le()?);
    message.set_term(bytes.try_get_u64_le()?);
    message.set_log_term(bytes.try_get_u64_le()?);
    message.set_index(bytes.try_get_u64_le()?);
    message.set_commit(bytes.try_get_u64_le()?);
    message.set_commit_term(bytes.try_get_u64_le()?);
    message.set_request_snapshot(bytes.try_get_u64_le()?);
    message.set_reject_hint(bytes.try_get_u64_le()?);
    message.set_reject(bytes.try_get_u8()? != 0);
    message.set_priority(bytes.try_get_i64_le()?);
    message.set_context(get_bytes(bytes)?);
    let mut entries = vec![];
    for _ in 0..bytes.try_get_u32_le()? {
        entries.push(get_entry(bytes)?);
    }
    message.set_entries(entries.into());
    if bytes.try_get_u8()? != 0 {
        message.set_snapshot(get_snapshot(bytes)?);
    }
    Ok(message)
}

fn put_entry(entry: &Entry, out: &mut Vec<u8>) {
    let kind = entry.get_entry_type();
    let kind = ENTRY_TYPES.iter().position(|known| *known == kind);
    // All kinds are listed.
    out.put_u8(kind.unwrap_or(0) as u8);
    out.put_u64_le(entry.get_term());
    out.put_u64_le(entry.get_index());
    put_bytes(entry.get_data(), out);
}

fn get_entry(bytes: &mut Bytes) -> Result<Entry> {
    let mut entry = Entry::default();
    let kind = usize::from(bytes.try_get_u8()?);
    entry.set_entry_type(*ENTRY_TYPES.get(kind).ok_or(DecodeError::Form)?);
    entry.set_term(bytes.try_get_u64_le()?);
    entry.set_index(bytes.try_get_u64_le()?);
    entry.set_data(get_bytes(bytes)?);
    Ok(entry)
}

fn put_snapshot(snapshot: &Snapshot, out: &mut Vec<u8>) {
    let about = snapshot.get_metadata();
    out.put_u64_le(about.get_index());
    out.put_u64_le(about.get_term());
    put_members(about.get_conf_state(), out);
    put_bytes(snapshot.get_data(), out);
}

fn get_snapshot(bytes: &mut Bytes) -> Result<Snapshot> {
    let mut snapshot = Snapshot::default();
    let about = snapshot.mut_metadata();
    about.set_index(bytes.try_get_u64_le()?);
    about.set_term(bytes.try_get_u64_le()?);
    about.set_conf_state(get_members(bytes)?);
    snapshot.set_data(get_bytes(bytes)?);
    Ok(snapshot)
}
