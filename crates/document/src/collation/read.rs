//! The parts of sort keys and of keys' texts.

use std::borrow::Cow;

use memchr::memchr;

use super::{END, MEMBER, NumberTags, RAW_TAGS, TAGS, number};
use crate::json::skip::{space, value};

/// Returns the length of the sort key (raw or not) at the start of `bytes`; `None` without a whole
/// one.
///
/// ```
/// use document::Collator;
/// use document::collation::skip;
/// let mut row = Vec::new();
/// Collator::root().write_sort_key(br#"["a",1]"#, &mut row).unwrap();
/// let length = row.len();
/// row.extend_from_slice(b"document id");
/// assert_eq!(skip(&row), Some(length));
/// ```
pub fn skip(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    let mut depth = 0_usize;
    loop {
        let byte = *bytes.get(at)?;
        // Elements of arrays begin with a tag, members of objects with `MEMBER`; both end with
        // `END`.
        if depth > 0 && byte == END {
            depth -= 1;
            at += 1;
        } else if depth > 0 && byte == MEMBER {
            at += 1 + string(bytes.get(at + 1..)?)?;
            continue;
        } else {
            let (length, opens) = head(bytes.get(at..)?)?;
            at += length;
            depth += usize::from(opens);
        }
        if depth == 0 {
            return Some(at);
        }
    }
}

/// Returns the length of a value without those in it, and whether it is an array or an object.
fn head(bytes: &[u8]) -> Option<(usize, bool)> {
    let tag = *bytes.first()?;
    for tags in [&TAGS, &RAW_TAGS] {
        let NumberTags {
            negative,
            zero,
            positive,
        } = tags.numbers;
        if tag == tags.array || tag == tags.object {
            return Some((1, true));
        }
        if tag == tags.string {
            return Some((1 + string(&bytes[1..])?, false));
        }
        if tag == negative || tag == positive {
            return Some((1 + number::skip(&bytes[1..], tag == negative)?, false));
        }
        if [tags.null, tags.no, tags.yes, zero].contains(&tag) {
            return Some((1, false));
        }
    }
    None
}

/// Returns the length of a string without its tag but with its end.
fn string(bytes: &[u8]) -> Option<usize> {
    memchr(END, bytes).map(|at| at + 1)
}

/// Returns the length of the prefix of the sort key at the start of `bytes` that exactly the keys
/// of its group share, when rows are grouped by the first `count` elements of their keys
/// (`group_level`).
///
/// The group of an array of at least `count` elements is all arrays with the same first `count`
/// elements. That of a shorter array, and of a key that is not an array, is the key itself. With
/// `count` zero everything is one group.
///
/// `None` when there is no sort key.
///
/// ```
/// use document::Collator;
/// use document::collation::group_prefix;
/// let key = |json: &[u8]| {
///     let mut out = Vec::new();
///     Collator::root().write_sort_key(json, &mut out).unwrap();
///     out
/// };
/// let [short, long, other] = [key(b"[1,2]"), key(b"[1,2,3]"), key(b"[1]")];
/// let prefix = &long[..group_prefix(&long, 2).unwrap()];
/// assert!(short.starts_with(prefix) && !other.starts_with(prefix));
/// assert_eq!(group_prefix(&other, 2), Some(other.len()));
/// ```
pub fn group_prefix(bytes: &[u8], count: usize) -> Option<usize> {
    let tag = *bytes.first()?;
    if count == 0 {
        return Some(0);
    }
    if tag != TAGS.array && tag != RAW_TAGS.array {
        return skip(bytes);
    }
    let mut at = 1;
    for _ in 0..count {
        if *bytes.get(at)? == END {
            return Some(at + 1);
        }
        at += skip(&bytes[at..])?;
    }
    Some(at)
}

/// Returns the text of the key of a group: of an array the array of its first `count` elements; of
/// another value the value itself.
///
/// ```
/// use document::collation::first_elements;
/// assert_eq!(&*first_elements(br#"["a",[1,2],null]"#, 2), br#"["a",[1,2]]"#);
/// assert_eq!(&*first_elements(br#""a""#, 2), br#""a""#);
/// ```
pub fn first_elements(json: &[u8], count: usize) -> Cow<'_, [u8]> {
    let start = json
        .iter()
        .position(|byte| !byte.is_ascii_whitespace())
        .unwrap_or_default();
    if json.get(start) != Some(&b'[') {
        return Cow::Borrowed(json);
    }
    if count == 0 {
        return Cow::Borrowed(b"[]");
    }
    match nth_comma(json, start + 1, count) {
        Some(end) => Cow::Owned([&json[start..end], b"]"].concat()),
        None => Cow::Borrowed(json),
    }
}

/// Returns the position of the comma after the `count`th element, when an array's elements start at
/// `from` and there is one.
fn nth_comma(json: &[u8], from: usize, count: usize) -> Option<usize> {
    let mut at = from;
    for _ in 0..count {
        at = space(json, value(json, space(json, at))?);
        if *json.get(at)? != b',' {
            return None;
        }
        at += 1;
    }
    Some(at - 1)
}
