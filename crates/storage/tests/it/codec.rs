//! Stored values survive a round trip, and invalid bytes are refused without a panic.

use document::{Rev, RevHash, RevPath, Revision};
use proptest::prelude::*;
use storage::{Record, RecordHead, Row, ShardMeta, decode_local};

fn hash() -> impl Strategy<Value = RevHash> {
    prop_oneof![
        any::<[u8; 16]>().prop_map(RevHash::Md5),
        "[a-zé]{0,12}".prop_map(|t| RevHash::parse(&t)),
    ]
}

/// A revision with ancestors, none of them below generation 1.
fn path() -> impl Strategy<Value = RevPath> {
    (1u64..1 << 40, prop::collection::vec(hash(), 1..6)).prop_map(|(start, mut ids)| {
        ids.truncate(start as usize);
        RevPath { start, ids }
    })
}

fn record() -> impl Strategy<Value = Record> {
    let leaf = (path(), any::<bool>(), 1u64..1 << 50, any::<u64>());
    (
        prop::collection::vec(leaf, 1..5),
        any::<bool>(),
        1u64..1 << 50,
    )
        .prop_map(|(leaves, seq_of_winner, seq)| {
            let mut record = Record::default();
            for (path, deleted, seq, size) in leaves {
                record.tree.merge(&path, Revision { deleted, seq, size });
            }
            let winner = record.tree.winner().map(|w| w.revision.seq);
            record.seq = winner.filter(|_| seq_of_winner).unwrap_or(seq);
            record
        })
}

proptest! {
    #[test]
    fn a_record_reads_back_as_it_was_written(record in record()) {
        let mut value = vec![];
        record.encode(&mut value);
        let back = Record::decode(&value).unwrap();
        prop_assert_eq!(back.seq, record.seq);
        prop_assert_eq!(&back.tree, &record.tree);
        let head = RecordHead::decode(&value).unwrap();
        let winner = record.tree.winner().unwrap();
        prop_assert_eq!(head.seq, record.seq);
        prop_assert_eq!(head.deleted, record.is_deleted());
        prop_assert_eq!(head.winner.to_rev(), winner.rev.to_rev());
        if let Some(body) = head.body {
            prop_assert_eq!(body, (winner.revision.seq, winner.revision.size));
        }
    }

    #[test]
    fn a_record_cut_short_or_changed_never_panics(record in record(), at: prop::sample::Index, byte: u8) {
        let mut value = vec![];
        record.encode(&mut value);
        let at = at.index(value.len());
        let _ = Record::decode(&value[..at]);
        let _ = RecordHead::decode(&value[..at]);
        value[at] = byte;
        let _ = RecordHead::decode(&value);
        if let Ok(changed) = Record::decode(&value) {
            let _ = (changed.is_deleted(), changed.leaf_bytes(), changed.tree.leaves());
        }
    }

    #[test]
    fn counters_read_back_as_they_were_written(n in any::<[u64; 8]>(), digest: Option<u128>) {
        let meta = ShardMeta {
            update_seq: n[0],
            doc_count: n[1],
            doc_del_count: n[2],
            external_bytes: n[3],
            id_bytes: n[4],
            purge_seq: n[5],
            purge_floor: n[6],
            superseded_rows: n[7],
            digest,
        };
        let bytes = meta.encode();
        prop_assert_eq!(ShardMeta::decode(&bytes).unwrap(), meta);
        prop_assert!(ShardMeta::decode(&bytes[..bytes.len() - 1]).is_err());
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), seq: u64) {
        let _ = Record::decode(&bytes);
        let _ = RecordHead::decode(&bytes);
        let _ = ShardMeta::decode(&bytes);
        let _ = decode_local(&bytes);
        if let Ok(row) = Row::decode(seq, &bytes) {
            let _ = row.other_leaves();
            let _ = row.winner.to_rev();
        }
    }

    /// Random bytes seldom get far; these start with flags, small lengths and an id.
    #[test]
    fn bytes_that_look_like_a_row_never_panic(
        flags: u8,
        back in 0u8..128,
        id in "[a-z]{0,5}",
        rest in prop::collection::vec(prop_oneof![0u8..20, any::<u8>()], 0..60),
        seq: u64,
    ) {
        let mut bytes = vec![flags, back, id.len() as u8];
        bytes.extend_from_slice(id.as_bytes());
        bytes.extend_from_slice(&rest);
        if let Ok(row) = Row::decode(seq, &bytes) {
            prop_assert_eq!(row.id, id);
            let _ = row.other_leaves();
        }
    }
}

#[test]
fn a_count_of_leaves_that_the_row_cannot_hold_is_refused() {
    // Flags "other leaves", nothing superseded, id "a", winner 1-"", at this seq; then 2^63 leaves
    // in no bytes.
    let mut bytes = vec![8, 0, 1, b'a', 1, 0, 0];
    bytes.extend_from_slice(&[0x80; 9]);
    bytes.extend_from_slice(&[1, 0]);
    let row = Row::decode(1, &bytes).unwrap();
    assert!(row.other_leaves().is_err());
}

#[test]
fn local_revisions_count_from_zero() {
    let rev: Rev = storage::local_rev(7);
    assert_eq!(rev.to_string(), "0-7");
}
