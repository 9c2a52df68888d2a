//! Keys of contents.

use document::ContentId;

use crate::Error;
use crate::keys::{SHARD_LEN, ShardNumber};

const BYTES: u8 = b'b';
const CHUNK: u8 = b'c';
const PLACE: u8 = b'h';
const REFERENCE: u8 = b'r';
const REMOVED: u8 = b'x';
/// Offset of a content's id in a key.
const ID_AT: usize = SHARD_LEN + 1;

fn key(home: ShardNumber, kind: u8, rest: &[&[u8]]) -> Vec<u8> {
    let mut key = Vec::with_capacity(64);
    key.extend_from_slice(&home.to_be_bytes());
    key.push(kind);
    for part in rest {
        key.extend_from_slice(part);
    }
    key
}

/// Returns the key of the total size of all contents.
pub fn bytes(home: ShardNumber) -> Vec<u8> {
    key(home, BYTES, &[])
}

pub fn chunk(home: ShardNumber, number: u64, chunk: u32) -> Vec<u8> {
    key(home, CHUNK, &[&number.to_be_bytes(), &chunk.to_be_bytes()])
}

/// Returns the chunk number in a chunk's key.
pub fn chunk_of(key: &[u8]) -> Result<u32, Error> {
    let chunk = key.last_chunk().ok_or(Error::Corrupt("chunk key"))?;
    Ok(u32::from_be_bytes(*chunk))
}

/// Returns the range of chunk keys: first, and end (exclusive).
pub fn all_chunks(home: ShardNumber) -> (Vec<u8>, Vec<u8>) {
    (key(home, CHUNK, &[]), key(home, CHUNK + 1, &[]))
}

/// Returns the content's number and the chunk number in a chunk's key.
pub fn number_and_chunk_of(key: &[u8]) -> Result<(u64, u32), Error> {
    let corrupt = || Error::Corrupt("chunk key");
    let rest = key.get(ID_AT..).ok_or_else(corrupt)?;
    let (number, chunk) = rest.split_first_chunk().ok_or_else(corrupt)?;
    let chunk = chunk.try_into().map_err(|_| corrupt())?;
    Ok((u64::from_be_bytes(*number), u32::from_be_bytes(chunk)))
}

pub fn place(home: ShardNumber, id: &ContentId) -> Vec<u8> {
    key(home, PLACE, &[id])
}

/// Returns the range of place keys: first, and end (exclusive).
pub fn places(home: ShardNumber) -> (Vec<u8>, Vec<u8>) {
    (key(home, PLACE, &[]), key(home, PLACE + 1, &[]))
}

/// Returns the content id in the key of a place or of a reference.
pub fn id_of(key: &[u8]) -> Result<&ContentId, Error> {
    let id = key.get(ID_AT..).and_then(<[u8]>::first_chunk);
    id.ok_or(Error::Corrupt("content key"))
}

/// Returns the range of reference keys: first, and end (exclusive).
pub fn all_references(home: ShardNumber) -> (Vec<u8>, Vec<u8>) {
    (key(home, REFERENCE, &[]), key(home, REFERENCE + 1, &[]))
}

/// Returns the key of a removed content whose space is still to be reclaimed.
pub fn removed(home: ShardNumber, number: u64) -> Vec<u8> {
    key(home, REMOVED, &[&number.to_be_bytes()])
}

/// Returns the range of keys of removed contents: first, and end (exclusive).
pub fn all_removed(home: ShardNumber) -> (Vec<u8>, Vec<u8>) {
    (key(home, REMOVED, &[]), key(home, REMOVED + 1, &[]))
}

/// Returns the number in the key of a removed content.
pub fn number_of(key: &[u8]) -> Result<u64, Error> {
    let number = key.get(ID_AT..).and_then(|rest| rest.try_into().ok());
    Ok(u64::from_be_bytes(
        number.ok_or(Error::Corrupt("removed content key"))?,
    ))
}

/// Returns the common prefix of all references to a content.
pub fn references(home: ShardNumber, id: &ContentId) -> Vec<u8> {
    key(home, REFERENCE, &[id])
}

pub(crate) fn reference(
    home: ShardNumber,
    id: &ContentId,
    shard: ShardNumber,
    seq: u64,
) -> Vec<u8> {
    key(
        home,
        REFERENCE,
        &[id, &shard.to_be_bytes(), &seq.to_be_bytes()],
    )
}

/// Returns the catalogue key of a content that is kept without a reference.
pub fn pinned(home: ShardNumber, id: &ContentId) -> [u8; 37] {
    let mut key = [crate::keys::meta::PINNED; 37];
    key[1..5].copy_from_slice(&home.to_be_bytes());
    key[5..].copy_from_slice(id);
    key
}

/// Returns shard and content id of such a key; `None` for another key.
pub fn split_pinned(key: &[u8]) -> Option<(ShardNumber, ContentId)> {
    let rest = key.strip_prefix(&[crate::keys::meta::PINNED])?;
    let (home, id) = rest.split_first_chunk()?;
    Some((u32::from_be_bytes(*home), id.try_into().ok()?))
}

/// Returns the catalogue key of an upload without a reference.
pub(crate) fn upload(home: ShardNumber, number: u64) -> [u8; 13] {
    let mut key = [crate::keys::meta::UPLOAD; 13];
    key[1..5].copy_from_slice(&home.to_be_bytes());
    key[5..].copy_from_slice(&number.to_be_bytes());
    key
}
