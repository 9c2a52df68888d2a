//! View keys as bytes that compare in CouchDB's order of the keys.
//!
//! CouchDB's order (`couch_ejson_compare`): null, false, true, numbers, strings, arrays, objects.
//! Numbers compare by their exact values, whether they are integers or doubles. Strings compare by
//! Unicode's root collation at its default (tertiary) strength, so that different strings can be
//! equal. Arrays compare element by element; objects member by member in the order of the text,
//! first the name, then the value; a prefix sorts before longer values.
//!
//! # Sort keys
//! Equal keys have equal bytes, and no sort key is a prefix of another, so that `sort key ++
//! document id` orders rows. Every sort key starts with a byte from `0x10` to `0x2f`: the empty
//! byte string sorts before all of them, [`HIGHEST`] after, and `sort key ++ HIGHEST` after all
//! rows of that key.
//!
//! | value | bytes |
//! |---|---|
//! | null, false, true | a tag |
//! | number | a tag for its sign, then exponent and digits of its binary form (`number.rs`) |
//! | string | a tag, the collator's sort key (which has no zero bytes), `00` |
//! | array | a tag, the elements, `00` |
//! | object | a tag, for each member `01`, the name without its tag, the value; then `00` |
//!
//! The collator reads a string with a run of more than 256 combining marks as if there were a
//! U+034F after each 256 of them (`runs.rs`).
//!
//! Sort keys depend on the collator's data, so [`VERSION`] must be stored with them.
//!
//! # Raw sort keys
//! Views with the option `"collation": "raw"` use the order of Erlang's terms: numbers, false,
//! null, true, objects, arrays, strings, and strings compare byte by byte. The format is the same
//! except for other tags and for strings: `00` and `01` are written as `01 01` and `01 02`, all
//! other bytes unchanged.

mod number;
mod read;
mod runs;
mod string;
#[cfg(test)]
mod tests;
mod write;

use std::cmp::Ordering;
use std::sync::OnceLock;

pub use read::{first_elements, group_prefix, skip};

use crate::DocError;
use string::Strings;
use write::Writer;

/// The version of sort keys. It must be incremented whenever a value gets another sort key than
/// before, because the format changes or the collator follows a new version of Unicode: stored keys
/// with another version are unusable. The division of runs of more than 256 combining marks did not
/// increment it, since hardly any index has such runs.
pub const VERSION: u32 = 1;

/// Sorts after all sort keys.
pub const HIGHEST: &[u8] = &[0xff];

/// Ends strings, arrays and objects. Lower than any other continuation.
const END: u8 = 0;
/// Precedes each member of an object.
const MEMBER: u8 = 1;

/// The first byte of each kind of value.
struct Tags {
    null: u8,
    no: u8,
    yes: u8,
    numbers: NumberTags,
    string: u8,
    array: u8,
    object: u8,
}

#[derive(Clone, Copy)]
struct NumberTags {
    negative: u8,
    zero: u8,
    positive: u8,
}

/// The order of views.
const TAGS: Tags = Tags {
    null: 0x10,
    no: 0x11,
    yes: 0x12,
    numbers: NumberTags {
        negative: 0x13,
        zero: 0x14,
        positive: 0x15,
    },
    string: 0x16,
    array: 0x17,
    object: 0x18,
};

/// The order of Erlang's terms, in which false, null and true are atoms and so ordered by their
/// names.
const RAW_TAGS: Tags = Tags {
    numbers: NumberTags {
        negative: 0x20,
        zero: 0x21,
        positive: 0x22,
    },
    no: 0x23,
    null: 0x24,
    yes: 0x25,
    object: 0x26,
    array: 0x27,
    string: 0x28,
};

/// Writes sort keys. Cheap to create and to share: its tables are built once.
///
/// ```
/// use document::Collator;
/// let collator = Collator::root();
/// let key = |json: &str| {
///     let mut out = Vec::new();
///     collator.write_sort_key(json.as_bytes(), &mut out).unwrap();
///     out
/// };
/// assert!(key(r#""a""#) < key(r#""A""#) && key(r#""A""#) < key(r#""b""#));
/// assert!(key("9007199254740992.0") < key("9007199254740993"));
/// assert_eq!(key("[1,{}]"), key("[ 1.0, {} ]"));
/// ```
#[derive(Clone, Copy)]
pub struct Collator {
    strings: &'static Strings,
}

impl Collator {
    /// Returns the collator of the root locale, the one that CouchDB uses.
    pub fn root() -> Self {
        static STRINGS: OnceLock<Strings> = OnceLock::new();
        Self {
            strings: STRINGS.get_or_init(Strings::new),
        }
    }

    /// Appends the sort key of a JSON value. On an error nothing is appended.
    ///
    /// # Errors
    /// [`DocError::InvalidJson`], [`DocError::TooDeep`], [`DocError::IntegerTooLarge`].
    pub fn write_sort_key(&self, json: &[u8], out: &mut Vec<u8>) -> Result<(), DocError> {
        let start = out.len();
        let strings = self.strings;
        let written = Writer::new(json, &TAGS).write(out, |text, out| {
            strings.write(text, out);
        });
        if written.is_err() {
            out.truncate(start);
        }
        written
    }

    /// Appends the sort key of a JSON value in a view with the option `"collation": "raw"`. On an
    /// error nothing is appended.
    ///
    /// # Errors
    /// [`DocError::InvalidJson`], [`DocError::TooDeep`], [`DocError::IntegerTooLarge`].
    pub fn write_raw_sort_key(&self, json: &[u8], out: &mut Vec<u8>) -> Result<(), DocError> {
        write_raw_sort_key(json, out)
    }

    /// Compares two strings.
    pub fn compare_strings(&self, left: &str, right: &str) -> Ordering {
        self.strings.compare(left, right)
    }
}

fn write_raw_sort_key(json: &[u8], out: &mut Vec<u8>) -> Result<(), DocError> {
    let start = out.len();
    let written = Writer::new(json, &RAW_TAGS).write(out, string::write_raw);
    if written.is_err() {
        out.truncate(start);
    }
    written
}

/// Compares two JSON values as Erlang compares CouchDB's terms for them: the order of raw sort
/// keys.
///
/// Text that is not JSON compares by its bytes, after all JSON.
///
/// ```
/// use std::cmp::Ordering;
/// use document::collation::compare_erlang;
/// assert_eq!(compare_erlang(b"1", b"null"), Ordering::Less);
/// assert_eq!(compare_erlang(b"{}", b"[]"), Ordering::Less);
/// assert_eq!(compare_erlang(br#""B""#, br#""a""#), Ordering::Less);
/// ```
pub fn compare_erlang(left: &[u8], right: &[u8]) -> Ordering {
    if left == right {
        return Ordering::Equal;
    }
    let term = |json: &[u8]| {
        let mut out = Vec::with_capacity(json.len() + 16);
        if write_raw_sort_key(json, &mut out).is_err() {
            out.extend_from_slice(HIGHEST);
            out.extend_from_slice(json);
        }
        out
    };
    term(left).cmp(&term(right))
}
