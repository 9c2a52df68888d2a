//! The table of checks. The manual's page has the same table, which a test compares.

mod cluster;
mod data;
mod finds;
mod machine;
mod operation;
#[cfg(test)]
mod planted;
mod texts;
mod views;
mod writes;

use super::facts::Facts;
use super::finding::Finding;

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

/// All checks, in the order of the manual.
pub static CHECKS: &[Check] = &[
    writes::WRITES,
    machine::OPEN_FILES,
    writes::CONNECTIONS,
    machine::ACCEPT_BACKLOG,
    machine::DISK_SPACE,
    machine::SLOW_SYNCS,
    machine::BLOCK_CACHE,
    machine::MEMORY,
    machine::QUEUES,
    machine::PERMISSIONS,
    machine::CONFINEMENT,
    data::RANDOM_IDS,
    data::LONG_IDS,
    data::TINY_BULKS,
    data::CONFLICTS,
    data::TOMBSTONES,
    data::COMPACTION,
    data::EXPIRY,
    finds::SCANS,
    finds::EXAMINED,
    views::UNUSED_INDEXES,
    views::DUPLICATE_INDEXES,
    views::WHOLE_DOCUMENTS,
    views::FAILING_MAPS,
    views::FAILING_BUILDS,
    views::FUNCTIONS,
    texts::TEXT_INDEXES,
    operation::REPLICATIONS,
    operation::WEAK_HASHES,
    operation::PLAIN_HTTP,
    operation::CORS,
    operation::DEV,
    operation::CERTIFICATES,
    operation::AUTO_PURGE,
    operation::BACKUP,
    operation::MAINTENANCE,
    cluster::NODES,
    cluster::SLOTS,
    cluster::MARGIN,
];

/// Times per `rate`, with one digit where that is few.
fn times(n: u64, of: u64) -> String {
    let ratio = n as f64 / of.max(1) as f64;
    match ratio < 10.0 {
        true => format!("{ratio:.1}"),
        false => format!("{ratio:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The manual's table.
    fn table() -> String {
        let mut table = String::from("| check | examines | reports |\n|---|---|---|\n");
        for check in CHECKS {
            let finds = (check.finds)();
            table.push_str(&format!(
                "| `{}` | {} | {finds} |\n",
                check.id, check.looks_at
            ));
        }
        table
    }

    #[test]
    fn the_manual_has_this_table() {
        let path = "../../docs/src/operations/doctor.md";
        let page = std::fs::read_to_string(path).unwrap();
        let table = table();
        assert!(
            page.contains(&table),
            "docs/src/operations/doctor.md should have:\n{table}"
        );
    }

    #[test]
    fn ids_are_told_apart_and_everything_is_said() {
        for (n, check) in CHECKS.iter().enumerate() {
            assert!(
                CHECKS[..n].iter().all(|other| other.id != check.id),
                "{}",
                check.id
            );
            for text in [check.title, check.looks_at, check.why, &(check.finds)()] {
                assert!(
                    !text.is_empty() && !text.contains('|'),
                    "{}: {text}",
                    check.id
                );
            }
        }
    }

    #[test]
    fn a_server_of_which_nothing_is_known_has_nothing_wrong() {
        for check in CHECKS {
            if let Ok(found) = check.run(&Facts::default()) {
                assert_eq!(found, [], "{}", check.id);
            }
        }
    }
}
