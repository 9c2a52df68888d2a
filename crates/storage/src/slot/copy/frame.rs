//! The frames of a copy: their encoding, and checks of their completeness and order.

use super::{Counts, Space};
use crate::varint::{Reader, put, put_slice};

/// Incremented when a reader of this version could not read a copy.
const VERSION: u8 = 1;
/// Approximate maximum size of a frame, in bytes: two chunks of contents fit.
pub const ROWS_BYTES_MAX: usize = 257 << 10;
/// Longer values are sent in pieces.
pub const PIECE_BYTES: usize = 256 << 10;

/// Separates these sums from others.
const KEY: [u8; 32] = *b"settee: a frame of a slot's copy";
const SUM_LEN: usize = 16;

const BEGIN: u8 = b'b';
const SHARD: u8 = b's';
const ROWS: u8 = b'r';
const PIECE: u8 = b'p';
const END: u8 = b'e';

/// A decoded frame.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// The first one: the slot, and the number of its shards.
    Begin { slot: u16, shards: u64 },
    /// The start of a shard's rows. `counters` is empty if nothing was written to it; its time bins,
    /// if it has any, follow its counters.
    Shard { tag: &'a [u8], counters: &'a [u8] },
    /// Rows in the order of their keys.
    Rows(Space, Rows<'a>),
    /// A piece of a row's value of this total length.
    Piece {
        space: Space,
        key: &'a [u8],
        length: u64,
        piece: &'a [u8],
    },
    /// The last one.
    End(Counts),
}

/// Key and value.
type Row<'a> = (&'a [u8], &'a [u8]);

/// The rows of a frame.
#[derive(Debug, PartialEq, Eq)]
pub struct Rows<'a>(&'a [u8]);

impl<'a> Rows<'a> {
    /// Returns the next row; an error where the frame ends within it.
    pub fn next(&mut self) -> Option<Result<Row<'a>, &'static str>> {
        if self.0.is_empty() {
            return None;
        }
        let mut r = Reader::new(self.0, "frame");
        let row = r.slice().and_then(|key| Ok((key, r.slice()?)));
        self.0 = r.rest;
        Some(row.map_err(|_| MALFORMED))
    }
}

const MALFORMED: &str = "has a frame that does not decode";

/// The sum of the frame before, which is part of that of the next one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Chain([u8; SUM_LEN]);

impl Chain {
    fn step(&mut self, frame: &[u8]) -> [u8; SUM_LEN] {
        let mut hasher = blake3::Hasher::new_keyed(&KEY);
        hasher.update(&self.0);
        hasher.update(frame);
        hasher.finalize_xof().fill(&mut self.0);
        self.0
    }

    /// Ends a frame.
    pub fn seal(&mut self, mut frame: Vec<u8>) -> Vec<u8> {
        let sum = self.step(&frame);
        frame.extend_from_slice(&sum);
        frame
    }

    /// Decodes the next frame, or returns what is wrong with it.
    pub fn open<'a>(&mut self, sealed: &'a [u8]) -> Result<Frame<'a>, &'static str> {
        let Some((frame, sum)) = sealed.split_last_chunk::<SUM_LEN>() else {
            return Err(MALFORMED);
        };
        match frame.first() {
            Some(&VERSION) => {}
            Some(_) => return Err("is of another version"),
            None => return Err(MALFORMED),
        }
        if self.step(frame) != *sum {
            return Err("has a frame that is damaged, or not in its place");
        }
        decode(&frame[1..]).ok_or(MALFORMED)
    }
}

fn decode(frame: &[u8]) -> Option<Frame<'_>> {
    let (&kind, body) = frame.split_first()?;
    let mut r = Reader::new(body, "frame");
    let frame = match kind {
        BEGIN => Frame::Begin {
            slot: u16::from_be_bytes(r.bytes(2).ok()?.try_into().ok()?),
            shards: r.varint().ok()?,
        },
        SHARD => Frame::Shard {
            tag: r.slice().ok()?,
            counters: r.slice().ok()?,
        },
        ROWS => {
            let space = Space::decode(r.byte().ok()?)?;
            Frame::Rows(space, Rows(std::mem::take(&mut r.rest)))
        }
        PIECE => Frame::Piece {
            space: Space::decode(r.byte().ok()?)?,
            key: r.slice().ok()?,
            length: r.varint().ok()?,
            piece: std::mem::take(&mut r.rest),
        },
        END => Frame::End(Counts {
            shards: r.varint().ok()?,
            rows: r.varint().ok()?,
            bytes: r.varint().ok()?,
        }),
        _ => return None,
    };
    r.rest.is_empty().then_some(frame)
}

