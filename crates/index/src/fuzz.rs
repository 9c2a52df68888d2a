//! Entry points for fuzzing: each takes any bytes, must not panic, and asserts what always holds.

use crate::keys::{BackEntry, RowValue, id_of, put_place_end, put_terminated};
use crate::reduce::Builtin;
use crate::spec::ReduceSpec;
use crate::state::{decode_block, encode_block};

/// The decoders of an index's rows, back-index and blocks: decoded values encode to equivalent
/// ones.
pub fn stored(bytes: &[u8]) {
    if let Ok(row) = RowValue::decode(bytes) {
        let mut again = vec![];
        RowValue::encode(row.sort_len, row.key, row.value, &mut again);
        let read = RowValue::decode(&again).ok();
        let read = read.map(|r| (r.sort_len, r.key, r.value));
        assert_eq!(read, Some((row.sort_len, row.key, row.value)));
        let _ = id_of(bytes, row.sort_len);
    }
    if let Ok(entries) = BackEntry::decode_all(bytes) {
        let mut again = vec![];
        entries.iter().for_each(|entry| entry.put(&mut again));
        assert_eq!(BackEntry::decode_all(&again).ok(), Some(entries));
    }
    let reduces = [
        ReduceSpec::Builtin(Builtin::Count),
        ReduceSpec::Custom(String::new()),
    ];
    if let Ok(block) = decode_block(b"fence", bytes, &reduces) {
        let mut stored = vec![];
        encode_block(&block, &mut stored);
        let again = decode_block(b"fence", &stored, &reduces);
        assert_eq!(again.map(|b| b.rows).ok(), Some(block.rows));
    }
}

/// Places of two documents' rows with one key: they compare as the ids, which are the halves of the
/// bytes, and decode to them.
pub fn places(bytes: &[u8]) {
    let (left, right) = bytes.split_at(bytes.len() / 2);
    let id = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let (left, right) = (id(left), id(right));
    let place = |id: &str| {
        let mut place = vec![];
        put_terminated(b"p", &mut place);
        put_place_end(id, 1, &mut place);
        place
    };
    let (a, b) = (place(&left), place(&right));
    assert_eq!(a.cmp(&b), left.as_bytes().cmp(right.as_bytes()));
    assert_eq!(id_of(&a, 2).ok(), Some(left));
}
