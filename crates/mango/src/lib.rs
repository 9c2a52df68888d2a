//! Mango selectors: which documents a query asks for, and which of their fields it wants.
//!
//! [`Selector::parse`] reads a selector once, checks it, and [`Selector::matches`] then judges any number of documents.
//! [`Fields`] is the `fields` option. Values are compared in the order of views ([`compare`]).
//!
//! ```
//! use mango::Selector;
//! use serde_json::json;
//!
//! let selector = Selector::parse(&json!({"type": "bird", "size.wings": {"$gte": 2}})).unwrap();
//! assert!(selector.matches(&json!({"type": "bird", "size": {"wings": 2}})));
//! assert!(!selector.matches(&json!({"type": "bird"})));
//! ```

#![warn(missing_docs)]

mod collate;
mod condition;
mod error;
mod fields;
mod parse;
mod path;
mod selector;

pub use collate::{compare, compare_raw};
pub use error::SelectorError;
pub use fields::{Fields, project};
pub use parse::{CONDITIONS_MAX, DEPTH_MAX, REGEX_SIZE_MAX_BYTES, REGEXES_MAX};
pub use path::FieldPath;
pub use selector::Selector;
