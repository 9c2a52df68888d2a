//! Keys of contents.

use document::ContentId;

use crate::keys::ShardNumber;

const CHUNK: u8 = b'c';
const PLACE: u8 = b'h';
const REFERENCE: u8 = b'r';

fn key(home: ShardNumber, kind: u8, rest: &[&[u8]]) -> Vec<u8> {
    let mut key = Vec::with_capacity(64);
    key.extend_from_slice(&home.to_be_bytes());
    key.push(kind);
    for part in rest {
        key.extend_from_slice(part);
    }
    key
}

pub fn chunk(home: ShardNumber, number: u64, chunk: u32) -> Vec<u8> {
    key(home, CHUNK, &[&number.to_be_bytes(), &chunk.to_be_bytes()])
}

pub fn place(home: ShardNumber, id: &ContentId) -> Vec<u8> {
    key(home, PLACE, &[id])
}

/// The first key of places, and the first after them.
pub fn places(home: ShardNumber) -> (Vec<u8>, Vec<u8>) {
    (key(home, PLACE, &[]), key(home, PLACE + 1, &[]))
}

/// What all references to a content begin with.
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

/// The catalogue's entry of an upload that nothing refers to yet.
pub(crate) fn upload(home: ShardNumber, number: u64) -> [u8; 13] {
    let mut key = [crate::keys::meta::UPLOAD; 13];
    key[1..5].copy_from_slice(&home.to_be_bytes());
    key[5..].copy_from_slice(&number.to_be_bytes());
    key
}
