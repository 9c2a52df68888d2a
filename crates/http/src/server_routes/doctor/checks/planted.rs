//! Facts for the tests of checks.

use super::Check;
use crate::server_routes::doctor::facts::{
    Cluster, Database, Databases, Facts, Machine, Operation,
};
use crate::server_routes::doctor::finding::Severity;

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
