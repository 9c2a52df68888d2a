//! The checks of `settee doctor`: from facts about a server to problems, with evidence, reason and
//! suggested actions.
//!
//! Everything here is a function of [`facts`], without any other input: neither files nor clocks.
//! The server collects the facts. [`checks`] is the table of checks, each of which returns
//! [`Finding`]s; [`report`] runs them all.

#![forbid(unsafe_code)]

mod check;
pub mod checks;
pub mod facts;
mod finding;
mod report;

pub use check::{Area, Check, Outcome};
pub use finding::{Finding, Severity};
pub use report::report;
