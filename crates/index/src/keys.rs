//! Keys and values of an index's rows.
//!
//! A row's key is the index's number, the view, and its *place*: the sort key of the emitted key,
//! the document's id and the number of the row among those of one document with the same key.
//! Places compare as bytes in the order of the view.

use storage::ShardNumber;
use storage::varint::{Reader, put};

use crate::Error;

/// Bytes of a row's key before its place: the index's number and the view.
pub const VIEW_LEN: usize = 6;
/// Closes a document id in a place; ids escape it.
const END: u8 = 0;
const ESCAPED: u8 = 0xff;

/// First bytes of all keys of a view.
pub fn view_prefix(index: ShardNumber, view: u16) -> [u8; VIEW_LEN] {
    let mut k = [0; VIEW_LEN];
    k[..4].copy_from_slice(&index.to_be_bytes());
    k[4..].copy_from_slice(&view.to_be_bytes());
    k
}

/// Returns the key of the row at `place`.
pub fn row_key(index: ShardNumber, view: u16, place: &[u8]) -> Vec<u8> {
    let mut k = Vec::with_capacity(VIEW_LEN + place.len());
    k.extend_from_slice(&view_prefix(index, view));
    k.extend_from_slice(place);
    k
}

/// Appends bytes so that they end recognisably and compare as before.
pub fn put_terminated(text: &[u8], out: &mut Vec<u8>) {
    let mut rest = text;
    while let Some(i) = rest.iter().position(|&b| b == END) {
        out.extend_from_slice(&rest[..=i]);
        out.push(ESCAPED);
        rest = &rest[i + 1..];
    }
    out.extend_from_slice(rest);
    out.push(END);
}

/// Returns the bytes before the terminator, and what follows it.
pub(crate) fn take_terminated(mut from: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut out = Vec::with_capacity(from.len());
    loop {
        let i = from.iter().position(|&b| b == END)?;
        out.extend_from_slice(&from[..i]);
        from = &from[i + 1..];
        if from.first() != Some(&ESCAPED) {
            return Some((out, from));
        }
        out.push(END);
        from = &from[1..];
    }
}

/// Appends the part of a place that follows the sort key.
pub fn put_place_end(id: &str, ordinal: u32, out: &mut Vec<u8>) {
    put_terminated(id.as_bytes(), out);
    if ordinal > 0 {
        // Below 2^24, so that the first byte differs from the first byte of every escape.
        out.extend_from_slice(&ordinal.to_be_bytes());
    }
}

/// The stored value of a row.
#[derive(Clone, Copy, Debug)]
pub struct RowValue<'a> {
    /// Length of the place's part before the document's id.
    pub sort_len: usize,
    /// JSON text.
    pub key: &'a [u8],
    /// JSON text.
    pub value: &'a [u8],
}

impl<'a> RowValue<'a> {
    /// Appends the stored form.
    pub fn encode(sort_len: usize, key: &[u8], value: &[u8], out: &mut Vec<u8>) {
        put(sort_len as u64, out);
        put(key.len() as u64, out);
        out.extend_from_slice(key);
        out.extend_from_slice(value);
    }

    /// Reads the stored form.
    pub fn decode(stored: &'a [u8]) -> Result<RowValue<'a>, Error> {
        let mut r = Reader::new(stored, "index row");
        let sort_len = r.varint()? as usize;
        let key = r.slice()?;
        Ok(RowValue {
            sort_len,
            key,
            value: r.rest,
        })
    }
}

/// Returns the document id in a place.
pub fn id_of(place: &[u8], sort_len: usize) -> Result<String, Error> {
    let corrupt = Error::Storage(storage::Error::Corrupt("index row"));
    let Some((id, _)) = place.get(sort_len..).and_then(take_terminated) else {
        return Err(corrupt);
    };
    String::from_utf8(id).map_err(|_| corrupt)
}

/// One row that a document has in an index, as the back-index keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackEntry<'a> {
    /// The view, by its number in the index.
    pub view: u16,
    /// The row's number among those of the document with the same key.
    pub ordinal: u32,
    /// Length of the row's key and value as JSON text.
    pub bytes: u32,
    /// The place's part before the document's id.
    pub sort: &'a [u8],
}

impl BackEntry<'_> {
    /// Appends the stored form.
    pub fn put(&self, out: &mut Vec<u8>) {
        put(u64::from(self.view), out);
        put(u64::from(self.ordinal), out);
        put(u64::from(self.bytes), out);
        put(self.sort.len() as u64, out);
        out.extend_from_slice(self.sort);
    }

    /// Reads all entries of a document.
    pub fn decode_all(stored: &[u8]) -> Result<Vec<BackEntry<'_>>, Error> {
        let mut r = Reader::new(stored, "back-index");
        let mut all = vec![];
        while !r.rest.is_empty() {
            all.push(BackEntry {
                view: r.varint()? as u16,
                ordinal: r.varint()? as u32,
                bytes: r.varint()? as u32,
                sort: r.slice()?,
            });
        }
        Ok(all)
    }
}

/// Returns the first bytes that sort after every key with the prefix; `None` when no such bytes
/// exist.
pub fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let n = prefix.iter().rposition(|&b| b != 0xff)?;
    let mut out = prefix[..=n].to_vec();
    out[n] += 1;
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn places_of_one_key_compare_as_ids_and_give_them_back(a in ".{0,8}", b in ".{0,8}", n in 0u32..3, m in 0u32..3) {
            let place = |id: &str, n| { let mut p = b"key".to_vec(); put_place_end(id, n, &mut p); p };
            let (x, y) = (place(&a, n), place(&b, m));
            prop_assert_eq!(x.cmp(&y), (a.as_bytes(), n).cmp(&(b.as_bytes(), m)));
            prop_assert_eq!(id_of(&x, 3).unwrap(), a);
        }

        #[test]
        fn back_entries_survive_storing(rows in proptest::collection::vec((0u16..9, 0u32..300, 0u32..1000, proptest::collection::vec(any::<u8>(), 0..20)), 0..5)) {
            let mut out = vec![];
            let all: Vec<BackEntry> = rows.iter().map(|(view, ordinal, bytes, sort)| BackEntry { view: *view, ordinal: *ordinal, bytes: *bytes, sort }).collect();
            for e in &all { e.put(&mut out); }
            prop_assert_eq!(BackEntry::decode_all(&out).unwrap(), all);
        }
    }

    #[test]
    fn keys_and_values_have_these_bytes() {
        let hex = |bytes: &[u8]| -> String { bytes.iter().map(|b| format!("{b:02x}")).collect() };
        assert_eq!(hex(&row_key(258, 3, b"p")), "00000102000370");
        let mut place = vec![];
        put_place_end("a\0b", 0, &mut place);
        put_place_end("c", 2, &mut place);
        assert_eq!(hex(&place), "6100ff6200630000000002");
        let mut row = vec![];
        RowValue::encode(300, b"[1]", b"null", &mut row);
        assert_eq!(hex(&row), "ac02035b315d6e756c6c");
        let mut back = vec![];
        let entry = BackEntry {
            view: 1,
            ordinal: 2,
            bytes: 300,
            sort: b"k",
        };
        entry.put(&mut back);
        assert_eq!(hex(&back), "0102ac02016b");
    }

    #[test]
    fn a_successor_is_above_every_longer_key() {
        assert_eq!(successor(b"a\xff"), Some(b"b".to_vec()));
        assert_eq!(successor(b"\xff\xff"), None);
    }
}
