//! Facts for the tests of checks.

use std::time::Duration;

use database::{DesignFacts, ViewFacts};

use crate::check::Check;
use crate::facts::{Cluster, Database, Databases, Facts, Machine, Operation};
use crate::finding::Severity;

/// A design document with an index that is built and used.
pub fn design(id: &str, language: &str, views: Vec<ViewFacts>) -> DesignFacts {
    DesignFacts {
        id: format!("_design/{id}"),
        language: language.to_owned(),
        signature: id.to_owned(),
        is_built: true,
        was_used: Some(true),
        views,
        open: None,
        text_indexes: vec![],
    }
}

/// A server that has run for ten days, with one database.
pub fn facts(documents: u64, designs: Vec<DesignFacts>) -> Facts {
    let db = Database {
        name: "db".into(),
        documents,
        external_bytes: documents * 4096,
        designs,
        ..Database::default()
    };
    Facts {
        uptime: Duration::from_secs(10 * 86_400),
        databases: Databases {
            all: vec![db],
            ..Databases::default()
        },
        operation: Operation {
            unused_index_time: Duration::from_secs(7 * 86_400),
            ..Operation::default()
        },
        ..Facts::default()
    }
}

/// How bad the findings of a check are.
pub fn severities(check: &Check, facts: impl Into<Facts>) -> Vec<Severity> {
    let found = check.run(&facts.into()).unwrap();
    found.iter().map(|finding| finding.severity).collect()
}

impl From<Machine> for Facts {
    fn from(machine: Machine) -> Facts {
        Facts {
            machine,
            ..Facts::default()
        }
    }
}

impl From<Database> for Facts {
    fn from(database: Database) -> Facts {
        let databases = Databases {
            all: vec![database],
            ..Databases::default()
        };
        Facts {
            databases,
            ..Facts::default()
        }
    }
}

impl From<Operation> for Facts {
    fn from(operation: Operation) -> Facts {
        Facts {
            operation,
            ..Facts::default()
        }
    }
}

impl From<Cluster> for Facts {
    fn from(cluster: Cluster) -> Facts {
        Facts {
            cluster: Some(cluster),
            ..Facts::default()
        }
    }
}