/// Decodes any bytes, for fuzzing.
pub fn decode_any(bytes: &[u8]) {
    if let Some(Frame::Rows(_, mut rows)) = decode(bytes) {
        while let Some(Ok((key, value))) = rows.next() {
            assert!(key.len() + value.len() < bytes.len());
        }
    }
}

pub fn begin(slot: u16, shards: u64) -> Vec<u8> {
    let mut frame = vec![VERSION, BEGIN];
    frame.extend_from_slice(&slot.to_be_bytes());
    put(shards, &mut frame);
    frame
}

pub fn shard(tag: &[u8], counters: &[u8]) -> Vec<u8> {
    let mut frame = vec![VERSION, SHARD];
    put_slice(tag, &mut frame);
    put_slice(counters, &mut frame);
    frame
}

/// Starts a frame of rows.
pub fn rows(space: Space) -> Vec<u8> {
    vec![VERSION, ROWS, space as u8]
}

pub fn put_row(key: &[u8], value: &[u8], frame: &mut Vec<u8>) {
    put_slice(key, frame);
    put_slice(value, frame);
}

pub fn piece(space: Space, key: &[u8], length: u64, piece: &[u8]) -> Vec<u8> {
    let mut frame = vec![VERSION, PIECE, space as u8];
    put_slice(key, &mut frame);
    put(length, &mut frame);
    frame.extend_from_slice(piece);
    frame
}

pub fn end(counts: Counts) -> Vec<u8> {
    let mut frame = vec![VERSION, END];
    for n in [counts.shards, counts.rows, counts.bytes] {
        put(n, &mut frame);
    }
    frame
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics has failed")]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    #[test]
    fn frames_have_these_bytes() {
        let counts = Counts {
            shards: 1,
            rows: 300,
            bytes: 2,
        };
        let mut of_rows = rows(Space::Local);
        put_row(b"key", b"v", &mut of_rows);
        put_row(b"", b"", &mut of_rows);
        let frames = [
            (begin(258, 1), "0162010201"),
            (shard(b"tag", b"c"), "0173037461670163"),
            (of_rows, "017205036b657901760000"),
            (
                piece(Space::Slot, b"k", 300, b"piece"),
                "017000016bac027069656365",
            ),
            (end(counts), "016501ac0202"),
        ];
        let (mut writer, mut reader) = (Chain::default(), Chain::default());
        for (frame, bytes) in frames {
            assert_eq!(hex(&frame), bytes);
            let sealed = writer.seal(frame.clone());
            assert_eq!(sealed.len(), frame.len() + SUM_LEN);
            let read = match reader.open(&sealed).unwrap() {
                Frame::Begin { slot, shards } => begin(slot, shards),
                Frame::Shard { tag, counters } => shard(tag, counters),
                Frame::Rows(space, mut all) => {
                    let mut again = rows(space);
                    while let Some(row) = all.next() {
                        let (key, value) = row.unwrap();
                        put_row(key, value, &mut again);
                    }
                    again
                }
                Frame::Piece {
                    space,
                    key,
                    length,
                    piece: bytes,
                } => piece(space, key, length, bytes),
                Frame::End(counts) => end(counts),
            };
            assert_eq!(read, frame);
        }
    }

    #[test]
    fn a_frame_that_is_damaged_missing_or_doubled_is_not_read() {
        let mut writer = Chain::default();
        let sealed = [1, 2, 3].map(|n| writer.seal(begin(n, 0)));
        for i in 0..sealed[0].len() {
            for bit in 0..8 {
                let mut damaged = sealed[0].clone();
                damaged[i] ^= 1 << bit;
                assert!(Chain::default().open(&damaged).is_err());
            }
            assert!(Chain::default().open(&sealed[0][..i]).is_err());
        }
        for second in [0, 2] {
            let mut reader = Chain::default();
            assert!(reader.open(&sealed[0]).is_ok());
            assert!(reader.open(&sealed[second]).is_err());
        }
    }
}
