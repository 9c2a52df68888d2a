//! Erlang's external term format, as far as revision ids need it.
//!
//! CouchDB's revision id is an MD5 sum over `term_to_binary([Deleted, OldStart, OldRev, Body,
//! Atts])` with minor version 1. The tags are those of the "External Term Format" chapter of the
//! Erlang Run-Time System's manual.

use md5::{Digest, Md5};

use crate::rev::{Rev, RevHash};

pub(crate) const NEW_FLOAT: u8 = 70;
pub(crate) const SMALL_INTEGER: u8 = 97;
pub(crate) const INTEGER: u8 = 98;
pub(crate) const ATOM: u8 = 100;
pub(crate) const SMALL_TUPLE: u8 = 104;
pub(crate) const NIL: u8 = 106;
pub(crate) const STRING: u8 = 107;
pub(crate) const LIST: u8 = 108;
pub(crate) const BINARY: u8 = 109;
pub(crate) const SMALL_BIG: u8 = 110;
const VERSION: u8 = 131;

/// Returns the revision that an edit creates.
///
/// `parent` is the revision that the edit replaces; `body_term` is
/// [`EditDoc::body_term`](crate::EditDoc::body_term); `attachments` are name, content type and MD5
/// sum (of the stored bytes, so gzipped ones for compressible types) in the order of the document.
///
/// ```
/// use document::{parse_document, revision_id};
/// let edit = parse_document(br#"{"foo":"bar"}"#).unwrap();
/// let rev = revision_id(edit.deleted, None, &edit.body_term, &[]);
/// assert_eq!(rev.to_string(), "1-4c6114c65e295552ab1019e2b046b10e");
/// ```
pub fn revision_id(
    deleted: bool,
    parent: Option<&Rev>,
    body_term: &[u8],
    attachments: &[(String, String, [u8; 16])],
) -> Rev {
    let generation = parent.map_or(0, |parent| parent.generation);
    let mut head = Vec::with_capacity(64);
    head.extend_from_slice(&[VERSION, LIST, 0, 0, 0, 5]);
    write_atom(if deleted { b"true" } else { b"false" }, &mut head);
    write_integer(false, generation, &mut head);
    match parent {
        Some(parent) => write_binary(parent.hash.as_bytes(), &mut head),
        None => write_integer(false, 0, &mut head),
    }
    let mut tail = Vec::new();
    write_attachments(attachments, &mut tail);
    tail.push(NIL);
    let sum = Md5::new()
        .chain_update(&head)
        .chain_update(body_term)
        .chain_update(&tail)
        .finalize();
    Rev {
        generation: generation.saturating_add(1),
        hash: RevHash::Md5(sum.into()),
    }
}

/// CouchDB folds over the attachments, so that the last comes first.
fn write_attachments(attachments: &[(String, String, [u8; 16])], out: &mut Vec<u8>) {
    if !attachments.is_empty() {
        out.push(LIST);
        out.extend_from_slice(&(attachments.len() as u32).to_be_bytes());
    }
    for (name, content_type, md5) in attachments.iter().rev() {
        out.extend_from_slice(&[SMALL_TUPLE, 3]);
        write_binary(name.as_bytes(), out);
        write_binary(content_type.as_bytes(), out);
        write_binary(md5, out);
    }
    out.push(NIL);
}

pub(crate) fn write_atom(name: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&[ATOM, 0, name.len() as u8]);
    out.extend_from_slice(name);
}

/// Callers ensure that no string is longer than `u32::MAX` bytes.
#[inline]
pub(crate) fn write_binary(bytes: &[u8], out: &mut Vec<u8>) {
    let [a, b, c, d] = (bytes.len() as u32).to_be_bytes();
    out.extend_from_slice(&[BINARY, a, b, c, d]);
    out.extend_from_slice(bytes);
}

#[inline]
pub(crate) fn write_float(number: f64, out: &mut Vec<u8>) {
    out.push(NEW_FLOAT);
    out.extend_from_slice(&number.to_be_bytes());
}

/// Writes an integer in the shortest form that Erlang chooses for it.
#[inline]
pub(crate) fn write_integer(negative: bool, magnitude: u64, out: &mut Vec<u8>) {
    match magnitude {
        0 => out.extend_from_slice(&[SMALL_INTEGER, 0]),
        1..=0xff if !negative => out.extend_from_slice(&[SMALL_INTEGER, magnitude as u8]),
        1..=0x7fff_ffff => write_i32(negative, magnitude as u32, out),
        0x8000_0000 if negative => write_i32(negative, magnitude as u32, out),
        _ => write_big(negative, &magnitude.to_le_bytes(), out),
    }
}

