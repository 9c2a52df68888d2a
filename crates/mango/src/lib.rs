//! Mango selectors: which documents a query matches, and which of their fields it returns.
//!
//! [`Selector::parse`] parses and checks a selector once, and [`Selector::matches`] then tests any
//! number of documents. [`Fields`] is the `fields` option. Values are compared in the order of
//! views ([`compare`]).
//!
//! ```
//! use mango::Selector;
//! use serde_json::json;
//!
//! let selector = Selector::parse(&json!({"type": "bird", "size.wings": {"$gte": 2}})).unwrap();
//! assert!(selector.matches(&json!({"type": "bird", "size": {"wings": 2}})));
//! assert!(!selector.matches(&json!({"type": "bird"})));
//! ```

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod aggregate;
mod bookmark;
mod compare;
mod condition;
mod error;
mod fields;
pub mod index;
mod json;
mod lift;
mod limits;
mod options;
mod parse;
mod path;
mod pcre;
pub mod plan;
mod selector;
mod sort;
pub mod text;
mod work;

pub use aggregate::{Aggregate, AggregateLimits, AggregateMemory, Groups, Growth, SortedGroups};
pub use bookmark::Bookmark;
pub use error::{FindError, SelectorError};
pub use fields::{FIELDS_MAX, Fields};
pub use index::{Definition, Index, NewIndex};
pub use lift::{Doc, Lift, LiftedValue};
pub use limits::{DEPTH_MAX, Limits};
pub use options::{Defaults, Find};
pub use path::{FIELD_NAME_BYTES_MAX, FieldPath, PATH_PARTS_MAX};
pub use plan::{Choice, Intervals, Plan};
pub use selector::{Selector, TEXTS_BYTES_MAX, TextHits};
pub use sort::{Direction, Sort};
pub use text::{TextDefinition, TextKind};
pub use work::{DOCUMENT_TIME_MAX, TookTooLong};

/// Iterates over the members of an object's text: names, and texts of values.
pub fn members(object: &[u8]) -> impl Iterator<Item = (String, &[u8])> {
    json::members(object)
}

/// Iterates over the elements of an array's text.
pub fn elements(array: &[u8]) -> impl Iterator<Item = &[u8]> {
    json::Elements::of(array)
}
