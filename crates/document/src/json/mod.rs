//! JSON text: its normal form, and the documents in it.
//!
//! A body is read once: one pass over the bytes checks them, writes the text to store, and writes
//! the Erlang term that the revision id is a hash of. The rules are those of CouchDB's JSON library
//! (jiffy):
//!
//! - Of members with the same name the last one wins, and keeps its later position.
//! - Integers of any size are kept (up to 255 bytes in binary). `-0` is `0`.
//! - Other numbers become doubles, and are written with the fewest digits that read back as the same double, in the style of
//!   Erlang: `1e2` is `100.0`, `1000` with a fraction of 0 is `1.0e3`. `-0.0` is written `0.0`, though it counts as `-0.0` in the
//!   revision id. Bodies that were stored by earlier versions have the style of ECMAScript: `1000.0`, `1e+22`.
//! - Strings are written unchanged except for `"`, `\` and control characters.
//!
//! Stored text was checked, and is read without being parsed: [`skip`] finds the end of a value,
//! [`MemberIter`] and [`Elements`] iterate over its contents. Text that arrives in pieces has
//! [`skip::StringEnd`]; JavaScript (`quickjs`) and query servers scan their messages themselves.

mod document;
mod error;
mod number;
mod parser;
pub mod skip;
mod string;
#[cfg(test)]
mod tests;
mod walk;

pub use document::{BulkDocs, EditDoc, parse_bulk_docs, parse_document, parse_some_bulk_docs};
pub use error::DocError;
pub(crate) use number::decimal_to_bytes;
pub use number::{Number, differ_in_doubles_only, read_number, write_float};
pub(crate) use string::{find_special, unescape, write_escaped};
pub use walk::{Elements, MemberIter, is_name, member, members, name_text, string_text};

use std::borrow::Cow;

use crate::Rev;
use parser::Parser;

/// How deep objects and arrays may be nested.
pub const DEPTH_MAX: usize = 4096;

/// The longest input in bytes: terms count with 32 bits.
pub const INPUT_LENGTH_MAX: usize = i32::MAX as usize;

/// Returns the normal form of a JSON value.
///
/// ```
/// let text = document::normalise(br#" {"a": 1e3, "a": "\u00e9\/"} "#).unwrap();
/// assert_eq!(text, r#"{"a":"é/"}"#.as_bytes());
/// ```
///
/// # Errors
/// [`DocError::InvalidJson`], [`DocError::TooDeep`], [`DocError::TooLong`],
/// [`DocError::IntegerTooLarge`].
pub fn normalise(input: &[u8]) -> Result<Vec<u8>, DocError> {
    let mut parser = Parser::<true, false>::new(input)?;
    parser.value()?;
    parser.finish()?;
    Ok(parser.out)
}

/// Returns the Erlang term (without the leading version byte) of a body in normal form, from which
/// [`revision_id`] computes a revision.
///
/// The term is that of the original text except where that held `-0.0`, whose sign is not stored.
///
/// [`revision_id`]: crate::revision_id
///
/// # Errors
/// See [`normalise`].
pub fn body_term(normalised: &[u8]) -> Result<Vec<u8>, DocError> {
    let mut parser = Parser::<false, true>::new(normalised)?;
    parser.value()?;
    parser.finish()?;
    Ok(parser.term)
}

/// Returns whether a term may contain `-0.0`, so that it cannot be derived from the stored text
/// ([`body_term`]).
pub fn has_negative_zero(term: &[u8]) -> bool {
    // NEW_FLOAT_EXT with nothing but the sign.
    const NEGATIVE_ZERO: [u8; 9] = [70, 0x80, 0, 0, 0, 0, 0, 0, 0];
    memchr::memmem::find(term, &NEGATIVE_ZERO).is_some()
}

/// Reads the string whose opening quote is at `from`, and returns its end: the position after the
/// closing quote. Invalid UTF-8 becomes U+FFFD.
///
/// ```
/// use document::json::read_string;
/// let (text, end) = read_string(br#"{"a\u0062":1}"#, 1).unwrap();
/// assert_eq!((&*text, end), ("ab", 10));
/// ```
///
/// # Errors
/// [`DocError::InvalidJson`].
pub fn read_string(input: &[u8], from: usize) -> Result<(Cow<'_, str>, usize), DocError> {
    if input.get(from) != Some(&b'"') {
        return Err(DocError::InvalidJson);
    }
    let start = from + 1;
    let end = find_special(input, start);
    if input.get(end) == Some(&b'"') {
        return Ok((String::from_utf8_lossy(&input[start..end]), end + 1));
    }
    let mut text = Vec::new();
    let end = unescape(input, start, &mut text)?;
    let text = String::from_utf8(text)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    Ok((Cow::Owned(text), end + 1))
}

/// Appends a JSON string.
///
/// ```
/// let mut out = Vec::new();
/// document::write_json_string("a\"\n\u{1f}/é", &mut out);
/// assert_eq!(out, r#""a\"\n\u001F/é""#.as_bytes());
/// ```
pub fn write_json_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    write_escaped(text, out);
    out.push(b'"');
}

/// Appends a stored document as a client sees it, without the closing brace, so that the caller can
/// add further members.
///
/// `body` is a stored body ([`EditDoc::body`]). CouchDB's order is `_id`, `_rev`, the body's
/// members, `_deleted` (only when true): these are written here. Then follow, if requested,
/// `_revisions`, `_revs_info`, `_local_seq`, `_conflicts`, `_deleted_conflicts` and `_attachments`.
///
/// ```
/// use document::{Rev, with_members};
/// let mut out = Vec::new();
/// with_members("a", &Rev::parse("1-b").unwrap(), false, br#"{"x":1}"#, &mut out);
/// out.push(b'}');
/// assert_eq!(out, br#"{"_id":"a","_rev":"1-b","x":1}"#);
/// ```
pub fn with_members(id: &str, rev: &Rev, deleted: bool, body: &[u8], out: &mut Vec<u8>) {
    out.reserve(id.len() + body.len() + 96);
    out.extend_from_slice(b"{\"_id\":");
    write_json_string(id, out);
    out.extend_from_slice(b",\"_rev\":");
    rev.write_json_to(out);
    let members = body
        .strip_prefix(b"{")
        .and_then(|body| body.strip_suffix(b"}"))
        .unwrap_or_default();
    if !members.is_empty() {
        out.push(b',');
        out.extend_from_slice(members);
    }
    if deleted {
        out.extend_from_slice(b",\"_deleted\":true");
    }
}