fn write_i32(negative: bool, magnitude: u32, out: &mut Vec<u8>) {
    let number = if negative {
        magnitude.wrapping_neg()
    } else {
        magnitude
    };
    out.push(INTEGER);
    out.extend_from_slice(&number.to_be_bytes());
}

/// `bytes`: the magnitude, lowest byte first, at most 255 bytes without leading zeros.
pub(crate) fn write_big(negative: bool, bytes: &[u8], out: &mut Vec<u8>) {
    let length = bytes
        .iter()
        .rposition(|&byte| byte != 0)
        .map_or(0, |last| last + 1);
    debug_assert!(length <= 255);
    out.extend_from_slice(&[SMALL_BIG, length as u8, u8::from(negative)]);
    out.extend_from_slice(&bytes[..length]);
}

/// Splits off the first of some terms that this crate wrote.
pub(crate) fn split_first(terms: &[u8]) -> Option<(&[u8], &[u8])> {
    // Terms to be skipped before the end of the first one.
    let mut open = 1_u64;
    let mut at = 0;
    while open > 0 {
        let (length, inner) = head(terms.get(at..)?)?;
        at = at.checked_add(length)?;
        open = open - 1 + inner;
    }
    terms.split_at_checked(at)
}

/// Returns the length of a term without the terms inside it, and the number of those.
fn head(term: &[u8]) -> Option<(usize, u64)> {
    let u32_at_1 = || {
        term.get(1..5)?
            .first_chunk()
            .map(|bytes| u32::from_be_bytes(*bytes))
    };
    let u16_at_1 = || {
        term.get(1..3)?
            .first_chunk()
            .map(|bytes| usize::from(u16::from_be_bytes(*bytes)))
    };
    match *term.first()? {
        NIL => Some((1, 0)),
        SMALL_INTEGER => Some((2, 0)),
        INTEGER => Some((5, 0)),
        NEW_FLOAT => Some((9, 0)),
        ATOM | STRING => Some((3 + u16_at_1()?, 0)),
        BINARY => Some((5 + u32_at_1()? as usize, 0)),
        SMALL_BIG => Some((3 + usize::from(*term.get(1)?), 0)),
        SMALL_TUPLE => Some((2, u64::from(*term.get(1)?))),
        // The elements and the tail.
        LIST => Some((5, u64::from(u32_at_1()?) + 1)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn integer(number: i128) -> Vec<u8> {
        let mut out = Vec::new();
        write_integer(
            number < 0,
            u64::try_from(number.unsigned_abs()).unwrap(),
            &mut out,
        );
        out
    }

    #[test]
    fn integers_take_the_form_that_erlang_chooses() {
        assert_eq!(integer(0), [97, 0]);
        assert_eq!(integer(255), [97, 255]);
        assert_eq!(integer(256), [98, 0, 0, 1, 0]);
        assert_eq!(integer(-1), [98, 255, 255, 255, 255]);
        assert_eq!(integer(2_147_483_647), [98, 127, 255, 255, 255]);
        assert_eq!(integer(-2_147_483_648), [98, 128, 0, 0, 0]);
        assert_eq!(integer(2_147_483_648), [110, 4, 0, 0, 0, 0, 128]);
        assert_eq!(integer(-2_147_483_649), [110, 4, 1, 1, 0, 0, 128]);
        assert_eq!(integer(1 << 40), [110, 6, 0, 0, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn the_revision_of_a_known_edit_is_couchdbs() {
        // {[{<<"foo">>, <<"bar">>}]}
        let body = b"\x68\x01\x6c\0\0\0\x01\x68\x02\x6d\0\0\0\x03foo\x6d\0\0\0\x03bar\x6a";
        assert_eq!(
            revision_id(false, None, body, &[]).to_string(),
            "1-4c6114c65e295552ab1019e2b046b10e"
        );
        let empty = [SMALL_TUPLE, 1, NIL];
        assert_eq!(
            revision_id(false, None, &empty, &[]).to_string(),
            "1-967a00dff5e02add41819138abb3284d"
        );
    }
}
