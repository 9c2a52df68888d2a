//! Entry points for fuzzing: each takes any bytes, must not panic, and asserts what always holds.

use crate::contents::Place;
use crate::meta::ShardMeta;
use crate::purges;
use crate::record::{Record, RecordHead};
use crate::row::{Body, Row};
use crate::shard::decode_local;
use crate::varint::{Reader, put};

/// Fuzzes the decoders of stored values: whatever decodes encodes to an equivalent value.
pub fn stored(bytes: &[u8]) {
    record(bytes);
    row(bytes);
    if let Ok(meta) = ShardMeta::decode(bytes) {
        assert_eq!(ShardMeta::decode(&meta.encode()).ok(), Some(meta));
    }
    if let Ok(place) = Place::decode(bytes) {
        assert_eq!(Place::decode(&place.encode()).ok(), Some(place));
    }
    crate::slot::rows::decode_any(bytes);
    crate::slot::decode_any_frame(bytes);
    let _ = (purges::decode(1, bytes), decode_local(bytes));
    let mut reader = Reader::new(bytes, "number");
    if let Ok(number) = reader.varint() {
        let mut again = vec![];
        put(number, &mut again);
        assert_eq!([&again, reader.rest].concat(), bytes);
    }
}

fn record(bytes: &[u8]) {
    let Ok(record) = Record::decode(bytes) else {
        let _ = RecordHead::decode(bytes);
        return;
    };
    if record.tree.is_empty() {
        return;
    }
    let mut again = vec![];
    record.encode(&mut again);
    let read = Record::decode(&again).map(|r| (r.seq, r.tree));
    assert_eq!(read.ok(), Some((record.seq, record.tree)));
}

fn row(bytes: &[u8]) {
    // Seqs that rows count back from may be before the beginning.
    for seq in [0, 7, u64::MAX] {
        let Ok(row) = Row::decode(seq, bytes) else {
            return;
        };
        assert!(row.winner_seq <= seq && row.delta.supersedes <= seq);
        if let Body::Inline(body) = row.body {
            assert!(body.len() < bytes.len());
        }
        if let Ok(others) = row.other_leaves() {
            assert!(others.len() <= bytes.len());
        }
    }
}
