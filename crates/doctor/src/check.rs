//! A check: a named function from facts to findings.

use crate::facts::Facts;
use crate::finding::Finding;

/// The subject of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Area {
    /// The machine that it runs on.
    Machine,
    /// Contents of databases.
    Data,
    /// Queries, views and indexes.
    Queries,
    /// Settings, users, replications, backups.
    Operation,
    /// The other nodes.
    Cluster,
}

impl Area {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Area::Machine => "machine",
            Area::Data => "data",
            Area::Queries => "queries",
            Area::Operation => "operation",
            Area::Cluster => "cluster",
        }
    }
}

/// The result of a check: its findings, or the reason why it could not run.
pub type Outcome = Result<Vec<Finding>, String>;

/// A check.
pub struct Check {
    /// Its name for `[doctor] ignore`.
    pub id: &'static str,
    /// Its subject.
    pub area: Area,
    /// In a few words.
    pub title: &'static str,
    /// The facts that it examines.
    pub looks_at: &'static str,
    /// The conditions of its findings.
    pub finds: fn() -> String,
    /// Why that matters.
    pub why: &'static str,
    /// A function from facts.
    pub look: fn(&Facts) -> Outcome,
}

impl Check {
    /// Looks.
    pub fn run(&self, facts: &Facts) -> Outcome {
        (self.look)(facts)
    }
}
