//! The findings of a check.

use serde::Serialize;

/// A place in a function that depends on the engine, or a function that does not work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The database.
    pub database: String,
    /// The design document: `_design/name`.
    pub design: String,
    /// The path of the function in it: `views/by_day/map`.
    pub function: String,
    /// The line of the source, from 1, where one is known.
    pub line: Option<u32>,
    /// The column in that line, from 1.
    pub column: Option<u32>,
    /// The difference, in a word: `instanceof`.
    pub kind: &'static str,
    /// `fails` or `differs`.
    pub effect: &'static str,
    /// The place in the source.
    pub code: String,
    /// How the engines differ, or what happened.
    pub differs: String,
    /// The replacement.
    pub instead: String,
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The necessary changes, in the order of databases, design documents and paths.
    pub findings: Vec<Finding>,
    /// Other remarks: functions that threw for some documents, or that could not be checked.
    pub notes: Vec<String>,
    /// Databases that could not be read, and why.
    pub not_checked: Vec<String>,
    /// Databases that were read.
    pub databases: u64,
    /// Design documents that were read.
    pub designs: u64,
    /// Functions and modules that were checked.
    pub functions: u64,
    /// Documents that functions were run with.
    pub documents: u64,
}

impl Report {
    /// Adds the report of a database.
    pub(crate) fn add(&mut self, other: Report) {
        self.findings.extend(other.findings);
        self.notes.extend(other.notes);
        self.designs += other.designs;
        self.functions += other.functions;
        self.documents += other.documents;
    }
}
